//! Due work that was found and has not been started yet. To look for more whenever a claim ends, or an event arrives
//! for a target that is busy, would cost more than the work itself.

use std::collections::VecDeque;
use std::time::Duration;

use oncegate_store::api::Due;

use crate::fair::KEPT_FREE;

/// For how long what was found is worked off before it is looked again: what came due meanwhile may have an earlier
/// place, and what is new may want a target that has room.
pub(crate) const FRESH: Duration = Duration::from_millis(50);

/// Who else wants places or work, while what was found is worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nobody.
    None,
    /// Another workspace may bring work whose turn is before that of most that was found.
    Workspaces,
    /// Another node may start what was found here.
    Nodes,
}

impl Others {
    /// How many claims may have been started of what was found once, before it is looked again.
    const fn starts(self) -> usize {
        match self {
            Self::None => usize::MAX,
            Self::Workspaces => KEPT_FREE,
            Self::Nodes => 0,
        }
    }

    /// How many times as much as there are places is looked for.
    pub(crate) const fn looks_ahead(self) -> usize {
        match self {
            Self::None => 4,
            Self::Workspaces | Self::Nodes => 1,
        }
    }
}

/// What was found, in the order of its turn.
#[derive(Debug, Default)]
pub(crate) struct Upcoming {
    found: VecDeque<Due>,
    /// How many of them were passed over since it was begun at the first.
    passed: usize,
    at: Duration,
    started: usize,
}

impl Upcoming {
    /// What was looked for just now takes the place of what was left.
    pub(crate) fn found(&mut self, due: Vec<Due>, now: Duration) {
        *self = Self { found: due.into(), at: now, ..Self::default() };
    }

    /// Begins at the first again.
    pub(crate) fn again(&mut self) {
        self.passed = 0;
    }

    /// Whether what is left may still be worked off. Of one look all may be started that there is room for at once.
    pub(crate) fn is_fresh(&self, now: Duration, others: Others) -> bool {
        !self.found.is_empty() && now.saturating_sub(self.at) < FRESH && self.started <= others.starts()
    }

    /// Nothing is left that could be started later.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The next one.
    pub(crate) fn next(&self) -> Option<&Due> {
        self.found.get(self.passed)
    }

    /// It stays, for another time.
    pub(crate) fn pass_over(&mut self) {
        self.passed += 1;
    }

    /// It is started.
    pub(crate) fn start(&mut self) {
        self.started += 1;
        self.forget();
    }

    /// It is none of ours for now.
    pub(crate) fn forget(&mut self) {
        self.found.remove(self.passed);
    }
}

#[cfg(test)]
mod tests {
    use oncegate_core::key::{AutomationName, ClaimId, ClaimRef, Workspace};

    use super::*;

    fn due(count: u8) -> Vec<Due> {
        let automation = AutomationName::try_from("a").unwrap();
        let id = |n| ClaimRef { workspace: Workspace(1), id: ClaimId([n; 16]) };
        (0..count).map(|n| Due { id: id(n), automation: automation.clone(), is_new: true }).collect()
    }

    fn first_byte(upcoming: &Upcoming) -> Option<u8> {
        upcoming.next().map(|due| due.id.id.0[0])
    }

    #[test]
    fn what_was_found_is_worked_off_until_it_is_old_or_others_may_have_more_urgent_work() {
        let ms = Duration::from_millis;
        for (others, started, after, is_fresh) in [
            (Others::None, 0, ms(49), true),
            (Others::None, 0, ms(50), false),
            (Others::None, 99, ms(0), true),
            (Others::None, 100, ms(0), false),
            (Others::Workspaces, 8, ms(0), true),
            (Others::Workspaces, 9, ms(0), false),
            (Others::Nodes, 0, ms(0), true),
            (Others::Nodes, 1, ms(0), false),
        ] {
            let mut upcoming = Upcoming::default();
            assert!(!upcoming.is_fresh(ms(0), others), "nothing was found yet");
            upcoming.found(due(100), ms(5_000));
            for n in 0..started {
                assert_eq!(first_byte(&upcoming), Some(n));
                upcoming.start();
            }
            assert_eq!(
                upcoming.is_fresh(ms(5_000) + after, others),
                is_fresh,
                "{others:?} {started} {after:?}"
            );
        }
    }

    #[test]
    fn what_is_passed_over_keeps_its_turn() {
        let mut upcoming = Upcoming::default();
        upcoming.found(due(4), Duration::ZERO);
        upcoming.pass_over();
        assert_eq!(first_byte(&upcoming), Some(1));
        upcoming.start();
        upcoming.forget();
        assert_eq!(first_byte(&upcoming), Some(3));
        upcoming.pass_over();
        assert_eq!(first_byte(&upcoming), None);
        upcoming.again();
        assert_eq!(first_byte(&upcoming), Some(0));
        upcoming.start();
        assert_eq!((first_byte(&upcoming), upcoming.is_empty()), (Some(3), false));
        upcoming.forget();
        assert!(upcoming.is_empty());
    }
}

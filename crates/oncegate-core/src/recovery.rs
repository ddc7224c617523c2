//! After a restore (DESIGN §7): what the backup says of each claim is old, and what has happened since is not known.
//! What was open is for a person to judge, what the backup cannot know waits, and no token from between fits.

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, ErrorCause, Parked, State};
use crate::decision::{Facts, Hold, Request};
use crate::finish::cut;
use crate::limits;
use crate::time::{Now, Timestamp};

/// What callers are told while the recovery lasts.
pub const HELD_NOTE: &str = "this store was restored from a backup, and nothing runs until a person has ended the recovery \
    (POST /v1/recovery/end, or `oncegate recovery end` while the gate is stopped)";

/// What callers are told afterwards about a key that came during the recovery.
pub const PARKED_NOTE: &str = "the store was restored from a backup that does not know this key, so it may have been done \
    before: look, then reset it (run now) or dismiss it";

/// The time that a restored store knows nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last moment that the backup knows of.
    pub backup_at: Timestamp,
    /// When it was restored.
    pub restored_at: Timestamp,
}

impl Gap {
    /// Whether an event of this date, of whose key nothing is known, may have been done in the gap: dated within it, or
    /// so shortly before the backup that its sender may have delivered it only afterwards.
    pub fn may_hide(&self, dated: Timestamp) -> bool {
        let from = self.backup_at.before(limits::SENDER_RETRIES_FOR);
        // The sender's clock is not ours.
        from <= dated && dated <= self.restored_at.after(limits::CLOCK_SLACK)
    }
}

/// The restores that a store went through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restores {
    /// Attempts begin with at least this generation: above every one that was given before the last restore.
    pub generation_floor: u32,
    /// Each restore's gap, oldest first, at most [`limits::RESTORES_REMEMBERED`].
    pub gaps: Vec<Gap>,
}

impl Restores {
    /// The same with one more restore.
    ///
    /// Generations count resets and takeovers, one by one, or begin at a date in seconds. The seconds of the restore
    /// are above all of them, and above those of an earlier restore of the same backup, which this one cannot know.
    #[must_use]
    pub fn with(mut self, gap: Gap) -> Self {
        let by_date = u32::try_from(gap.restored_at.as_secs()).unwrap_or(u32::MAX / 2);
        self.generation_floor = by_date.max(self.generation_floor.saturating_add(1));
        self.gaps.push(gap);
        let extra = self.gaps.len().saturating_sub(limits::RESTORES_REMEMBERED);
        self.gaps.drain(..extra);
        self
    }

    /// Whether an attempt of this generation was given since the last restore: only of such a one is it known what was
    /// asked and answered after it.
    pub fn know_of(&self, generation: u32) -> bool {
        generation >= self.generation_floor
    }

    /// Whether an event of this date, of whose key nothing is known, may have been done before a restore.
    pub fn make_doubtful(&self, dated: Timestamp) -> bool {
        self.gaps.iter().any(|gap| gap.may_hide(dated))
    }
}

/// Nothing that the restored store holds speaks of this effect as open, and no person has.
pub fn is_unknown(facts: &Facts) -> bool {
    facts.claim.as_ref().is_none_or(|claim| match claim.state {
        // Only one whose retention has ended comes this far.
        State::Done { .. } => true,
        State::None { .. } => claim.parked == Some(Parked::Restored),
        State::Processing(_) | State::Error { .. } => false,
    })
}

/// DESIGN §7: events that the backup cannot know are parked, those that come during the recovery and those that are
/// dated before the restore.
pub fn may_have_been_done(facts: &Facts, request: &Request) -> bool {
    match facts.hold {
        Some(Hold::Recovery) => is_unknown(facts),
        Some(Hold::Paused | Hold::Incident) | None => {
            facts.claim.is_none()
                && facts.pruned_done_at.is_none()
                && request.dated.is_some_and(|dated| facts.restores.make_doubtful(dated))
        }
    }
}

/// The claim as a restored store has it; `None` if it stays as it was in the backup.
///
/// Whatever was open may have been done since: waiting, at work, to be retried, or left to a person, who may have run
/// it. It becomes an error that nothing but a person, or the word of its own holder, takes out of it: its numbers stay,
/// so that a holder from before the backup can still say done. What is done or dismissed stays that.
pub fn restored(claim: &Claim, gap: Gap, now: Now) -> Option<Claim> {
    if claim.dismissed {
        return None;
    }
    let was = match &claim.state {
        // Marked after done is kept, because it is what makes a reset of it need the verified flag.
        State::Done { .. } | State::Error { cause: ErrorCause::MarkedAfterDone, .. } => return None,
        State::None { .. } => match claim.parked {
            Some(parked) => format!("parked ({})", parked.as_str()),
            None => "waiting to run".to_owned(),
        },
        State::Processing(_) => format!("processing, attempt {}", claim.attempt),
        State::Error { cause, note, .. } => format!("error ({}): {note}", cause.as_str()),
    };
    let note = cut(&format!(
        "restored from a backup of {}: outcome unknown; look whether it has happened since, then mark it done or reset \
         it. In the backup it was {was}",
        gap.backup_at
    ));
    let mut claim = claim.clone();
    claim.state = State::Error { at: now.wall, due: None, cause: ErrorCause::Restored, note };
    // So that no correction, e.g. of an import, takes it for untouched.
    claim.progress.unknown = true;
    claim.parked = None;
    Some(claim)
}

//! What may be sent to one target at this moment: its rate, its calls in flight, what it asked to wait, its breaker.
//! Pure: `now` is a monotonic clock's, and nothing here outlives the process.
//!
//! A claim whose call may not go is told how long to wait, and waits without anybody at work. It keeps its place in
//! the meantime: whoever comes later does not go before it, where the order is known.

mod breaker;
mod window;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::key::{ClaimId, ClaimRef, Workspace};
use crate::limits;

use breaker::{Breaker, Door};
pub use breaker::{BreakerRules, Change, Standing};
pub use window::Rate;
use window::Window;

/// What is declared for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRules {
    /// How many calls in how long a time, if that is limited.
    pub rate: Option<Rate>,
    /// Calls in flight at a time; at least 1.
    pub concurrency: usize,
    /// When nothing is sent because it is down.
    pub breaker: BreakerRules,
}

/// Why a call may not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its breaker is open.
    Down {
        /// Since when, on the monotonic clock.
        since: Duration,
        /// A call is being tried at this moment.
        trying: bool,
    },
    /// It asked to wait.
    Throttled,
    /// So many are in flight as may be.
    Busy,
    /// So many were sent as may be.
    Rate,
}

impl Why {
    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Down { .. } => "breaker",
            Self::Throttled => "throttled",
            Self::Busy => "concurrency",
            Self::Rate => "rate",
        }
    }
}

/// A call may not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long until it may be asked again.
    pub wait: Duration,
    /// Why.
    pub why: Why,
}

/// A call that may go; shown again when it is sent and when it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// How long a target asked to wait, and whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Who sent too much (RFC 6585 §4): a workspace has credentials of its own.
    Workspace(Duration),
    /// Everybody (RFC 9110 §15.6.4).
    Everybody(Duration),
}

/// What a call told of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Whether it is there.
    pub standing: Standing,
    /// Whether it asked to wait.
    pub asked: Option<Asked>,
}

impl Heard {
    /// Nothing.
    pub const NOTHING: Self = Self { standing: Standing::Untold, asked: None };
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    of: Workspace,
    /// When it was let through, and later when it was sent.
    at: Duration,
    on_the_wire: bool,
    is_probe: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Duration,
    wait: Duration,
    turn: Option<Duration>,
}

/// The calls to one target.
#[derive(Debug)]
pub struct Lane {
    rules: LaneRules,
    breaker: Breaker,
    window: Option<Window>,
    /// Until when whose calls wait because the target asked for it; `None` is everybody.
    throttled: HashMap<Option<Workspace>, Duration>,
    sent: HashMap<u64, Sent>,
    next: u64,
    waiting: HashMap<ClaimRef, Waiting>,
    /// Those who wait and were told to come: a place is kept for each.
    called: HashSet<ClaimRef>,
    /// How long calls took lately.
    pace: Option<Duration>,
    swept_at: Duration,
}

impl Lane {
    /// A target of which nothing is known.
    pub fn new(rules: LaneRules) -> Self {
        Self {
            rules,
            breaker: Breaker::new(),
            window: rules.rate.map(Window::new),
            throttled: HashMap::new(),
            sent: HashMap::new(),
            next: 0,
            waiting: HashMap::new(),
            called: HashSet::new(),
            pace: None,
            swept_at: Duration::ZERO,
        }
    }

    /// Whether nothing would be lost by forgetting it.
    pub fn is_idle(&self, now: Duration) -> bool {
        self.breaker.is_fresh()
            && self.window.as_ref().is_none_or(Window::is_empty)
            && self.throttled.values().all(|until| *until <= now)
            && self.sent.is_empty()
            && self.waiting.is_empty()
    }

    /// Whether calls to it are under way.
    pub fn has_calls(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether `who` waits for it.
    pub fn is_waited_for(&self, who: ClaimRef) -> bool {
        self.waiting.contains_key(&who)
    }

    /// Whether its breaker is open.
    pub fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether `who`, who waits, should be taken up: there is room for it, and it is kept until [`Lane::leave`]. Also
    /// when it has waited for [`limits::WAITS_UNSEEN_MAX`], so that what is over its SLA comes to light.
    pub fn call(&mut self, who: ClaimRef, now: Duration) -> bool {
        self.sweep(now);
        let Some(waiting) = self.waiting.get(&who) else { return true };
        if now >= waiting.since + waiting.wait + limits::WAITS_UNSEEN_MAX {
            return true;
        }
        let comes = self.shut(who, now).is_none();
        if comes {
            self.called.insert(who);
        }
        comes
    }

    /// Whoever was called has come, or will not.
    pub fn leave(&mut self, who: ClaimRef) {
        self.called.remove(&who);
    }

    /// `who` does not wait any more: it became a person's business.
    pub fn forget(&mut self, who: ClaimRef) {
        self.called.remove(&who);
        if let (Some(Waiting { turn: Some(turn), .. }), Some(window)) =
            (self.waiting.remove(&who), &mut self.window)
        {
            window.unbook(turn);
        }
    }

    /// Whether the call of `who` may go now.
    ///
    /// # Errors
    /// Not now: how long to wait, and why. It has its place.
    pub fn ask(&mut self, who: ClaimRef, now: Duration) -> Result<Ticket, Wait> {
        self.sweep(now);
        let shut = self.shut(who, now);
        let turn = self.waiting.get(&who).and_then(|waiting| waiting.turn);
        if let Some((wait, why)) = shut {
            let turn = match (&mut self.window, why, turn) {
                // It has not come yet.
                (_, Why::Rate, Some(turn)) if turn > now => Some(turn),
                (Some(window), why, turn) => {
                    turn.into_iter().for_each(|turn| window.unbook(turn));
                    (why == Why::Rate).then(|| window.book(now))
                }
                (None, _, _) => None,
            };
            let before = self.waiting.len() - usize::from(self.waiting.contains_key(&who));
            let wait = match (why, turn) {
                (_, Some(turn)) => turn.saturating_sub(now).max(MOMENT),
                (Why::Busy, None) => self.until_room(before, now),
                (Why::Down { .. } | Why::Throttled | Why::Rate, None) => wait + one_by_one(before),
            };
            self.called.remove(&who);
            self.waiting.insert(who, Waiting { since: now, wait, turn });
            return Err(Wait { wait, why });
        }
        self.forget(who);
        if let Some(window) = &mut self.window {
            window.let_through();
        }
        self.next += 1;
        let is_probe = self.breaker.pass();
        self.sent.insert(self.next, Sent { of: who.workspace, at: now, on_the_wire: false, is_probe });
        Ok(Ticket(self.next))
    }

    /// The call goes out.
    pub fn sending(&mut self, ticket: &Ticket, now: Duration) {
        if let Some(sent) = self.sent.get_mut(&ticket.0) {
            (sent.at, sent.on_the_wire) = (now, true);
            if let Some(window) = &mut self.window {
                window.sending(now);
            }
        }
    }

    /// The call ended, or never went.
    pub fn end(&mut self, ticket: &Ticket, heard: Heard, now: Duration) -> Option<Change> {
        let sent = self.sent.remove(&ticket.0)?;
        if let (Some(window), false) = (&mut self.window, sent.on_the_wire) {
            window.not_sent();
        }
        if heard.standing != Standing::Untold {
            let took = now.saturating_sub(sent.at);
            self.pace = Some(self.pace.map_or(took, |pace| (pace * 3 + took) / 4));
        }
        if let Some(asked) = heard.asked {
            let (whose, wait) = match asked {
                Asked::Workspace(wait) => (Some(sent.of), wait),
                Asked::Everybody(wait) => (None, wait),
            };
            let until = now + wait.min(limits::THROTTLE_BELIEVED_MAX);
            let known = self.throttled.entry(whose).or_default();
            *known = until.max(*known);
        }
        self.breaker.end(sent.is_probe, heard.standing, &self.rules.breaker, now)
    }

    /// Whether it is worth to take up what has not been tried: it may go, or not as many wait as may be in flight.
    pub fn takes_new(&mut self, of: Workspace, now: Duration) -> bool {
        self.sweep(now);
        // No claim has this id; to the lane it is one that comes for the first time.
        let nobody = ClaimRef { workspace: of, id: ClaimId([0; 16]) };
        self.waiting.len() < self.rules.concurrency || self.shut(nobody, now).is_none()
    }

    /// How many calls it has let go so far.
    pub fn passed(&self) -> u64 {
        self.next
    }

    /// Somebody waited for room and there was none: whoever comes next need not try that.
    pub fn in_vain(&mut self, waited: Duration) {
        let slots = u32::try_from(self.rules.concurrency).unwrap_or(u32::MAX);
        let pace = waited.saturating_mul(2).saturating_mul(slots);
        self.pace = self.pace.max(Some(pace));
    }

    /// Why a call of `who` may not go now, and how long that surely lasts.
    fn shut(&self, who: ClaimRef, now: Duration) -> Option<(Duration, Why)> {
        let until = [None, Some(who.workspace)].iter().filter_map(|of| self.throttled.get(of)).max();
        if let Some(until) = until.filter(|until| **until > now) {
            return Some((*until - now, Why::Throttled));
        }
        let others = self.called.len() - usize::from(self.called.contains(&who));
        match self.breaker.door(now) {
            Door::Shut { since, wait } => return Some((wait, Why::Down { since, trying: false })),
            Door::Trying { since } => return Some((MOMENT, Why::Down { since, trying: true })),
            Door::Probe { since } if others > 0 => {
                return Some((MOMENT, Why::Down { since, trying: true }));
            }
            Door::Probe { .. } | Door::Free => {}
        }
        if self.sent.len() + others >= self.rules.concurrency {
            return Some((MOMENT, Why::Busy));
        }
        let window = self.window.as_ref()?;
        let turn = match self.waiting.get(&who).and_then(|waiting| waiting.turn) {
            Some(turn) => turn,
            None => window.free_at(now),
        };
        (turn > now || !window.has_room(others)).then_some((MOMENT, Why::Rate))
    }

    /// How long until there may be room for one behind so many others, as far as can be told: half of what the calls
    /// of late say, because whoever comes too early costs little and an idle target costs time.
    fn until_room(&self, before: usize, now: Duration) -> Duration {
        let oldest = self.sent.values().map(|sent| now.saturating_sub(sent.at)).max();
        let pace = self.pace.max(oldest).unwrap_or_default();
        let rounds = (before + 1) as f64 / self.rules.concurrency as f64 / 2.0;
        let wait = Duration::try_from_secs_f64(pace.as_secs_f64() * rounds).unwrap_or(limits::ROOM_WAIT_MAX);
        wait.clamp(MOMENT, limits::ROOM_WAIT_MAX)
    }

    /// Forgets who did not come back, such as a claim that a person reset.
    fn sweep(&mut self, now: Duration) {
        if let Some(window) = &mut self.window {
            window.look_at(now);
        }
        if now < self.swept_at + SWEEP {
            return;
        }
        self.swept_at = now;
        self.throttled.retain(|_, until| *until > now);
        self.waiting.retain(|_, waiting| now < waiting.since + waiting.wait + 2 * limits::WAITS_UNSEEN_MAX);
    }
}

/// The shortest wait.
const MOMENT: Duration = Duration::from_millis(10);
/// How often it is looked who did not come back.
const SWEEP: Duration = Duration::from_secs(60);

/// Those who wait for one moment come one after another, not all at once.
fn one_by_one(before: usize) -> Duration {
    const APART: Duration = Duration::from_millis(20);
    APART.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX)).min(limits::ROOM_WAIT_MAX)
}

#[cfg(test)]
mod tests;

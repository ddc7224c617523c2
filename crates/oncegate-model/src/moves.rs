//! The things that can happen, each one move.

use std::fmt;

use oncegate_core::claim::{Claim, State};
use oncegate_store::api::StepOutcome;

use crate::world::{Caller, World};

/// What a holder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Done.
    Done,
    /// An error that may be tried again.
    Retryable,
    /// An error for good.
    Final,
    /// Nobody knows.
    Unknown,
    /// Still at work.
    Heartbeat,
    /// The target asks to wait.
    Defer,
    /// The gate stops.
    HandBack,
    /// A step asks a person.
    Review,
    /// The target took the work.
    HandOver,
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Reset.
    Reset {
        /// And run.
        now: bool,
        /// The holder is named.
        named: bool,
        /// It was checked that it must happen again.
        verified: bool,
    },
    /// To error.
    MarkError,
    /// It did happen.
    MarkDone,
    /// It shall not.
    Dismiss,
    /// Yes.
    Approve,
    /// No.
    Decline,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A caller asks.
    Claim {
        /// Who.
        caller: usize,
        /// For which key.
        key: usize,
        /// With the other payload, or without payload and record, as the scope says.
        other: bool,
        /// The answer gets lost.
        lost: bool,
    },
    /// A caller shows its token.
    Say(usize, Word),
    /// A caller's run ends, whatever it holds.
    End(usize),
    /// A caller loses its token and will ask again as the same run.
    Forget(usize),
    /// An event comes.
    Event {
        /// Of which key.
        key: usize,
        /// With the other payload, or without payload and record, as the scope says.
        other: bool,
    },
    /// A person offers another payload.
    Correct(usize),
    /// The runner takes a key that is due.
    Take(usize),
    /// The runner's step is sent.
    Send(usize),
    /// It is answered.
    Answer(usize, StepOutcome),
    /// The runner says how it went.
    RunnerSays(usize, Word),
    /// The runner's target took the work; this caller will call back.
    HandOver(usize, usize),
    /// The process dies and starts again.
    Restart {
        /// Time passes meanwhile.
        downtime: bool,
    },
    /// The other node's turn.
    Turn,
    /// A person acts.
    Act(usize, Deed),
    /// The automation is paused or resumed.
    Pause(bool),
    /// One unit of time.
    Tick,
    /// Until all that is remembered now may be forgotten.
    LongWait,
    /// A key is forgotten.
    Reap(usize),
    /// The wall clock is set back.
    SetBack,
    /// The wall clock leaps ahead by days.
    Leap,
    /// The policy is edited.
    Edit,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = |other: &bool| if *other { " with another payload, or none" } else { "" };
        match self {
            Self::Claim { caller, key, other: payload, lost } => {
                let lost = if *lost { "; the answer gets lost" } else { "" };
                write!(f, "caller {caller} claims key {key}{}{lost}", other(payload))
            }
            Self::Say(caller, word) => write!(f, "caller {caller} says {word:?}"),
            Self::End(caller) => write!(f, "caller {caller}'s run ends without a word"),
            Self::Forget(caller) => write!(f, "caller {caller} loses its token"),
            Self::Event { key, other: payload } => write!(f, "an event of key {key} comes{}", other(payload)),
            Self::Correct(key) => write!(f, "a person offers another payload for key {key}"),
            Self::Take(key) => write!(f, "the runner takes key {key}"),
            Self::Send(key) => write!(f, "the runner sends its step of key {key}"),
            Self::Answer(key, outcome) => write!(f, "the step of key {key} is answered: {outcome:?}"),
            Self::RunnerSays(key, word) => write!(f, "the runner says {word:?} about key {key}"),
            Self::HandOver(key, caller) => write!(f, "the runner hands key {key} over to caller {caller}"),
            Self::Restart { downtime: true } => write!(f, "the gate dies, and starts again after a while"),
            Self::Restart { downtime: false } => write!(f, "the gate dies, and starts again at once"),
            Self::Turn => write!(f, "what follows happens on the other node"),
            Self::Act(key, deed) => write!(f, "a person does {deed:?} to key {key}"),
            Self::Pause(true) => write!(f, "the automation is paused"),
            Self::Pause(false) => write!(f, "the automation is resumed"),
            Self::Tick => write!(f, "5 minutes pass"),
            Self::LongWait => write!(f, "2 days pass"),
            Self::Reap(key) => write!(f, "what is past its retention is forgotten (key {key})"),
            Self::SetBack => write!(f, "the wall clock is set back by 10 minutes"),
            Self::Leap => write!(f, "the wall clock leaps ahead by 2 days"),
            Self::Edit => write!(f, "the policy is edited"),
        }
    }
}

impl Move {
    /// Counts towards [`Bounds::faults`](crate::world::Bounds).
    pub(crate) fn is_fault(self, world: &World) -> bool {
        match self {
            // A run that ends with nothing in its hands, or after its last word, is none.
            Self::End(caller) => match world.callers[caller] {
                Caller::Lost { .. } => true,
                Caller::Holds { key, held, .. } => {
                    let at_work =
                        |c: &Claim| matches!(c.state, State::Processing(_)) && c.fence() == held.fence;
                    world.claim(key).is_some_and(at_work)
                }
                Caller::Idle => false,
            },
            Self::Claim { lost, .. } => lost,
            // What is known already is no disturbance.
            Self::Event { key, .. } => world.claim(key).is_none_or(|claim| !claim.flow),
            Self::Say(_, word) | Self::RunnerSays(_, word) => word != Word::Done,
            Self::Forget(_)
            | Self::Restart { .. }
            | Self::Pause(true)
            | Self::Act(..)
            | Self::SetBack
            | Self::Leap => true,
            _ => false,
        }
    }
}

//! What is promised, and the little that has to be known of each key to judge it. Kept apart from the rows: what is
//! judged must not be its own witness.

use std::fmt;

use oncegate_core::token::Fence;

/// What must hold in every state and across every move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Never two valid tokens for one claim.
    OneToken,
    /// Never two live claims on one record.
    OneClaimPerRecord,
    /// Never a run after done without a person.
    DoneOnce,
    /// Never more than 1 + retries + 1 stale retry + 3 resumes without a finished step, between resets.
    BoundedRuns,
    /// A finish call with the current token is never refused.
    CurrentTokenHolds,
    /// One with an old token never changes anything, and is listed.
    OldTokenIsVoid,
    /// Every key that was stopped and is not done stands in an inbox list, is at work, or has a due time.
    NothingIsLost,
    /// Nobody alive is cut off, unless a person names him.
    LiveIsLeftAlone,
    /// Nothing starts before it is due, nor while it is paused.
    NotYet,
    /// What is a person's to decide is decided by nobody else.
    PersonsWord,
    /// A key runs with one payload.
    OnePayload,
    /// A record is not run for the first time more often than the loop limit allows.
    NoLoop,
    /// What oncegate's own steps have begun is theirs to go on with.
    OwnSteps,
    /// Events of one record run in order of arrival.
    InOrder,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is broken: {}", self.promise, self.how)
    }
}

impl Promise {
    /// Checks it.
    ///
    /// # Errors
    /// It is broken.
    pub fn holds(self, holds: bool, how: impl FnOnce() -> String) -> Result<(), Broken> {
        match holds {
            true => Ok(()),
            false => Err(Broken { promise: self, how: how() }),
        }
    }
}

/// What really happened to one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ghost {
    /// The last grant, while nothing has voided it.
    pub current: Option<Grant>,
    /// Grants given so far.
    pub grants: u32,
    /// The effect happened, as far as anybody said.
    pub happened: bool,
    /// Its retention really ended since.
    pub forgettable: bool,
    /// Runs since the last reset, by what they were given for.
    pub firsts: u32,
    /// Retries since.
    pub retries: u32,
    /// Stale retries since.
    pub stale_retries: u32,
    /// Resumes since the last finished step; a wait that a target asked for is none.
    pub resumes: u32,
    /// Somebody asked for it.
    pub asked: bool,
    /// A person decided that it shall not happen.
    pub dismissed: bool,
    /// When it was first heard of, numbered over both keys.
    pub arrived: u32,
    /// A step of it asked a person, who has not answered.
    pub asks: bool,
    /// It was stopped as a loop, and neither a person nor another caller has spoken since.
    pub looped: bool,
}

/// A token given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its number.
    pub number: u32,
    /// The run that got it; `None` for the runner, or whoever it was handed over to.
    pub run: Option<u32>,
    /// What it says.
    pub fence: Fence,
    /// How often it was given out again.
    pub repeats: u32,
    /// Its holder has used it.
    pub heard: bool,
}

impl Ghost {
    /// A person, or the end of retention, grants fresh retries.
    pub fn start_over(&mut self) {
        (self.firsts, self.retries, self.stale_retries, self.resumes) = (0, 0, 0, 0);
        self.current = None;
        (self.looped, self.asks) = (false, false);
    }
}

//! What [`finish`](crate::finish::finish) is given and what it gives: what a holder says, and what it is told.

use std::time::Duration;

use crate::claim::Claim;
use crate::time::Timestamp;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The effect happened.
    Done,
    /// The attempt failed.
    Error {
        /// Why; only retryable failures get a due time.
        failure: Failed,
        /// In words, for the error list.
        note: String,
    },
    /// Still at work.
    Heartbeat,
    /// The target asked to wait; costs no retry, and turns into an error beyond the SLA.
    Defer {
        /// When to go on.
        until: Timestamp,
        /// In words.
        note: String,
    },
    /// A step asks a person: the lease is suspended until somebody answers.
    Review {
        /// What is asked.
        note: String,
    },
    /// The gate stops; due at once, no retry spent.
    HandBack,
    /// The target took the work and will call back with this token: from now on it holds the attempt.
    HandOver,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Surely not done, and another try may succeed; not before the time the other side asked for.
    Retryable {
        /// `Retry-After`, if given.
        retry_after: Option<Duration>,
    },
    /// Surely not done: somebody else holds what it would change, for a moment. Tried again sooner than other failures.
    Locked,
    /// Surely not done, and trying again would not help.
    Final,
    /// Sent, and nobody knows; never retried by itself.
    Unknown,
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Written.
    Accepted,
    /// It was so already; the first result is kept.
    Unchanged,
    /// 409: an effect that is done cannot be made an error, nor kept alive.
    AlreadyDone,
    /// 409: a heartbeat for an attempt that ended in error.
    NotProcessing,
    /// 409: a later attempt, a takeover or a reset has voided this token. Listed as late.
    LostClaim,
}

/// The answer with the claim's new row, if it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What the caller is told.
    pub answer: Answer,
    /// The new row.
    pub claim: Option<Claim>,
}

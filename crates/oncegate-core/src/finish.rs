//! What the holder of an attempt may say about it: done, error, heartbeat, and what only our own runner says.
//! Only the current token counts; whoever shows an older one is refused and listed as late.

use std::time::Duration;

use crate::claim::{Claim, ErrorCause, Holder, Lease, Nudge, State};
use crate::decide::in_words;
use crate::limits;
use crate::policy::{Jitter, Policy};
use crate::time::{Now, Timestamp, millis};
use crate::token::Fence;

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

/// Decides a finish call. Works the same while paused and while new claims are refused.
pub fn finish(
    claim: &Claim,
    fence: Fence,
    call: &Call,
    policy: &Policy,
    now: Now,
    jitter: Jitter,
) -> Finished {
    let unchanged = |answer| Finished { answer, claim: None };
    if fence != claim.fence() {
        // Once is enough to list it; the first time is the one to look for.
        let late = claim.late_at.is_none().then(|| Claim { late_at: Some(now.wall), ..claim.clone() });
        return Finished { answer: Answer::LostClaim, claim: late };
    }
    match (&claim.state, call) {
        (State::Done { .. }, call) => {
            let answer = if *call == Call::Done { Answer::Unchanged } else { Answer::AlreadyDone };
            Finished { answer, claim: heard_from(claim) }
        }
        // Proves the effect, whatever was believed before.
        (State::Processing(_) | State::Error { .. }, Call::Done) => {
            let mut claim = claim.clone();
            claim.state = done(policy, now);
            claim.parked = None;
            claim.nudge = None;
            Finished { answer: Answer::Accepted, claim: Some(claim) }
        }
        (State::Error { .. }, Call::Heartbeat) => unchanged(Answer::NotProcessing),
        (State::Error { .. }, Call::Error { .. } | Call::Defer { .. } | Call::HandBack | Call::HandOver) => {
            unchanged(Answer::Unchanged)
        }
        (State::Processing(lease), call) => {
            let mut claim =
                Claim { state: next_state(claim, lease, call, policy, now, jitter), ..claim.clone() };
            claim.nudge = None;
            // The runner comes back by itself; a caller's tool has to be called.
            if let State::Error { due: Some(due), .. } = claim.state
                && policy.retrigger
                && !claim.flow
            {
                claim.nudge = Some(Nudge { due, unanswered: 0 });
            }
            Finished { answer: Answer::Accepted, claim: Some(claim) }
        }
        // A reset raises the generation, so a token that still fits a `none` was never given out.
        (State::None { .. }, _) => unchanged(Answer::LostClaim),
    }
}

/// Done now, and remembered.
pub(crate) fn done(policy: &Policy, now: Now) -> State {
    State::Done { at: now.wall, retain_until: now.wall.after(policy.retention()), at_claim: None }
}

/// Whoever shows the token has the answer of its claim: a repeat of that claim is no lost one any more.
fn heard_from(claim: &Claim) -> Option<Claim> {
    let State::Done { at, retain_until, at_claim: Some(_) } = claim.state else { return None };
    Some(Claim { state: State::Done { at, retain_until, at_claim: None }, ..claim.clone() })
}

fn next_state(claim: &Claim, lease: &Lease, call: &Call, policy: &Policy, now: Now, jitter: Jitter) -> State {
    let error = |due, cause, note: &str| State::Error { at: now.wall, due, cause, note: cut(note) };
    match call {
        Call::Done => done(policy, now),
        Call::Error { failure: Failed::Final, note } => error(None, cause(claim, None), note),
        Call::Error { failure: Failed::Unknown, note } => error(None, ErrorCause::OutcomeUnknown, note),
        Call::Error { failure: Failed::Retryable { retry_after }, note } => {
            if let Some(wait) = too_long(claim, retry_after.map(|d| now.wall.after(d)), policy, now) {
                return error(None, ErrorCause::AskedToWait, &format!("{wait} ({note})"));
            }
            let due =
                policy.retries.delay(claim.retries_used, *retry_after, jitter).map(|d| now.wall.after(d));
            error(due, cause(claim, due), note)
        }
        Call::Heartbeat => {
            let renewed = now.lease.max(lease.renewed);
            State::Processing(Lease { renewed, heard_from: true, ..lease.clone() })
        }
        Call::Defer { until, note } => match too_long(claim, Some(*until), policy, now) {
            Some(wait) => error(None, ErrorCause::AskedToWait, &format!("{wait} ({note})")),
            None => State::Processing(Lease {
                renewed: now.lease.after(Duration::from_millis(
                    u64::try_from(millis(until.since(now.wall))).unwrap_or_default(),
                )),
                deferred_until: Some(*until),
                heard_from: true,
                ..lease.clone()
            }),
        },
        Call::HandOver => State::Processing(Lease {
            holder: Holder::Caller { run_id: None },
            renewed: now.lease.max(lease.renewed),
            deferred_until: None,
            ..lease.clone()
        }),
        Call::HandBack => error(Some(now.wall), ErrorCause::Shutdown, "shutdown: handed back, due at once"),
    }
}

/// A last failure after a call that nobody can tell the outcome of is no failure: something may have happened.
fn cause(claim: &Claim, due: Option<Timestamp>) -> ErrorCause {
    match due.is_none() && claim.progress.unknown {
        true => ErrorCause::OutcomeUnknown,
        false => ErrorCause::Failed,
    }
}

/// A wait beyond the SLA is not waited for by a machine.
fn too_long(claim: &Claim, until: Option<Timestamp>, policy: &Policy, now: Now) -> Option<String> {
    let until = until?;
    if until <= claim.open_since.after(policy.sla) {
        return None;
    }
    let (wait, sla) = (in_words(until.since(now.wall)), in_words(policy.sla));
    Some(format!("asked to wait {wait}, beyond the SLA of {sla}"))
}

/// Cuts a machine's note to its limit, at a character border.
pub fn cut(note: &str) -> String {
    if note.len() <= limits::NOTE_BYTES_MAX {
        return note.to_owned();
    }
    let mut end = limits::NOTE_BYTES_MAX - '…'.len_utf8();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &note[..end])
}

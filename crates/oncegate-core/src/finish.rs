//! What the holder of an attempt may say about it: done, error, heartbeat, and what only our own runner says.
//! Only the current token counts; whoever shows an older one is refused and listed as late.

use std::time::Duration;

use crate::claim::{Claim, ErrorCause, Holder, Lease, Nudge, Parked, State};
use crate::limits;
use crate::policy::{Jitter, Policy, in_words};
use crate::time::{LeaseInstant, Now, Timestamp, millis};
use crate::token::Fence;

pub use crate::call::*;

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
        (State::Error { .. }, _) => unchanged(Answer::Unchanged),
        (State::Processing(lease), call) => {
            let state = next_state(claim, lease, call, policy, now, jitter);
            // Whoever was stopped meanwhile for a passing reason need not come back: somebody is at work.
            let parked = match call {
                // A question stays one: whoever was handed the token before may still show it.
                Call::Heartbeat => claim.parked.filter(|parked| *parked == Parked::Review),
                Call::Review { .. } => Some(Parked::Review),
                _ => claim.parked,
            };
            let nudge = called_back(claim, &state, policy);
            Finished {
                answer: Answer::Accepted,
                claim: Some(Claim { state, parked, nudge, ..claim.clone() }),
            }
        }
        // A reset raises the generation, so a token that still fits a `none` was never given out.
        (State::None { .. }, _) => unchanged(Answer::LostClaim),
    }
}

/// The runner comes back to what failed by itself; the tool of a caller has to be called.
fn called_back(claim: &Claim, state: &State, policy: &Policy) -> Option<Nudge> {
    match state {
        State::Error { due: Some(due), .. } if policy.retrigger && !claim.flow => {
            Some(Nudge { due: *due, unanswered: 0 })
        }
        _ => None,
    }
}

/// The state of what is known to have happened now, remembered for as long as the policy says.
pub fn done(policy: &Policy, now: Now) -> State {
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
        Call::Error { failure: Failed::Locked, note } => {
            let due = policy.retries.delay_of_lock(claim.retries_used, jitter).map(|d| now.wall.after(d));
            error(due, cause(claim, due), note)
        }
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
        // However long that takes: the digest tells whom it is late for.
        Call::Review { .. } => State::Processing(Lease {
            renewed: LeaseInstant(Timestamp::NEVER.as_millis()),
            deferred_until: Some(Timestamp::NEVER),
            heard_from: true,
            ..lease.clone()
        }),
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

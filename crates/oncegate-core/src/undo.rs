//! Taking back what a person did to many claims: each is given back what it was, as far as that can be given back.

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, ErrorCause, Nudge, Parked, Progress, State};
use crate::finish::cut;
use crate::time::{Now, Timestamp};

/// What a claim was before an act; kept until the act can no longer be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    stood: Stood,
    parked: Option<Parked>,
    /// When the tool was to be called back, and how often it was in vain.
    nudge: Option<(Timestamp, u32)>,
    dismissed: bool,
    mismatch_at: Option<Timestamp>,
    late_at: Option<Timestamp>,
    retries_used: u32,
    stale_retries_used: u32,
    resumes_used: u32,
    steps_since: u32,
    key_generation: u32,
    step_succeeded: bool,
    step_unknown: bool,
    open_since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stood {
    None { due: Option<Timestamp> },
    Processing { since: Timestamp },
    Done { at: Timestamp, retain_until: Timestamp },
    Error { at: Timestamp, due: Option<Timestamp>, cause: ErrorCause, note: String },
}

impl Before {
    /// Whether a claim that is given this back would be started again without anybody asking for it.
    pub fn comes_due(&self) -> bool {
        let due = match &self.stood {
            Stood::None { due } | Stood::Error { due, .. } => due.is_some(),
            Stood::Processing { .. } | Stood::Done { .. } => false,
        };
        due || self.nudge.is_some()
    }

    /// Of a claim that is about to be acted on.
    pub fn of(claim: &Claim) -> Self {
        Self {
            stood: match &claim.state {
                State::None { due } => Stood::None { due: *due },
                State::Processing(lease) => Stood::Processing { since: lease.started_at },
                State::Done { at, retain_until, .. } => Stood::Done { at: *at, retain_until: *retain_until },
                State::Error { at, due, cause, note } => {
                    Stood::Error { at: *at, due: *due, cause: *cause, note: note.clone() }
                }
            },
            parked: claim.parked,
            nudge: claim.nudge.as_ref().map(|n| (n.due, n.unanswered)),
            dismissed: claim.dismissed,
            mismatch_at: claim.mismatch_at,
            late_at: claim.late_at,
            retries_used: claim.retries_used,
            stale_retries_used: claim.stale_retries_used,
            resumes_used: claim.resumes_used,
            steps_since: claim.steps_since,
            key_generation: claim.key_generation,
            step_succeeded: claim.progress.succeeded,
            step_unknown: claim.progress.unknown,
            open_since: claim.open_since,
        }
    }
}

/// Gives a claim that nobody has touched since the act what it had before. `None`: the act left the claim as it was, so
/// whoever holds it goes on holding it.
///
/// Two things do not come back. Numbers never fall, so every token stays void. And an attempt that the act cut off
/// cannot go on, because its holder was told that it lost the claim: it becomes an error for a person.
pub fn undo(claim: &Claim, before: &Before, now: Now) -> Option<Claim> {
    if Before::of(claim) == *before {
        return None;
    }
    let state = match &before.stood {
        Stood::None { due } => State::None { due: *due },
        // Whoever claimed it and has not heard of it has a token that is void by now.
        Stood::Done { at, retain_until } => {
            State::Done { at: *at, retain_until: *retain_until, at_claim: None }
        }
        Stood::Error { at, due, cause, note } => {
            State::Error { at: *at, due: *due, cause: *cause, note: note.clone() }
        }
        // Nobody was at work on it: it asks once more.
        Stood::Processing { .. } if before.parked == Some(Parked::Review) => {
            State::None { due: Some(now.wall) }
        }
        Stood::Processing { since } => State::Error {
            at: now.wall,
            due: None,
            cause: ErrorCause::Stale,
            note: cut(&format!(
                "an act on it was undone; it had been processing since {since}, and its holder has lost it"
            )),
        },
    };
    Some(Claim {
        state,
        generation: claim.generation + 1,
        parked: before.parked.filter(|parked| *parked != Parked::Review),
        nudge: before.nudge.map(|(due, unanswered)| Nudge { due, unanswered }),
        dismissed: before.dismissed,
        mismatch_at: before.mismatch_at,
        late_at: before.late_at,
        retries_used: before.retries_used,
        stale_retries_used: before.stale_retries_used,
        resumes_used: before.resumes_used,
        steps_since: before.steps_since,
        key_generation: before.key_generation,
        progress: Progress { succeeded: before.step_succeeded, unknown: before.step_unknown },
        open_since: before.open_since,
        ..claim.clone()
    })
}

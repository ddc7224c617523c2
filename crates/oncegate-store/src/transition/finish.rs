//! What the holder of an attempt says about it: done, error, heartbeat and the like.

use oncegate_core::claim::{Claim, State};
use oncegate_core::finish::{Answer, Call, Finished};
use oncegate_core::policy::Policy;
use oncegate_core::time::Now;

use super::{Line, Rules};
use crate::api::FinishCall;

/// What is written for it.
#[derive(Clone, Debug)]
pub struct Writes<'a> {
    /// What the caller is told.
    pub answer: Answer,
    /// The claim's new row, if it changes.
    pub claim: Option<Claim>,
    /// The claim's history.
    pub line: Option<Line<'a>>,
    /// The line is one of a caller that no longer holds the claim: only the first of those are written, so that a
    /// loop cannot fill the disk.
    pub late: bool,
    /// A caller of this automation does call done.
    pub ends_stale_streak: bool,
}

/// Decides a finish call on a claim that exists.
pub fn finish<'a>(
    rules: &Rules,
    before: &Claim,
    call: &'a FinishCall,
    policy: &Policy,
    now: Now,
) -> Writes<'a> {
    let Finished { answer, claim } = (rules.finish)(before, call.fence, &call.call, policy, now, call.jitter);
    let accepted = answer == Answer::Accepted;
    let line = match answer {
        Answer::LostClaim => Some(late(call)),
        // A heartbeat every minute is no event in the life of a claim; the lease shows it.
        Answer::Accepted if call.call == Call::Heartbeat => None,
        Answer::Accepted => Some(told(call, claim.as_ref())),
        Answer::Unchanged | Answer::AlreadyDone | Answer::NotProcessing => None,
    };
    Writes {
        late: answer == Answer::LostClaim,
        ends_stale_streak: accepted && call.call == Call::Done,
        answer,
        claim,
        line,
    }
}

fn word(call: &Call) -> &'static str {
    match call {
        Call::Done => "done",
        Call::Error { .. } => "error",
        Call::Heartbeat => "heartbeat",
        Call::Defer { .. } => "defer",
        Call::Review { .. } => "review",
        Call::HandBack => "hand_back",
        Call::HandOver => "hand_over",
    }
}

fn late(call: &FinishCall) -> Line<'static> {
    let (said, attempt) = (word(&call.call), call.fence.attempt);
    let note = format!(
        "{said} with the token of attempt {attempt}, which no longer holds: finished late, check for a double effect"
    );
    Line { kind: "late", reason: Some(said), attempt, note: Some(note.into()) }
}

fn told<'a>(call: &'a FinishCall, after: Option<&Claim>) -> Line<'a> {
    let note = match &call.call {
        Call::Error { note, .. } | Call::Defer { note, .. } | Call::Review { note } => Some(note.into()),
        Call::Done | Call::Heartbeat | Call::HandBack | Call::HandOver => None,
    };
    let reason = match after.map(|c| &c.state) {
        Some(State::Error { due: Some(_), .. }) => Some("retry_due"),
        Some(State::Error { due: None, cause, .. }) => Some(cause.as_str()),
        _ => None,
    };
    Line { kind: word(&call.call), reason, attempt: call.fence.attempt, note }
}

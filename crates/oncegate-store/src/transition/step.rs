//! What the calls of a step leave with their claim.

use oncegate_core::claim::{Claim, State};
use oncegate_core::time::Now;
use oncegate_core::token::Fence;

use super::Line;
use crate::api::{StepEnd, StepOutcome};

/// Whether an attempt may still send: its token is the claim's, and the claim is `processing`.
pub fn holds(claim: &Claim, fence: Fence) -> bool {
    claim.fence() == fence && matches!(claim.state, State::Processing(_))
}

/// The row with which an attempt sends a call, `None` if it may not. Its lease begins anew: however little was left of
/// it, nobody else is given the claim until the sender has been silent for a whole TTL.
pub fn begun(before: &Claim, fence: Fence, now: Now) -> Option<Claim> {
    let mut claim = before.clone();
    match &mut claim.state {
        State::Processing(lease) if before.fence() == fence => lease.renewed = lease.renewed.max(now.lease),
        _ => return None,
    }
    Some(claim)
}

/// Whether it has to be looked up if the effect of some step is unknown, after this outcome was written.
pub fn asks_for_unknown(claim: &Claim, outcome: StepOutcome) -> bool {
    outcome != StepOutcome::Unknown && claim.progress.unknown
}

/// What is written for an outcome that was not known before.
#[derive(Clone, Debug)]
pub struct Writes {
    /// The claim's new row, if it changes.
    pub claim: Option<Claim>,
    /// A line of somebody who no longer holds the claim; see [`super::finish::Writes::late`].
    pub late: Option<Line<'static>>,
}

/// What was learnt about a sent call: it counts whoever holds the claim by now. `some_unknown` is the answer to
/// [`asks_for_unknown`], `false` if that did not ask.
pub fn ended(before: &Claim, end: &StepEnd, some_unknown: bool, now: Now) -> Writes {
    let mut claim = before.clone();
    if end.outcome == StepOutcome::Succeeded {
        claim.progress.succeeded = true;
        claim.resumes_used = 0;
    }
    claim.progress.unknown = end.outcome == StepOutcome::Unknown || some_unknown;
    let mut late = None;
    if holds(&claim, end.fence) {
        // Somebody at work who hears back is alive.
        if let State::Processing(lease) = &mut claim.state {
            lease.renewed = lease.renewed.max(now.lease);
        }
    } else if end.fence != claim.fence() && end.outcome != StepOutcome::Failed {
        claim.late_at = claim.late_at.or(Some(now.wall));
        let attempt = end.fence.attempt;
        let note = format!("a step of attempt {attempt} was answered after the claim was lost");
        late = Some(Line { kind: "late", reason: Some("step"), attempt, note: Some(note.into()) });
    }
    Writes { claim: (claim != *before).then_some(claim), late }
}

//! When the tool of a stopped caller is called back (DESIGN §3, `retrigger`). The call is only a nudge: the tool claims
//! again, and the gate decides; so one too many is harmless. It must not loop, and it must not be forgotten.

use crate::claim::{Claim, Holder, Nudge, Parked};
use crate::decide::{Decision, Facts, Request, RunReason, Start, StopReason, decide};
use crate::limits;
use crate::policy::Policy;
use crate::time::Now;

/// What to do about a claim whose tool is to be called back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write this, then call the hook: a claim would run for this reason.
    Send(Claim, RunReason),
    /// It would be stopped for a reason that passes; look again soon.
    Wait,
    /// Write this: the hook was called often enough, or there is none any more. A person has to replay the run.
    GiveUp(Claim, &'static str),
    /// Write this, if anything: it waits for nobody any more, or for a person.
    Over(Option<Claim>),
}

const UNANSWERED: &str = "the retrigger hook was called three times and nobody claimed: look whether it works, then run \
     now, or replay the run by hand";
const NO_HOOK: &str = "the automation declares no `retrigger` hook any more: replay the run by hand";

/// Decides whether the tool is called now.
pub fn nudge(facts: &Facts, policy: &Policy, now: Now) -> Verdict {
    let Some(claim) = &facts.claim else { return Verdict::Over(None) };
    let Some(nudge) = claim.nudge else { return Verdict::Over(None) };
    let by_hand = || Claim { nudge: None, parked: Some(Parked::NeedsReplay), ..claim.clone() };
    if !policy.retrigger {
        return Verdict::GiveUp(by_hand(), NO_HOOK);
    }
    if now.wall < nudge.due {
        return Verdict::Wait;
    }
    // What a claim would be told that says nothing about its payload.
    let request = Request::as_it_stands(Start::Now(Holder::Caller { run_id: None }));
    let verdict = decide(facts, &request, policy, now);
    match verdict.decision {
        Decision::Run(reason) => {
            let wait = usize::try_from(nudge.unanswered).ok().and_then(|n| limits::NUDGE_AGAIN_AFTER.get(n));
            match wait {
                Some(wait) => {
                    let nudge = Nudge { due: now.wall.after(*wait), unanswered: nudge.unanswered + 1 };
                    Verdict::Send(Claim { nudge: Some(nudge), ..claim.clone() }, reason)
                }
                None => Verdict::GiveUp(by_hand(), UNANSWERED),
            }
        }
        Decision::Stop { reason, .. } => match reason {
            StopReason::Paused
            | StopReason::RecordBusy
            | StopReason::BackingOff
            | StopReason::FlagBusy
            | StopReason::FlagUnreadable => Verdict::Wait,
            StopReason::PayloadMismatch
            | StopReason::Duplicate
            | StopReason::Dismissed
            | StopReason::InProgress
            | StopReason::NeedsReview
            | StopReason::Incident
            | StopReason::Repeat
            | StopReason::LoopSuspected => {
                let after = verdict.changes.claim.unwrap_or_else(|| claim.clone());
                Verdict::Over(Some(Claim { nudge: None, ..after }))
            }
        },
        Decision::Queued(_) => Verdict::Over(None),
    }
}

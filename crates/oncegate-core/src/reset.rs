//! What a person may do to a claim: reset it, mark it, say that it happened, dismiss it. Each needs a name and a
//! reason (checked at the edge), is audited by the store, voids tokens, and keeps history, payload and key.

use crate::claim::{Boot, Claim, ErrorCause, Liveness, Nudge, Parked, Progress, State};
use crate::finish::cut;
use crate::policy::Policy;
use crate::time::{Now, Timestamp};

pub use crate::act::*;

/// Decides a person's act.
///
/// # Errors
/// The act needs a confirmation, or does not fit the state; nothing is changed.
pub fn act(claim: &Claim, act: &Act, policy: &Policy, now: Now, boot: Boot) -> Result<Claim, Refusal> {
    let word = claim.processing_state().as_str();
    match act {
        Act::Reset { run_now, confirm_holder, verified } => {
            if let State::None { due } = claim.state
                && !claim.dismissed
                && matches!(claim.parked, None | Some(Parked::Reset))
                && (due.is_some() || !run_now || !(claim.flow || policy.retrigger))
            {
                return Err(Refusal::Nothing(if due.is_some() { "waiting to run" } else { word }));
            }
            reset(claim, *run_now, (confirm_holder.as_deref(), *verified), policy, now, boot)
        }
        Act::FromStart { run_now, confirm_holder, verified, confirm_sent: _, new_keys } => {
            let confirmed = (confirm_holder.as_deref(), *verified);
            let mut reset = reset(claim, *run_now, confirmed, policy, now, boot)?;
            reset.steps_since = reset.resets;
            reset.progress = Progress::default();
            reset.key_generation = if *new_keys { reset.resets } else { claim.key_generation };
            Ok(reset)
        }
        Act::MarkError { note } => {
            let mut marked = reopened(claim.clone(), None, now);
            let cause = if has_happened(claim) { ErrorCause::MarkedAfterDone } else { ErrorCause::Marked };
            marked.state = State::Error { at: now.wall, due: None, cause, note: cut(note) };
            marked.progress.unknown |= claim.progress.unknown;
            Ok(marked)
        }
        Act::MarkDone => match claim.state {
            State::Error { .. } => {
                let mut done = claim.clone();
                done.generation += 1;
                (done.parked, done.nudge) = (None, None);
                // It may be marked after done and dismissed: that it happened is the last word.
                done.dismissed = false;
                done.state = crate::finish::done(policy, now);
                Ok(done)
            }
            State::None { .. } | State::Processing(_) | State::Done { .. } => Err(Refusal::NotAnError(word)),
        },
        Act::Dismiss => dismiss(claim, now, boot),
        Act::Approve | Act::Decline if !claim.is_in_review() => Err(Refusal::NotInReview),
        Act::Approve => {
            let mut approved = claim.clone();
            approved.parked = None;
            // However long the person took, machines have their whole time from now on.
            approved.open_since = now.wall;
            if let State::Processing(lease) = &mut approved.state {
                (lease.deferred_until, lease.renewed) = (Some(now.wall), now.lease);
            }
            Ok(approved)
        }
        Act::Decline => dismiss(claim, now, boot),
    }
}

/// Back to `none`: `confirmed` is the live holder's name, and that an effect which is done must happen again.
fn reset(
    claim: &Claim,
    run_now: bool,
    (confirm_holder, verified): (Option<&str>, bool),
    policy: &Policy,
    now: Now,
    boot: Boot,
) -> Result<Claim, Refusal> {
    if !verified && has_happened(claim) {
        return Err(Refusal::Done);
    }
    confirmed(claim, confirm_holder, now, boot)?;
    let mut reset = reopened(claim.clone(), (run_now && claim.flow).then_some(now.wall), now);
    // Until somebody starts it, the effect is missing: our own runner waits for the word, and nobody calls a no-code
    // tool back unless it has a hook.
    (reset.parked, reset.nudge) = match (claim.flow, run_now) {
        (true, true) => (None, None),
        (true, false) => (Some(Parked::Reset), None),
        (false, true) if policy.retrigger => (None, Some(Nudge { due: now.wall, unanswered: 0 })),
        (false, _) => (Some(Parked::NeedsReplay), None),
    };
    Ok(reset)
}

/// A person who starts an effect over "from the start" names what was sent, so that nobody sends a mail twice unawares.
/// `sent` are the steps that have been sent, or may have been, for the effect as it stands.
///
/// # Errors
/// Some are not named.
pub fn confirms_sent(act: &Act, sent: &[String]) -> Result<(), Refusal> {
    let Act::FromStart { confirm_sent, .. } = act else { return Ok(()) };
    match sent.iter().all(|step| confirm_sent.contains(step)) {
        true => Ok(()),
        false => Err(Refusal::Sent(sent.to_vec())),
    }
}

/// Whether the effect is known to have happened, however the claim is marked since.
pub fn has_happened(claim: &Claim) -> bool {
    matches!(claim.state, State::Done { .. } | State::Error { cause: ErrorCause::MarkedAfterDone, .. })
}

/// A live attempt is cut off only by somebody who names it.
fn confirmed(claim: &Claim, confirm: Option<&str>, now: Now, boot: Boot) -> Result<(), Refusal> {
    if !is_alive(claim, now, boot) {
        return Ok(());
    }
    let holder = claim.holder_name().unwrap_or_default();
    if confirm == Some(holder.as_str()) {
        return Ok(());
    }
    Err(Refusal::LiveHolder { holder, attempt: claim.attempt })
}

/// An orphan of an earlier boot is certainly dead, and nobody is at work on what waits for a person.
fn is_alive(claim: &Claim, now: Now, boot: Boot) -> bool {
    let State::Processing(lease) = &claim.state else { return false };
    match lease.liveness(now, boot) {
        Liveness::Fresh { .. } => !claim.is_in_review(),
        Liveness::Orphaned | Liveness::Stale => false,
    }
}

fn dismiss(claim: &Claim, now: Now, boot: Boot) -> Result<Claim, Refusal> {
    let mut looked_at = claim.clone();
    looked_at.mismatch_at = None;
    looked_at.late_at = None;
    match &claim.state {
        State::Done { .. } if looked_at == *claim => return Err(Refusal::Nothing("done")),
        State::Done { .. } => return Ok(looked_at),
        State::Processing(_) if is_alive(claim, now, boot) => {
            return Err(Refusal::Busy(claim.holder_name().unwrap_or_default()));
        }
        State::Processing(_) => {}
        State::None { .. } | State::Error { .. } if claim.dismissed && looked_at == *claim => {
            return Err(Refusal::Nothing("dismissed"));
        }
        State::None { .. } | State::Error { .. } if claim.dismissed => return Ok(looked_at),
        State::None { .. } | State::Error { .. } => {}
    }
    // It stays known that the effect happened: running it again needs the same care as before.
    if has_happened(claim) {
        return Ok(Claim { dismissed: true, ..looked_at });
    }
    let mut dismissed = reopened(looked_at, None, now);
    dismissed.dismissed = true;
    Ok(dismissed)
}

/// Starts a claim over as if new: fresh retries, no marks. Numbers never fall, so that no old token holds again.
pub fn reopened(mut claim: Claim, due: Option<Timestamp>, now: Now) -> Claim {
    claim.generation += 1;
    claim.retries_used = 0;
    claim.stale_retries_used = 0;
    claim.resumes_used = 0;
    claim.resets += 1;
    // Steps that are done stay done, unless all of it is: then nothing would be left to run.
    if matches!(claim.state, State::Done { .. }) {
        claim.steps_since = claim.resets;
        claim.key_generation = claim.resets;
        claim.progress = Progress::default();
    }
    claim.state = State::None { due };
    claim.progress.unknown = false;
    claim.open_since = now.wall;
    (claim.parked, claim.nudge) = (None, None);
    claim.dismissed = false;
    claim
}

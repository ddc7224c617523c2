//! What a person does to a claim; always with an audit row.

use oncegate_core::claim::{Boot, Claim, State};
use oncegate_core::policy::Policy;
use oncegate_core::reset::{Act, Refusal};
use oncegate_core::time::Now;
use serde_json::json;

use super::{Line, Rules};
use crate::api::ActCall;

/// What is written for it.
#[derive(Clone, Debug)]
pub struct Writes<'a> {
    /// The claim's new row.
    pub claim: Claim,
    /// The claim's history. Its `kind` is the audit row's action, its `reason` (the state found) the audit's detail.
    pub line: Line<'a>,
    /// Nobody works on it any more and none may be at work again: calls that went out are unknown from now on; if there
    /// were any, see [`Writes::steps_were_given_up`].
    pub give_up_steps: bool,
}

impl Writes<'_> {
    /// Whoever works with it again must not take it for untouched. What the person said of it stays.
    pub fn steps_were_given_up(&mut self) {
        self.claim.progress.unknown = true;
    }
}

/// What a step that asked sees of the answer, as JSON; `None` for every act that answers nothing.
pub fn answer(call: &ActCall, now: Now) -> Option<String> {
    (call.act == Act::Approve).then(|| {
        let ActCall { reason, actor, .. } = call;
        json!({ "approved": true, "by": actor, "reason": reason, "at": now.wall }).to_string()
    })
}

/// Decides a person's act on a claim that exists.
///
/// # Errors
/// It is refused; nothing is written.
pub fn act<'a>(
    rules: &Rules,
    before: &Claim,
    call: &'a ActCall,
    policy: &Policy,
    now: Now,
    boot: Boot,
) -> Result<Writes<'a>, Refusal> {
    let claim = (rules.act)(before, &call.act, policy, now, boot)?;
    let kind = match &call.act {
        Act::Reset { run_now: true, .. } => "reset_and_run",
        Act::Reset { run_now: false, .. } => "reset",
        Act::FromStart { new_keys: true, .. } => "reset_from_start_with_new_keys",
        Act::FromStart { new_keys: false, .. } => "reset_from_start",
        Act::MarkError { .. } => "mark_error",
        Act::MarkDone => "mark_done",
        Act::Dismiss => "dismiss",
        Act::Approve => "approve",
        Act::Decline => "decline",
    };
    let found = before.processing_state().as_str();
    let note = Some(call.reason.as_str().into());
    let give_up_steps =
        matches!(before.state, State::Processing(_)) && matches!(claim.state, State::Error { .. });
    let line = Line { kind, reason: Some(found), attempt: claim.attempt, note };
    Ok(Writes { line, claim, give_up_steps })
}

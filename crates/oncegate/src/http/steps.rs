//! How the steps of a claim stand, for people: what was sent, what waits, what was left out.

use oncegate_core::claim::{Claim, State};
use oncegate_runner::flow::{Action, Flow};
use oncegate_store::api::{StepCall, StepOutcome};
use serde_json::{Value, json};

/// Every declared step in its order: what was declared but not started is part of the story of an error.
pub(super) fn shown(flow: &Flow, calls: &[StepCall], claim: &Claim) -> Vec<Value> {
    let of = |name: &str| calls.iter().filter(|call| call.step == name).collect::<Vec<_>>();
    let begun = |from: usize| flow.steps[from..].iter().any(|step| !of(&step.name).is_empty());
    let deferred = matches!(&claim.state, State::Processing(lease) if lease.deferred_until.is_some());
    let done = matches!(claim.state, State::Done { .. });
    let mut waits = false;
    let mut shown = vec![];
    for (at, step) in flow.steps.iter().enumerate() {
        let calls = of(&step.name);
        // Whatever comes after it has not begun: this is what the claim waits for.
        let pauses = match step.action {
            Action::Wait(_) => deferred && !claim.is_in_review(),
            Action::Review(_) => claim.is_in_review() && calls.iter().all(|call| call.answer.is_none()),
            _ => false,
        };
        let waiting = pauses && !waits && !begun(at + 1);
        let left_out = step.when.is_some() && calls.is_empty() && (done || begun(at + 1));
        let outcome = match calls.iter().rev().find(|call| call.outcome == StepOutcome::Succeeded) {
            _ if waiting => json!("waiting"),
            _ if left_out => json!("left_out"),
            Some(call) => json!(call.outcome),
            None => calls.last().map_or(json!("not_started"), |call| json!(call.outcome)),
        };
        waits |= waiting;
        shown.push(json!({ "step": step.name, "outcome": outcome, "calls": calls.len() }));
    }
    shown
}

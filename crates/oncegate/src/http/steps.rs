//! How the steps of a claim stand, for people: what was sent, what waits, what was left out.

use oncegate_core::claim::{Claim, State};
use oncegate_runner::flow::{Action, Flow, waiting_note};
use oncegate_store::api::{HistoryRow, StepCall, StepOutcome, step_of};
use serde_json::{Value, json};

/// What a claim waits for that nobody works on at present.
pub(super) fn waits_for(claim: &Claim, history: &[HistoryRow]) -> Option<String> {
    let deferred = matches!(&claim.state, State::Processing(lease) if lease.deferred_until.is_some());
    let last = history.iter().rev().find(|row| ["defer", "review", "approve"].contains(&row.kind.as_str()));
    let last = last.filter(|_| deferred);
    last.filter(|row| row.kind != "approve").and_then(|row| row.note.clone())
}

/// Every declared step in its order: what was declared but not started is part of the story of an error.
pub(super) fn shown(flow: &Flow, calls: &[StepCall], claim: &Claim, waits_for: Option<&str>) -> Vec<Value> {
    let of = |name: &str| {
        calls.iter().filter(|call| [&*call.step, step_of(&call.step)].contains(&name)).collect::<Vec<_>>()
    };
    let begun = |from: usize| flow.steps[from..].iter().any(|step| !of(&step.name).is_empty());
    let done = matches!(claim.state, State::Done { .. });
    let mut waits = false;
    let mut shown = vec![];
    for (at, step) in flow.steps.iter().enumerate() {
        let calls = of(&step.name);
        // It is what the claim waits for, and not the target of a step behind it.
        let pauses = match step.action {
            Action::Wait(_) => waits_for.is_some_and(|note| note.starts_with(&waiting_note(&step.name))),
            Action::Review(_) => claim.is_in_review() && calls.iter().all(|call| call.answer.is_none()),
            _ => false,
        };
        let waiting = pauses && !waits && !begun(at + 1);
        let left_out = step.when.is_some() && calls.is_empty() && (done || begun(at + 1));
        let outcome = match known(&calls) {
            _ if waiting => json!("waiting"),
            _ if left_out => json!("left_out"),
            Some(outcome) => json!(outcome),
            None => json!("not_started"),
        };
        waits |= waiting;
        shown.push(json!({ "step": step.name, "outcome": outcome, "calls": calls.len() }));
    }
    shown
}

/// How a step stands by its calls: one that succeeded is known, whatever came before. Of the items of a list each must
/// have.
fn known(calls: &[&StepCall]) -> Option<StepOutcome> {
    let of = |name: &str| {
        calls.iter().filter(|call| call.step == name).map(|call| call.outcome).collect::<Vec<_>>()
    };
    let of_name = |name: &str| {
        let outcomes = of(name);
        let succeeded = outcomes.contains(&StepOutcome::Succeeded);
        if succeeded { Some(StepOutcome::Succeeded) } else { outcomes.last().copied() }
    };
    let outcomes: Vec<StepOutcome> = calls.iter().filter_map(|call| of_name(&call.step)).collect();
    let open = outcomes.iter().rev().find(|outcome| **outcome != StepOutcome::Succeeded);
    open.or(outcomes.last()).copied()
}

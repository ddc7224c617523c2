//! A step that is done once for each item of a list. Each item is a call of its own, remembered by its place in the
//! list and keyed by what it is, too: what is done is not done again, and one that fails does not stop the others.

use data_encoding::HEXLOWER;
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::{Call, Failed};
use oncegate_core::limits;
use oncegate_store::api::{StepCall, StepOutcome, is_lookup, item_name};
use oncegate_store::{StoreError, failpoint};
use serde_json::Value;

use crate::flow::Step;
use crate::render::{self, RenderError};
use crate::stepping::{Run, wrong};
use crate::worker::{Next, Worker};

/// Failures whose words are told; the others are counted.
const TOLD: usize = 5;

impl Worker {
    /// `None`: the next step.
    pub(crate) async fn each(
        &self,
        run: &mut Run<'_>,
        step: &Step,
        number: usize,
        items: &str,
    ) -> Result<Option<Next>, StoreError> {
        let mut world = run.world(self);
        let items = match list(items, &world) {
            Ok(items) => items,
            Err(e) => return Ok(Some(wrong(step, number, &e))),
        };
        let (count, mut failures) = (items.len(), Vec::new());
        let items: Vec<(Step, Value)> = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                let (name, print) = (item_name(&step.name, index), Fingerprint::of(&item, &[]).to_bytes());
                let one = Some(HEXLOWER.encode(&print));
                (Step { name, item: one, for_each: None, ..step.clone() }, item)
            })
            .collect();
        // An item is known by its place. Where another one stands there by now, what was sent for the one is neither
        // done for the other nor known to be open.
        if let Some((other, _)) = items.iter().find(|(step, _)| self.was_another(run, step)) {
            return Ok(Some(Next::Finish(changed(step, number, &other.name))));
        }
        for (index, (step, item)) in items.into_iter().enumerate() {
            if let Some(refused) = refused(run, &step) {
                failures.push((Failed::Final, refused));
                continue;
            }
            world["item"] = item;
            world["index"] = index.into();
            match self.step(run, &step, number, Some(&world)).await? {
                None => failpoint::hit("each.item_done"),
                Some(Next::Finish(Call::Error { failure, note })) => failures.push((failure, note)),
                // What waits, waits for all of them; and those that failed before it wait no less.
                Some(Next::Finish(Call::Defer { until, note })) if !failures.is_empty() => {
                    let wait = until.since(self.gate.store().now().wall);
                    failures.push((Failed::Retryable { retry_after: Some(wait) }, note));
                    break;
                }
                // Whoever lost the claim stops.
                Some(ended) => return Ok(Some(ended)),
            }
        }
        Ok(together(failures, count).map(Next::Finish))
    }

    /// Whether something was sent under an item's name that is not for this item.
    fn was_another(&self, run: &Run<'_>, step: &Step) -> bool {
        let key = self.key(run.attempt, step);
        run.sent(step).iter().any(|call| call.idempotency_key != key)
    }
}

fn changed(step: &Step, number: usize, item: &str) -> Call {
    let note = format!(
        "step {number} `{}`: `{item}` is another item than the one that was sent under this name: the list has changed \
         since. Put it back as it was and reset; or look what has happened, and reset from the start",
        step.name
    );
    Call::Error { failure: Failed::Unknown, note }
}

fn list(template: &str, world: &Value) -> Result<Vec<Value>, RenderError> {
    let wrong = |why: String| Err(RenderError::of("for_each", why));
    match render::json("for_each", &Value::String(template.to_owned()), world)? {
        Value::Array(items) if items.len() > limits::FOR_EACH_ITEMS_MAX => wrong(format!(
            "{} items are more than one step may have ({}); send them as events of their own",
            items.len(),
            limits::FOR_EACH_ITEMS_MAX
        )),
        Value::Array(items) => Ok(items),
        _ => wrong(format!("`{template}` is no list")),
    }
}

/// What the target refused for good would be refused again, as long as nobody has mended anything and reset the claim.
fn refused(run: &Run<'_>, step: &Step) -> Option<String> {
    // That a lookup did not find it, or may not look, is no word about the effect.
    let last: &StepCall = run.sent(step).into_iter().rfind(|call| !is_lookup(call))?;
    // Those that ask to come again are none (RFC 9110 §15.5, RFC 4918 §11.3, RFC 6585 §4, RFC 8470 §5.2).
    let for_good = last
        .status
        .is_some_and(|status| (400..500).contains(&status) && ![408, 423, 425, 429].contains(&status));
    let since_reset = last.resets == run.attempt.claim.resets;
    (last.outcome == StepOutcome::Failed && for_good && since_reset).then(|| {
        let why = last.note.clone().unwrap_or_default();
        format!("`{}`: {why}", step.name)
    })
}

/// One word about all that failed: as long as one of them may be tried again, it is.
fn together(failures: Vec<(Failed, String)>, count: usize) -> Option<Call> {
    if failures.is_empty() {
        return None;
    }
    let waits = failures.iter().filter_map(|(failure, _)| match failure {
        Failed::Retryable { retry_after } => Some(*retry_after),
        Failed::Locked | Failed::Final | Failed::Unknown => None,
    });
    let failure = match waits.max() {
        Some(retry_after) => Failed::Retryable { retry_after },
        None if failures.iter().any(|(failure, _)| *failure == Failed::Locked) => Failed::Locked,
        None if failures.iter().any(|(failure, _)| *failure == Failed::Unknown) => Failed::Unknown,
        None => Failed::Final,
    };
    let told: Vec<&str> = failures.iter().take(TOLD).map(|(_, note)| note.as_str()).collect();
    let more = failures.len().saturating_sub(TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let note = format!("{} of {count} items failed: {}{more}", failures.len(), told.join("; "));
    Some(Call::Error { failure, note })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_word_is_said_about_all_items() {
        let retryable = |wait: Option<u64>| Failed::Retryable { retry_after: wait.map(Duration::from_secs) };
        for (failures, expected) in [
            (vec![], None),
            (vec![Failed::Final], Some(Failed::Final)),
            (vec![Failed::Final, Failed::Unknown], Some(Failed::Unknown)),
            (vec![Failed::Unknown, Failed::Locked], Some(Failed::Locked)),
            (vec![Failed::Locked, retryable(None)], Some(retryable(None))),
            (vec![Failed::Unknown, retryable(None), Failed::Final], Some(retryable(None))),
            (vec![retryable(Some(5)), retryable(None), retryable(Some(60))], Some(retryable(Some(60)))),
        ] {
            let told = failures.iter().enumerate().map(|(n, failure)| (*failure, format!("no. {n}")));
            let found = together(told.collect(), 10).map(|call| match call {
                Call::Error { failure, note } => {
                    assert!(note.starts_with(&format!("{} of 10 items failed: no. 0", failures.len())));
                    failure
                }
                call => panic!("{call:?}"),
            });
            assert_eq!(found, expected, "{failures:?}");
        }
        let many = (0..8).map(|n| (Failed::Final, format!("no. {n}"))).collect();
        let Some(Call::Error { note, .. }) = together(many, 8) else { panic!("all failed") };
        assert!(note.ends_with("no. 4; and 3 more"), "{note}");
    }
}

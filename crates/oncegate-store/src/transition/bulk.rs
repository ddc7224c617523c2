//! What an act on many claims does to one of them: the same as the single act, or a reason why not.

use oncegate_core::claim::{Boot, Claim};
use oncegate_core::policy::Policy;
use oncegate_core::reset::{Act, Refusal};
use oncegate_core::time::Now;
use oncegate_core::undo::Before;
use serde::{Deserialize, Serialize};

use super::Rules;
use crate::StoreError;
use crate::api::ClaimView;
use crate::bulk::BulkAct;

/// What is kept of a claim for the undo.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) claim: Before,
    pub(crate) tag: Option<String>,
    pub(crate) result: Option<String>,
}

impl Kept {
    /// Of a claim that is about to be acted on, as JSON.
    pub(crate) fn of(view: &ClaimView) -> String {
        let kept =
            Self { claim: Before::of(&view.claim), tag: view.tag.clone(), result: view.result.clone() };
        serde_json::json!(kept).to_string()
    }

    /// Reads what [`Kept::of`] wrote.
    pub(crate) fn read(json: Option<&str>) -> Result<Self, StoreError> {
        json.and_then(|json| serde_json::from_str(json).ok()).ok_or_else(|| {
            StoreError::Inconsistent("what a claim was before a bulk act does not read".into())
        })
    }
}

/// What becomes of one claim.
pub(crate) enum Fate {
    Acted(Box<ClaimView>),
    Refused(&'static str),
    Changed,
}

/// Why one is refused, in a word.
pub(crate) fn why(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::LiveHolder { .. } | Refusal::Busy(_) => "live_holder",
        Refusal::Done => "needs_verified",
        Refusal::Nothing(_) | Refusal::NotAnError(_) | Refusal::NotInReview => "nothing_to_do",
        Refusal::Sent(_) => "needs_confirm_sent",
        Refusal::PayloadRemoved => "payload_removed",
    }
}

/// The act on a single claim that it is the same as.
pub(crate) fn single(bulk: &BulkAct, reason: &str) -> Option<Act> {
    Some(match bulk {
        BulkAct::Reset { verified } => {
            Act::Reset { run_now: false, confirm_holder: None, verified: *verified }
        }
        BulkAct::RunNow => Act::Reset { run_now: true, confirm_holder: None, verified: false },
        BulkAct::MarkError { tag } => Act::MarkError { note: format!("{tag}: {reason}") },
        BulkAct::MarkDone => Act::MarkDone,
        BulkAct::Dismiss => Act::Dismiss,
        BulkAct::Tag { .. } | BulkAct::Undo => return None,
    })
}

/// A claim whose steps its caller does can be run from here only by calling its hook.
pub(crate) fn has_no_runner(bulk: &BulkAct, claim: &Claim, policy: &Policy) -> bool {
    *bulk == BulkAct::RunNow && !claim.flow && !policy.retrigger
}

/// A caller brings its payload again; our runner, and a tool that is called back, have none but the stored one.
pub(crate) fn lacks_payload(act: &Act, view: &ClaimView, policy: &Policy) -> bool {
    let (Act::Reset { run_now, .. } | Act::FromStart { run_now, .. }) = act else { return false };
    (view.claim.flow || (*run_now && policy.retrigger)) && view.payload_removed_at.is_some()
}

/// Why a claim would be refused if it had its turn now; `None`: it would be acted on.
pub(crate) fn would_refuse(
    bulk: &BulkAct,
    view: &ClaimView,
    policy: &Policy,
    now: Now,
    boot: Boot,
) -> Option<&'static str> {
    if has_no_runner(bulk, &view.claim, policy) {
        return Some("no_runner");
    }
    match (single(bulk, ""), bulk) {
        (Some(act), _) => match (Rules::CORE.act)(&view.claim, &act, policy, now, boot) {
            Ok(_) => lacks_payload(&act, view, policy).then(|| why(&Refusal::PayloadRemoved)),
            Err(refusal) => Some(why(&refusal)),
        },
        (None, BulkAct::Tag { tag }) if view.tag == *tag => Some("nothing_to_do"),
        (None, _) => None,
    }
}

/// The audit is for ever: it says that somebody filtered by a text, a record or a run, not by which.
pub(crate) fn without_values(told: &str) -> String {
    let mut told: serde_json::Map<String, serde_json::Value> = serde_json::from_str(told).unwrap_or_default();
    for name in ["q", "record", "run_id"] {
        if let Some(value) = told.get_mut(name) {
            *value = "(not kept here)".into();
        }
    }
    serde_json::Value::from(told).to_string()
}

//! Everything that is kept of one claim or delivery, as a line of an export.

use oncegate_core::time::Now;
use oncegate_store::api::{DeliveryRow, StepCall};
use oncegate_store::person::{ClaimDossier, Dossier};
use serde_json::{Value, json};

use super::answer;
use super::lists::{self, show_bytes};

/// One line; `kind` says what it is.
pub(crate) fn line(dossier: &Dossier, now: Now) -> Value {
    match dossier {
        Dossier::Claim(dossier) => claim(dossier, now),
        Dossier::Delivery(row) => {
            let mut line = delivery(row);
            line["kind"] = "delivery".into();
            line
        }
    }
}

fn claim(dossier: &ClaimDossier, now: Now) -> Value {
    let ClaimDossier { view, work, history, deliveries } = dossier;
    let mut line = answer::claim(view, now);
    line["kind"] = "claim".into();
    line["result"] = view.result.as_deref().and_then(|r| serde_json::from_str(r).ok()).unwrap_or_default();
    if let Some(payload) = &work.payload {
        line["payload"] = serde_json::from_str(&payload.json).unwrap_or_default();
        if payload.body != payload.json.as_bytes() {
            show_bytes(&mut line, "payload_as_it_came", &payload.body);
        }
    }
    line["history"] = json!(history);
    line["calls"] = work.steps.iter().map(call).collect();
    line["deliveries"] = deliveries.iter().map(delivery).collect();
    line
}

fn call(call: &StepCall) -> Value {
    let mut shown = json!(call);
    if let Some(answer) = &call.answer {
        show_bytes(&mut shown, "answer", answer);
    }
    shown
}

fn delivery(row: &DeliveryRow) -> Value {
    let mut shown = lists::delivery(row);
    shown["headers"] =
        row.headers.as_deref().and_then(|headers| serde_json::from_str(headers).ok()).unwrap_or_default();
    if let Some(body) = &row.body {
        show_bytes(&mut shown, "body", body);
    }
    shown
}

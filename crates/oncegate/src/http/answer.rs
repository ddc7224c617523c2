//! The shapes of answers: one claim, one decision.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use oncegate_core::claim::{Parked, State};
use oncegate_core::decide::{Decision, StopReason};
use oncegate_core::key::ClaimRef;
use oncegate_core::policy::in_words;
use oncegate_core::time::{Now, Timestamp};
use oncegate_core::token::Token;
use oncegate_store::api::{ClaimView, Claimed};
use serde::Serialize;
use serde_json::{Value, json};

use super::problem::Problem;

/// A JSON answer that ends its line, as terminals like it.
#[derive(Debug)]
pub(crate) struct Json<T = Value>(pub(crate) T);

/// Room for most answers; longer ones grow.
const ANSWER_BYTES: usize = 1024;
/// What an answer gets on its way out.
const ANSWER_HEADERS: usize = 8;

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(ANSWER_BYTES);
        if serde_json::to_writer(&mut body, &self.0).is_err() {
            return Problem::internal("an answer could not be written as JSON").into_response();
        }
        body.push(b'\n');
        let mut response = Response::new(Body::from(body));
        let headers = response.headers_mut();
        // At once, and not in two steps.
        headers.reserve(ANSWER_HEADERS);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// The answer to a claim call, written as it stands: it is made more often than all others.
#[derive(Debug, Serialize)]
pub(crate) struct Decided<'a> {
    /// Beside others of a batch, which may have been refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    pub(crate) decision: &'static str,
    pub(crate) reason: &'static str,
    claim_id: ClaimRef,
    idempotency_key: &'a str,
    processing_state: &'static str,
    processing_started_at: Option<Timestamp>,
    attempt: u32,
    token: Option<&'a str>,
    /// In seconds.
    pub(crate) retry_after_s: Option<u64>,
    result: Option<Value>,
    note: Option<Cow<'a, str>>,
    done_url: Option<String>,
    error_url: Option<String>,
    heartbeat_url: Option<String>,
}

/// The answer to a claim call.
pub(crate) fn decision<'a>(claimed: &'a Claimed, key: &'a str, base_url: &str) -> Decided<'a> {
    let view = claimed.view.as_ref();
    let (decision, reason, retry_after, note) = match &claimed.decision {
        Decision::Run(reason) => ("run", reason.as_str(), None, None),
        // Only events are queued; a claim call always asks to start now.
        Decision::Queued(reason) => ("queued", reason.as_str(), None, None),
        Decision::Stop { reason, retry_after, note } => {
            ("stop", reason.as_str(), *retry_after, note.as_deref())
        }
    };
    let note = match (note, claimed.note.as_deref()) {
        (Some(why), Some(also)) => Some(format!("{why}; {also}").into()),
        (why, also) => why.or(also).map(Cow::Borrowed),
    };
    let result = match &claimed.decision {
        Decision::Stop { reason: StopReason::Duplicate, .. } => view.and_then(|v| v.result.as_deref()),
        _ => None,
    };
    let token = claimed.token.as_ref().map(Token::expose);
    let url = |verb| token.map(|token| capability_url(base_url, claimed.id, verb, token));
    Decided {
        status: None,
        decision,
        reason,
        claim_id: claimed.id,
        idempotency_key: key,
        processing_state: view.map_or("none", |v| v.claim.processing_state().as_str()),
        processing_started_at: view.and_then(|v| v.claim.started_at()),
        attempt: view.map_or(0, |v| v.claim.attempt),
        token,
        retry_after_s: retry_after.map(|d| d.as_secs_f64().ceil() as u64),
        result: result.and_then(|r| serde_json::from_str(r).ok()),
        note,
        done_url: url("done"),
        error_url: url("error"),
        heartbeat_url: url("heartbeat"),
    }
}

fn capability_url(base_url: &str, id: ClaimRef, verb: &str, token: &str) -> String {
    [base_url, "/v1/claims/", id.id.hex().as_str(), "/", verb, "?token=", token].concat()
}

/// Why a parked claim waits, where its word does not say it.
fn why_parked(view: &ClaimView) -> Option<String> {
    match (view.claim.parked?, &view.repeat_of, &view.claim.record) {
        (Parked::Repeat, Some(key), _) => Some(format!("repeat of {key}")),
        (Parked::Repeat, None, _) => Some("repeat of a claim that has been forgotten since".to_owned()),
        (Parked::LoopSuspected, _, Some(record)) => {
            Some(format!("more runs of {record} than its loop_limit"))
        }
        (Parked::Review, ..) => Some("a step waits for an answer: approve or decline it".to_owned()),
        _ => None,
    }
}

/// A claim as lists and finish calls show it.
pub(crate) fn claim(view: &ClaimView, now: Now) -> Value {
    let claim = &view.claim;
    let (note, cause, due) = match &claim.state {
        State::Error { note, cause, due, .. } => (Some(note.clone()), Some(cause.as_str()), *due),
        State::None { due } => (why_parked(view), None, *due),
        // Why it stands in the stuck list before its TTL.
        State::Processing(lease) => {
            let note = lease.clock_problem(now).map(|ahead| {
                let ahead = in_words(ahead);
                format!("clock problem: processing_started_at lies {ahead} ahead of the store's clock")
            });
            let note = note.or_else(|| why_parked(view).filter(|_| claim.is_in_review()));
            (note, None, lease.deferred_until.filter(|_| !claim.is_in_review()))
        }
        State::Done { .. } => (None, None, None),
    };
    let (done_at, retain_until) = match &claim.state {
        State::Done { at, retain_until, .. } => (Some(*at), Some(*retain_until)),
        State::None { .. } | State::Processing(_) | State::Error { .. } => (None, None),
    };
    let stops = view
        .first_stop_at
        .map(|since| json!({ "count": view.stops, "since": since, "last": view.last_stop_at }));
    json!({
        "claim_id": claim.id,
        "automation": view.automation,
        "idempotency_key": view.key,
        "processing_state": claim.processing_state(),
        "processing_started_at": claim.started_at(),
        "attempt": claim.attempt,
        "record": claim.record,
        "inbox": view.inbox,
        "note": note,
        "error_cause": cause,
        "due_at": due,
        "done_at": done_at,
        "remembered_until": retain_until,
        "holder": claim.holder_name(),
        "retries_used": claim.retries_used,
        "stale_retries_used": claim.stale_retries_used,
        "parked": claim.parked,
        "repeat_of": claim.repeat_of.map(|id| json!({ "claim_id": id, "idempotency_key": view.repeat_of })),
        "retrigger": claim.nudge.map(|nudge| json!({ "due_at": nudge.due, "calls_unanswered": nudge.unanswered })),
        "parent": match &claim.state {
            State::Processing(lease) => lease.parent.as_ref().map(|parent| parent.id),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        },
        "dismissed": claim.dismissed,
        "own_steps": claim.flow,
        "mismatch_at": claim.mismatch_at,
        "late_at": claim.late_at,
        "tag": view.tag,
        "run_url": view.run_url,
        "stopped": stops,
        "created_at": view.created_at,
        "updated_at": view.updated_at,
        "payload_removed_at": view.payload_removed_at,
    })
}

/// The status of a stop for callers that prefer one (`?stop_status=409`).
pub(crate) fn stop_status(text: &str) -> Option<StatusCode> {
    let status: u16 = text.parse().ok()?;
    // 2xx says "go on" and 5xx says "try again"; neither may mean stop.
    (400..500).contains(&status).then(|| StatusCode::from_u16(status).ok()).flatten()
}

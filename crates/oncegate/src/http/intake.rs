//! `POST /in/{source}`: verify the raw bytes, store, and only then acknowledge. The work is done in the background.

use std::sync::Arc;

use super::answer::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use oncegate_core::decide::StopReason;
use oncegate_core::key::RecordName;
use oncegate_core::limits;
use oncegate_core::webhook::{self, Headers, Reading as Read};
use oncegate_runner::gatekeeper::Gatekeeper;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted, DeliveryRow, Release, UnverifiedCall, Workspace};
use serde_json::{Value, json};

use super::AppState;
use super::acts::Doing;
use super::input::read_body;
use super::problem::Problem;
use crate::config::Source;

/// Bodies that did not verify may come from anybody: larger ones are counted, not kept.
const UNVERIFIED_BODY_MAX: usize = 1024 * 1024;

pub(crate) async fn deliver(
    State(state): State<Arc<AppState>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Some(source) = state.sources.get(&name) else {
        return Err(Problem::unknown_source(format!(
            "no source is called `{name}`; declare it in oncegate.yaml under `sources`"
        )));
    };
    let (parts, body) = request.into_parts();
    let body = read_body(body, limits::INTAKE_BODY_BYTES_MAX).await?;
    let headers = headers(&parts.headers);
    let request = webhook::Request { headers: &headers, body: &body };
    let now = state.gate.store().now().wall;
    if let Err(error) = source.provider.verify(&request, &source.secrets, now) {
        tracing::debug!(source = name, %error, "a signature does not verify");
        keep_unverified(&state.gate, &name, source, &headers, &body, &error.to_string()).await;
        return Err(Problem::invalid_signature(error));
    }
    match source.provider.read(&request, &name, source.key_fields.as_deref()) {
        Read::Handshake => Ok(Json(json!({ "status": "handshake" })).into_response()),
        Read::Events(events) => {
            let call = admit_call(&state, &name, source, &headers, &body, events);
            let admitted = state.gate.admit(call).await?;
            tracing::debug!(source = name, ?admitted, "delivery");
            Ok(Json(acknowledged(&admitted)).into_response())
        }
    }
}

/// Accepted and duplicate both get exactly 200: whatever else a sender might do with another answer is worse.
fn acknowledged(admitted: &[Admitted]) -> Value {
    let status = |one: &Admitted| match one {
        Admitted::Accepted { .. } => "accepted",
        Admitted::Stopped { reason: StopReason::PayloadMismatch, .. } => "stored, not run: payload mismatch",
        Admitted::Stopped { .. } => "already accepted",
        Admitted::Rejected { .. } => "stored, not run: no identity",
    };
    let first = admitted.first().map_or("nothing in it", status);
    let all_alike = admitted.iter().all(|one| status(one) == first);
    json!({ "status": if all_alike { first } else { "mixed" }, "events": admitted.len() })
}

fn admit_call(
    state: &AppState,
    name: &str,
    source: &Source,
    headers: &Headers,
    body: &[u8],
    events: Vec<webhook::Event>,
) -> AdmitCall {
    let template = state.gate.book().automation(&source.automation).record;
    let events = events
        .into_iter()
        .map(|event| {
            let record = template.as_deref().map(|t| record(t, &event.payload)).transpose();
            let (identity, record) = match (event.identity, record) {
                (Ok(key), Ok(record)) => (Ok(key), record),
                (Ok(_), Err(why)) => (Err(why), None),
                (Err(none), _) => (Err(none.to_string()), None),
            };
            AdmitEvent { identity, fingerprint: event.fingerprint, json: event.payload.to_string(), record }
        })
        .collect();
    AdmitCall {
        workspace: Workspace::DEFAULT,
        source: name.to_owned(),
        automation: source.automation.clone(),
        headers: stored_headers(headers),
        body: body.to_vec(),
        events,
        releases: None,
        actor: format!("source:{name}"),
    }
}

fn record(template: &str, payload: &Value) -> Result<RecordName, String> {
    let text = oncegate_runner::flow::render_text("record", template, &json!({ "payload": payload }))?;
    RecordName::try_from(text.trim()).map_err(|e| e.to_string())
}

async fn keep_unverified(
    gate: &Gatekeeper,
    name: &str,
    source: &Source,
    headers: &Headers,
    body: &[u8],
    reason: &str,
) {
    let (body, reason) = match body.len() > UNVERIFIED_BODY_MAX {
        true => (vec![], format!("{reason} (the body of {} bytes was not kept)", body.len())),
        false => (body.to_vec(), reason.to_owned()),
    };
    let call = UnverifiedCall {
        workspace: Workspace::DEFAULT,
        source: name.to_owned(),
        automation: source.automation.clone(),
        headers: stored_headers(headers),
        body,
        reason,
    };
    // The sender is refused either way, and a genuine one comes again.
    if let Err(error) = gate.store().keep_unverified(call).await {
        tracing::error!(source = name, %error, "could not keep a request whose signature did not verify");
    }
}

fn headers(headers: &HeaderMap) -> Headers {
    Headers::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Credentials that a proxy or a person put there are not ours to keep.
fn stored_headers(headers: &Headers) -> String {
    let kept: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| !matches!(*name, "authorization" | "cookie" | "proxy-authorization"))
        .collect();
    json!(kept).to_string()
}

/// Runs a stored delivery after its source was mended: verified as of its arrival, its key derived anew.
pub(crate) async fn release(mut doing: Doing) -> Result<Json, Problem> {
    doing.nothing_else("reason, by")?;
    let state = Arc::clone(&doing.state);
    let row = match doing.subject.parse() {
        Ok(id) => state.gate.store().delivery(Workspace::DEFAULT, id).await?,
        Err(_) => None,
    };
    let row = row.ok_or_else(|| Problem::not_found("there is no such delivery"))?;
    if !matches!(row.verdict.as_str(), "rejected" | "unverified") {
        return Err(Problem::nothing_to_do(format!("this delivery is {} already", row.verdict)));
    }
    let source = state.sources.get(&row.source).ok_or_else(|| {
        Problem::unknown_source(format!(
            "no source is called `{}` any more; declare it again first",
            row.source
        ))
    })?;
    let mut call = released(&state, &row, source)?;
    call.actor = doing.actor;
    call.releases = Some(Release { delivery: row.id, reason: doing.reason });
    let admitted = state.gate.admit(call).await?;
    if admitted.is_empty() {
        return Err(Problem::nothing_to_do("somebody else released this delivery just now"));
    }
    Ok(Json(acknowledged(&admitted)))
}

fn released(state: &AppState, row: &DeliveryRow, source: &Source) -> Result<AdmitCall, Problem> {
    let pairs: Vec<(String, String)> =
        row.headers.as_deref().and_then(|h| serde_json::from_str(h).ok()).unwrap_or_default();
    let headers = Headers::new(pairs.iter().map(|(n, v)| (n.as_str(), v.as_bytes())));
    let body = row.body.clone().unwrap_or_default();
    let request = webhook::Request { headers: &headers, body: &body };
    // What was verified at the door is not verified again: a later secret or clock would refuse it (C70).
    if row.verdict == "unverified" {
        source.provider.verify(&request, &source.secrets, row.received_at).map_err(|e| {
            Problem::invalid_signature(format!("it still does not verify, as of its arrival: {e}"))
        })?;
    }
    let Read::Events(events) = source.provider.read(&request, &row.source, source.key_fields.as_deref())
    else {
        return Err(Problem::nothing_to_do("it is a handshake; there is nothing to run"));
    };
    if let Some(why) = events.iter().find_map(|e| e.identity.as_ref().err()) {
        return Err(Problem::invalid_field(format!("it still has no identity: {why}")));
    }
    Ok(admit_call(state, &row.source, source, &headers, &body, events))
}

//! `POST /in/{source}`: verify the raw bytes, store, and only then acknowledge. The work is done in the background.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use oncegate_core::decide::StopReason;
use oncegate_core::json::told;
use oncegate_core::key::{IdempotencyKey, RecordName, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{self, Headers, NoIdentity, Provider, Reading as Read, SignatureError};
use oncegate_runner::gatekeeper::Gatekeeper;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted, DeliveryRow, Release, UnverifiedCall};
use oncegate_store::people::{Write, Written};
use serde_json::{Value, json};

use super::AppState;
use super::acts::Doing;
use super::answer::Json;
use super::budget::Share;
use super::doors::Source;
use super::input::{Unread, read_body};
use super::once::{self, Secrecy};
use super::problem::Problem;

pub(crate) async fn deliver(
    State(state): State<Arc<AppState>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    take_in(state, Workspace::DEFAULT, name, request).await
}

/// The sources of every other workspace than the default one.
pub(crate) async fn deliver_to(
    State(state): State<Arc<AppState>>,
    Path((workspace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let Some(workspace) = state.doors.workspace(&workspace) else {
        return Err(Problem::unknown_source(format!(
            "no workspace called `{}` has sources; declare them in oncegate.yaml under `workspaces`",
            told(&workspace)
        )));
    };
    take_in(state, workspace, name, request).await
}

async fn take_in(
    state: Arc<AppState>,
    workspace: Workspace,
    name: String,
    request: Request,
) -> Result<Response, Problem> {
    let Some(source) = state.doors.source(workspace, &name) else {
        return Err(Problem::unknown_source(format!(
            "no source is called `{}`; declare it in oncegate.yaml under `sources`",
            told(&name)
        )));
    };
    let (parts, body) = request.into_parts();
    let headers = headers(&parts.headers);
    if let Err(error) = check_head(source, &headers, state.gate.store().now().wall) {
        tracing::debug!(source = name, %error, "a signature does not verify, whatever the body");
        let (body, reason) = match read_body(&parts, body, limits::UNSIGNED_BODY_BYTES_MAX).await {
            Ok(body) => (body, error.to_string()),
            Err(Unread::TooLarge { max }) => {
                (vec![], format!("{error} (the body is larger than {max} bytes and was not read)"))
            }
            Err(why) => return Err(why.into()),
        };
        keep_unverified(&state.gate, &name, source, &headers, body, reason).await;
        return Err(Problem::invalid_signature(error));
    }
    let body = read_body(&parts, body, body_max(&source.provider)).await?;
    let arrived = Arrived { name, headers, body, now: state.gate.store().now().wall };
    let verdict = if arrived.body.len() <= limits::BODY_BYTES_FREE {
        judge(&state, source, arrived)
    } else {
        judge_apart(&state, workspace, arrived, parts.extensions.get().cloned()).await?
    };
    match verdict {
        Verdict::Unverified { arrived: Arrived { name, headers, body, .. }, error } => {
            tracing::debug!(source = name, %error, "a signature does not verify");
            let (body, reason) = match body.len() {
                size if size > limits::UNVERIFIED_BODY_BYTES_MAX => {
                    (vec![], format!("{error} (the body of {size} bytes was not kept)"))
                }
                _ => (body, error.to_string()),
            };
            keep_unverified(&state.gate, &name, source, &headers, body, reason).await;
            Err(Problem::invalid_signature(error))
        }
        Verdict::Handshake => Ok(Json(json!({ "status": "handshake" })).into_response()),
        Verdict::Events(call) => {
            let name = call.source.clone();
            let admitted = state.gate.admit(*call).await?;
            tracing::debug!(source = name, ?admitted, "delivery");
            Ok(Json(acknowledged(&admitted)).into_response())
        }
    }
}

/// How large a body may be. GitHub's hold whole pushes; everybody else sends forms and orders.
fn body_max(provider: &Provider) -> usize {
    match provider {
        Provider::Github => limits::INTAKE_GITHUB_BODY_BYTES_MAX,
        _ => limits::INTAKE_BODY_BYTES_MAX,
    }
}

/// Refuses what no body could make right: a signature that is missing, not one, or of another day.
fn check_head(source: &Source, headers: &Headers, now: Timestamp) -> Result<(), SignatureError> {
    let empty = webhook::Request { headers, body: b"" };
    let usable = || source.secrets.iter().any(|secret| source.provider.check_secret(secret).is_ok());
    match source.provider.verify(&empty, &source.secrets, now) {
        Ok(()) | Err(SignatureError::Mismatch { .. }) => Ok(()),
        // Told in place of a mismatch where one of several secrets cannot be used.
        Err(SignatureError::BadSecret { .. }) if usable() => Ok(()),
        Err(error) => Err(error),
    }
}

/// A request that arrived whole.
struct Arrived {
    name: String,
    headers: Headers,
    body: Vec<u8>,
    now: Timestamp,
}

enum Verdict {
    Unverified { arrived: Arrived, error: SignatureError },
    Handshake,
    Events(Box<AdmitCall>),
}

fn judge(state: &AppState, source: &Source, arrived: Arrived) -> Verdict {
    let request = webhook::Request { headers: &arrived.headers, body: &arrived.body };
    if let Err(error) = source.provider.verify(&request, &source.secrets, arrived.now) {
        return Verdict::Unverified { arrived, error };
    }
    match source.provider.read(&request, &arrived.name, &source.rules) {
        Read::Handshake => Verdict::Handshake,
        Read::Events(events) => {
            let Arrived { name, headers, body, .. } = arrived;
            Verdict::Events(Box::new(admit_call(state, &name, source, &headers, body, events)))
        }
    }
}

/// Judges a large body where it keeps nobody waiting. If the sender hangs up, the work goes on to its end, and with it
/// the body's share of the memory.
async fn judge_apart(
    state: &Arc<AppState>,
    workspace: Workspace,
    arrived: Arrived,
    share: Option<Arc<Share>>,
) -> Result<Verdict, Problem> {
    let fault = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "a delivery could not be judged");
        Problem::internal("the delivery could not be judged; the server's log says why")
    };
    let turn = Arc::clone(&state.large_bodies).acquire_owned().await.map_err(|e| fault(&e))?;
    let state = Arc::clone(state);
    let judged = tokio::task::spawn_blocking(move || {
        let verdict =
            state.doors.source(workspace, &arrived.name).map(|source| judge(&state, source, arrived));
        drop((turn, share));
        verdict
    });
    // Not the message of a panic: that may quote the body.
    judged.await.map_err(|_| fault(&"it panicked"))?.ok_or_else(|| fault(&"its source is gone"))
}

/// Accepted and duplicate both get exactly 200: whatever else a sender might do with another answer is worse.
fn acknowledged(admitted: &[Admitted]) -> Value {
    let status = |one: &Admitted| match one {
        Admitted::Accepted { .. } => "accepted",
        Admitted::Stopped { reason: StopReason::PayloadMismatch, .. } => "stored, not run: payload mismatch",
        Admitted::Stopped { .. } => "already accepted",
        Admitted::OtherEnvironment { .. } => "stored, not run: other environment",
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
    body: Vec<u8>,
    events: Vec<webhook::Event>,
) -> AdmitCall {
    let template = state.gate.book().automation(source.workspace, &source.automation).record;
    let secret = state.gate.store().secret();
    let events = events
        .into_iter()
        .map(|event| {
            let likeness = event.repeat.map(|(subject, within)| {
                subject.likeness(secret, source.workspace, &source.automation, within)
            });
            let about = event.about.map(|subject| subject.print(secret, source.workspace));
            let (identity, record) = identified(event.identity, &event.payload, template.as_deref());
            let other_environment = elsewhere(source, headers, &event.payload);
            let (fingerprint, json, dated) = (event.fingerprint, event.payload.to_string(), event.dated);
            let delivery_id = event.delivery_id;
            AdmitEvent {
                identity,
                fingerprint,
                likeness,
                about,
                delivery_id,
                json,
                record,
                other_environment,
                dated,
            }
        })
        .collect();
    AdmitCall {
        workspace: source.workspace,
        source: name.to_owned(),
        automation: source.automation.clone(),
        headers: stored_headers(headers),
        body,
        events,
        releases: None,
        actor: format!("source:{name}"),
    }
}

/// Why an event is of another environment than its source.
fn elsewhere(source: &Source, headers: &Headers, payload: &Value) -> Option<String> {
    source.environment.as_ref().and_then(|ours| ours.differs(headers, payload))
}

/// The key and the record of an event, or why it cannot run.
pub(crate) fn identified(
    identity: Result<IdempotencyKey, NoIdentity>,
    payload: &Value,
    template: Option<&str>,
) -> (Result<IdempotencyKey, String>, Option<RecordName>) {
    let record = template.map(|template| record(template, payload)).transpose();
    match (identity, record) {
        (Ok(key), Ok(record)) => (Ok(key), record),
        // Named, so that two events are two rows although their bodies are equal.
        (Ok(key), Err(why)) => (Err(format!("{why} (key {key})")), None),
        (Err(none), _) => (Err(none.to_string()), None),
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
    body: Vec<u8>,
    reason: String,
) {
    let call = UnverifiedCall {
        workspace: source.workspace,
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
pub(crate) async fn release(mut doing: Doing) -> Result<Response, Problem> {
    doing.nothing_else("reason, by")?;
    let state = Arc::clone(&doing.state);
    let row = match doing.subject.parse() {
        Ok(id) => state.gate.store().delivery(doing.caller.workspace, id).await?,
        Err(_) => None,
    };
    let row = row.filter(|row| doing.caller.sees(&row.automation));
    let row = row.ok_or_else(|| Problem::not_found("there is no such delivery"))?;
    if !matches!(row.verdict.as_str(), "rejected" | "unverified" | "other_environment") {
        return Err(Problem::nothing_to_do(format!("this delivery is {} already", row.verdict)));
    }
    let source = state.doors.source(doing.caller.workspace, &row.source).ok_or_else(|| {
        Problem::unknown_source(format!(
            "no source is called `{}` any more; declare it again first",
            row.source
        ))
    })?;
    // The source may lead elsewhere by now.
    doing.caller.may_touch(&source.automation)?;
    let mut call = released(&state, &row, source)?;
    call.actor = doing.actor;
    call.releases = Some(Release { delivery: row.id, reason: doing.reason });
    let show = |written: &Written, _| match written {
        Written::Released(admitted) if admitted.is_empty() => {
            Err(Problem::nothing_to_do("somebody else released this delivery just now"))
        }
        Written::Released(admitted) => Ok(acknowledged(admitted)),
        _ => Err(once::odd()),
    };
    once::write(&state, doing.named, Secrecy::Open, Write::Release(call), show).await
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
    let Read::Events(events) = source.provider.read(&request, &row.source, &source.rules) else {
        return Err(Problem::nothing_to_do("it is a handshake; there is nothing to run"));
    };
    if let Some(why) = events.iter().find_map(|e| e.identity.as_ref().err()) {
        return Err(Problem::invalid_field(format!("it still has no identity: {why}")));
    }
    if let Some(why) = events.iter().find_map(|e| elsewhere(source, &headers, &e.payload)) {
        return Err(Problem::invalid_field(format!("it still is of another environment: {why}")));
    }
    Ok(admit_call(state, &row.source, source, &headers, body, events))
}

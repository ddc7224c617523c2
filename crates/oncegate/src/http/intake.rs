//! `POST /in/{source}`: verify the raw bytes, store, and only then acknowledge. The work is done in the background.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use oncegate_core::decide::StopReason;
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{self, Answer, Aside, Headers, Kept, Provider, Reading as Read, SignatureError};
use oncegate_runner::arrivals::Arrivals;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted, DeliveryRow, Release, UnverifiedCall};
use oncegate_store::people::{Write, Written};
use serde_json::{Value, json};

use super::AppState;
use super::acts::Doing;
use super::answer::Json;
use super::budget::Share;
use super::doors::{Address, Source};
use super::guards::{self, By};
use super::input::{Unread, read_body};
use super::once::{self, Secrecy};
use super::problem::Problem;
use super::recents;

/// The answer to a test of the connection that some providers make by GET. Starts nothing, and stores nothing.
pub(crate) async fn greet(State(state): State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    let (address, source) = state.doors.at(request.uri().path())?;
    let (parts, _) = request.into_parts();
    let arrived = Arrived::of(&state, address, &parts);
    match source.provider.greeting(&arrived.request(), &source.trust) {
        Some(Ok(answer)) => {
            source.recents.greeted(arrived.now);
            Ok(said(answer))
        }
        Some(Err(error)) => {
            source.recents.handshake_refused(arrived.now);
            Err(Problem::handshake_refused(error))
        }
        None => {
            let why = format!("{} sends by POST; only that does anything here", source.provider);
            let mut refused = Problem::method_not_allowed(why).into_response();
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            Ok(refused)
        }
    }
}

pub(crate) async fn deliver(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Problem> {
    let (address, source) = state.doors.at(request.uri().path())?;
    let (parts, body) = request.into_parts();
    let mut arrived = Arrived::of(&state, address, &parts);
    let now = arrived.now;
    if let Err(error) = source.provider.verify_head(&arrived.request(), &source.trust, now) {
        tracing::debug!(source = arrived.address.name, %error, "a signature does not verify, whatever the body");
        let mut reason = error.to_string();
        match read_body(&parts, body, limits::UNSIGNED_BODY_BYTES_MAX).await {
            Ok(body) => arrived.body = body,
            Err(Unread::TooLarge { max }) => {
                reason = format!("{error} (the body is larger than {max} bytes and was not read)");
            }
            Err(why) => return Err(why.into()),
        }
        if let Some(Ok(answer)) = source.provider.greeting(&arrived.request(), &source.trust) {
            source.recents.greeted(now);
            return Ok(said(answer));
        }
        keep_unverified(&state, source, &arrived, reason).await;
        return Err(Problem::invalid_signature(error));
    }
    arrived.body = read_body(&parts, body, body_max(&source.provider)).await?;
    let verdict = if arrived.body.len() <= limits::BODY_BYTES_FREE {
        judge(&state, source, arrived)
    } else {
        judge_apart(&state, arrived, parts.extensions.get().cloned()).await?
    };
    match verdict {
        Verdict::Unverified { arrived, error } => {
            tracing::debug!(source = arrived.address.name, %error, "a signature does not verify");
            let mut reason = error.to_string();
            if source.provider.signs_url() && matches!(error, SignatureError::Mismatch { .. }) {
                // Its query is the sender's own business.
                let address = arrived.url.split('?').next().unwrap_or_default();
                reason.push_str(&format!(
                    "; {} signs the address, and here it is `{address}`: is that what you entered there, to the letter?",
                    source.provider
                ));
            }
            keep_unverified(&state, source, &arrived, reason.clone()).await;
            Err(Problem::invalid_signature(reason))
        }
        Verdict::Handshake(answer) => {
            source.recents.greeted(now);
            Ok(answer.map_or_else(|| Json(json!({ "status": "handshake" })).into_response(), said))
        }
        Verdict::Events { call, answer } => {
            let name = call.source.clone();
            let taken = source.recents.take(&call, now);
            let admitted = state.gate.admit(*call).await?;
            source.recents.admitted(taken, admitted.iter().map(recents::verdict).collect(), now);
            tracing::debug!(source = name, ?admitted, "delivery");
            Ok(match answer {
                Some(answer) => said(answer),
                None => Json(acknowledged(&admitted)).into_response(),
            })
        }
    }
}

/// What this provider wants to hear, with exactly 200.
fn said(answer: Answer) -> Response {
    let mut response = answer.body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    response
}

/// How large a body may be. GitHub's hold whole pushes; everybody else sends forms and orders.
fn body_max(provider: &Provider) -> usize {
    match provider {
        Provider::Github => limits::INTAKE_GITHUB_BODY_BYTES_MAX,
        _ => limits::INTAKE_BODY_BYTES_MAX,
    }
}

/// A request as it came.
struct Arrived {
    address: Address,
    method: String,
    /// The public address with path and query.
    url: String,
    /// Path and query.
    path: String,
    headers: Headers,
    body: Vec<u8>,
    now: Timestamp,
}

impl Arrived {
    /// Its head; the body comes later.
    fn of(state: &AppState, address: Address, parts: &http::request::Parts) -> Self {
        let path = parts.uri.path_and_query().map_or(parts.uri.path(), |whole| whole.as_str()).to_owned();
        Self {
            address,
            method: parts.method.as_str().to_owned(),
            url: format!("{}{path}", state.base_url),
            path,
            headers: headers(&parts.headers),
            body: vec![],
            now: state.gate.store().now().wall,
        }
    }

    fn request(&self) -> webhook::Request<'_> {
        webhook::Request {
            method: &self.method,
            url: &self.url,
            tail: self.address.tail.as_deref(),
            headers: &self.headers,
            body: &self.body,
        }
    }

    /// Head and body as they are stored.
    fn kept(&self, state: &AppState, source: &Source, why: Kept) -> (String, Vec<u8>) {
        let secret = state.gate.store().secret();
        let (head, body) = source.provider.kept(&self.request(), &self.path, &source.trust, secret, why);
        (json!(head).to_string(), body)
    }
}

enum Verdict {
    Unverified { arrived: Arrived, error: SignatureError },
    Handshake(Option<Answer>),
    Events { call: Box<AdmitCall>, answer: Option<Answer> },
}

fn judge(state: &AppState, source: &Source, arrived: Arrived) -> Verdict {
    let provider = &source.provider;
    if let Err(error) = provider.verify(&arrived.request(), &source.trust, arrived.now) {
        return Verdict::Unverified { arrived, error };
    }
    match provider.read(&arrived.request(), &arrived.address.name, &source.rules) {
        Read::Handshake(answer) => Verdict::Handshake(answer),
        Read::Events(events) => {
            let answer = provider.acknowledgement(&arrived.request());
            let of_batch = events.iter().any(|event| event.of_batch);
            let kept = arrived.kept(state, source, Kept::Verified { of_batch });
            let named = (source, arrived.address.name.as_str());
            let call = admit_call(state, named, &arrived.request(), kept, events, By::Itself);
            Verdict::Events { call: Box::new(call), answer }
        }
    }
}

/// Judges a large body where it keeps nobody waiting. If the sender hangs up, the work goes on to its end, and with
/// it the body's share of the memory.
async fn judge_apart(
    state: &Arc<AppState>,
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
        let Address { workspace, name, .. } = &arrived.address;
        let verdict = state.doors.source(*workspace, name).map(|source| judge(&state, source, arrived));
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
        Admitted::SetAside { kind, .. } => kind.answer(),
        Admitted::Rejected { .. } => "stored, not run: no identity",
    };
    let first = admitted.first().map_or("nothing in it", status);
    let all_alike = admitted.iter().all(|one| status(one) == first);
    json!({ "status": if all_alike { first } else { "mixed" }, "events": admitted.len() })
}

fn admit_call(
    state: &AppState,
    (source, name): (&Source, &str),
    request: &webhook::Request<'_>,
    (head, body): (String, Vec<u8>),
    events: Vec<webhook::Event>,
    by: By,
) -> AdmitCall {
    let arrivals = Arrivals::new(&state.gate, source.workspace, &source.automation, None);
    let event = |event: webhook::Event| {
        let aside = guards::aside(source, request.headers, &event.payload, by);
        let sender = guards::sender(state, (source, name), request.headers, &event.payload);
        let scrub = |json| source.provider.scrubbed(json, request, &source.trust);
        AdmitEvent { aside, sender, ..arrivals.event(request.headers, event, scrub) }
    };
    let events = events.into_iter().map(event).collect();
    AdmitCall {
        workspace: source.workspace,
        source: name.to_owned(),
        automation: source.automation.clone(),
        headers: head,
        body,
        events,
        releases: None,
        actor: format!("source:{name}"),
    }
}

async fn keep_unverified(state: &AppState, source: &Source, arrived: &Arrived, mut reason: String) {
    let (head, mut body) = arrived.kept(state, source, Kept::Unverified);
    if body.len() > limits::UNVERIFIED_BODY_BYTES_MAX {
        reason = format!("{reason} (the body of {} bytes was not kept)", body.len());
        body = vec![];
    }
    let name = &arrived.address.name;
    source.recents.unverified(&head, &body, &reason, arrived.now);
    let call = UnverifiedCall {
        workspace: source.workspace,
        source: name.clone(),
        automation: source.automation.clone(),
        headers: head,
        body,
        reason,
    };
    // The sender is refused either way, and a genuine one comes again.
    if let Err(error) = state.gate.store().keep_unverified(call).await {
        tracing::error!(source = name, %error, "could not keep a request whose signature did not verify");
    }
}

fn headers(headers: &HeaderMap) -> Headers {
    Headers::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
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
    let waits = matches!(row.verdict.as_str(), "rejected" | "unverified");
    if !waits && Aside::parse(&row.verdict).is_none() {
        return Err(Problem::nothing_to_do(format!("this delivery is {} already", row.verdict)));
    }
    let source = state.doors.brings(doing.caller.workspace, &row.source).ok_or_else(|| {
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
    let url = format!("{}{}", state.base_url, headers.stored_path().unwrap_or_default());
    let request = webhook::Request::post(&url, &headers, &body);
    // What was verified at the door is not verified again: a later secret or clock would refuse it (C70).
    if row.verdict == "unverified" {
        let secret = state.gate.store().secret();
        source.provider.verify_stored(&request, &source.trust, secret, row.received_at).map_err(|e| {
            Problem::invalid_signature(format!("it still does not verify, as of its arrival: {e}"))
        })?;
    }
    let Read::Events(events) = source.provider.read(&request, &row.source, &source.rules) else {
        return Err(Problem::nothing_to_do("it is a handshake; there is nothing to run"));
    };
    if let Some(why) = events.iter().find_map(|e| e.identity.as_ref().err()) {
        return Err(Problem::invalid_field(format!("it still has no identity: {why}")));
    }
    if let Some(why) = events.iter().find_map(|e| guards::elsewhere(source, &headers, &e.payload)) {
        return Err(Problem::invalid_field(format!("it still is of another environment: {why}")));
    }
    let of_batch = events.iter().any(|event| event.of_batch);
    let secret = state.gate.store().secret();
    let path = headers.stored_path().unwrap_or_default();
    let (head, body) =
        source.provider.kept(&request, path, &source.trust, secret, Kept::Verified { of_batch });
    let kept = (json!(head).to_string(), body);
    Ok(admit_call(state, (source, &row.source), &request, kept, events, By::Person))
}

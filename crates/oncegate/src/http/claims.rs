//! `POST /v1/claims`: may I run?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use oncegate_core::claim::Holder;
use oncegate_core::decide::{self, Decision, Start, StopReason};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::identity::Sent;
use oncegate_core::key::{AutomationName, ClaimRef, RecordName, RunId};
use oncegate_core::limits;
use oncegate_core::policy::{Ttl, parse_duration};
use oncegate_core::token::Fence;
use oncegate_store::api::{ClaimCall, Payload, Target};

use super::answer::Json;
use super::auth::Caller;
use super::input::Fields;
use super::problem::Problem;
use super::{AppState, answer, naming};

const TAKES: &str = "automation, idempotency_key or key_fields, identity_fields, record, parent, run_id, run_url, payload, \
     ttl, wait, stop_status";

pub(crate) async fn claim(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let Asked { call, shown_key, wait, stop_status } = asked(Fields::read(request).await?, &state, &caller)?;
    let claimed = state.gate.claim(call, wait).await?;
    let Some(claimed) = claimed else {
        return Err(parent_lost());
    };
    let status = match &claimed.decision {
        Decision::Run(_) | Decision::Queued(_) => StatusCode::OK,
        Decision::Stop { reason: StopReason::FlagUnreadable, .. } => StatusCode::SERVICE_UNAVAILABLE,
        Decision::Stop { .. } => stop_status,
    };
    let body = answer::decision(&claimed, &shown_key, &state.base_url);
    // Words of ours alone: keys and notes may name people.
    tracing::debug!(claim = %claimed.id, decision = body.decision, reason = body.reason, "claim");
    let retry_after = body.retry_after_s;
    let mut response = (status, Json(body)).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    // The token in it is a secret of this caller.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A claim call as it was asked.
pub(crate) struct Asked {
    pub(crate) call: ClaimCall,
    pub(crate) shown_key: String,
    pub(crate) wait: Duration,
    pub(crate) stop_status: StatusCode,
}

/// Reads a claim call; a batch reads each of its items so.
pub(crate) fn asked(mut fields: Fields, state: &AppState, caller: &Caller) -> Result<Asked, Problem> {
    let automation = named(&fields.required("automation")?, "automation")?;
    caller.may_touch(&automation)?;
    let rules = state.gate.book().automation(caller.workspace, &automation).callers;
    let key_fields = fields.value("key_fields");
    let key = naming::key(fields.text("idempotency_key")?, key_fields.as_ref(), &rules)?;
    let identity_fields = naming::members(fields.value("identity_fields"), "identity_fields")?;
    let record = fields.text("record")?.map(|t| name::<RecordName>(&t, "record")).transpose()?;
    let run_id = fields.text("run_id")?.map(|t| name::<RunId>(&t, "run_id")).transpose()?;
    let run_url = run_url(fields.text("run_url")?)?;
    let parent = match fields.text("parent")? {
        None => None,
        Some(token) => Some(parent(state, caller, &token)?),
    };
    let payload = fields.value("payload");
    let ttl = fields.text("ttl")?.map(|t| ttl(&t)).transpose()?;
    let wait = fields.text("wait")?.map_or(Ok(Duration::ZERO), |t| wait(&t))?;
    let stop_status = match fields.text("stop_status")? {
        None => StatusCode::OK,
        Some(text) => answer::stop_status(&text)
            .ok_or_else(|| Problem::field("stop_status", "must be a status from 400 to 499, e.g. 409"))?,
    };
    fields.finish(TAKES)?;
    let sent = Sent {
        payload: payload.as_ref(),
        key_fields: key_fields.as_ref(),
        identity_fields: identity_fields.as_ref(),
    };
    let about =
        rules.identity(sent).map_err(|(member, why)| naming::unfit("identity_fields", &member, &why))?;
    let secret = state.gate.store().secret();
    let likeness = rules
        .repeat(sent)
        .map(|(subject, within)| subject.likeness(secret, caller.workspace, &automation, within));

    let shown_key = key.to_string();
    let call = ClaimCall {
        target: Target::Key { workspace: caller.workspace, automation, key },
        request: decide::Request {
            start: Start::Now(Holder::Caller { run_id }),
            fingerprint: payload.as_ref().map(|p| Fingerprint::of(p, &[])),
            record,
            ttl,
            correction: false,
            likeness,
            identity: about.map(|subject| subject.print(secret, caller.workspace)),
            dated: None,
        },
        run_url,
        parent,
        payload: payload.map(|p| {
            let json = p.to_string();
            Payload { body: json.clone().into_bytes(), json }
        }),
        actor: caller.actor.clone(),
        again: false,
    };
    Ok(Asked { call, shown_key, wait, stop_status })
}

const PARENT_LOST: &str = "is the token of an attempt that no longer holds its claim, or whose lease has ended; send a \
     heartbeat of it first, or claim without it";

/// A claim that is named by its key is always found; what may be gone is the parent.
pub(crate) fn parent_lost() -> Problem {
    Problem::field("parent", PARENT_LOST)
}

/// The attempt that the caller works for, proved by its token.
fn parent(state: &AppState, caller: &Caller, token: &str) -> Result<(ClaimRef, Fence), Problem> {
    let known = state.gate.store().secret().read_token(token.trim());
    known.filter(|(claim, _)| claim.workspace == caller.workspace).ok_or_else(|| {
        Problem::field(
            "parent",
            "is not the token of a claim; send the `token` that the parent's claim was answered with",
        )
    })
}

/// An automation's name from a field or a path.
pub(crate) fn named(text: &str, field: &str) -> Result<AutomationName, Problem> {
    AutomationName::try_from(text).map_err(|e| Problem::field(field, e))
}

pub(super) fn name<'a, T>(text: &'a str, field: &str) -> Result<T, Problem>
where
    T: TryFrom<&'a str>,
    T::Error: std::fmt::Display,
{
    T::try_from(text).map_err(|e| Problem::field(field, e))
}

/// Two ids whose bytes were lost on the way look alike.
pub(super) fn undamaged(text: &str, field: &str) -> Result<(), Problem> {
    match text.contains('\u{fffd}') {
        true => Err(Problem::field(
            field,
            "holds a replacement character (U+FFFD): its text was damaged on the way; send it as UTF-8",
        )),
        false => Ok(()),
    }
}

fn run_url(text: Option<String>) -> Result<Option<String>, Problem> {
    let Some(url) = text else { return Ok(None) };
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.and_then(|rest| rest.split(['/', '\\', '?', '#']).next()).unwrap_or_default();
    if authority.contains('@') {
        return Err(Problem::field(
            "run_url",
            "must not carry a user name or password: people see it in lists",
        ));
    }
    if authority.is_empty()
        || url.len() > limits::RUN_URL_BYTES_MAX
        || url.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Err(Problem::field(
            "run_url",
            format!("must be an http or https URL of at most {} bytes", limits::RUN_URL_BYTES_MAX),
        ));
    }
    Ok(Some(url))
}

fn ttl(text: &str) -> Result<Ttl, Problem> {
    parse_duration(text).and_then(Ttl::new).map_err(|e| Problem::field("ttl", e))
}

fn wait(text: &str) -> Result<Duration, Problem> {
    let wait = match text.trim().parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_duration(text).map_err(|e| Problem::field("wait", e))?,
    };
    if wait > limits::WAIT_MAX {
        return Err(Problem::field("wait", format!("is longer than {} s", limits::WAIT_MAX.as_secs())));
    }
    Ok(wait)
}

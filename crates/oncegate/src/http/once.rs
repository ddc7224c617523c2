//! Our own writes happen once per `Idempotency-Key`: a repeat is given the first answer.
//!
//! A repeat is known before its handler looks at anything, because a repeat of a reset would find nothing left to
//! reset. The store asks once more inside the transaction that writes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use oncegate_core::key::sha256;
use oncegate_core::time::Now;
use oncegate_core::{header_key, limits};
use oncegate_store::people::{self, Kept, Known, Once, Write, Written, Wrote};
use serde_json::Value;

use super::AppState;
use super::answer::Json;
use super::auth::Caller;
use super::input::read_body;
use super::problem::Problem;
use super::whole::whole;

/// Tells a repeat from a first answer.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A write, ready to be asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(Option<people::Request>);

/// What was found out before is handed on in the request; without the header there is nothing.
pub(crate) fn named(extensions: &http::Extensions) -> Named {
    extensions.get::<Named>().cloned().unwrap_or_default()
}

/// A call that names itself: one that goes on to its handler, or the answer to a repeat.
///
/// # Errors
/// The key cannot be read, or was used for another call.
pub(crate) async fn first(
    state: &AppState,
    caller: &Caller,
    request: Request,
) -> Result<Result<Request, Response>, Problem> {
    let fields = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let key = header_key::read(fields).map_err(Problem::invalid_idempotency_key)?;
    let Some(key) = key else { return Ok(Ok(request)) };
    let (mut parts, body) = request.into_parts();
    let body = read_body(&parts, body, limits::API_BODY_BYTES_MAX).await?;
    let address = parts.uri.path_and_query().map_or("", |a| a.as_str());
    let token = caller.token_id.to_string();
    // No part but the last can hold a line feed, so two calls never look alike.
    let told = [parts.method.as_str(), "\n", address, "\n", &token, "\n"].concat();
    let fingerprint = sha256(&[told.as_bytes(), &body].concat());
    let named = people::Request { workspace: caller.workspace, key, fingerprint };
    if let Some(known) = state.gate.store().known_request(named.clone()).await? {
        return before(known).map(Err);
    }
    parts.extensions.insert(Named(Some(named)));
    Ok(Ok(Request::from_parts(parts, Body::from(body))))
}

fn before(known: Known) -> Result<Response, Problem> {
    match known {
        Known::Answered(Kept { status, body: Some(body) }) => {
            let status = StatusCode::from_u16(status)
                .map_err(|_| Problem::internal("a stored answer has a status that is none"))?;
            let json = HeaderValue::from_static("application/json");
            let headers = [(header::CONTENT_TYPE, json), (REPLAYED, HeaderValue::from_static("true"))];
            Ok((status, headers, body).into_response())
        }
        Known::Answered(Kept { body: None, .. }) => Err(Problem::answer_not_kept(
            "this call has been done before; its answer held a secret, which is shown once and never stored. Revoke what \
             was made, and call again with another Idempotency-Key",
        )),
        Known::Reused => Err(Problem::idempotency_key_reused(
            "this Idempotency-Key was used within 24 hours for another call, body or token; send a new key for a new call",
        )),
    }
}

/// Whether the answer may lie in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// It is kept for a repeat.
    Open,
    /// It holds a secret: a repeat is told that it was done, not what was answered.
    ShownOnce,
}

/// Writes, once if the call is named, and answers. `show` makes the answer of what was written, inside the
/// transaction and again after it: it must say the same both times. A refusal is not kept.
pub(crate) async fn write<F>(
    state: &Arc<AppState>,
    named: Named,
    secrecy: Secrecy,
    write: Write,
    show: F,
) -> Result<Response, Problem>
where
    F: Fn(&Written, Now) -> Result<Value, Problem> + Send + Sync + 'static,
{
    let show = Arc::new(show);
    let once = named.0.map(|request| {
        let show = Arc::clone(&show);
        let answering = move |written: &Written, now: Now| {
            let body = show(written, now).ok()?;
            let body = (secrecy == Secrecy::Open).then(|| format!("{body}\n"));
            Some(Kept { status: 200, body })
        };
        Once { request, answering: Arc::new(answering) }
    });
    let (gate, ends_a_token) = (Arc::clone(state), matches!(write, Write::RevokeToken { .. }));
    let wrote = whole(async move {
        let wrote = gate.gate.write(write, once).await;
        if ends_a_token {
            gate.tokens.forget_all();
        }
        wrote
    });
    match wrote.await?? {
        Wrote::Now(written, now) => Ok(Json(show(&written, now)?).into_response()),
        Wrote::Before(known) => before(known),
    }
}

/// What a write led to is always of its own kind.
pub(crate) fn odd() -> Problem {
    Problem::internal("the store answered another call than the one it was asked")
}

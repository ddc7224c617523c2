//! Who may call: a bearer token whose hash the store knows. Capability URLs carry a claim's token instead.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, header};
use oncegate_core::key::sha256;

use super::AppState;
use super::problem::Problem;

/// The name of the token that made a call, for the audit.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub(crate) String);

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Lets a request through if its bearer token is known. Tokens are looked up by their SHA-256 hash, so that nothing
/// about a token can be learnt from how long a refusal takes.
pub(crate) async fn require_token(
    State(state): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.headers().get(header::AUTHORIZATION).is_some_and(|v| v.to_str().is_err()) {
        return Err(Problem::invalid_credentials(
            "the token holds characters that no token of this server has",
        ));
    }
    let Some(token) = bearer(request.headers()) else {
        return Err(Problem::missing_credentials(
            "send the header `Authorization: Bearer <token>`; the admin token was printed at the first start",
        ));
    };
    let hash = sha256(token.as_bytes());
    let known = state.known_token(&hash);
    let name = match known {
        Some(name) => Some(name),
        None => state.gate.store().api_token(hash).await?.inspect(|name| state.remember_token(hash, name)),
    };
    let Some(name) = name else {
        return Err(Problem::invalid_credentials(
            "this token is not known to this server; is it whole, and of this data directory? If the admin token is lost, \
             start once with ONCEGATE_ADMIN_TOKEN",
        ));
    };
    request.extensions_mut().insert(Actor(format!("token:{name}")));
    Ok(next.run(request).await)
}

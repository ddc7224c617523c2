//! What is done around each request: it gets an id, is counted, and can be seen in the log.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use oncegate_runner::entropy;

use super::AppState;
use super::problem::Refused;
use crate::metrics::Answered;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ONCEGATE_TIME: HeaderName = HeaderName::from_static("oncegate-time");

tokio::task_local! {
    static ID: HeaderValue;
}

/// Makes ids for requests that bring none: the start of this process, and a number.
pub(crate) struct RequestIds {
    start: String,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        let start = data_encoding::HEXLOWER.encode(&entropy::bytes::<4>());
        Self { start, next: AtomicU64::new(1) }
    }

    /// The caller's own, if it is one word of the kind that tools make; anything else could be somebody's address.
    fn of(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(sent) = headers.get(X_REQUEST_ID).filter(|sent| is_sane(sent.as_bytes())) {
            return sent.clone();
        }
        let made = format!("{}-{}", self.start, self.next.fetch_add(1, Ordering::Relaxed));
        // Letters, digits and a dash.
        HeaderValue::try_from(made).unwrap_or(HeaderValue::from_static("none"))
    }
}

fn is_sane(id: &[u8]) -> bool {
    (8..=64).contains(&id.len()) && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// The id of the request that is being answered, for problem documents and the log.
pub(crate) fn request_id() -> Option<String> {
    ID.try_with(|id| id.to_str().ok().map(str::to_owned)).ok().flatten()
}

/// What every answer gets, whoever makes it. `route` is the template of its address; `None`: what the router found,
/// if it found one.
pub(crate) async fn watched(
    state: &AppState,
    route: Option<&'static str>,
    request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let begun = state.gate.clock().read().monotonic;
    let id = state.request_ids.of(request.headers());
    let found = match route {
        Some(_) => None,
        None => request.extensions().get::<MatchedPath>().cloned(),
    };
    let route = match (route, &found) {
        (Some(route), _) => Cow::Borrowed(route),
        (None, Some(found)) => Cow::Owned(found.as_str().to_owned()),
        (None, None) => Cow::Borrowed("other"),
    };
    let method = word(request.method());
    let mut response = ID.scope(id.clone(), answer(request)).await;
    let one = Answered {
        route,
        method,
        status: response.status().as_u16(),
        refused: response.extensions().get::<Refused>().map(|refused| refused.0),
        took: state.gate.clock().read().monotonic.saturating_sub(begun),
    };
    state.health.metrics.answered(&one);
    // The template, never the address: keys, tokens and queries stand there.
    tracing::debug!(
        request = id.to_str().unwrap_or_default(),
        method,
        route = &*one.route,
        status = one.status,
        refused = one.refused,
        took_ms = u64::try_from(one.took.as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    let headers = response.headers_mut();
    // The store's clock: ages are told by it, not by the reader's own clock.
    if let Ok(now) = HeaderValue::from_str(&state.gate.store().now().wall.to_string()) {
        headers.insert(ONCEGATE_TIME, now);
    }
    headers.insert(X_REQUEST_ID, id);
    response
}

/// Anybody can make up methods.
fn word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_over_only_if_it_is_one_word() {
        let ids = RequestIds::new();
        let of = |sent: &'static str| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_static(sent))]);
            ids.of(&headers).to_str().unwrap().to_owned()
        };
        for sane in ["0af7651916cd43dd8448eb211c80319c", "6f1ed002-ab5b", "a.b_c-1234"] {
            assert_eq!(of(sane), sane);
        }
        for other in ["", "short", "ann@example.com", "two words here", "a/b/c/d/e", "\"quoted-one\""] {
            assert_ne!(of(other), other);
        }
        let (one, two) = (of("?"), of("?"));
        assert_ne!(one, two);
        assert!(is_sane(one.as_bytes()), "{one}");
    }
}

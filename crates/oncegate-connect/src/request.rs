//! What is to be sent, and its headers.

use std::fmt;
use std::time::Duration;

use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use oncegate_core::limits::STEP_ANSWER_BYTES_MAX;

use crate::guard::{self, Refusal};

/// One request, to be sent at most once per [`crate::Caller::call`].
#[derive(Clone)]
pub struct OutgoingRequest {
    /// Any but `CONNECT` and `TRACE`.
    pub method: Method,
    /// `http` or `https`, without user name and password; a fragment is not sent.
    pub url: String,
    /// Sent as they stand, in this order. Not among them: those that frame or route the request (`Host`,
    /// `Content-Length`, …) and the idempotency header, which are set here.
    pub headers: Vec<(String, String)>,
    /// Only a request with a body can be told *never sent* from *perhaps sent* to the byte, because it is the
    /// body that is watched. Without one, all that fails after connecting is unknown.
    pub body: Option<Vec<u8>>,
    /// The same on every attempt of one step (DESIGN §9, law 6). Visible ASCII, not empty.
    pub idempotency_key: String,
    /// The header that carries it; [`OutgoingRequest::IDEMPOTENCY_HEADER`] unless the receiver wants another.
    pub idempotency_header: HeaderName,
    /// From the first look-up of the name to the last byte of the answer.
    pub timeout: Duration,
    /// How much of the answer's body is read, in bytes; the rest is cut.
    pub answer_bytes_max: usize,
}

impl OutgoingRequest {
    /// `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).
    pub const IDEMPOTENCY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
    /// Enough for slow CRMs; below the lease of a step.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

    /// A request without further headers and body, with the defaults.
    pub fn new(method: Method, url: impl Into<String>, idempotency_key: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            body: None,
            idempotency_key: idempotency_key.into(),
            idempotency_header: Self::IDEMPOTENCY_HEADER,
            timeout: Self::TIMEOUT_DEFAULT,
            answer_bytes_max: STEP_ANSWER_BYTES_MAX,
        }
    }

    /// The headers as they go out, or which of them cannot.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let refuse = |why| Refusal::Header { name: shortened(name), why };
            let parsed: HeaderName =
                name.parse().map_err(|_| refuse("a name is made of letters, digits and hyphens"))?;
            if SET_BY_TRANSPORT.contains(&parsed) {
                return Err(refuse("it frames or routes the request and is set by oncegate; remove it"));
            }
            if parsed == self.idempotency_header {
                return Err(refuse("it carries the idempotency key and is set by oncegate; remove it"));
            }
            map.append(
                parsed,
                sensitive(value).ok_or_else(|| refuse("its value holds a line break or similar"))?,
            );
        }
        let key = if self.idempotency_key.is_empty() { None } else { sensitive(&self.idempotency_key) };
        let key = key.filter(|key| key.to_str().is_ok()).ok_or_else(|| Refusal::Header {
            name: shortened(self.idempotency_header.as_str()),
            why: "an idempotency key is visible ASCII and not empty",
        })?;
        map.insert(&self.idempotency_header, key);
        let empty = self.body.as_ref().is_none_or(Vec::is_empty);
        if empty && matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            // RFC 9110 §8.6; hyper leaves it out, and some servers answer 411 then.
            map.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Ok(map)
    }

    /// Refuses methods that ask for a tunnel or an echo.
    pub(crate) fn check_method(&self) -> Result<(), Refusal> {
        if matches!(self.method, Method::CONNECT | Method::TRACE) {
            return Err(Refusal::Method { method: self.method.to_string() });
        }
        Ok(())
    }
}

/// A second `Content-Length` or `Transfer-Encoding` makes two requests out of one ("request smuggling"); a
/// foreign `Host` gets around the guard behind a shared proxy; the rest speaks of the connection, which is
/// not the caller's (RFC 9110 §7.6.1), or asks the receiver to wait for a body that comes at once.
const SET_BY_TRANSPORT: [HeaderName; 10] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// All values count as secrets; which of them are, only the flow's author knows.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

impl fmt::Debug for OutgoingRequest {
    /// Leaves out what may be secret: path and query (hooks carry their key in the path), header values, body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to =
            guard::read_url(&self.url).map_or_else(|_| "(unreadable)".to_owned(), |u| guard::host_port(&u));
        f.debug_struct("OutgoingRequest")
            .field("method", &self.method)
            .field("to", &to)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("body_bytes", &self.body.as_ref().map(Vec::len))
            .field("idempotency_key", &self.idempotency_key)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<HeaderMap, Refusal> {
        let mut request = OutgoingRequest::new(Method::POST, "https://h/", "k-1");
        request.headers.push((name.to_owned(), value.to_owned()));
        request.header_map()
    }

    #[test]
    fn headers_that_would_break_the_request_are_refused() {
        for (name, value) in [
            ("Host", "h"),
            ("content-length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("IDEMPOTENCY-KEY", "mine"),
            ("X Y", "v"),
            ("X-Y", "a\r\nB: c"),
            ("", "v"),
        ] {
            let refused = with(name, value).unwrap_err();
            assert!(matches!(refused, Refusal::Header { .. }), "{name}");
            assert!(!refused.to_string().contains("mine"), "values are not shown");
        }
        assert!(with("X-Name", "Zoë").unwrap().contains_key("x-name"));
    }

    #[test]
    fn a_request_without_a_usable_key_is_refused() {
        for key in ["", "a\nb", "schlüssel"] {
            assert!(OutgoingRequest::new(Method::POST, "https://h/", key).header_map().is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_request_does_not_print_its_secrets() {
        let mut request = OutgoingRequest::new(Method::POST, "https://hooks.example/s3cret?s3cret", "k-1");
        request.headers.push(("Authorization".into(), "s3cret".into()));
        request.body = Some(b"s3cret".to_vec());
        let printed = format!("{request:?}");
        assert!(printed.contains("hooks.example:443") && printed.contains("Authorization"), "{printed}");
        assert!(!printed.contains("s3cret") && !printed.contains("115"), "{printed}");
    }
}

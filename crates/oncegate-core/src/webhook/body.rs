//! From a body's bytes to the JSON value that flows see.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::request::Request;

/// A body as JSON, and why its fields cannot be read if they cannot.
pub(super) struct Body {
    pub(super) payload: Value,
    pub(super) unreadable: Option<String>,
}

impl Body {
    /// Reads the body by its content type; never fails, because a verified event must be kept whatever it is.
    ///
    /// - empty: `null`.
    /// - `application/x-www-form-urlencoded`: an object of strings; a name sent more than once has an array
    ///   (a JSON object or list under that type is taken as JSON).
    /// - anything else that is JSON: that value (a byte order mark before it is skipped).
    /// - other UTF-8: one JSON string. Other bytes: `{"base64": "…"}`.
    pub(super) fn read(req: &Request<'_>) -> Self {
        if req.body.is_empty() {
            return Self { payload: Value::Null, unreadable: Some("the body is empty".to_owned()) };
        }
        if !is_form(req) {
            return Self::json(req.body);
        }
        // Home-grown senders (`curl -d`) post JSON under the form type, and no real form reads as JSON.
        let json =
            matches!(req.body.trim_ascii_start().first(), Some(b'{' | b'[')).then(|| Self::json(req.body));
        match json {
            Some(json) if json.unreadable.is_none() => json,
            _ => Self { payload: form(req.body), unreadable: None },
        }
    }

    /// Reads bytes that should be JSON.
    pub(super) fn json(bytes: &[u8]) -> Self {
        match serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)) {
            Ok(payload) => Self { payload, unreadable: None },
            Err(e) => {
                let payload = match std::str::from_utf8(bytes) {
                    Ok(text) => Value::String(text.to_owned()),
                    Err(_) => json!({ "base64": BASE64.encode(bytes) }),
                };
                Self { payload, unreadable: Some(format!("the body is not JSON ({e})")) }
            }
        }
    }
}

/// Whether the sender says that the body is a form.
pub(super) fn is_form(req: &Request<'_>) -> bool {
    let kind = req.headers.get("content-type").and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

fn form(bytes: &[u8]) -> Value {
    let mut members = Map::new();
    for (name, value) in form_urlencoded::parse(bytes) {
        let value = Value::String(value.into_owned());
        match members.get_mut(name.as_ref()) {
            None => {
                members.insert(name.into_owned(), value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Value::Object(members)
}

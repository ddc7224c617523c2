//! From a body's bytes to the JSON value that flows see.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::request::Request;
use crate::json::{self, JsonError, JsonFault, Twice};

/// A body as JSON, and why its fields cannot be read if they cannot.
pub(super) struct Body {
    pub(super) payload: Value,
    pub(super) unreadable: Option<String>,
    /// The member that its object names twice with different values: nobody can say what such a body means.
    pub(super) ambiguous: Option<String>,
}

impl Body {
    /// Reads the body by its content type; never fails, because a verified event must be kept whatever it is.
    ///
    /// - empty: `null`.
    /// - `application/x-www-form-urlencoded`: an object of strings; a name sent more than once has an array
    ///   (a JSON object or list under that type is taken as JSON).
    /// - anything else that is JSON: that value (a byte order mark before it is skipped).
    /// - other UTF-8, and JSON that names a member twice with different values: one JSON string.
    /// - other bytes: `{"base64": "…"}`.
    pub(super) fn read(req: &Request<'_>) -> Self {
        if req.body.is_empty() {
            let unreadable = Some("the body is empty".to_owned());
            return Self { payload: Value::Null, unreadable, ambiguous: None };
        }
        if !is_form(req) {
            return Self::json(req.body);
        }
        // Home-grown senders (`curl -d`) post JSON under the form type, and no real form reads as JSON.
        let json =
            matches!(req.body.trim_ascii_start().first(), Some(b'{' | b'[')).then(|| Self::json(req.body));
        match json {
            Some(json) if json.unreadable.is_none() || json.ambiguous.is_some() => json,
            _ => Self { payload: form(req.body), unreadable: None, ambiguous: None },
        }
    }

    /// Reads bytes that should be JSON.
    pub(super) fn json(bytes: &[u8]) -> Self {
        match json::read(bytes, Twice::RefusedIfDifferent) {
            Ok(payload) => Self { payload, unreadable: None, ambiguous: None },
            Err(JsonError { path, fault }) => {
                let payload = match std::str::from_utf8(bytes) {
                    Ok(text) => Value::String(text.to_owned()),
                    Err(_) => json!({ "base64": BASE64.encode(bytes) }),
                };
                let ambiguous = path.filter(|_| fault == JsonFault::Twice);
                let why = match fault {
                    JsonFault::Syntax(why) => format!("the body is not JSON ({why})"),
                    JsonFault::NotUtf8 { .. } | JsonFault::Twice | JsonFault::TooDeep => {
                        format!("the body is not JSON ({fault})")
                    }
                };
                Self { payload, unreadable: Some(why), ambiguous }
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

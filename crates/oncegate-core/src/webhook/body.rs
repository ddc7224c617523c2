//! From a body's bytes to the JSON value that flows see.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::multipart;
use super::request::Request;
use crate::json::{self, JsonError, JsonFault, Twice};

/// A body as JSON, and why its fields cannot be read if they cannot.
pub(super) struct Body {
    pub(super) payload: Value,
    pub(super) unreadable: Option<String>,
    /// The member that its object names twice with different values: nobody can say what such a body means.
    pub(super) ambiguous: Option<String>,
    /// It was taken out of a list or an envelope, so it is not the body as it came.
    pub(super) part: bool,
}

impl Body {
    /// Reads the body by its content type; never fails, because a verified event must be kept whatever it is.
    ///
    /// - empty: `null`.
    /// - `multipart/form-data`: an object likewise; of files their name, kind and content (see `multipart.rs`).
    /// - `application/x-www-form-urlencoded`: an object of strings; a name sent more than once has an array
    ///   (a JSON object or list under that type is taken as JSON).
    /// - anything else that is JSON: that value (a byte order mark before it is skipped).
    /// - other UTF-8, and JSON that names a member twice with different values: one JSON string.
    /// - other bytes: `{"base64": "…"}`.
    pub(super) fn read(req: &Request<'_>) -> Self {
        if req.body.is_empty() {
            let unreadable = Some("the body is empty".to_owned());
            return Self { unreadable, ..Self::of(Value::Null) };
        }
        let (form, multipart) = (is_form(req), multipart::is_multipart(req));
        if !form && !multipart {
            return Self::json(req.body);
        }
        // Home-grown senders (`curl -d`) post JSON under the form type, and no real form reads as JSON. Parts of
        // batches and what was redacted are stored as JSON under the type they came with.
        let json =
            matches!(req.body.trim_ascii_start().first(), Some(b'{' | b'[')).then(|| Self::json(req.body));
        match json {
            Some(json) if json.unreadable.is_none() || json.ambiguous.is_some() => json,
            _ if multipart => multipart::read(req),
            _ => Self::of(self::form(req.body)),
        }
    }

    /// One that could be read.
    pub(super) fn of(payload: Value) -> Self {
        Self { payload, unreadable: None, ambiguous: None, part: false }
    }

    /// One of those that a body was taken apart into.
    pub(super) fn part(payload: Value) -> Self {
        Self { part: true, ..Self::of(payload) }
    }

    /// The JSON that a form carries in its field `payload`, if it is one.
    pub(super) fn wrapped(self, req: &Request<'_>) -> Self {
        match self.payload.get("payload") {
            Some(Value::String(json)) if is_form(req) => Self::json(json.as_bytes()),
            _ => self,
        }
    }

    /// Each item of a list as an event of its own; anything else as one event.
    pub(super) fn items(self) -> Vec<Self> {
        match self.payload {
            Value::Array(items) => items.into_iter().map(Self::part).collect(),
            payload => vec![Self::of(payload)],
        }
    }

    /// What cannot be read, as text or base64, and why.
    pub(super) fn unreadable(bytes: &[u8], why: String) -> Self {
        let payload = match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => json!({ "base64": BASE64.encode(bytes) }),
        };
        Self { unreadable: Some(why), ..Self::of(payload) }
    }

    /// Reads bytes that should be JSON.
    pub(super) fn json(bytes: &[u8]) -> Self {
        match json::read(bytes, Twice::RefusedIfDifferent) {
            Ok(payload) => Self::of(payload),
            Err(JsonError { path, fault }) => {
                let ambiguous = path.filter(|_| fault == JsonFault::Twice);
                let why = match fault {
                    JsonFault::Syntax(why) => format!("the body is not JSON ({why})"),
                    JsonFault::NotUtf8 { .. } | JsonFault::Twice | JsonFault::TooDeep => {
                        format!("the body is not JSON ({fault})")
                    }
                };
                Self { ambiguous, ..Self::unreadable(bytes, why) }
            }
        }
    }
}

/// Whether the sender says that the body is a form.
pub(super) fn is_form(req: &Request<'_>) -> bool {
    req.content_type() == "application/x-www-form-urlencoded"
}

fn form(bytes: &[u8]) -> Value {
    let mut members = Map::new();
    for (name, value) in form_urlencoded::parse(bytes) {
        add(&mut members, name.into_owned(), Value::String(value.into_owned()));
    }
    Value::Object(members)
}

/// A name that comes more than once has a list.
pub(super) fn add(members: &mut Map<String, Value>, name: String, value: Value) {
    match members.get_mut(&name) {
        None => {
            members.insert(name, value);
        }
        Some(Value::Array(values)) => values.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
    }
}

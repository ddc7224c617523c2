//! What a caller sent, whichever way: JSON, form fields or the query string, all read into one set of fields.
//!
//! No-code tools send numbers as text and empty text for what is missing; both are understood.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use http::request::Parts;
use http::{HeaderMap, Uri, header};
use http_body_util::BodyExt;
use oncegate_core::json::{self, JsonError, JsonFault, Twice};
use oncegate_core::limits;
use serde_json::{Map, Value};

use super::budget::Share;
use super::form;
use super::problem::Problem;
use crate::config::nearest;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge {
        max: usize,
    },
    TooSlow,
    BrokenOff,
    /// Others take up the memory that there is for bodies.
    NoRoom,
}

impl From<Unread> for Problem {
    fn from(why: Unread) -> Self {
        match why {
            Unread::TooLarge { max } => Self::body_too_large(format!("the body is larger than {max} bytes")),
            Unread::TooSlow => Self::body_timeout(format!(
                "the body did not arrive within {} s",
                limits::BODY_READ_TIME_MAX.as_secs()
            )),
            Unread::BrokenOff => Self::unreadable_body("the body broke off"),
            Unread::NoRoom => Self::overloaded(
                "too many large bodies arrive at this moment; nothing was written, send it again",
            ),
        }
    }
}

/// Reads a body within a limit of size and time, and within what all bodies together may take up.
///
/// # Errors
/// Too large, too slow, broken off, or too much for now.
pub(crate) async fn read_body(parts: &Parts, body: Body, max: usize) -> Result<Vec<u8>, Unread> {
    let share = parts.extensions.get::<Arc<Share>>();
    let read = tokio::time::timeout(limits::BODY_READ_TIME_MAX, collect(share, body, max));
    read.await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(share: Option<&Arc<Share>>, mut body: Body, max: usize) -> Result<Vec<u8>, Unread> {
    // Announced to be too large: not a byte of it is of use.
    if body.size_hint().lower() > max as u64 {
        return Err(Unread::TooLarge { max });
    }
    let counted = |bytes: usize| bytes.saturating_sub(limits::BODY_BYTES_FREE);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::BrokenOff)?.into_data() else { continue };
        let size = bytes.len() + data.len();
        if size > max {
            return Err(Unread::TooLarge { max });
        }
        let more = counted(size) - counted(bytes.len());
        if more > 0 && share.is_some_and(|share| !share.take(more)) {
            return Err(Unread::NoRoom);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The fields of one request.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    fields: Map<String, Value>,
}

/// How strictly a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// What is not understood is refused.
    Strict,
    /// The token in the URL is what counts: a finish call is not refused for its body.
    Lenient,
}

impl Reading {
    fn twice(self) -> Twice {
        match self {
            Self::Strict => Twice::Refused,
            Self::Lenient => Twice::First,
        }
    }
}

impl Fields {
    /// Query string and body of a request, strictly.
    pub(crate) async fn read(request: Request) -> Result<Self, Problem> {
        Self::read_up_to(request, limits::API_BODY_BYTES_MAX).await
    }

    /// The same, of a call whose body may have up to `max` bytes.
    pub(crate) async fn read_up_to(request: Request, max: usize) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let mut fields = Self::query(&parts.uri)?;
        let body = read_body(&parts, body, max).await?;
        fields.merge(Self::body(&parts.headers, &body, Reading::Strict)?, Reading::Strict)?;
        Ok(fields)
    }

    /// What the body adds to the query string, leniently; and why it could not be read, if so.
    pub(crate) async fn add_body(&mut self, parts: &Parts, body: Body) -> Result<Option<Unread>, Problem> {
        let body = match read_body(parts, body, limits::API_BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(why) => return Ok(Some(why)),
        };
        if let Ok(body) = Self::body(&parts.headers, &body, Reading::Lenient) {
            self.merge(body, Reading::Lenient)?;
        }
        Ok(None)
    }

    /// The query string alone.
    ///
    /// # Errors
    /// A field is given twice, or cannot be read.
    pub(crate) fn query(uri: &Uri) -> Result<Self, Problem> {
        Self::query_as(uri, Reading::Strict)
    }

    /// The query string alone, of two different values the first.
    pub(crate) fn query_leniently(uri: &Uri) -> Result<Self, Problem> {
        Self::query_as(uri, Reading::Lenient)
    }

    fn query_as(uri: &Uri, reading: Reading) -> Result<Self, Problem> {
        Ok(Self { fields: form::read(uri.query().unwrap_or_default().as_bytes(), reading)? })
    }

    pub(crate) fn body(
        headers: &HeaderMap,
        body: &[u8],
        reading: Reading,
    ) -> Result<Map<String, Value>, Problem> {
        let body = json::without_mark(body);
        let Some(first) = body.iter().find(|b| !b.is_ascii_whitespace()) else { return Ok(Map::new()) };
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            // `curl -d '{…}'` announces a form and sends JSON; no form starts with a brace.
            _ if *first == b'{' || kind.ends_with("json") => match json::read(body, reading.twice()) {
                Ok(Value::Object(fields)) => form::gathered(fields, reading),
                Ok(_) => Err(Problem::unreadable_body("the body must be a JSON object")),
                Err(e) => Err(not_json(e)),
            },
            "application/x-www-form-urlencoded" | "" => form::read(body, reading),
            other => Err(Problem::unsupported_content_type(format!(
                "`{}` is not understood; send application/json or application/x-www-form-urlencoded",
                json::told(other)
            ))),
        }
    }

    fn merge(&mut self, body: Map<String, Value>, reading: Reading) -> Result<(), Problem> {
        if self.fields.is_empty() {
            self.fields = body;
            return Ok(());
        }
        for (name, value) in body {
            match self.fields.get(&name) {
                Some(other) if *other != value && reading == Reading::Strict => {
                    return Err(Problem::field(
                        &name,
                        "is given twice, in the query and in the body, and differs",
                    ));
                }
                // The URL was made by oncegate; what a no-code tool adds to the body is not to replace it.
                Some(_) => {}
                None => {
                    self.fields.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// Takes a text field; blank counts as absent, whole numbers count as text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) if s.trim().is_empty() => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(Value::Number(n)) if n.is_i64() || n.is_u64() => Ok(Some(n.to_string())),
            Some(other) => Err(Problem::field(name, format!("must be text, not {}", kind(&other)))),
        }
    }

    /// Takes a text field that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, Problem> {
        self.text(name)?.ok_or_else(|| Problem::field(name, "is missing or blank"))
    }

    /// Takes a yes-or-no field.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(b)),
            Some(Value::String(s)) => match s.trim().to_ascii_lowercase().as_str() {
                "" => Ok(None),
                "true" | "1" | "yes" => Ok(Some(true)),
                "false" | "0" | "no" => Ok(Some(false)),
                _ => Err(Problem::field(name, "must be true or false")),
            },
            Some(_) => Err(Problem::field(name, "must be true or false")),
        }
    }

    /// The members of a JSON object, to be read like those of a body.
    pub(crate) fn of(fields: Map<String, Value>) -> Self {
        Self { fields }
    }

    /// Takes any JSON value.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|v| !v.is_null())
    }

    /// Refuses what is left: a misspelt field must not be ignored.
    pub(crate) fn finish(self, takes: &str) -> Result<(), Problem> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(name) => {
                let known = takes.split(|c: char| !c.is_ascii_lowercase() && c != '_');
                let known = known.filter(|word| word.len() > 1 && *word != "or");
                let folded = name.to_lowercase().replace('-', "_");
                let told = match nearest(&folded, known) {
                    Some(meant) => format!("did you mean `{meant}`? This call takes {takes}"),
                    None => format!("this call takes {takes}"),
                };
                Err(Problem::field(name, format!("is not known here; {told}")))
            }
        }
    }
}

/// A member that can be named is a field that is wrong; a body that breaks elsewhere is none at all.
pub(super) fn not_json(error: JsonError) -> Problem {
    match error {
        JsonError { path: Some(path), fault: fault @ (JsonFault::Twice | JsonFault::NotUtf8 { .. }) } => {
            Problem::field(&path, fault)
        }
        error => Problem::unreadable_body(error),
    }
}

/// How JSON calls a value's type.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a fractional or huge number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

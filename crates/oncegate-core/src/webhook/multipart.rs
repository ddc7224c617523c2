//! Forms with files in them: `multipart/form-data` (RFC 7578).

use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use data_encoding::BASE64;
use encoding_rs::{Encoding, UTF_8};
use futures_util::stream;
use multer::bytes::Bytes;
use serde_json::{Map, Value, json};

use super::body::{self, Body};
use super::request::Request;
use crate::limits::MULTIPART_PARTS_MAX;

/// Whether the sender says that the body is such a form.
pub(super) fn is_multipart(req: &Request<'_>) -> bool {
    req.content_type() == "multipart/form-data"
}

struct Part {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    charset: Option<String>,
    content: Bytes,
}

/// Reads the form: an object of strings, a name sent more than once has a list. A file is an object of `filename`,
/// `content_type` and `base64`.
pub(super) fn read(req: &Request<'_>) -> Body {
    match parts(req) {
        Ok(parts) => Body::of(object(parts)),
        Err(why) => Body::unreadable(req.body, format!("the body is no whole multipart form ({why})")),
    }
}

/// The texts of a form one after another, none of them kept.
pub(super) fn texts(req: &Request<'_>, mut take: impl FnMut(&str, &str)) -> Result<(), String> {
    for part in parts(req)? {
        if let (None, Ok(text)) = (&part.file_name, std::str::from_utf8(&part.content)) {
            take(&part.name, text);
        }
    }
    Ok(())
}

/// Some senders leave out the quotes that `=`, `/` or `?` in a boundary would need (RFC 2045 §5.1).
fn boundary(content_type: &str) -> Result<String, String> {
    multer::parse_boundary(content_type).or_else(|e| {
        let at = content_type.to_ascii_lowercase().find("boundary=").map(|at| at + "boundary=".len());
        let bare = at
            .and_then(|at| content_type.get(at..)?.split(';').next())
            .map(|bare| bare.trim().trim_matches('"'));
        bare.filter(|bare| (1..=70).contains(&bare.len())).map(str::to_owned).ok_or_else(|| e.to_string())
    })
}

fn parts(req: &Request<'_>) -> Result<Vec<Part>, String> {
    let boundary = boundary(req.headers.get("content-type").unwrap_or_default())?;
    let whole = stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(req.body))]);
    let mut form = multer::Multipart::new(whole, boundary);
    let mut parts = vec![];
    while let Some(field) = at_once(form.next_field())?.map_err(|e| e.to_string())? {
        if parts.len() == MULTIPART_PARTS_MAX {
            return Err(format!("more than {MULTIPART_PARTS_MAX} parts"));
        }
        let charset = field.content_type().and_then(|kind| kind.get_param("charset"));
        parts.push(Part {
            name: field.name().unwrap_or_default().to_owned(),
            file_name: field.file_name().map(str::to_owned),
            content_type: field.content_type().map(ToString::to_string),
            charset: charset.map(|name| name.as_str().to_owned()),
            content: at_once(field.bytes())?.map_err(|e| e.to_string())?,
        });
    }
    Ok(parts)
}

/// The parser is made for bodies that still arrive. Ours is there, so it never waits.
fn at_once<T>(future: impl Future<Output = T>) -> Result<T, String> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err("it ends within a part".to_owned()),
    }
}

fn object(parts: Vec<Part>) -> Value {
    // SendGrid names the character sets of its fields in a field of its own (webhooks/README.md §3, "SendGrid").
    let named = parts.iter().find(|part| part.name == "charsets");
    let named: Map<String, Value> =
        named.and_then(|part| serde_json::from_slice(&part.content).ok()).unwrap_or_default();
    let mut members = Map::new();
    for part in parts {
        let charset = part.charset.as_deref().or_else(|| named.get(&part.name)?.as_str());
        let value = match &part.file_name {
            None => text(&part.content, charset),
            Some(name) => json!({
                "filename": name,
                "content_type": part.content_type,
                "base64": BASE64.encode(&part.content),
            }),
        };
        body::add(&mut members, part.name, value);
    }
    Value::Object(members)
}

/// Text by its character set; bytes that are no such text as base64.
fn text(content: &[u8], charset: Option<&str>) -> Value {
    let encoding = charset.and_then(|name| Encoding::for_label(name.as_bytes())).unwrap_or(UTF_8);
    match encoding.decode_without_bom_handling_and_without_replacement(content) {
        Some(text) => Value::String(text.into_owned()),
        None => json!({ "base64": BASE64.encode(content) }),
    }
}

//! Mailgun: HMAC-SHA256 over `timestamp` and `token`, hexadecimal, all three in the body (webhooks/README.md §2 and
//! §3, "Mailgun").
//!
//! The signature covers nothing of the event: whoever captured one could put another event under it for as long as
//! its time is believed. So a token stands for one event: a second one under it is parked, for a person to see.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::Request;
use super::body::Body;
use super::default_key::{DefaultKey, path};
use super::rules::{Rules, Signature, seconds, text};
use super::signature::{Algorithm, Encoding, SIGNATURE_HEADER_BYTES_MAX, SignatureError, any_fits};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{FieldPath, NoIdentity};
use crate::identity::{KeyField, Repeat};
use crate::time::Timestamp;

pub(super) struct Mailgun;

impl Rules for Mailgun {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    fn signs_in_body(&self) -> bool {
        true
    }

    /// What a route forwards is a form, with the three beside the mail's fields: they are put where they stand in
    /// JSON, so that a token is one event's whichever way it came.
    fn body(&self, req: &Request<'_>) -> Body {
        const SIGNED: [&str; 3] = ["timestamp", "token", "signature"];
        let mut body = Body::read(req);
        let Value::Object(members) = &mut body.payload else { return body };
        if SIGNED.iter().all(|name| members.get(*name).is_some_and(Value::is_string)) {
            let signed = SIGNED.map(|name| (name.to_owned(), members.remove(name).unwrap_or_default()));
            members.insert("signature".to_owned(), Value::Object(signed.into_iter().collect()));
        }
        body
    }

    /// Webhooks are named by their event; what a route forwards by its token, as nothing else names it.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        Some(match payload.get("event-data") {
            None => DefaultKey::body(["signature.token"]),
            Some(_) => DefaultKey::body(["event-data.id"]),
        })
    }

    /// Twice as long as its time is believed, before and after.
    fn repeat(&self) -> Option<Repeat> {
        let fields = vec![KeyField::from(path("signature.token"))];
        Some(Repeat { fields, within: Duration::from_secs(TOLERANCE_S * 2) })
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/event-data/event")
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        seconds(payload, "/event-data/timestamp")
    }

    /// Made anew for each attempt, perhaps.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![path("signature")]
    }
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    // There is no other way than to read it first; reading is bounded, and nothing is done with it.
    let body = Mailgun.body(req);
    let unreadable = |why: String| SignatureError::Unreadable { why };
    if let Some(member) = body.ambiguous {
        return Err(unreadable(NoIdentity::Ambiguous { member }.to_string()));
    }
    if let Some(why) = body.unreadable {
        return Err(unreadable(why));
    }
    let part = |name: &'static str, field: &'static str| {
        let found = text(&body.payload, &format!("/signature/{name}"));
        found
            .filter(|text| !text.is_empty() && text.len() <= SIGNATURE_HEADER_BYTES_MAX)
            .ok_or(SignatureError::MissingInBody { field })
    };
    let signature = part("signature", "signature.signature")?;
    let timestamp = part("timestamp", "signature.timestamp")?;
    let token = part("token", "signature.token")?;
    check_time("signature.timestamp", &timestamp, Unit::Seconds, TOLERANCE_S, now)?;
    let signatures = [Encoding::Hex.decode(&signature).unwrap_or_default()];
    let signed = [timestamp.as_bytes(), token.as_bytes()];
    any_fits("signature.signature", Algorithm::Sha256, keys, &signed, &signatures)
}

//! Mailgun: HMAC-SHA256 over `timestamp` and `token`, hexadecimal, all three in the body (webhooks/README.md §2 and
//! §3, "Mailgun").
//!
//! The signature covers nothing of the event: whoever captured one could put another event under it for as long as
//! its time is believed. So a token stands for one event: a second one under it is parked, for a person to see.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::FieldPath;
use super::Request;
use super::body::{Body, is_form};
use super::default_key::{DefaultKey, path};
use super::machine_mail::MailPlaces;
use super::multipart::{self, is_multipart};
use super::rules::{DefaultRepeat, Rules, Signature, seconds, text};
use super::signature::{Algorithm, Encoding, SIGNATURE_HEADER_BYTES_MAX, SignatureError, any_fits};
use super::timed::{TOLERANCE_S, Unit, check_time};
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
    fn repeat(&self) -> Option<DefaultRepeat> {
        let fields = vec![KeyField::from(path("signature.token"))];
        Some(DefaultRepeat::Always(Repeat { fields, within: Duration::from_secs(TOLERANCE_S * 2) }))
    }

    /// Of what routes forward (documentation.mailgun.com, "Receiving Messages via HTTP through a forward() action").
    fn mail(&self) -> Option<MailPlaces> {
        Some(MailPlaces {
            headers: Some(path("message-headers")),
            from: Some(path("from")),
            envelope_from: Some(path("sender")),
        })
    }

    /// What tells of a mail that was sent names its event, and may hold that mail's headers.
    fn is_mail(&self, payload: &Value) -> bool {
        payload.get("event-data").is_none() && payload.get("event").is_none()
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

/// The three that are signed, and nothing else of the body.
#[derive(Default, Deserialize)]
struct Signed {
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    signature: String,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    signature: Signed,
}

/// Anybody may send a body, and this is before anything proves who did: the rest of it is passed over, not built.
fn signed(req: &Request<'_>) -> Result<Signed, SignatureError> {
    let unreadable = |why: String| SignatureError::Unreadable { why };
    let mut signed = Signed::default();
    let mut take = |name: &str, value: &str| {
        let place = match name {
            "timestamp" => &mut signed.timestamp,
            "token" => &mut signed.token,
            "signature" => &mut signed.signature,
            _ => return,
        };
        if place.is_empty() && value.len() <= SIGNATURE_HEADER_BYTES_MAX {
            value.clone_into(place);
        }
    };
    let json = matches!(req.body.trim_ascii_start().first(), Some(b'{' | b'['));
    if !json && is_form(req) {
        form_urlencoded::parse(req.body).for_each(|(name, value)| take(&name, &value));
    } else if !json && is_multipart(req) {
        multipart::texts(req, |name, value| take(name, value)).map_err(unreadable)?;
    } else {
        // Of the reader's words only the place: they may quote the body.
        let read: Result<Envelope, _> = serde_json::from_slice(req.body);
        let why = |e: serde_json::Error| {
            format!("the body is not Mailgun's JSON (line {} column {})", e.line(), e.column())
        };
        signed = read.map_err(|e| unreadable(why(e)))?.signature;
    }
    Ok(signed)
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let Signed { timestamp, token, signature } = signed(req)?;
    for (field, value) in [
        ("signature.signature", &signature),
        ("signature.timestamp", &timestamp),
        ("signature.token", &token),
    ] {
        if value.is_empty() || value.len() > SIGNATURE_HEADER_BYTES_MAX {
            return Err(SignatureError::MissingInBody { field });
        }
    }
    check_time("signature.timestamp", &timestamp, Unit::Seconds, TOLERANCE_S, now)?;
    let signatures = [Encoding::Hex.decode(&signature).unwrap_or_default()];
    let signed = [timestamp.as_bytes(), token.as_bytes()];
    any_fits("signature.signature", Algorithm::Sha256, keys, &signed, &signatures)
}

//! Slack: HMAC-SHA256 over `v0:timestamp:body`, hexadecimal (webhooks/README.md §2 and §3, "Slack"). Events come as
//! JSON, slash commands as a form, buttons and dialogs as JSON within a form; all are signed alike.
//!
//! The first retry comes after 3 s, also while the first request is still being answered.

use std::borrow::Cow;

use serde_json::Value;

use super::body::Body;
use super::default_key::{DefaultKey, KeyPart, first_of, path};
use super::rules::{Answer, Rules, Signature, seconds, text};
use super::signature::{Algorithm, Encoding, any_fits, decoded, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{Request, SignatureError};
use crate::time::Timestamp;

pub(super) struct Slack;

const TIMESTAMP: &str = "x-slack-request-timestamp";
const SIGNATURE: &str = "x-slack-signature";

impl Rules for Slack {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    fn body(&self, req: &Request<'_>) -> Body {
        Body::read(req).wrapped(req)
    }

    fn handshake(&self, _req: &Request<'_>, payload: &Value) -> Option<Option<Answer>> {
        let asked = payload.get("type").and_then(Value::as_str) == Some("url_verification");
        asked.then(|| text(payload, "/challenge").map(Answer::text))
    }

    /// What a person pressed or typed has no event id, but a trigger that is its own.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        if payload.get("event_id").is_some() || payload.get("trigger_id").is_none() {
            return Some(DefaultKey::body(["api_app_id", "team_id", "event_id"]));
        }
        let team = first_of(payload, &["team_id", "team.id", "user.team_id"]);
        let parts = [KeyPart::Field(team), KeyPart::Word("trigger"), KeyPart::Field(path("trigger_id"))];
        Some(DefaultKey::from(Vec::from(parts)))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/event/type").or_else(|| text(payload, "/command")).or_else(|| text(payload, "/type"))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        seconds(payload, "/event_time")
    }

    /// The token of the days before signatures.
    fn credentials(&self) -> &'static [&'static str] {
        &["token"]
    }

    /// Whatever stands in the answer to a slash command is shown to the person who typed it.
    fn acknowledgement(&self, _req: &Request<'_>) -> Option<Answer> {
        Some(Answer::NOTHING)
    }
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let signatures = decoded(req.headers, SIGNATURE, "v0=", Encoding::Hex)?;
    let timestamp = single(req.headers, TIMESTAMP)?;
    check_time(TIMESTAMP, timestamp, Unit::Seconds, TOLERANCE_S, now)?;
    let signed = [b"v0:", timestamp.as_bytes(), b":", req.body];
    any_fits(SIGNATURE, Algorithm::Sha256, keys, &signed, &signatures)
}

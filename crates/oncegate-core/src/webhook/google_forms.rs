//! Google Forms: a script of ours that signs as Standard Webhooks do (webhooks/README.md §3, "Google Forms through
//! Apps Script"). Two people who both installed the trigger make it run twice, often in one second.

use std::borrow::Cow;

use serde_json::Value;

use super::default_key::{DefaultKey, KeyPart, path};
use super::rules::{Rules, Signature, instant, text};
use super::signature::SecretError;
use super::standard_webhooks::{self, StandardWebhooks};
use super::{FieldPath, Request};
use crate::secret::Secret;
use crate::time::Timestamp;

pub(super) struct GoogleForms;

impl Rules for GoogleForms {
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        StandardWebhooks.key(secret)
    }

    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(standard_webhooks::check)
    }

    /// From the body: the script makes the header's id itself. A script that is bound to a sheet knows no response
    /// id; rows move, so the time in the row goes with its place. Whoever wants an edited answer to be a new event
    /// adds `timestamp`.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        if payload.get("spreadsheet_id").is_none() {
            return Some(DefaultKey::body(["form_id", "response_id"]));
        }
        let stamp = payload.pointer("/named_values/Timestamp/0").or(payload.get("timestamp")).cloned();
        let mut parts: Vec<_> =
            ["spreadsheet_id", "sheet", "range"].map(|way| KeyPart::Field(path(way))).into();
        parts.push(KeyPart::Read { at: path("named_values.Timestamp"), value: stamp });
        Some(DefaultKey::from(parts).begins("google_sheets"))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/timestamp")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/source")
    }

    /// Which of several triggers it was.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![path("trigger_uid")]
    }
}

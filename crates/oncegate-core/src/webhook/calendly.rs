//! Calendly: HMAC-SHA256 over `t.body`, hexadecimal (webhooks/README.md §2 and §3, "Calendly").

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::timed::Elements;
use crate::time::Timestamp;

pub(super) struct Calendly;

/// What Calendly recommends.
const TOLERANCE_S: u64 = 180;

impl Rules for Calendly {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Timed(Elements { header: "calendly-webhook-signature", tolerance_s: TOLERANCE_S })
    }

    /// Events have no id. Of a rescheduling two come, which share no invitee: one canceled, one created.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["event", "payload.uri"]))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/created_at")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/event")
    }
}

//! Typeform: HMAC-SHA256 over the raw body, base64, no time signed (webhooks/README.md §2, "Typeform").

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::signature::{BodySignature, Encoding};
use super::{FieldPath, Request};
use crate::time::Timestamp;

pub(super) struct Typeform;

impl Rules for Typeform {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256("typeform-signature", "sha256=", Encoding::Base64))
    }

    /// The type belongs to the key: a partial response may share the token of the full one, which would then
    /// be dropped as its duplicate (webhooks/README.md §3, "Typeform").
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["event_type", "form_response.form_id", "form_response.token"]))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/form_response/submitted_at")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/event_type")
    }

    /// Nobody knows whether a retry keeps `event_id` (webhooks/README.md §3, "Typeform").
    fn volatile(&self) -> Vec<FieldPath> {
        vec![FieldPath::body(&["event_id"])]
    }
}

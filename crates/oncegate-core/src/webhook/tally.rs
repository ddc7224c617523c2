//! Tally: HMAC-SHA256 over the raw body, base64 without a prefix, no time signed (webhooks/README.md §2, "Tally").
//!
//! Tally's own example signs the re-written JSON, which is the same bytes for the compact JSON it sends. A body
//! that a proxy has re-indented is refused, not re-written until it fits.

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::signature::{BodySignature, Encoding};
use crate::time::Timestamp;

pub(super) struct Tally;

impl Rules for Tally {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256("tally-signature", "", Encoding::Base64))
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["eventType", "data.formId", "data.submissionId"]))
    }

    /// When the form was sent in; the event's own date stands beside its type.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/data/createdAt").or_else(|| instant(payload, "/createdAt"))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/eventType")
    }
}

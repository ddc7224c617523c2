//! Tally: HMAC-SHA256 over the raw body, base64 without a prefix, no time signed (webhooks/README.md §2, "Tally").
//!
//! Tally's own example signs the re-written JSON, which is the same bytes for the compact JSON it sends. A body
//! that a proxy has re-indented is refused, not re-written until it fits.

use std::borrow::Cow;

use serde_json::Value;

use super::signature::{Algorithm, BodySignature, Encoding};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError, instant};
use crate::time::Timestamp;

pub(super) struct Tally;

impl Rules for Tally {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        _now: Timestamp,
    ) -> Result<(), SignatureError> {
        let scheme = BodySignature {
            header: "tally-signature",
            prefix: "",
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Base64,
        };
        scheme.verify(req, keys)
    }

    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        let fields = vec![
            FieldPath::body(&["eventType"]),
            FieldPath::body(&["data", "formId"]),
            FieldPath::body(&["data", "submissionId"]),
        ];
        Some(DefaultKey { with_source: false, fields })
    }

    /// When the form was sent in; the event's own date stands beside its type.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/data/createdAt").or_else(|| instant(payload, "/createdAt"))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        payload.get("eventType")?.as_str().map(str::to_owned)
    }
}

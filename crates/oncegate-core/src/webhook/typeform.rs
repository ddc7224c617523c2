//! Typeform: HMAC-SHA256 over the raw body, base64, no time signed (webhooks/README.md §2, "Typeform").

use std::borrow::Cow;

use serde_json::Value;

use super::signature::{Algorithm, BodySignature, Encoding};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError, instant};
use crate::time::Timestamp;

pub(super) struct Typeform;

impl Rules for Typeform {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        _now: Timestamp,
    ) -> Result<(), SignatureError> {
        let scheme = BodySignature {
            header: "typeform-signature",
            prefix: "sha256=",
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Base64,
        };
        scheme.verify(req, keys)
    }

    /// The type belongs to the key: a partial response may share the token of the full one, which would then
    /// be dropped as its duplicate (webhooks/README.md §3, "Typeform").
    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        let fields = vec![
            FieldPath::body(&["event_type"]),
            FieldPath::body(&["form_response", "form_id"]),
            FieldPath::body(&["form_response", "token"]),
        ];
        Some(DefaultKey { with_source: false, fields })
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/form_response/submitted_at")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        payload.get("event_type")?.as_str().map(str::to_owned)
    }

    /// Nobody knows whether a retry keeps `event_id` (webhooks/README.md §3, "Typeform").
    fn volatile(&self) -> Vec<FieldPath> {
        vec![FieldPath::body(&["event_id"])]
    }
}

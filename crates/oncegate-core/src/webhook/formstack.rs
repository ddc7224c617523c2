//! Formstack: HMAC-SHA256 over the raw body, hexadecimal, no time signed (webhooks/README.md §2 and §3, "Formstack").
//! The webhook needs an HMAC key; its older "shared secret", which comes back as `HandshakeKey`, is not looked at.

use std::borrow::Cow;

use serde_json::Value;

use super::signature::{Algorithm, BodySignature, Encoding};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError};
use crate::time::Timestamp;

pub(super) struct Formstack;

impl Rules for Formstack {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        _now: Timestamp,
    ) -> Result<(), SignatureError> {
        let scheme = BodySignature {
            header: "x-fs-signature",
            prefix: "sha256=",
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Hex,
        };
        scheme.verify(req, keys)
    }

    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        let fields = vec![FieldPath::body(&["FormID"]), FieldPath::body(&["UniqueID"])];
        Some(DefaultKey { with_source: false, fields })
    }

    fn event_type(&self, _req: &Request<'_>, _payload: &Value) -> Option<String> {
        None
    }

    /// The secret that two sides share, and may change between them.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![FieldPath::body(&["HandshakeKey"])]
    }
}

//! Formstack: HMAC-SHA256 over the raw body, hexadecimal, no time signed (webhooks/README.md §2 and §3, "Formstack").
//! The webhook needs an HMAC key; its older "shared secret", which comes back as `HandshakeKey`, is not looked at.

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature};
use super::signature::{BodySignature, Encoding};

pub(super) struct Formstack;

impl Rules for Formstack {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256("x-fs-signature", "sha256=", Encoding::Hex))
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["FormID", "UniqueID"]))
    }

    /// The older secret, which comes back in the body.
    fn credentials(&self) -> &'static [&'static str] {
        &["HandshakeKey"]
    }
}

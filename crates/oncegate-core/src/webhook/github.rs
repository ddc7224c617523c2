//! GitHub: HMAC-SHA256 over the raw body, hexadecimal, no time signed (webhooks/README.md §2, "GitHub").
//!
//! `X-GitHub-Delivery` and `X-GitHub-Event` are outside the signature: whoever captured a request can send it
//! again under a new id. Where that matters, declare key fields from the body.

use std::borrow::Cow;

use serde_json::Value;

use super::body::{Body, is_form};
use super::signature::{Algorithm, BodySignature, Encoding};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError};
use crate::time::Timestamp;

pub(super) struct Github;

impl Rules for Github {
    /// `X-Hub-Signature` (SHA-1) is not looked at: GitHub sends the SHA-256 one next to it.
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        _now: Timestamp,
    ) -> Result<(), SignatureError> {
        let scheme = BodySignature {
            header: "x-hub-signature-256",
            prefix: "sha256=",
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Hex,
        };
        scheme.verify(req, keys)
    }

    /// A hook set to form encoding sends the JSON in a field `payload`.
    fn body(&self, req: &Request<'_>) -> Body {
        let body = Body::read(req);
        match body.payload.get("payload") {
            Some(Value::String(json)) if is_form(req) => Body::json(json.as_bytes()),
            _ => body,
        }
    }

    /// The header alone is unsigned, so it may not make a real event vanish: the body must be a ping's too.
    fn is_handshake(&self, req: &Request<'_>, payload: &Value) -> bool {
        req.headers.get("x-github-event") == Some("ping") && payload.get("zen").is_some()
    }

    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        Some(DefaultKey { with_source: false, fields: vec![FieldPath::header("x-github-delivery")] })
    }

    fn delivery_id(&self, _req: &Request<'_>) -> Option<FieldPath> {
        Some(FieldPath::header("x-github-delivery"))
    }

    fn event_type(&self, req: &Request<'_>, _payload: &Value) -> Option<String> {
        req.headers.get("x-github-event").map(str::to_owned)
    }
}

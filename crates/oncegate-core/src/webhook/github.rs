//! GitHub: HMAC-SHA256 over the raw body, hexadecimal, no time signed (webhooks/README.md §2, "GitHub").
//!
//! `X-GitHub-Delivery` and `X-GitHub-Event` are outside the signature: whoever captured a request can send it
//! again under a new id. Where that matters, declare key fields from the body.

use serde_json::Value;

use super::body::Body;
use super::default_key::DefaultKey;
use super::rules::{Answer, DefaultRepeat, Rules, SAME_BODY, Signature};
use super::signature::{BodySignature, Encoding};
use super::{FieldPath, Request};

pub(super) struct Github;

impl Rules for Github {
    /// `X-Hub-Signature` (SHA-1) is not looked at: GitHub sends the SHA-256 one next to it.
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256("x-hub-signature-256", "sha256=", Encoding::Hex))
    }

    /// A hook set to form encoding sends the JSON in a field `payload`.
    fn body(&self, req: &Request<'_>) -> Body {
        Body::read(req).wrapped(req)
    }

    /// The header alone is unsigned, so it may not make a real event vanish: the body must be a ping's too.
    fn handshake(&self, req: &Request<'_>, payload: &Value) -> Option<Option<Answer>> {
        let ping = req.headers.get("x-github-event") == Some("ping") && payload.get("zen").is_some();
        ping.then_some(None)
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::of([FieldPath::header("x-github-delivery")]))
    }

    /// The ids are not signed: a captured request under new ones has the body of the first, unless its kind is
    /// changed too.
    fn repeat(&self) -> Option<DefaultRepeat> {
        Some(SAME_BODY)
    }

    fn delivery_id(&self, _req: &Request<'_>) -> Option<FieldPath> {
        Some(FieldPath::header("x-github-delivery"))
    }

    fn event_type(&self, req: &Request<'_>, _payload: &Value) -> Option<String> {
        req.headers.get("x-github-event").map(str::to_owned)
    }
}

//! Zapier's "Webhooks by Zapier": whatever a person mapped, as JSON or a form, not signed; headers can be set
//! (webhooks/README.md §3, "Zapier and Make as senders"). A replay sends the same values again.

use serde_json::Value;

use super::body::Body;
use super::default_key::{DefaultKey, first_of};
use super::rules::{Rules, Signature};
use super::{FieldPath, Request};

pub(super) struct Zapier;

/// The header that names an effect for whoever builds requests by hand (IETF httpapi draft).
pub(super) const KEY: &str = "idempotency-key";

impl Rules for Zapier {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    /// With "Wrap request in array" it is a list; a header that names an effect names the whole request.
    fn events(&self, req: &Request<'_>, body: Body) -> Vec<Body> {
        if is_named(req) { vec![body] } else { body.items() }
    }

    fn default_key(&self, req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        Some(by_hand(req, payload))
    }
}

fn is_named(req: &Request<'_>) -> bool {
    req.headers.get(KEY).is_some_and(|key| !key.trim().is_empty())
}

/// What a person would have mapped as the key: the header if it is set, or a field.
pub(super) fn by_hand(req: &Request<'_>, payload: &Value) -> DefaultKey {
    let field = match is_named(req) {
        true => FieldPath::header(KEY),
        false => first_of(payload, &["idempotency_key", "record_id", "row_id"]),
    };
    DefaultKey::of([field]).with_source()
}

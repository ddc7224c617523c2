//! Paperform: JSON, not signed (webhooks/README.md §2, "Paperform"; uncertain throughout).

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant};
use crate::time::Timestamp;

pub(super) struct Paperform;

impl Rules for Paperform {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["form_id", "submission_id"]))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/created_at")
    }
}

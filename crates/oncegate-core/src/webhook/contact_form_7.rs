//! Contact Form 7 with "CF7 to Webhook": the fields as JSON, not signed (webhooks/README.md §3, "Contact Form 7").
//! Nothing is stored on that side, so no submission has an id: a hidden field `gate-id` has to make one. A body
//! template of one's own pastes text unescaped; what comes of it then is no JSON.

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature};

pub(super) struct ContactForm7;

impl Rules for ContactForm7 {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["gate-id"]).with_source())
    }
}

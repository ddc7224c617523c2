//! Jotform: a multipart form, not signed; the answers stand as JSON in the field `rawRequest` (webhooks/README.md §2
//! and §3, "Jotform"). Ids have nineteen digits and are text.
//!
//! Jotform sends the webhook's own address along, and with it a secret that stands there: that field is dropped.

use serde_json::Value;

use super::Request;
use super::body::Body;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, text};

pub(super) struct Jotform;

impl Rules for Jotform {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    /// Answers that are no JSON stay text: a step that needs one of them says so.
    fn body(&self, req: &Request<'_>) -> Body {
        let mut body = Body::read(req);
        if let Some(Value::String(raw)) = body.payload.get("rawRequest") {
            let answers = Body::json(raw.as_bytes());
            if answers.unreadable.is_none() && answers.payload.is_object() {
                body.payload["rawRequest"] = answers.payload;
            }
            body.ambiguous = answers.ambiguous.map(|member| format!("rawRequest.{member}"));
        }
        body
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["formID", "submissionID"]))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/type")
    }

    fn credentials(&self) -> &'static [&'static str] {
        &["webhookURL"]
    }
}

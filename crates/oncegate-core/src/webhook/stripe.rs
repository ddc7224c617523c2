//! Stripe: HMAC-SHA256 over `t.body`, hexadecimal, 300 s (webhooks/README.md §2 and §3, "Stripe"). The secret is used
//! as it stands, `whsec_` included; thin events are signed alike.

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, text};
use super::timed::{Elements, TOLERANCE_S};
use super::{FieldPath, Request};
use crate::time::Timestamp;

pub(super) struct Stripe;

impl Rules for Stripe {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Timed(Elements { header: "stripe-signature", tolerance_s: TOLERANCE_S })
    }

    /// Two Event objects for one change are rare; whoever wants them to be one declares `repeat`.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["id"]))
    }

    /// Seconds in events, a date in thin ones.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        match payload.get("created")? {
            Value::String(text) => Timestamp::parse_rfc3339(text).ok(),
            seconds => seconds.as_i64().map(Timestamp::from_secs),
        }
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/type")
    }

    /// How many endpoints have not taken it yet.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![FieldPath::body(&["pending_webhooks"])]
    }
}

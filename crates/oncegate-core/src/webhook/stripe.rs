//! Stripe: HMAC-SHA256 over `t.body`, hexadecimal, 300 s (webhooks/README.md §2 and §3, "Stripe"). The secret is used as
//! it stands, `whsec_` included; thin events are signed alike.

use std::borrow::Cow;

use serde_json::Value;

use super::timed::{Elements, TOLERANCE_S};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError};
use crate::time::Timestamp;

pub(super) struct Stripe;

impl Rules for Stripe {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        Elements { header: "stripe-signature", tolerance_s: TOLERANCE_S }.verify(req, keys, now)
    }

    /// Two Event objects for one change are rare; whoever wants them to be one declares `repeat`.
    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        Some(DefaultKey { with_source: false, fields: vec![FieldPath::body(&["id"])] })
    }

    /// Seconds in events, a date in thin ones.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        match payload.get("created")? {
            Value::String(text) => Timestamp::parse_rfc3339(text).ok(),
            seconds => seconds.as_i64().map(Timestamp::from_secs),
        }
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        payload.get("type")?.as_str().map(str::to_owned)
    }

    /// How many endpoints have not taken it yet.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![FieldPath::body(&["pending_webhooks"])]
    }
}

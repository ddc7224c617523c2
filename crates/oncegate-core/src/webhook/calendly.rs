//! Calendly: HMAC-SHA256 over `t.body`, hexadecimal (webhooks/README.md §2 and §3, "Calendly").

use std::borrow::Cow;

use serde_json::Value;

use super::timed::Elements;
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError, instant};
use crate::time::Timestamp;

pub(super) struct Calendly;

/// What Calendly recommends.
const TOLERANCE_S: u64 = 180;

impl Rules for Calendly {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        Elements { header: "calendly-webhook-signature", tolerance_s: TOLERANCE_S }.verify(req, keys, now)
    }

    /// Events have no id. Of a rescheduling two come, which share no invitee: one canceled, one created.
    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        let fields = vec![FieldPath::body(&["event"]), FieldPath::body(&["payload", "uri"])];
        Some(DefaultKey { with_source: false, fields })
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/created_at")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        payload.get("event")?.as_str().map(str::to_owned)
    }
}

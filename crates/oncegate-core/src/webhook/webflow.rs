//! Webflow: HMAC-SHA256 over `timestamp:body`, hexadecimal, the time in milliseconds (webhooks/README.md §2 and §3,
//! "Webflow"). The secret is that of the webhook, or of the app that made it. Webhooks made in the dashboard are not
//! signed.

use std::borrow::Cow;

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::signature::{Algorithm, Encoding, any_fits, decoded, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{Request, SignatureError};
use crate::time::Timestamp;

pub(super) struct Webflow;

const TIMESTAMP: &str = "x-webflow-timestamp";
const SIGNATURE: &str = "x-webflow-signature";

impl Rules for Webflow {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    /// Of form submissions; other triggers have other ids, and want a `key` of the source.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["triggerType", "payload.formId", "payload.id"]))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/payload/submittedAt")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/triggerType")
    }
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let signatures = decoded(req.headers, SIGNATURE, "", Encoding::Hex)?;
    let timestamp = single(req.headers, TIMESTAMP)?;
    check_time(TIMESTAMP, timestamp, Unit::Milliseconds, TOLERANCE_S, now)?;
    any_fits(SIGNATURE, Algorithm::Sha256, keys, &[timestamp.as_bytes(), b":", req.body], &signatures)
}

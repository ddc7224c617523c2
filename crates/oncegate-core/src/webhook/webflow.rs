//! Webflow: HMAC-SHA256 over `timestamp:body`, hexadecimal, the time in milliseconds (webhooks/README.md §2 and §3,
//! "Webflow"). The secret is that of the webhook, or of the app that made it. Webhooks made in the dashboard are not signed.

use std::borrow::Cow;

use serde_json::Value;

use super::signature::{Algorithm, Encoding, any_fits, presented, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{DefaultKey, FieldPath, Request, Rules, SignatureError, instant};
use crate::time::Timestamp;

pub(super) struct Webflow;

const TIMESTAMP: &str = "x-webflow-timestamp";
const SIGNATURE: &str = "x-webflow-signature";

impl Rules for Webflow {
    fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let presented = presented(req.headers, SIGNATURE, |c| c == ',')?;
        let timestamp = single(req.headers, TIMESTAMP)?;
        check_time(TIMESTAMP, timestamp, Unit::Milliseconds, TOLERANCE_S, now)?;
        let decode = |text: &str| Encoding::Hex.decode(text).filter(|signature| !signature.is_empty());
        let signatures: Vec<_> = presented.into_iter().filter_map(decode).collect();
        if signatures.is_empty() {
            let expected = "<hexadecimal digits>".to_owned();
            return Err(SignatureError::Malformed { header: SIGNATURE.to_owned(), expected });
        }
        any_fits(SIGNATURE, Algorithm::Sha256, keys, &[timestamp.as_bytes(), b":", req.body], &signatures)
    }

    /// Of form submissions; other triggers have other ids, and want a `key` of the source.
    fn default_key(&self, _req: &Request<'_>) -> Option<DefaultKey> {
        let fields = vec![
            FieldPath::body(&["triggerType"]),
            FieldPath::body(&["payload", "formId"]),
            FieldPath::body(&["payload", "id"]),
        ];
        Some(DefaultKey { with_source: false, fields })
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/payload/submittedAt")
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        payload.get("triggerType")?.as_str().map(str::to_owned)
    }
}

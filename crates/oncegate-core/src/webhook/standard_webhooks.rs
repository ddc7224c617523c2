//! Standard Webhooks and Svix: HMAC-SHA256 over `id.timestamp.body` with a base64-decoded secret
//! (webhooks/README.md §2 and §3, "Standard Webhooks / Svix").

use std::borrow::Cow;

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::signature::{Algorithm, Encoding, any_fits, presented, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{FieldPath, Headers, Request, SecretError, SignatureError};
use crate::secret::Secret;
use crate::time::Timestamp;

pub(super) struct StandardWebhooks;

/// The three headers, which must all be of one family: with an id from one and a signature from the other, the
/// key would not be the one that was signed.
struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const STANDARD: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX: Names = Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

fn names(headers: &Headers) -> &'static Names {
    match headers.get(STANDARD.signature).is_none() && headers.get(SVIX.signature).is_some() {
        true => &SVIX,
        false => &STANDARD,
    }
}

impl Rules for StandardWebhooks {
    /// `whsec_` is a label, the rest is the key in base64; unlike Stripe, who uses the whole text as it stands.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretError::NotBase64)?.trim();
        if text.is_empty() {
            return Err(SecretError::Blank);
        }
        if text.starts_with("whpk_") || text.starts_with("whsk_") {
            return Err(SecretError::Asymmetric);
        }
        match Encoding::Base64.decode(text.strip_prefix("whsec_").unwrap_or(text)) {
            Some(key) if !key.is_empty() => Ok(Cow::Owned(key)),
            _ => Err(SecretError::NotBase64),
        }
    }

    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    /// Ids are unique within one sender, so the source's name goes with them. The svix aliases give the same
    /// key: a sender may change its header names, not its ids.
    fn default_key(&self, req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::of([FieldPath::header(names(req.headers).id)]).with_source())
    }

    /// `timestamp` of the payload, as the specification recommends it; that of the header is the attempt's.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/timestamp")
    }

    fn delivery_id(&self, req: &Request<'_>) -> Option<FieldPath> {
        Some(FieldPath::header(names(req.headers).id))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/type")
    }
}

/// Whether the request is signed this way, rightly or not.
pub(super) fn signs(headers: &Headers) -> bool {
    headers.get(names(headers).signature).is_some()
}

pub(super) fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let names = names(req.headers);
    let presented = presented(req.headers, names.signature, char::is_whitespace)?;
    let id = single(req.headers, names.id)?;
    let timestamp = single(req.headers, names.timestamp)?;
    check_time(names.timestamp, timestamp, Unit::Seconds, TOLERANCE_S, now)?;

    let mut signatures = Vec::new();
    let mut asymmetric = false;
    for one in presented {
        match one.trim_end_matches(',').split_once(',') {
            Some(("v1", text)) => signatures.extend(Encoding::Base64.decode(text)),
            Some(("v1a", _)) => asymmetric = true,
            // Versions to come stand next to v1 while senders move; they are no reason to refuse it.
            _ => {}
        }
    }
    let header = names.signature.to_owned();
    match (signatures.is_empty(), asymmetric) {
        (false, _) => {
            let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", req.body];
            any_fits(names.signature, Algorithm::Sha256, keys, &signed, &signatures)
        }
        (true, true) => Err(SignatureError::Unsupported {
            header,
            found: "a v1a (ed25519) signature",
            use_instead: "v1 (HMAC-SHA256, a `whsec_` secret)",
        }),
        (true, false) => Err(SignatureError::Malformed { header, expected: "v1,<base64>".to_owned() }),
    }
}

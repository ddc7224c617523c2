//! SendGrid's event webhook: ECDSA (P-256, SHA-256) over timestamp and raw body, with a public key; a retry is signed
//! anew (webhooks/README.md §2 and §3, "SendGrid"). The last line break of the body is signed like everything else.

use std::borrow::Cow;

use data_encoding::BASE64;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::Value;

use super::body::Body;
use super::default_key::{DefaultKey, path};
use super::rules::{Rules, Signature, seconds, text};
use super::signature::{Encoding, SecretError, SignatureError, decoded, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::{FieldPath, Request};
use crate::secret::Secret;
use crate::time::Timestamp;

pub(super) struct Sendgrid;

const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
const TIMESTAMP: &str = "x-twilio-email-event-webhook-timestamp";

/// What stands before the point of a P-256 key in its usual form (RFC 5480, SubjectPublicKeyInfo).
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl Rules for Sendgrid {
    /// The "verification key" of the settings, with or without the lines that PEM puts around it.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretError::NotPublicKey)?;
        if text.trim().is_empty() {
            return Err(SecretError::Blank);
        }
        let lines = text.lines().filter(|line| !line.starts_with("-----"));
        let packed: String = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
        let der = BASE64.decode(packed.as_bytes()).map_err(|_| SecretError::NotPublicKey)?;
        match der.strip_prefix(&P256) {
            Some(point) if point.len() == 65 && point[0] == 4 => Ok(Cow::Owned(point.to_vec())),
            _ => Err(SecretError::NotPublicKey),
        }
    }

    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        body.items()
    }

    /// What people asked for (to be left alone, to come back) has no event id.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        Some(match payload.get("sg_event_id").is_some() || payload.get("sg_message_id").is_none() {
            true => DefaultKey::body(["sg_event_id"]),
            false => DefaultKey::body(["sg_message_id", "event", "timestamp"]),
        })
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/event")
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        seconds(payload, "/timestamp")
    }

    fn volatile(&self) -> Vec<FieldPath> {
        vec![path("attempt")]
    }
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let signatures = decoded(req.headers, SIGNATURE, "", Encoding::Base64)?;
    let timestamp = single(req.headers, TIMESTAMP)?;
    check_time(TIMESTAMP, timestamp, Unit::Seconds, TOLERANCE_S, now)?;
    let signed = [timestamp.as_bytes(), req.body].concat();
    for key in keys {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
        if signatures.iter().any(|signature| key.verify(&signed, signature).is_ok()) {
            return Ok(());
        }
    }
    Err(SignatureError::Mismatch { header: SIGNATURE.to_owned(), secrets: keys.len() })
}

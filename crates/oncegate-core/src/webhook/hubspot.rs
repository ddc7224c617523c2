//! HubSpot: what an app subscribed to, in lists, and what a workflow sends (webhooks/README.md §2 and §3, "HubSpot").
//!
//! Three schemes are in use. v3 signs method, address, body and time; whatever carries it is judged by it alone. v2
//! (workflows, cards) and v1 hash the secret before the text: no time is signed, and whoever captured a request can
//! put bytes behind its body under a right hash (length extension). What comes of that is no JSON, so nothing else is
//! taken, whatever the type says.

use std::borrow::Cow;

use data_encoding::HEXLOWER_PERMISSIVE;
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::body::Body;
use super::default_key::{DefaultKey, KeyPart, path};
use super::rules::{Rules, Signature, milliseconds, text};
use super::signature::{Algorithm, Encoding, any_fits, decoded, presented, single};
use super::timed::{TOLERANCE_S, Unit, check_time};
use super::trust::Trust;
use super::{FieldPath, Request, SignatureError};
use crate::time::Timestamp;

/// An app's subscriptions.
pub(super) struct Hubspot;
/// The action "Send a webhook" of a workflow. There is no webhook for form submissions: a workflow that a form starts
/// is how they come.
pub(super) struct HubspotWorkflow;

const V3: &str = "x-hubspot-signature-v3";
const TIMESTAMP: &str = "x-hubspot-request-timestamp";
const OLDER: &str = "x-hubspot-signature";
const VERSION: &str = "x-hubspot-signature-version";

impl Rules for Hubspot {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    fn signs_url(&self) -> bool {
        true
    }

    fn accepts(&self, req: &Request<'_>, _trust: &Trust) -> Result<(), SignatureError> {
        json_alone(req)
    }

    fn body(&self, req: &Request<'_>) -> Body {
        Body::json(req.body)
    }

    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        body.items()
    }

    /// `eventId` is "not guaranteed to be unique", so it takes all that stays the same on a retry.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        let fields = ["portalId", "subscriptionId", "subscriptionType", "objectId", "eventId", "occurredAt"];
        Some(DefaultKey::body(fields))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/subscriptionType")
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        milliseconds(payload, "/occurredAt")
    }

    fn volatile(&self) -> Vec<FieldPath> {
        vec![path("attemptNumber")]
    }
}

impl Rules for HubspotWorkflow {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check_workflow)
    }

    fn signs_url(&self) -> bool {
        true
    }

    fn accepts(&self, req: &Request<'_>, _trust: &Trust) -> Result<(), SignatureError> {
        json_alone(req)
    }

    fn body(&self, req: &Request<'_>) -> Body {
        Body::json(req.body)
    }

    /// The body is the contact as it is now, with all its submissions: the newest one is meant. A body that a person
    /// composed has none, and must hold something that differs from one enrolment to the next.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        let newest = newest(payload);
        let part = |name: &str| KeyPart::Read {
            at: path(&format!("form-submissions.{name}")),
            value: newest.and_then(|submission| submission.get(name)).cloned(),
        };
        let parts = vec![KeyPart::Field(path("portal-id")), part("form-id"), part("conversion-id")];
        Some(DefaultKey::from(parts).begins("hubspot_form"))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        milliseconds(newest(payload)?, "/timestamp")
    }

    /// What may have changed about the contact between two attempts.
    fn volatile(&self) -> Vec<FieldPath> {
        ["properties", "form-submissions", "list-memberships", "identity-profiles", "merge-audits"]
            .map(path)
            .into()
    }
}

/// Nothing may stand behind the JSON that was signed.
fn json_alone(req: &Request<'_>) -> Result<(), SignatureError> {
    match Body::json(req.body).unreadable {
        None => Ok(()),
        Some(why) => Err(SignatureError::Unreadable { why }),
    }
}

fn newest(payload: &Value) -> Option<&Value> {
    let submissions = payload.get("form-submissions")?.as_array()?;
    submissions.iter().max_by_key(|submission| submission.get("timestamp").and_then(Value::as_i64))
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    // The time is sent with v3 alone: beside it, a missing v3 was taken off.
    match req.headers.get(V3).or(req.headers.get(TIMESTAMP)) {
        Some(_) => check_v3(req, keys, now),
        None => check_older(req, keys),
    }
}

/// Workflows never sign as v1, which says nothing of where it was meant to go: a captured one of an app with the same
/// secret would be good here.
fn check_workflow(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    if req.headers.get(V3).is_none()
        && req.headers.get(OLDER).is_some()
        && req.headers.get(VERSION) != Some("v2")
    {
        return Err(SignatureError::Malformed { header: VERSION.to_owned(), expected: "v2".to_owned() });
    }
    check(req, keys, now)
}

fn check_v3(req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp) -> Result<(), SignatureError> {
    let signatures = decoded(req.headers, V3, "", Encoding::Base64)?;
    let timestamp = single(req.headers, TIMESTAMP)?;
    check_time(TIMESTAMP, timestamp, Unit::Milliseconds, TOLERANCE_S, now)?;
    // HubSpot's page says that some escapes are decoded before signing; its libraries do not decode.
    let plain = without_escapes(req.url);
    let tried = if plain == req.url { vec![req.url] } else { vec![req.url, &plain] };
    let mut verdict = Ok(());
    for url in tried {
        let signed = [req.method.as_bytes(), url.as_bytes(), req.body, timestamp.as_bytes()];
        verdict = any_fits(V3, Algorithm::Sha256, keys, &signed, &signatures);
        if verdict.is_ok() {
            break;
        }
    }
    verdict
}

/// SHA-256 of the secret and the text; nothing is keyed as an HMAC is.
fn check_older(req: &Request<'_>, keys: &[Cow<'_, [u8]>]) -> Result<(), SignatureError> {
    let presented = presented(req.headers, OLDER, |c| c == ',')?;
    let malformed = |header: &str, expected: &str| SignatureError::Malformed {
        header: header.to_owned(),
        expected: expected.to_owned(),
    };
    let decode = |text: &&str| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok().filter(|s| !s.is_empty());
    let signatures: Vec<_> = presented.iter().filter_map(decode).collect();
    if signatures.is_empty() {
        return Err(malformed(OLDER, "<hexadecimal digits>"));
    }
    let head: [&[u8]; 2] = match req.headers.get(VERSION).map(|_| single(req.headers, VERSION)).transpose()? {
        None | Some("v1") => [b"", b""],
        Some("v2") => [req.method.as_bytes(), req.url.as_bytes()],
        Some(_) => return Err(malformed(VERSION, "v1 or v2")),
    };
    for key in keys {
        let right = Sha256::new().chain_update(key).chain_update(head[0]).chain_update(head[1]);
        let right = right.chain_update(req.body).finalize();
        if signatures.iter().any(|signature| bool::from(right.as_slice().ct_eq(signature))) {
            return Ok(());
        }
    }
    Err(SignatureError::Mismatch { header: OLDER.to_owned(), secrets: keys.len() })
}

/// The escapes that HubSpot lists (webhooks/README.md §3, "HubSpot").
fn without_escapes(url: &str) -> String {
    const ESCAPES: [(&str, &str); 12] = [
        ("%3A", ":"),
        ("%2F", "/"),
        ("%3F", "?"),
        ("%40", "@"),
        ("%21", "!"),
        ("%24", "$"),
        ("%27", "'"),
        ("%28", "("),
        ("%29", ")"),
        ("%2A", "*"),
        ("%2C", ","),
        ("%3B", ";"),
    ];
    let mut out = url.to_owned();
    for (escape, meant) in ESCAPES {
        out = out.replace(escape, meant).replace(&escape.to_ascii_lowercase(), meant);
    }
    out
}

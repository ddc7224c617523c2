//! Twilio: HMAC-SHA1 over the public address and the sorted, decoded parameters, base64, no time signed
//! (webhooks/README.md §2 and §3, "Twilio"). With JSON, the address holds the body's hash. With a SharedKey, a header
//! names the key and the hash is SHA-256.
//!
//! Names and values are signed without anything between them, so whoever captured a request could move the borders:
//! what makes the key must look as Twilio writes it.
//!
//! The request may say which of the two hashes it was made with: neither can be forged without the secret.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER_PERMISSIVE;
use serde_json::Value;
use subtle::ConstantTimeEq;

use super::body::{Body, is_form};
use super::default_key::{DefaultKey, KeyPart, first_of, path};
use super::rules::{Answer, Rules, Signature, instant, text};
use super::signature::{Algorithm, Encoding, any_fits, decoded, single};
use super::{FieldPath, Request, SignatureError};
use crate::key::sha256;
use crate::time::Timestamp;

pub(super) struct Twilio;

const SIGNATURE: &str = "x-twilio-signature";
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const BODY_HASH: &str = "bodySHA256";

impl Rules for Twilio {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Own(check)
    }

    fn signs_url(&self) -> bool {
        true
    }

    /// Event streams come in lists.
    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        body.items()
    }

    /// One message or call is told of several times: sent, delivered. What is named most narrowly counts.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        if payload.get("specversion").is_some() {
            let parts = vec![KeyPart::Word("event"), KeyPart::Field(path("id"))];
            return Some(DefaultKey::from(parts));
        }
        let named = |name: &&(&str, &[&str])| payload.get(name.0).is_some();
        const NAMES: [(&str, &[&str]); 5] = [
            ("RecordingSid", &["RecordingStatus", "CallStatus"]),
            ("TranscriptionSid", &["TranscriptionStatus"]),
            ("MessageSid", &["MessageStatus", "SmsStatus"]),
            ("SmsSid", &["SmsStatus", "MessageStatus"]),
            ("CallSid", &["CallStatus"]),
        ];
        let (sid, status) = NAMES.iter().find(named).copied().unwrap_or(NAMES[2]);
        let account = path("AccountSid");
        let parts = [shaped(account, payload, is_sid), shaped(path(sid), payload, is_sid)];
        let status = shaped(first_of(payload, status), payload, is_status);
        Some(DefaultKey::from(parts.into_iter().chain([status]).collect::<Vec<_>>()))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        ["/type", "/MessageStatus", "/SmsStatus", "/CallStatus"].iter().find_map(|at| text(payload, at))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/time")
    }

    fn delivery_id(&self, _req: &Request<'_>) -> Option<FieldPath> {
        Some(FieldPath::header("i-twilio-idempotency-token"))
    }

    /// Twilio reads answers to calls and messages as instructions: these say to do nothing more.
    fn acknowledgement(&self, req: &Request<'_>) -> Option<Answer> {
        let nothing = || Answer {
            content_type: "text/xml; charset=utf-8",
            body: "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response></Response>".to_owned(),
        };
        is_form(req).then(nothing)
    }
}

/// A field that counts as missing if it looks otherwise.
fn shaped(at: FieldPath, payload: &Value, looks_right: fn(&str) -> bool) -> KeyPart {
    let found = at.find_in(payload).and_then(Value::as_str).filter(|text| looks_right(text));
    KeyPart::Read { value: found.map(Value::from), at }
}

/// Two capitals and 32 hexadecimal digits.
fn is_sid(text: &str) -> bool {
    let (kind, digits) = text.split_at_checked(2).unwrap_or_default();
    kind.bytes().all(|b| b.is_ascii_uppercase())
        && digits.len() == 32
        && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// `sent`, `in-progress`: names of fields begin with a capital.
fn is_status(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'_'))
}

fn check(req: &Request<'_>, keys: &[Cow<'_, [u8]>], _now: Timestamp) -> Result<(), SignatureError> {
    let signatures = decoded(req.headers, SIGNATURE, "", Encoding::Base64)?;
    let algorithm = algorithm(req)?;
    let hash = req.parameter(BODY_HASH);
    let parameters = match (&hash, is_form(req)) {
        (Some(_), _) => String::new(),
        (None, true) => parameters(req.body),
        (None, false) if req.body.is_empty() => String::new(),
        (None, false) => {
            return Err(SignatureError::NotCovered {
                why: "it is no form, and the address has no `bodySHA256`, which Twilio adds to signed JSON",
            });
        }
    };
    let mut verdict = Ok(());
    for url in urls(req.url) {
        verdict = any_fits(SIGNATURE, algorithm, keys, &[url.as_bytes(), parameters.as_bytes()], &signatures);
        if verdict.is_ok() {
            break;
        }
    }
    verdict?;
    let Some(hash) = hash else { return Ok(()) };
    let hash = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).unwrap_or_default();
    match bool::from(sha256(req.body).ct_eq(&hash)) {
        true => Ok(()),
        false => Err(SignatureError::Mismatch { header: BODY_HASH.to_owned(), secrets: keys.len() }),
    }
}

fn algorithm(req: &Request<'_>) -> Result<Algorithm, SignatureError> {
    if req.headers.get(SETTINGS).is_none() {
        return Ok(Algorithm::Sha1);
    }
    let settings = single(req.headers, SETTINGS)?.to_ascii_uppercase();
    match settings.split(',').find_map(|setting| setting.trim().strip_prefix("ALGORITHM=")) {
        None | Some("" | "HMAC_SHA1") => Ok(Algorithm::Sha1),
        Some("HMAC_SHA256") => Ok(Algorithm::Sha256),
        Some(_) => Err(SignatureError::Malformed {
            header: SETTINGS.to_owned(),
            expected: "key=<name>,algorithm=HMAC_SHA256".to_owned(),
        }),
    }
}

/// Each name with its values, which count once; all sorted.
fn parameters(body: &[u8]) -> String {
    let mut sorted: BTreeMap<Cow<'_, str>, BTreeSet<Cow<'_, str>>> = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(body) {
        sorted.entry(name).or_default().insert(value);
    }
    let mut out = String::new();
    for (name, values) in sorted {
        for value in values {
            out.push_str(&name);
            out.push_str(&value);
        }
    }
    out
}

/// With the port and without it: Twilio does now the one, now the other (its libraries try both).
fn urls(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let (host, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => host,
    };
    let default = if scheme == "https" { "443" } else { "80" };
    let port = host[bare.len()..].strip_prefix(':').unwrap_or(default);
    vec![format!("{scheme}://{bare}{path}"), format!("{scheme}://{bare}:{port}{path}")]
}

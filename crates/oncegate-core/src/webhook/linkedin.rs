//! LinkedIn lead generation: HMAC-SHA256 over `hmacsha256=` and the raw body, hexadecimal, no time signed
//! (webhooks/README.md §2 and §3, "LinkedIn lead gen"). The address is tested every two hours for as long as it
//! lives; three tests that fail block it.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::Request;
use super::body::Body;
use super::default_key::DefaultKey;
use super::rules::{Answer, Rules, Signature, milliseconds, text};
use super::signature::{Algorithm, BodySignature, Encoding, SignatureError};
use super::trust::Trust;
use crate::time::Timestamp;

pub(super) struct Linkedin;

/// A challenge is a UUID; nobody gets much longer things signed here.
const CHALLENGE_BYTES_MAX: usize = 128;

impl Rules for Linkedin {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        let scheme = BodySignature::sha256("x-li-signature", "", Encoding::Hex);
        Signature::Body(BodySignature { salt: b"hmacsha256=", ..scheme })
    }

    /// Anybody may ask. An event is signed with `hmacsha256=` before it, so nothing is signed here that could be one.
    /// While a secret is being replaced, the first one answers.
    fn greeting(&self, req: &Request<'_>, trust: &Trust) -> Option<Result<Answer, SignatureError>> {
        const FIELD: &str = "challengeCode";
        if req.method != "GET" {
            return None;
        }
        let challenge = req.parameter(FIELD)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let usable = challenge.len() <= CHALLENGE_BYTES_MAX && challenge.chars().all(plain);
        let Some(secret) = trust.secrets.first().filter(|_| usable && !challenge.is_empty()) else {
            return Some(Err(SignatureError::WrongVerifyToken { field: FIELD }));
        };
        let response = HEXLOWER.encode(&Algorithm::Sha256.sign(secret.expose(), &[challenge.as_bytes()]));
        let body = json!({ "challengeCode": challenge, "challengeResponse": response }).to_string();
        Some(Ok(Answer { content_type: "application/json", body }))
    }

    /// Leads come alone; what people did with a page's posts comes in lists.
    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        match body.payload {
            Value::Object(mut members) => match members.remove("notifications") {
                Some(Value::Array(items)) => items.into_iter().map(Body::part).collect(),
                Some(other) => {
                    members.insert("notifications".to_owned(), other);
                    vec![Body::of(Value::Object(members))]
                }
                None => vec![Body::of(Value::Object(members))],
            },
            payload => vec![Body::of(payload)],
        }
    }

    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        Some(match payload.get("notificationId") {
            Some(_) => DefaultKey::body(["notificationId"]),
            None => DefaultKey::body(["leadAction", "leadGenFormResponse"]),
        })
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/leadAction").or_else(|| text(payload, "/action")).or_else(|| text(payload, "/type"))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        milliseconds(payload, "/occurredAt").or_else(|| milliseconds(payload, "/lastModifiedAt"))
    }
}

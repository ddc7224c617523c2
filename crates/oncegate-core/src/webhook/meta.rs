//! Meta lead ads: HMAC-SHA256 over the raw body, hexadecimal, no time signed (webhooks/README.md §2 and §3, "Meta
//! lead ads"). One request carries changes of several pages. A lead's answers have to be fetched by its id.

use serde_json::{Value, json};

use super::body::Body;
use super::default_key::{DefaultKey, path};
use super::rules::{Answer, Rules, Signature, seconds, text};
use super::signature::{BodySignature, Encoding};
use super::trust::{Trust, same};
use super::{FieldPath, Request, SignatureError};
use crate::limits::INTAKE_EVENTS_MAX;
use crate::time::Timestamp;

pub(super) struct Meta;

impl Rules for Meta {
    /// The bytes are signed as they come, with their `\u` escapes. `X-Hub-Signature` (SHA-1) is not looked at.
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256("x-hub-signature-256", "sha256=", Encoding::Hex))
    }

    /// Whoever asks chooses the challenge, so it is sent back as plain text.
    fn greeting(&self, req: &Request<'_>, trust: &Trust) -> Option<Result<Answer, SignatureError>> {
        const FIELD: &str = "hub.verify_token";
        if req.method != "GET" || req.parameter("hub.mode").as_deref() != Some("subscribe") {
            return None;
        }
        let said = req.parameter(FIELD).unwrap_or_default();
        let known = trust.verify_token.as_ref().is_some_and(|token| same(said.as_bytes(), token.expose()));
        Some(match (known, req.parameter("hub.challenge")) {
            (true, Some(challenge)) => Ok(Answer::text(challenge)),
            _ => Err(SignatureError::WrongVerifyToken { field: FIELD }),
        })
    }

    /// Each change by itself, with what it needs to know of its entry.
    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        let Some(Value::Array(entries)) = body.payload.get("entry") else { return vec![body] };
        let object = body.payload.get("object");
        let mut events = vec![];
        let count = |entry: &Value| entry.get("changes").and_then(Value::as_array).map_or(1, Vec::len);
        // Each takes along what its entry says: not of more than anybody sends, nor of what is no id.
        if entries.iter().map(count).sum::<usize>() > INTAKE_EVENTS_MAX {
            return vec![body];
        }
        let word = |value: Option<&Value>| {
            value.filter(|value| value.as_str().is_none_or(|id| id.len() <= 256)).cloned()
        };
        let object = word(object);
        for entry in entries {
            let of = json!({ "id": word(entry.get("id")), "time": entry.get("time") });
            let changes = entry.get("changes").and_then(Value::as_array);
            for change in changes.into_iter().flatten() {
                let (field, value) = (change.get("field"), change.get("value"));
                events.push(Body::part(
                    json!({ "object": object, "entry": of, "field": field, "value": value }),
                ));
            }
            // Messages and the like: nothing here knows them, so a person does.
            let mut rest = entry.clone();
            if let Some(members) = rest.as_object_mut() {
                members.retain(|name, _| name != "changes");
            }
            let more = rest
                .as_object()
                .is_none_or(|members| members.keys().any(|name| name != "id" && name != "time"));
            if more || changes.is_none_or(Vec::is_empty) {
                events.push(Body::part(json!({ "object": object, "entry": rest })));
            }
        }
        events
    }

    /// Leads alone have an id of their own; whoever takes in other changes says by what they are named.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["field", "value.leadgen_id"]))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/field")
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        seconds(payload, "/value/created_time")
    }

    /// When this batch was put together.
    fn volatile(&self) -> Vec<FieldPath> {
        vec![path("entry.time")]
    }
}

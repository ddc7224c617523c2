//! What is particular to one provider.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::body::Body;
use super::default_key::DefaultKey;
use super::field::FieldPath;
use super::machine_mail::MailPlaces;
use super::request::Request;
use super::signature::{BodySignature, SecretError, SignatureError};
use super::timed::Elements;
use super::trust::Trust;
use crate::identity::Repeat;
use crate::secret::Secret;
use crate::time::Timestamp;

/// What is said back to a sender that wants to hear something of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the body.
    pub content_type: &'static str,
    /// All of it.
    pub body: String,
}

impl Answer {
    pub(super) const NOTHING: Self = Self { content_type: "text/plain; charset=utf-8", body: String::new() };

    pub(super) fn text(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::NOTHING }
    }
}

/// A check that only one provider needs: the request against at least one of the keys, at this time.
pub(super) type Check = fn(&Request<'_>, &[Cow<'_, [u8]>], Timestamp) -> Result<(), SignatureError>;

/// When an event with another key is the same one, by what a provider signs and what it does not.
pub(super) enum DefaultRepeat {
    /// Whatever the source declares: without this rule a signature would be good for any event.
    Always(Repeat),
    /// The same body of the same kind within this time, unless the source or its automation declares a rule: the ids
    /// are not signed.
    SameBody(Duration),
}

/// How long the body of a request whose ids are not signed is known again.
pub(super) const SAME_BODY: DefaultRepeat = DefaultRepeat::SameBody(Repeat::WITHIN_MAX);

/// How a request is signed.
pub(super) enum Signature<'a> {
    /// Not at all: the secret stands in the address or in a header.
    Nothing,
    /// One HMAC of the raw body in one header.
    Body(BodySignature<'a>),
    /// `t=…,v1=…` in one header.
    Timed(Elements),
    /// In a way of its own.
    Own(Check),
}

/// The order of work and the bounds are the same for all (`trust.rs`, `reading.rs`), so a provider's file holds its
/// facts and little else.
pub(super) trait Rules {
    /// Turns a configured secret into the key.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        match secret.expose().trim_ascii().is_empty() {
            true => Err(SecretError::Blank),
            false => Ok(Cow::Borrowed(secret.expose())),
        }
    }

    /// How this request is signed, if it is genuine.
    fn signature(&self, req: &Request<'_>) -> Signature<'_>;

    /// Whether requests of this provider prove who sent them. Those that do not are shown as unsigned.
    fn signs(&self) -> bool {
        true
    }

    /// Whether the signature stands in the body, so that the head alone tells nothing.
    fn signs_in_body(&self) -> bool {
        false
    }

    /// Whether the public address is part of what is signed.
    fn signs_url(&self) -> bool {
        false
    }

    /// What must be true of a request besides its signature.
    fn accepts(&self, _req: &Request<'_>, _trust: &Trust) -> Result<(), SignatureError> {
        Ok(())
    }

    /// The answer to a test of the connection that is not signed; `None` where this is no such test.
    fn greeting(&self, _req: &Request<'_>, _trust: &Trust) -> Option<Result<Answer, SignatureError>> {
        None
    }

    /// Members of the body that are credentials: dropped before anything is stored.
    fn credentials(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads the body; for providers that wrap it.
    fn body(&self, req: &Request<'_>) -> Body {
        Body::read(req)
    }

    /// The events in it, in their order. A part of a batch is stored as its payload, and not taken apart again.
    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        vec![body]
    }

    /// The answer to a verified request that only asks if anybody is there.
    fn handshake(&self, _req: &Request<'_>, _payload: &Value) -> Option<Option<Answer>> {
        None
    }

    /// What names an event of this provider; `None` where only the operator can know.
    fn default_key(&self, req: &Request<'_>, payload: &Value) -> Option<DefaultKey>;

    /// When an event with another key is the same one.
    fn repeat(&self) -> Option<DefaultRepeat> {
        None
    }

    /// The kind of event, in the provider's words.
    fn event_type(&self, _req: &Request<'_>, _payload: &Value) -> Option<String> {
        None
    }

    /// When the event happened, in the provider's words: the same on every delivery. Not when it was sent.
    fn dated(&self, _payload: &Value) -> Option<Timestamp> {
        None
    }

    /// What names one sending of an event, the same on every retry of it: where a hook that is registered twice
    /// shows.
    fn delivery_id(&self, _req: &Request<'_>) -> Option<FieldPath> {
        None
    }

    /// Where its events say what mail they are, for a provider of mails that came in.
    fn mail(&self) -> Option<MailPlaces> {
        None
    }

    /// Whether this event of such a provider is a mail that came in.
    fn is_mail(&self, _payload: &Value) -> bool {
        true
    }

    /// Fields of the body that may change between two deliveries of one event. Changing a provider's list
    /// means a new [`crate::fingerprint::Fingerprint::VERSION`].
    fn volatile(&self) -> Vec<FieldPath> {
        Vec::new()
    }

    /// What the sender must hear once everything is stored; `None`: any 200 will do.
    fn acknowledgement(&self, _req: &Request<'_>) -> Option<Answer> {
        None
    }

    /// What is stored in place of a body with credentials in it; it must be read as the same events. `None`: there
    /// are none in it.
    fn redacted(&self, _req: &Request<'_>) -> Option<Vec<u8>> {
        None
    }

    /// The same of a request that nobody has proved to be genuine, so that it must not be read; its events need not
    /// be the same before it is judged again.
    fn redacted_unread(&self, _req: &Request<'_>) -> Option<Vec<u8>> {
        None
    }
}

/// The text at a place of a payload.
pub(super) fn text(payload: &Value, pointer: &str) -> Option<String> {
    payload.pointer(pointer)?.as_str().map(str::to_owned)
}

/// The instant at a place of the body; text that is none is no date.
pub(super) fn instant(payload: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(payload.pointer(pointer)?.as_str()?).ok()
}

/// The instant at a place of the body that counts seconds since 1970, with a fraction or without.
pub(super) fn seconds(payload: &Value, pointer: &str) -> Option<Timestamp> {
    let number = payload.pointer(pointer)?;
    let whole = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))?;
    Some(Timestamp::from_secs(whole))
}

/// The instant at a place of the body that counts milliseconds since 1970.
pub(super) fn milliseconds(payload: &Value, pointer: &str) -> Option<Timestamp> {
    Some(Timestamp::from_millis(payload.pointer(pointer)?.as_i64()?))
}

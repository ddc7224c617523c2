//! Inbound webhooks: is this request really from the provider, and which intended effects does it carry?
//!
//! Everything here works on bytes that were already received; nothing is stored or answered. Verification is
//! over the raw body, before anything is parsed. One file per provider: a new one is a file that implements
//! `Rules`, its `mod` line, and its line in the `registry!` below. Facts on providers: `webhooks/README.md`.

mod body;
mod calendly;
mod environment;
mod field;
mod formstack;
mod github;
mod hmac;
mod request;
mod shopify;
mod signature;
mod standard_webhooks;
mod stripe;
mod tally;
mod timed;
mod typeform;
mod webflow;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use self::body::Body;
pub use self::environment::{EventEnvironment, as_text};
pub use self::field::{FieldPath, FieldPathError, NoIdentity};
pub use self::hmac::{HmacScheme, HmacSchemeError};
pub use self::request::{Headers, Request};
pub use self::signature::{
    Algorithm, Encoding, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX, SecretError, SignatureError,
};
use crate::fingerprint::Fingerprint;
use crate::identity::{self, Folded, KeyField, Part, Repeat, Subject};
use crate::key::IdempotencyKey;
use crate::secret::Secret;
use crate::time::Timestamp;

/// What is particular to one provider. The order of work and the bounds are the same for all (see
/// [`Provider::verify`], [`Provider::read`]), so a provider's file holds its facts and little else.
trait Rules {
    /// Turns a configured secret into the HMAC key.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        match secret.expose().trim_ascii().is_empty() {
            true => Err(SecretError::Blank),
            false => Ok(Cow::Borrowed(secret.expose())),
        }
    }

    /// Checks the request against at least one key.
    fn verify(&self, req: &Request<'_>, keys: &[Cow<'_, [u8]>], now: Timestamp)
    -> Result<(), SignatureError>;

    /// Reads the body; for providers that wrap it.
    fn body(&self, req: &Request<'_>) -> Body {
        Body::read(req)
    }

    /// Whether the verified request only asks if anybody is there.
    fn is_handshake(&self, _req: &Request<'_>, _payload: &serde_json::Value) -> bool {
        false
    }

    /// The fields that name an event of this provider; `None` where only the operator can know.
    fn default_key(&self, req: &Request<'_>) -> Option<DefaultKey>;

    /// The kind of event, in the provider's words.
    fn event_type(&self, req: &Request<'_>, payload: &serde_json::Value) -> Option<String>;

    /// When the event happened, in the provider's words: the same on every delivery. Not when it was sent.
    fn dated(&self, _payload: &serde_json::Value) -> Option<Timestamp> {
        None
    }

    /// What names one sending of an event, the same on every retry of it: where a hook that is registered twice shows.
    fn delivery_id(&self, _req: &Request<'_>) -> Option<FieldPath> {
        None
    }

    /// Fields of the body that may change between two deliveries of one event. Changing a provider's list
    /// means a new [`Fingerprint::VERSION`].
    fn volatile(&self) -> Vec<FieldPath> {
        Vec::new()
    }
}

/// The instant at a place of the body; text that is none is no date.
fn instant(payload: &serde_json::Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(payload.pointer(pointer)?.as_str()?).ok()
}

/// What a source declares about its events, beside its provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRules {
    /// Instead of the provider's own key.
    pub key: Option<Vec<KeyField>>,
    /// More fields that may change between two deliveries of one event.
    pub volatile: Vec<FieldPath>,
    /// When an event with another key is the same one.
    pub repeat: Option<Repeat>,
    /// What tells the record that an event is about from another one with its id.
    pub identity: Vec<KeyField>,
    /// Instead of the provider's own: what names one sending of an event.
    pub delivery_id: Option<FieldPath>,
}

/// How a key came about, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// What begins the key: the provider's name and, where ids are unique only within it, the source's.
    pub prefix: Vec<String>,
    /// The key's fields, in their order.
    pub key: Vec<FieldSeen>,
    /// Those of the repeat rule.
    pub repeat: Vec<FieldSeen>,
    /// Those that tell records apart.
    pub identity: Vec<FieldSeen>,
    /// Fields of the body that do not count for the fingerprint.
    pub volatile: Vec<FieldPath>,
}

/// One field and what stands in it.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSeen {
    /// The field.
    pub field: KeyField,
    /// As it was sent; `None` if it is not there, or cannot be read.
    pub sent: Option<serde_json::Value>,
    /// What its rule made of it.
    pub part: Result<Part, NoIdentity>,
}

/// A key made of the provider's name, the source's name if ids are unique only within it, and fields.
struct DefaultKey {
    with_source: bool,
    fields: Vec<FieldPath>,
}

macro_rules! registry {
    ($($(#[$doc:meta])* $variant:ident = $name:literal => $rules:expr,)*) => {
        /// Who sends to a source, and therefore how its requests are signed and named.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Provider {
            $($(#[$doc])* $variant,)*
            /// Anybody who signs the raw body with an HMAC, as described by the scheme.
            Hmac(HmacScheme),
        }

        impl Provider {
            /// The names configuration can use.
            pub const NAMES: &[&str] = &[$($name,)* hmac::NAME];

            /// The provider's name in configuration, in keys and in lists.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Hmac(_) => hmac::NAME,
                }
            }

            /// The provider of that name. `scheme` belongs to `hmac`, which cannot be without one.
            ///
            /// # Errors
            /// There is no such provider, or the scheme is missing or out of place.
            pub fn from_name(name: &str, scheme: Option<HmacScheme>) -> Result<Self, ProviderError> {
                match (name, scheme) {
                    $(($name, None) => Ok(Self::$variant),)*
                    (hmac::NAME, Some(scheme)) => Ok(Self::Hmac(scheme)),
                    (hmac::NAME, None) => Err(ProviderError::SchemeMissing),
                    (name, Some(_)) if Self::NAMES.contains(&name) => {
                        Err(ProviderError::SchemeUnused { name: name.to_owned() })
                    }
                    (name, _) => Err(ProviderError::Unknown { name: name.to_owned() }),
                }
            }

            fn rules(&self) -> &dyn Rules {
                match self {
                    $(Self::$variant => &$rules,)*
                    Self::Hmac(scheme) => scheme,
                }
            }
        }
    };
}

registry! {
    /// Typeform forms.
    Typeform = "typeform" => typeform::Typeform,
    /// Tally forms.
    Tally = "tally" => tally::Tally,
    /// Webflow forms, of webhooks that were made by an app or with a site token.
    Webflow = "webflow" => webflow::Webflow,
    /// Formstack forms.
    Formstack = "formstack" => formstack::Formstack,
    /// Stripe payments.
    Stripe = "stripe" => stripe::Stripe,
    /// Shopify shops.
    Shopify = "shopify" => shopify::Shopify,
    /// Calendly bookings.
    Calendly = "calendly" => calendly::Calendly,
    /// GitHub repositories, organisations and apps.
    Github = "github" => github::Github,
    /// Everybody who follows the Standard Webhooks specification: Svix and its customers, Make, …
    StandardWebhooks = "standard_webhooks" => standard_webhooks::StandardWebhooks,
}

/// Why a source's provider is refused when the configuration is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No provider of that name.
    #[error("there is no provider `{name}`; known are {}; a provider not in this list may fit `hmac`", Provider::NAMES.join(", "))]
    Unknown {
        /// The name as written.
        name: String,
    },
    /// `hmac` without its scheme.
    #[error("provider `hmac` needs to know what is signed where; add e.g. `hmac: {{ header: X-Signature }}`")]
    SchemeMissing,
    /// A scheme next to a provider that has its own.
    #[error("provider `{name}` has its own signature scheme; remove `hmac:` or set the provider to `hmac`")]
    SchemeUnused {
        /// The provider's name.
        name: String,
    },
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a verified request carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A test of the connection: answer 200 and start nothing.
    Handshake,
    /// Events, each to be judged alone; at least one.
    Events(Vec<Event>),
}

/// One thing that happened, according to the provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What names it, or why nothing does.
    pub identity: Result<IdempotencyKey, NoIdentity>,
    /// The body as JSON. Empty: `null`. Form-encoded: an object of strings, arrays of them for repeated names.
    /// Not JSON, or JSON that names a member twice with different values: one JSON string if it is UTF-8, else
    /// `{"base64": "…"}`.
    pub payload: serde_json::Value,
    /// Of the payload without its volatile fields.
    pub fingerprint: Fingerprint,
    /// By what an event with another key would be the same one, if a rule is declared and this one has all its fields.
    pub repeat: Option<(Subject, Duration)>,
    /// What it says about its record, if that is declared and it says it.
    pub about: Option<Subject>,
    /// What names this sending of it, at most 128 bytes; not every provider tells.
    pub delivery_id: Option<String>,
    /// The kind of event in the provider's words, at most 128 bytes; not every provider tells.
    pub event_type: Option<String>,
    /// When it happened by the provider's word; not every provider tells.
    pub dated: Option<Timestamp>,
}

/// Longest event type taken over, in bytes: it is a word of the provider, not a place for content.
const EVENT_TYPE_BYTES_MAX: usize = 128;

impl Provider {
    /// Whether `secret` has the form this provider's secrets have; for the check of the configuration.
    ///
    /// # Errors
    /// It is blank, or not what the provider's scheme can use.
    pub fn check_secret(&self, secret: &Secret) -> Result<(), SecretError> {
        self.rules().key(secret).map(drop)
    }

    /// Checks that the request was signed with one of the secrets: over the raw bytes, in constant time.
    ///
    /// Any of several secrets may fit, so that a secret can be rotated; any of several signatures likewise
    /// (at most 16). Where the provider signs a time, `now` must lie within 300 s of it, before or after
    /// (webhooks/README.md §1.10).
    ///
    /// # Errors
    /// Whatever keeps the request from being believed. The caller answers 401 and keeps the body apart.
    pub fn verify(
        &self,
        req: &Request<'_>,
        secrets: &[Secret],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let mut keys = Vec::with_capacity(secrets.len());
        let mut bad = None;
        for (at, secret) in secrets.iter().enumerate() {
            match self.rules().key(secret) {
                Ok(key) => keys.push(key),
                // The other secrets may still fit: one mistyped while rotating must not stop the intake.
                Err(why) => bad = bad.or(Some(SignatureError::BadSecret { number: at + 1, why })),
            }
        }
        if keys.is_empty() {
            return Err(bad.unwrap_or(SignatureError::NoSecret));
        }
        self.rules().verify(req, &keys, now).map_err(|refused| match (refused, bad) {
            (SignatureError::Mismatch { .. }, Some(bad)) => bad,
            (refused, _) => refused,
        })
    }

    /// What the request carries. To be called after [`Provider::verify`], or on a stored event that was
    /// verified when it came.
    ///
    /// The key is made of the declared fields if there are any, in their order and of nothing else; otherwise it is
    /// the provider's default key, which begins with the provider's name (and `source`, where ids are unique
    /// only within one). Key fields in headers are only as sure as the provider's signature covers them:
    /// most sign the body alone.
    pub fn read(&self, req: &Request<'_>, source: &str, declared: &EventRules) -> Reading {
        let rules = self.rules();
        let body = rules.body(req);
        if rules.is_handshake(req, &body.payload) {
            return Reading::Handshake;
        }
        let identity = self.identity(req, &body, source, declared);
        let fingerprint = Fingerprint::of(&body.payload, &self.volatile(declared));
        let subject = |fields: &[KeyField]| Subject::of(fields.iter().map(|f| (f, seen(f, req, &body).part)));
        let repeat = declared.repeat.as_ref().and_then(|rule| Some((subject(&rule.fields)?, rule.within)));
        let about = subject(&declared.identity);
        let is_word = |t: &String| {
            !t.trim().is_empty() && t.len() <= EVENT_TYPE_BYTES_MAX && !t.contains(char::is_control)
        };
        let event_type = rules.event_type(req, &body.payload).filter(is_word);
        let dated = rules.dated(&body.payload);
        let delivery_id = declared.delivery_id.clone().or_else(|| rules.delivery_id(req));
        let delivery_id = delivery_id.and_then(|path| path.plain(req.headers, &body.payload)).filter(is_word);
        let payload = body.payload;
        let event = Event { identity, payload, fingerprint, repeat, about, delivery_id, event_type, dated };
        Reading::Events(vec![event])
    }

    /// How the same request comes to its key; `None` for a test of the connection.
    pub fn explain(&self, req: &Request<'_>, source: &str, declared: &EventRules) -> Option<Explained> {
        let rules = self.rules();
        let body = rules.body(req);
        if rules.is_handshake(req, &body.payload) {
            return None;
        }
        let all = |fields: &[KeyField]| fields.iter().map(|field| seen(field, req, &body)).collect();
        let (prefix, fields) = self.key_of(req, source, declared).unwrap_or_default();
        let volatile = self.volatile(declared);
        let repeat = declared.repeat.as_ref().map(|rule| all(&rule.fields)).unwrap_or_default();
        Some(Explained { prefix, key: all(&fields), repeat, identity: all(&declared.identity), volatile })
    }

    /// Fields of the body that may change between two deliveries of one event; left out of the fingerprint.
    pub fn volatile(&self, declared: &EventRules) -> Vec<FieldPath> {
        let mut volatile = self.rules().volatile();
        volatile.extend(declared.volatile.iter().cloned());
        volatile
    }

    /// What a key is made of: what begins it, and its fields. `None` if nobody says.
    fn key_of(
        &self,
        req: &Request<'_>,
        source: &str,
        declared: &EventRules,
    ) -> Option<(Vec<String>, Vec<KeyField>)> {
        if let Some(declared) = &declared.key {
            return (!declared.is_empty()).then(|| (vec![], declared.clone()));
        }
        let default = self.rules().default_key(req)?;
        let mut prefix = vec![self.name().to_owned()];
        prefix.extend(default.with_source.then(|| source.to_owned()));
        Some((prefix, default.fields.into_iter().map(KeyField::from).collect()))
    }

    fn identity(
        &self,
        req: &Request<'_>,
        body: &Body,
        source: &str,
        declared: &EventRules,
    ) -> Result<IdempotencyKey, NoIdentity> {
        // Even where the key stands in a header: what runs would work on a value that may not be the meant one.
        if let Some(member) = &body.ambiguous {
            return Err(NoIdentity::Ambiguous { member: member.clone() });
        }
        let key = self.key_of(req, source, declared);
        let (prefix, fields) = key.ok_or_else(|| NoIdentity::NoKeyFields { provider: self.name() })?;
        let own = |text: String| Part::Value(Folded { folded: text.clone(), shown: text });
        let mut parts: Vec<Part> = prefix.into_iter().map(own).collect();
        let begins = parts.len();
        for field in &fields {
            parts.push(seen(field, req, body).part?);
        }
        // A key of nothing but the provider's name would make all events one.
        if parts[begins..].iter().all(|part| part.folded().is_none()) {
            return Err(NoIdentity::Nothing);
        }
        Ok(identity::join(parts.iter().map(|part| (None, part)))?)
    }
}

fn seen(field: &KeyField, req: &Request<'_>, body: &Body) -> FieldSeen {
    let found = field.path.find(req.headers, body);
    let part = found.clone().and_then(|found| field.part(found.as_ref()));
    FieldSeen { field: field.clone(), sent: found.ok().flatten(), part }
}

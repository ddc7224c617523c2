//! What a verified request carries, and what names it.

use std::time::Duration;

use data_encoding::HEXLOWER;
use serde_json::Value;

use super::Provider;
use super::body::Body;
use super::default_key::KeyPart;
use super::field::{FieldPath, NoIdentity};
use super::request::{Headers, Request};
use super::rules::{Answer, DefaultRepeat, Rules};
use crate::fingerprint::Fingerprint;
use crate::identity::{self, Folded, KeyField, Part, Repeat, Subject};
use crate::key::{IdempotencyKey, sha256};
use crate::limits::INTAKE_EVENTS_MAX;
use crate::time::Timestamp;

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
    /// Where the events of one request are listed, for a sender of whom it is not known.
    pub batch: Option<Batch>,
}

/// Where a request lists its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The body is the list.
    Body,
    /// The list stands in a field.
    At(FieldPath),
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
    /// How long that rule looks back, if there is one.
    pub within: Option<Duration>,
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

/// What a verified request carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A test of the connection: answer 200, with this if the provider wants to hear something, and start nothing.
    Handshake(Option<Answer>),
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
    /// It was taken out of a list or an envelope: its payload is stored in place of the request's body.
    pub of_batch: bool,
    /// Of the payload without its volatile fields.
    pub fingerprint: Fingerprint,
    /// By what an event with another key would be the same one, if a rule is declared and this one has all its
    /// fields.
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
    /// What the request carries. To be called after [`Provider::verify`], or on a stored event that was
    /// verified when it came.
    ///
    /// The key is made of the declared fields if there are any, in their order and of nothing else; otherwise it is
    /// the provider's default key, which begins with the provider's name (and `source`, where ids are unique
    /// only within one). Key fields in headers are only as sure as the provider's signature covers them:
    /// most sign the body alone.
    pub fn read(&self, req: &Request<'_>, source: &str, declared: &EventRules) -> Reading {
        let rules = self.rules();
        let body = whole(rules, req);
        if let Some(answer) = rules.handshake(req, &body.payload) {
            return Reading::Handshake(answer);
        }
        let looked =
            Looked { provider: self, rules, req, source, declared, repeat: repeat_of(rules, declared) };
        let bodies = events(rules, req, body, declared.batch.as_ref()).unwrap_or_else(|whole| vec![whole]);
        Reading::Events(bodies.into_iter().map(|body| looked.event(body)).collect())
    }

    /// How each event of the same request comes to its key; none for a test of the connection.
    pub fn explain(&self, req: &Request<'_>, source: &str, declared: &EventRules) -> Vec<Explained> {
        let rules = self.rules();
        let body = whole(rules, req);
        if rules.handshake(req, &body.payload).is_some() {
            return vec![];
        }
        let looked =
            Looked { provider: self, rules, req, source, declared, repeat: repeat_of(rules, declared) };
        let bodies = events(rules, req, body, declared.batch.as_ref()).unwrap_or_else(|whole| vec![whole]);
        bodies.iter().map(|body| looked.explain(body)).collect()
    }

    /// Fields of the body that may change between two deliveries of one event; left out of the fingerprint.
    pub fn volatile(&self, declared: &EventRules) -> Vec<FieldPath> {
        let mut volatile = self.rules().volatile();
        volatile.extend(declared.volatile.iter().cloned());
        volatile
    }
}

/// What the items are that a poll brought: each an event of its own, by the same rules as one that was sent.
pub fn polled(source: &str, declared: &EventRules, items: Vec<Value>) -> Vec<Event> {
    let (provider, headers) = (Provider::Polled, Headers::default());
    let rules = provider.rules();
    let req = Request::post("", &headers, b"");
    let repeat = repeat_of(rules, declared);
    let looked = Looked { provider: &provider, rules, req: &req, source, declared, repeat };
    items.into_iter().map(|item| looked.event(Body::part(item))).collect()
}

/// The events of a body; the whole of it, unreadable, if there are more than anybody sends.
fn events(
    rules: &dyn Rules,
    req: &Request<'_>,
    body: Body,
    declared: Option<&Batch>,
) -> Result<Vec<Body>, Body> {
    // Nobody can say what such a body means, and so not where one of its events ends.
    if body.ambiguous.is_some() || body.unreadable.is_some() {
        return Err(body);
    }
    if req.headers.is_stored_part() {
        return Ok(vec![Body { part: true, ..body }]);
    }
    let events = match declared {
        None => rules.events(req, body),
        Some(batch) => batch.events(body),
    };
    match events.len() {
        1..=INTAKE_EVENTS_MAX => Ok(events),
        0 => Err(Body { unreadable: Some("there is no event in it".to_owned()), ..Body::of(Value::Null) }),
        many => Err(Body {
            unreadable: Some(format!("{many} events in one request; at most {INTAKE_EVENTS_MAX} are taken")),
            ..Body::of(Value::Null)
        }),
    }
}

/// The body without the credentials in it.
pub(super) fn whole(rules: &dyn Rules, req: &Request<'_>) -> Body {
    // What was stored as JSON is taken as it was stored, whatever type its request had.
    let mut body = if req.headers.is_stored_json() { Body::json(req.body) } else { rules.body(req) };
    if let Value::Object(members) = &mut body.payload {
        rules.credentials().iter().for_each(|name| drop(members.remove(*name)));
    }
    body
}

impl Batch {
    /// A body without the list is one event.
    fn events(&self, body: Body) -> Vec<Body> {
        let list = match self {
            Self::Body => Some(&body.payload),
            Self::At(path) => path.find_in(&body.payload),
        };
        match list {
            Some(Value::Array(items)) => items.iter().cloned().map(Body::part).collect(),
            _ => vec![body],
        }
    }
}

/// One request on its way through the rules.
struct Looked<'a> {
    provider: &'a Provider,
    rules: &'a dyn Rules,
    req: &'a Request<'a>,
    source: &'a str,
    declared: &'a EventRules,
    repeat: Option<Rule>,
}

/// The second-level rule that counts for a request.
enum Rule {
    Fields(Repeat),
    SameBody(Duration),
}

fn repeat_of(rules: &dyn Rules, declared: &EventRules) -> Option<Rule> {
    match (rules.repeat(), &declared.repeat) {
        (Some(DefaultRepeat::Always(repeat)), _) => Some(Rule::Fields(repeat)),
        (_, Some(repeat)) => Some(Rule::Fields(repeat.clone())),
        (Some(DefaultRepeat::SameBody(within)), None) => Some(Rule::SameBody(within)),
        (None, None) => None,
    }
}

/// One part of a key: its field, unless it is a word, and what stands there.
struct Made {
    seen: Option<FieldSeen>,
    part: Result<Part, NoIdentity>,
}

impl Looked<'_> {
    fn event(&self, body: Body) -> Event {
        let Self { provider, rules, req, declared, .. } = self;
        let identity = self.identity(&body);
        let fingerprint = Fingerprint::of(&body.payload, &provider.volatile(declared));
        let subject = |fields: &[KeyField]| Subject::of(fields.iter().map(|f| (f, self.seen(f, &body).part)));
        let repeat = match &self.repeat {
            None => None,
            Some(Rule::Fields(rule)) => subject(&rule.fields).map(|subject| (subject, rule.within)),
            // One order is created, paid and changed in one moment: the kind goes with the body.
            Some(Rule::SameBody(within)) => {
                let named = |name: &str| KeyField::from(FieldPath::body(&[name]));
                let kind = rules.event_type(req, &body.payload).unwrap_or_default();
                let hash = HEXLOWER.encode(&sha256(req.body));
                let fields = [(named("(the body)"), hash), (named("(the kind)"), format!("kind {kind}"))];
                let parts = fields.iter().map(|(field, text)| (field, Ok(of_itself(text))));
                Subject::of(parts).map(|subject| (subject, *within))
            }
        };
        let about = subject(&declared.identity);
        let is_word = |t: &String| {
            !t.trim().is_empty() && t.len() <= EVENT_TYPE_BYTES_MAX && !t.contains(char::is_control)
        };
        let event_type = rules.event_type(req, &body.payload).filter(is_word);
        let dated = rules.dated(&body.payload);
        let delivery_id = declared.delivery_id.clone().or_else(|| rules.delivery_id(req));
        let delivery_id = delivery_id.and_then(|path| path.plain(req.headers, &body.payload)).filter(is_word);
        let (payload, of_batch) = (body.payload, body.part);
        Event { identity, payload, of_batch, fingerprint, repeat, about, delivery_id, event_type, dated }
    }

    fn explain(&self, body: &Body) -> Explained {
        let all = |fields: &[KeyField]| fields.iter().map(|field| self.seen(field, body)).collect();
        let (prefix, made) = self.key(body).unwrap_or_default();
        Explained {
            prefix,
            key: made.into_iter().filter_map(|made| made.seen).collect(),
            repeat: match &self.repeat {
                Some(Rule::Fields(rule)) => all(&rule.fields),
                Some(Rule::SameBody(_)) | None => vec![],
            },
            within: match &self.repeat {
                Some(Rule::Fields(rule)) => Some(rule.within),
                // Of that rule there is nothing to choose, so there is nothing to show.
                Some(Rule::SameBody(_)) | None => None,
            },
            identity: all(&self.declared.identity),
            volatile: self.provider.volatile(self.declared),
        }
    }

    /// What begins the key, and what it is made of. `None` if nobody says.
    fn key(&self, body: &Body) -> Option<(Vec<String>, Vec<Made>)> {
        let field = |field: KeyField| {
            let seen = self.seen(&field, body);
            Made { part: seen.part.clone(), seen: Some(seen) }
        };
        if let Some(declared) = &self.declared.key {
            return (!declared.is_empty()).then(|| (vec![], declared.iter().cloned().map(field).collect()));
        }
        let default = self.rules.default_key(self.req, &body.payload)?;
        let mut prefix = vec![default.begins.unwrap_or(self.provider.name()).to_owned()];
        prefix.extend(default.with_source.then(|| self.source.to_owned()));
        let made = default.parts.into_iter().map(|part| match part {
            KeyPart::Word(word) => Made { seen: None, part: Ok(of_itself(word)) },
            KeyPart::Field(path) => field(path.into()),
            KeyPart::Id(path) => {
                let at = path.to_string();
                let mut made = field(path.into());
                if made.part.as_ref().is_ok_and(|part| part.folded() == Some("0")) {
                    made.part = Err(NoIdentity::Zero { field: at });
                }
                made
            }
            KeyPart::Read { at, value } => {
                let field = KeyField::from(at);
                let unread = body.unreadable.as_ref().map(|why| NoIdentity::BodyUnreadable {
                    field: field.path.to_string(),
                    why: why.clone(),
                });
                let part = unread.map_or_else(|| field.part(value.as_ref()), Err);
                Made { part: part.clone(), seen: Some(FieldSeen { field, sent: value, part }) }
            }
        });
        let made = made.collect();
        Some((prefix, made))
    }

    fn identity(&self, body: &Body) -> Result<IdempotencyKey, NoIdentity> {
        // Even where the key stands in a header: what runs would work on a value that may not be the meant one.
        if let Some(member) = &body.ambiguous {
            return Err(NoIdentity::Ambiguous { member: member.clone() });
        }
        let (prefix, made) =
            self.key(body).ok_or_else(|| NoIdentity::NoKeyFields { provider: self.provider.name() })?;
        let mut parts: Vec<Part> = prefix.iter().map(|word| of_itself(word)).collect();
        let mut nothing = true;
        for made in made {
            let part = made.part?;
            nothing &= made.seen.is_none() || part.folded().is_none();
            parts.push(part);
        }
        // A key of nothing but words would make all events one.
        if nothing {
            return Err(NoIdentity::Nothing);
        }
        Ok(identity::join(parts.iter().map(|part| (None, part)))?)
    }

    fn seen(&self, field: &KeyField, body: &Body) -> FieldSeen {
        let found = field.path.find(self.req.headers, body);
        let part = match &found {
            Ok(Some(Value::String(text))) if identity::is_unfilled(text) => {
                Err(NoIdentity::Placeholder { field: field.path.to_string() })
            }
            Ok(found) => field.part(found.as_ref()),
            Err(why) => Err(why.clone()),
        };
        FieldSeen { field: field.clone(), sent: found.ok().flatten(), part }
    }
}

fn of_itself(word: &str) -> Part {
    Part::Value(Folded { folded: word.to_owned(), shown: word.to_owned() })
}

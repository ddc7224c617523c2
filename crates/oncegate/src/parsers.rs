//! Every parser of what comes from outside, each with what it promises of any bytes at all. The test command feeds
//! them with random bytes, `make fuzz` with bytes that it learns; both through these functions, so that what one finds
//! the other keeps watching. None of it is part of the product.

use std::path::Path;

use axum::response::IntoResponse;
use http::{HeaderMap, HeaderValue, header};
use oncegate_core::fingerprint::{Fingerprint, canonical_json};
use oncegate_core::finish::cut;
use oncegate_core::header_key;
use oncegate_core::identity::KeyField;
use oncegate_core::json::{self, JsonFault, Twice};
use oncegate_core::key::{
    AutomationName, ClaimId, ClaimRef, IdempotencyKey, RecordName, RunId, StoreSecret, Workspace,
};
use oncegate_core::limits;
use oncegate_core::policy::{Ttl, parse_duration, show_duration};
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::token::Fence;
use oncegate_core::webhook::{
    Algorithm, Encoding, EventRules, FieldPath, Headers, HmacScheme, Provider, Reading, Request, Trust,
};
use oncegate_runner::flow;
use serde_json::{Map, Value, json};

use crate::config::{self, Environment};
use crate::http::form;
use crate::http::input::{Fields, Reading as How};
use crate::http::problem::Problem;

/// One parser, and whether it keeps its promises on some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The name of its fuzz target.
    pub name: &'static str,
    /// What was promised and does not hold, if so. A panic is a broken promise too.
    pub holds: fn(&[u8]) -> Result<(), String>,
    /// Bytes of the kind that it takes, from which others are made.
    pub seeds: &'static [&'static str],
}

/// All of them.
pub const ALL: [Parser; 14] = [
    Parser {
        name: "json",
        holds: json,
        seeds: &[
            r#"{"a":[1,-2.5e3,null,true,"\u00e9\ud83d\ude00"],"b":{"c":{}}}"#,
            r#"{"a":1,"b":{"x":1,"x":2},"":1,"":2}"#,
            "[[[[[[[[[[18446744073709551616]]]]]]]]]]",
        ],
    },
    Parser {
        name: "api_body",
        holds: api_body,
        seeds: &[
            r#"j{"automation":"welcome","idempotency_key":"f:1","payload":{"n":1},"ttl":"10m","wait":5}"#,
            "fautomation=welcome&key_fields.form=f1&key_fields[id]=8&payload=%7B%22a%22%3A1%7D&note=a+b",
            r#"j{"key_fields":{"a":1},"key_fields.a":2,"payload__b":[1],"result[c]":null,"payload":null}"#,
            "x{\"key_fields\":{\"a\":\"b\"}}",
        ],
    },
    Parser { name: "form", holds: form, seeds: &["a=1&b=%C3%A9+x&a=1&c", "limit=10&cursor=5&state=done"] },
    Parser {
        name: "ids",
        holds: ids,
        seeds: &[
            "9c2c0e2c06781dddb7e568fbc1ccf5d7",
            "ogt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ],
    },
    Parser {
        name: "header_key",
        holds: header_key,
        seeds: &["abc", "\"a\\\"b\\\\c\"", "abc\n\"abc\"", " \"a,b\"\t", "\"abc\", \"abd\""],
    },
    Parser {
        name: "durations",
        holds: durations,
        seeds: &["10m", "600s", "36525d", "PT10M", "-1", "300000"],
    },
    Parser {
        name: "timestamps",
        holds: timestamps,
        seeds: &["2026-01-05T12:00:00.123+02:00", "2026-01-05 12:00:00Z", "9999-12-31T23:59:59Z"],
    },
    Parser {
        name: "names",
        holds: names,
        seeds: &["Welcome \u{200b}", "a:b\\c\nd", "hubspot:contacts:ann@example.com"],
    },
    Parser {
        name: "field_path",
        holds: field_path,
        seeds: &["$.form_response.form_id", "header:X-Id", "a\\.b.0.c\\\\"],
    },
    Parser {
        name: "signatures",
        holds: signatures,
        seeds: &[
            "sha256=ab01\n{}",
            "v1,AAAA v1a,BBBB v1,\n1767225600\n{\"id\":1}",
            "whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n0\nx",
        ],
    },
    Parser {
        name: "events",
        holds: events,
        seeds: &[
            r#"j{"event_type":"form_response","event_id":"e","form_response":{"form_id":"f","token":"t"}}"#,
            r#"j{"eventType":"FORM_RESPONSE","data":{"formId":"f","submissionId":"s"}}"#,
            "fpayload=%7B%22zen%22%3A1%7D&id=5&id=6",
        ],
    },
    Parser {
        name: "config",
        holds: config,
        seeds: &[
            "automations:\n  welcome:\n    ttl: 10m\n    retries: [30s, 4m]\n    record: 'crm:{{ payload.id }}'\n    steps:\n      \
             - { name: send, http: { url: 'https://a.example/', json: { a: '{{ payload.x }}' } }, repeat: by_key }\n",
            "sources:\n  orders: { provider: hmac, automation: welcome, secret: env:S, hmac: { header: X-S }, key: [a.b] }\n",
            "public_url: https://gate.example\noutgoing: { allow_private: ['127.0.0.1:9'] }\nrunner: { concurrency: 4 }\n",
        ],
    },
    Parser {
        name: "templates",
        holds: templates,
        seeds: &[
            "crm:{{ payload.id | lower }}",
            "{% if payload.a is defined %}{{ payload['a'] }}{% endif %}",
            "{{ 1 + }}",
        ],
    },
    Parser { name: "notes", holds: notes, seeds: &["CRM said no", "\u{1b}[31mred\u{202e}", "\0\r\n"] },
];

/// The parser of that name.
///
/// # Panics
/// It breaks its promise on these bytes, or there is no such parser: this is how a fuzzer learns.
#[expect(clippy::panic, reason = "a fuzzer sees panics alone; the product does not call this")]
pub fn feed(name: &str, bytes: &[u8]) {
    match ALL.iter().find(|parser| parser.name == name) {
        Some(parser) => {
            if let Err(broken) = (parser.holds)(bytes) {
                panic!("{name}: {broken}");
            }
        }
        None => panic!("there is no parser `{name}`"),
    }
}

fn promise(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a person reads is a short line, whatever was sent.
fn told(error: &impl std::fmt::Display) -> Result<(), String> {
    let text = error.to_string();
    promise(!text.is_empty() && text.len() < 4_000, || format!("a message of {} bytes", text.len()))
}

fn json(bytes: &[u8]) -> Result<(), String> {
    let strict = json::read(bytes, Twice::Refused);
    // Another reader of the same bytes; it takes the last of two members and knows no depth of ours.
    let plain: Result<Value, _> = serde_json::from_slice(json::without_mark(bytes));
    match (&strict, &plain) {
        (Ok(ours), Ok(theirs)) => promise(ours == theirs, || format!("{ours} is not {theirs}"))?,
        (Err(e), Ok(_)) => promise(e.fault == JsonFault::Twice && e.path.is_some(), || e.to_string())?,
        (Err(_), Err(_)) => {}
        (Ok(ours), Err(e)) => return Err(format!("{ours} was taken: {e}")),
    }
    for twice in [Twice::RefusedIfDifferent, Twice::First] {
        let other = json::read(bytes, twice);
        promise(strict.is_err() || other == strict, || format!("{twice:?} reads something else"))?;
        promise(twice != Twice::First || other.is_ok() == plain.is_ok(), || {
            "the first does not count".into()
        })?;
    }
    match &strict {
        Err(e) => told(e),
        Ok(value) => {
            let canonical = canonical_json(value, &[]);
            let again = json::read(canonical.as_bytes(), Twice::Refused).map_err(|e| e.to_string())?;
            let same = Fingerprint::of(value, &[]) == Fingerprint::of(&again, &[]);
            promise(same, || format!("another fingerprint after {canonical}"))
        }
    }
}

/// A refusal is a 4xx, its document is small, and a wrong field is named.
fn refused(problem: Problem) -> Result<(), String> {
    let names_field = format!("{problem:?}").contains("\"field\": ");
    let told = format!("{problem:?}").len();
    let status = problem.into_response().status().as_u16();
    promise((400..500).contains(&status), || format!("status {status}"))?;
    promise(told < 4_000, || format!("a problem of {told} bytes"))?;
    // Too many fields are nobody's fault alone.
    promise(status != 422 || names_field || told < 400, || "no field is named".into())
}

fn api_body(bytes: &[u8]) -> Result<(), String> {
    let (first, body) = bytes.split_first().unwrap_or((&b'j', b""));
    let kind = match first {
        b'f' => "application/x-www-form-urlencoded",
        b'x' => "text/plain",
        b'n' => "",
        _ => "application/json; charset=utf-8",
    };
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let lenient = Fields::body(&headers, body, How::Lenient);
    match Fields::body(&headers, body, How::Strict) {
        Ok(fields) => match lenient {
            Ok(lenient) => promise(fields == lenient, || format!("{fields:?} is not {lenient:?}")),
            Err(problem) => Err(format!("only strictly read: {problem:?}")),
        },
        Err(problem) => refused(problem),
    }
}

fn form(bytes: &[u8]) -> Result<(), String> {
    let lenient = form::read(bytes, How::Lenient).map_err(|problem| format!("refused: {problem:?}"))?;
    let fields = match form::read(bytes, How::Strict) {
        Ok(fields) => fields,
        Err(problem) => return refused(problem),
    };
    promise(fields == lenient, || format!("{fields:?} is not {lenient:?}"))?;
    // Another reader of the same bytes.
    let pairs: Map<String, Value> =
        form_urlencoded::parse(bytes).map(|(name, value)| (name.into(), value.into())).collect();
    let ours = |name: &str| fields.get(name).filter(|value| value.is_string());
    let differs = pairs.iter().find(|(name, value)| ours(name).is_some_and(|ours| ours != *value));
    promise(differs.is_none(), || format!("{fields:?} is not {pairs:?}"))?;
    promise(fields.is_empty() == pairs.is_empty(), || format!("{fields:?} of {pairs:?}"))
}

fn ids(bytes: &[u8]) -> Result<(), String> {
    let text = lossy(bytes);
    if let Some(id) = ClaimId::parse(&text) {
        promise(id.to_string() == text.to_lowercase(), || format!("{id} is not {text}"))?;
    }
    let secret = StoreSecret::new([7; 32]);
    promise(secret.read_token(&text).is_none(), || format!("a token was made up: {text}"))?;
    let Some(id) = bytes.first_chunk::<16>().map(|id| ClaimId(*id)) else { return Ok(()) };
    let claim = ClaimRef { workspace: Workspace(i64::from(bytes[2])), id };
    let fence = Fence { attempt: u32::from(bytes[0]), generation: u32::from(bytes[1]) };
    let token = secret.token(claim, fence);
    promise(ClaimId::parse(&id.to_string()) == Some(id), || format!("{id} is not read"))?;
    promise(secret.read_token(token.expose()) == Some((claim, fence)), || "a token is not read".into())
}

fn header_key(bytes: &[u8]) -> Result<(), String> {
    let lines = bytes.split(|b| *b == b'\n').map(|line| ("idempotency-Key", line));
    match header_key::read(lines.clone()) {
        Err(e) => told(&e),
        Ok(None) => Err("the header was not seen".into()),
        Ok(Some(key)) => {
            let quoted = format!("\"{}\"", key.as_str().replace('\\', "\\\\").replace('"', "\\\""));
            let again = header_key::read(lines.chain([("Idempotency-Key", quoted.as_bytes())]));
            promise(again.as_ref() == Ok(&Some(key)), || format!("{quoted} is another key: {again:?}"))
        }
    }
}

fn durations(bytes: &[u8]) -> Result<(), String> {
    let duration = match parse_duration(&lossy(bytes)) {
        Ok(duration) => duration,
        Err(e) => return promise(!e.to_string().is_empty(), || "no reason is given".into()),
    };
    let shown = show_duration(duration);
    promise(parse_duration(&shown) == Ok(duration), || format!("{shown} is read as something else"))?;
    for ttl in [Ttl::new(duration), Ttl::overridden(duration)] {
        match ttl {
            Ok(ttl) => promise(!ttl.get().is_zero(), || "a TTL of nothing".into())?,
            Err(e) => promise(e.to_string().starts_with("ttl of "), || e.to_string())?,
        }
    }
    Ok(())
}

fn timestamps(bytes: &[u8]) -> Result<(), String> {
    let Ok(at) = Timestamp::parse_rfc3339(&lossy(bytes)) else { return Ok(()) };
    let shown = at.to_string();
    promise(Timestamp::parse_rfc3339(&shown) == Ok(at), || format!("{shown} is read as something else"))
}

fn names(bytes: &[u8]) -> Result<(), String> {
    let text = lossy(bytes);
    for (read, max) in [
        (IdempotencyKey::try_from(&*text).map(|name| name.to_string()), limits::KEY_BYTES_MAX),
        (RecordName::try_from(&*text).map(|name| name.to_string()), limits::RECORD_BYTES_MAX),
        (RunId::try_from(&*text).map(|name| name.to_string()), limits::RUN_ID_BYTES_MAX),
    ] {
        match read {
            Ok(name) => {
                promise(name == text, || format!("{name} is not {text}"))?;
                let legal = name.len() <= max && !name.contains(char::is_control) && !name.trim().is_empty();
                promise(legal, || format!("{name:?} is no name"))?;
            }
            Err(e) => told(&e)?,
        }
    }
    match AutomationName::try_from(&*text) {
        Ok(name) => {
            let again = AutomationName::try_from(name.as_str());
            promise(again.as_ref() == Ok(&name), || format!("{name:?} folds to {again:?}"))?;
        }
        Err(e) => told(&e)?,
    }
    let parts: Vec<&str> = text.split('\n').collect();
    let Ok(joined) = IdempotencyKey::join(&parts) else { return Ok(()) };
    let other: Vec<&str> = text.split(['\n', ':']).collect();
    let same = other.len() == parts.len() || IdempotencyKey::join(&other).as_ref() != Ok(&joined);
    promise(same, || format!("{parts:?} and {other:?} are one key"))
}

fn field_path(bytes: &[u8]) -> Result<(), String> {
    match lossy(bytes).parse::<FieldPath>() {
        Ok(path) => {
            let shown = path.to_string();
            let again = shown.parse::<FieldPath>();
            // What is written with escapes may be too long to be read again.
            let long = shown.len() > 512;
            promise(long || again.as_ref() == Ok(&path), || format!("{shown} is read as {again:?}"))
        }
        Err(e) => told(&e),
    }
}

/// Every provider that has rules of its own, and the generic one in each of its forms.
fn providers() -> Vec<Provider> {
    let mut all: Vec<_> =
        Provider::NAMES.iter().filter_map(|name| Provider::from_name(name, None).ok()).collect();
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        for (encoding, prefix) in [(Encoding::Hex, "sha256="), (Encoding::Base64, "")] {
            let scheme = HmacScheme::new("X-Signature", algorithm, encoding, prefix);
            all.extend(scheme.map(Provider::Hmac));
        }
    }
    all
}

const URL: &str = "https://gate.example.com/in/x";

/// Signature, signed time and body, one a line.
fn signatures(bytes: &[u8]) -> Result<(), String> {
    let mut lines = bytes.splitn(3, |b| *b == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (signature, time, body) = (line(), line(), line());
    let mut fields = vec![("webhook-id", &b"m"[..])];
    let times = [
        "webhook-timestamp",
        "x-slack-request-timestamp",
        "x-hubspot-request-timestamp",
        "x-twilio-email-event-webhook-timestamp",
    ];
    fields.extend(times.map(|name| (name, time)));
    let of_providers = [
        "typeform-signature",
        "tally-signature",
        "x-hub-signature-256",
        "webhook-signature",
        "x-slack-signature",
        "x-hubspot-signature-v3",
        "x-twilio-signature",
        "x-twilio-email-event-webhook-signature",
        "x-shared-secret",
    ];
    fields.extend(of_providers.map(|name| (name, signature)));
    fields.push(("x-signature", signature));
    let headers = Headers::new(fields);
    let request = Request::post(URL, &headers, body);
    let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==";
    let trust = Trust::of([Secret::new(secret)]);
    let odd = Secret::new(signature);
    let now = Timestamp::from_secs(i64::try_from(body.len()).unwrap_or(0) + 1_767_225_600);
    for provider in providers() {
        match provider.verify(&request, &trust, now) {
            // Whoever shows the secret itself is right to be believed by those that sign nothing.
            Ok(()) if !provider.signs() && signature == secret.as_bytes() => {}
            Ok(()) => return Err(format!("{provider} believed it")),
            Err(e) => told(&e)?,
        }
        // A secret that is as odd as its signature.
        let _ = provider.verify(&request, &Trust::of([odd.clone()]), now);
        let _ = provider.check_secret(&odd);
    }
    Ok(())
}

fn events(bytes: &[u8]) -> Result<(), String> {
    let (first, body) = bytes.split_first().unwrap_or((&b'j', b""));
    let kind = match *first {
        b'f' => "application/x-www-form-urlencoded",
        b'm' => "multipart/form-data; boundary=b",
        _ => "application/json",
    };
    let id = [*first];
    let headers =
        Headers::new([("content-type", kind.as_bytes()), ("x-github-delivery", &id), ("webhook-id", &id)]);
    let request = Request::post(URL, &headers, body);
    let key: Vec<KeyField> = "header:webhook-id".parse().into_iter().collect();
    let declared = EventRules { key: Some(key), ..EventRules::default() };
    for provider in providers() {
        for rules in [&EventRules::default(), &declared] {
            let Reading::Events(events) = provider.read(&request, "source", rules) else { continue };
            promise(!events.is_empty(), || format!("{provider} dropped it"))?;
            for event in events {
                let stored = event.payload.to_string();
                let again: Value = serde_json::from_str(&stored).map_err(|e| format!("{stored}: {e}"))?;
                promise(again == event.payload, || format!("{again} is not {stored}"))?;
                match event.identity {
                    Ok(key) => promise(IdempotencyKey::try_from(key.as_str()).is_ok(), || key.to_string())?,
                    Err(none) => told(&none)?,
                }
            }
        }
    }
    Ok(())
}

/// Answers every name, so that what comes after a secret is looked at too.
struct OneSecret;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==";

impl Environment for OneSecret {
    fn get(&self, _name: &str) -> Option<String> {
        Some(SECRET.to_owned())
    }
}

fn config(bytes: &[u8]) -> Result<(), String> {
    let text = lossy(bytes);
    // A secret's file may be anything on this machine, and need not end.
    if text.contains("file:") {
        return Ok(());
    }
    match config::parse(&text, Path::new("oncegate.yaml"), &OneSecret) {
        Ok(read) => {
            let lost = read.all().find_map(|declared| {
                let leads = |name| declared.automations.get(name).is_some_and(|a| a.flow.is_some());
                let polled = declared.polls.values().map(|polling| &polling.source);
                declared.sources.values().chain(polled).find(|source| !leads(&source.automation))
            });
            promise(lost.is_none(), || format!("a source leads nowhere: {lost:?}"))
        }
        Err(e) => {
            // A carriage return alone ends a line of YAML too (YAML 1.2, 5.4).
            let lines = text.split(['\n', '\r']).count() as u64 + 1;
            let (line, column) = e.place.ok_or_else(|| format!("no place is named: {e}"))?;
            promise((1..=lines).contains(&line) && column >= 1, || format!("line {line} of {lines}: {e}"))?;
            promise(text.contains(SECRET) || !e.message.contains(SECRET), || "a secret is told".into())?;
            promise(!e.message.contains('\n'), || format!("more than one line: {:?}", e.message))
        }
    }
}

fn templates(bytes: &[u8]) -> Result<(), String> {
    let template = lossy(bytes);
    let known = flow::names("record", &template);
    if let Err(e) = &known {
        promise(e.starts_with("record: "), || e.clone())?;
    }
    // Whoever writes a template may let it work for long; loops are not what is looked for here.
    if known.is_err()
        || template.contains("{%")
        || template.contains(['*', '~'])
        || template.contains("range")
    {
        return Ok(());
    }
    let world = json!({ "payload": { "id": "Å-1", "a": [1, 2.5, null, true], "b": { "c": "<d>" } } });
    match flow::render_text("record", &template, &world) {
        Ok(_) => Ok(()),
        Err(e) => promise(e.starts_with("record: "), || e),
    }
}

fn notes(bytes: &[u8]) -> Result<(), String> {
    let note = cut(&crate::http::without_controls(&lossy(bytes)));
    promise(note.len() <= limits::NOTE_BYTES_MAX, || format!("{} bytes", note.len()))?;
    promise(!note.contains(char::is_control), || format!("{note:?}"))
}

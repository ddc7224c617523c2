//! What somebody could try who captured a genuine request and does not know the secret.

use std::time::Duration;

use oncegate_core::identity::Repeat;
use oncegate_core::key::StoreSecret;
use oncegate_core::webhook::{
    EventRules, Headers, Kept, NoIdentity, Provider, Reading, Request, SignatureError, Trust,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::sample::named;

/// Bytes that may stand behind a text under a hash of secret and text that is known (SHA-256 is open to that): the
/// padding of the first hash, then whatever one likes. Here the secret is known, so the hash is simply made.
fn extended(secret: &str, before: &[u8], more: &[u8]) -> (Vec<u8>, String) {
    let hashed = secret.len() + before.len();
    let mut body = before.to_vec();
    body.push(0x80);
    while (secret.len() + body.len()) % 64 != 56 {
        body.push(0);
    }
    body.extend((hashed as u64 * 8).to_be_bytes());
    body.extend(more);
    let hash = Sha256::new().chain_update(secret).chain_update(&body).finalize();
    (body, data_encoding::HEXLOWER.encode(&hash))
}

#[test]
fn a_hubspot_request_with_bytes_behind_its_json_is_no_request() {
    let s = named("hubspot/01_first_batch");
    let forms = [
        "&portalId=666&subscriptionId=1&subscriptionType=contact.deletion&objectId=42&eventId=f&occurredAt=1",
        "{}",
    ];
    for (more, kind) in forms
        .iter()
        .flat_map(|more| ["application/x-www-form-urlencoded", "application/json"].map(|kind| (more, kind)))
    {
        let (body, hash) = extended(&s.secret, &s.body(), more.as_bytes());
        let headers =
            [("content-type", kind), ("X-HubSpot-Signature", &hash), ("X-HubSpot-Signature-Version", "v1")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let got = s.verified_as(&headers, &body, &[s.secret()], s.now());
        assert!(matches!(got, Err(SignatureError::Unreadable { .. })), "{kind} {more}: {got:?}");
    }
}

#[test]
fn a_mailgun_token_is_one_events_whichever_way_it_comes() {
    let s = named("mailgun/01_first");
    let body: serde_json::Value = serde_json::from_slice(&s.body()).unwrap();
    let signed = &body["signature"];
    let first = s.event();
    let flat = json!({
        "signature": signed["signature"], "timestamp": signed["timestamp"], "token": signed["token"],
        "event-data": { "id": "forged", "event": "opened" },
    });
    let form = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(["timestamp", "token", "signature"].map(|name| (name, signed[name].as_str().unwrap())))
        .append_pair("recipient", "mallory@example.org")
        .finish();
    for kind in ["application/x-www-form-urlencoded", "application/json"] {
        let headers = Headers::new([("content-type", kind)]);
        let flat = flat.to_string();
        let req = Request::post("https://gate.example.com/in/x", &headers, flat.as_bytes());
        let got = Provider::Mailgun.verify(&req, &s.trust(), s.now());
        assert!(matches!(got, Err(SignatureError::Unreadable { .. })), "{kind}: {got:?}");
    }
    let headers = Headers::new([("content-type", "application/x-www-form-urlencoded")]);
    let req = Request::post("https://gate.example.com/in/x", &headers, form.as_bytes());
    Provider::Mailgun.verify(&req, &s.trust(), s.now()).unwrap();
    // Whatever the source says of repeats.
    let declared = Repeat { fields: vec!["recipient".parse().unwrap()], within: Duration::from_secs(60) };
    for repeat in [None, Some(declared)] {
        let rules = EventRules { repeat, ..EventRules::default() };
        let Reading::Events(events) = Provider::Mailgun.read(&req, "x", &rules) else { panic!() };
        assert_ne!(events[0].identity, first.identity);
        assert_eq!(events[0].repeat, first.repeat, "parked");
        assert!(first.repeat.is_some());
    }
}

#[test]
fn a_captured_body_under_a_new_unsigned_id_repeats_the_first() {
    for (name, header) in [
        ("shopify/01_first", "X-Shopify-Event-Id"),
        ("github/01_first", "X-GitHub-Delivery"),
        ("woocommerce/01_first", "X-WC-Webhook-ID"),
    ] {
        let s = named(name);
        let mut headers = s.headers();
        let at = headers.iter().position(|(name, _)| name == header).unwrap();
        headers[at].1 = "forged-1".to_owned();
        s.verified_as(&headers, &s.body(), &[s.secret()], s.now()).unwrap();
        let read = |req: &Request<'_>| s.provider().read(req, s.source(), &EventRules::default());
        let Reading::Events(again) = s.asked(&s.url(), &headers, &s.body(), read) else { panic!() };
        let first = s.event();
        assert_ne!(again[0].identity, first.identity);
        assert!(first.repeat.is_some() && again[0].repeat == first.repeat, "{name}: parked");
    }
}

#[test]
fn a_workflow_of_hubspot_never_signs_as_v1() {
    let s = named("hubspot/01_first_batch");
    let mut headers = s.headers();
    headers.retain(|(name, _)| !name.contains("v3") && !name.contains("Time"));
    let verify = |provider: &Provider| {
        s.asked(&s.url(), &headers, &s.body(), |req| provider.verify(req, &s.trust(), s.now()))
    };
    assert_eq!(verify(&Provider::Hubspot), Ok(()));
    assert!(matches!(verify(&Provider::HubspotWorkflow), Err(SignatureError::Malformed { .. })));
}

#[test]
fn a_body_that_was_stored_as_json_is_not_unwrapped_again() {
    let evil = json!({ "event_id": "evil", "team_id": "T", "api_app_id": "A" }).to_string();
    let inner = json!({ "token": "t", "type": "block_actions", "payload": evil }).to_string();
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("payload", &inner).finish();
    let headers = Headers::new([("content-type", "application/x-www-form-urlencoded")]);
    let req = Request::post("https://gate.example.com/in/x", &headers, form.as_bytes());
    let seen = |req: &Request<'_>| {
        let Reading::Events(events) = Provider::Slack.read(req, "x", &EventRules::default()) else {
            panic!()
        };
        (events[0].identity.is_ok(), events[0].payload.clone())
    };
    let store = StoreSecret::new([7; 32]);
    let why = Kept::Verified { of_batch: false };
    let (head, body) = Provider::Slack.kept(&req, "/in/x", &Trust::default(), &store, why);
    let headers = Headers::new(head.iter().map(|(name, value)| (name, value)));
    let again = Request::post("https://gate.example.com/in/x", &headers, &body);
    assert_eq!(seen(&again), seen(&req));
}

#[test]
fn twilio_fields_whose_borders_were_moved_name_nothing() {
    let s = named("twilio/05_status_sent");
    let whole = String::from_utf8(s.body()).unwrap();
    for (from, to) in [
        ("MessageStatus=sent&", "MessageStatus=sentTo%2B15005550009&"),
        (
            "AccountSid=AC00000000000000000000000000000001&",
            "AccountSid=AC00000000000000000000000000000001MessageSid&",
        ),
        ("MessageSid=SM00000000000000000000000000000002&", "MessageSid=SM0000000000000000000000000000000&"),
        ("MessageStatus=sent&", "MessageStatus=&"),
    ] {
        assert!(whole.contains(from));
        let body = whole
            .replace(from, to)
            .replace("&To=%2B15005550009", if to.contains("sentTo") { "" } else { "&To=1" });
        let headers = Headers::new(s.headers());
        let req = Request::post(&s.url, &headers, body.as_bytes());
        let Reading::Events(events) = Provider::Twilio.read(&req, "x", &EventRules::default()) else {
            panic!()
        };
        assert!(
            matches!(events[0].identity, Err(NoIdentity::Missing { .. })),
            "{body}: {:?}",
            events[0].identity
        );
    }
}

#[test]
fn a_challenge_never_is_the_signature_of_an_event() {
    let s = named("linkedin/00_handshake");
    for code in ["hmacsha256={}", "hmacsha256%3D%7B%7D", "", "a b", &"a".repeat(129)] {
        let url = format!("{}?challengeCode={code}", s.url.split('?').next().unwrap());
        let got = s.asked(&url, &[], b"", |req| s.provider().greeting(req, &s.trust()));
        assert!(matches!(got, Some(Err(_))), "{code}: {got:?}");
    }
}

//! Requests as large as a provider sends them, or as somebody would like to: every event is found, nothing falls
//! over.

use std::collections::BTreeSet;

use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use oncegate_core::limits::INTAKE_EVENTS_MAX;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Event, EventRules, Headers, Provider, Reading, Request, SignatureError, Trust};
use serde_json::{Value, json};

use crate::sample::named;

const URL: &str = "https://gate.example.com/in/test-endpoint";
const MIB: usize = 1024 * 1024;

fn read(provider: &Provider, headers: &[(&str, &str)], body: &[u8]) -> Vec<Event> {
    let headers = Headers::new(headers.iter().copied());
    match provider.read(&Request::post(URL, &headers, body), "test-endpoint", &EventRules::default()) {
        Reading::Events(events) => events,
        Reading::Handshake(_) => panic!("no test of the connection"),
    }
}

fn keys(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(|event| event.identity.as_ref().unwrap().to_string()).collect()
}

#[test]
fn a_response_of_a_mebibyte_has_its_key() {
    let s = named("typeform/01_first");
    let mut body: Value = serde_json::from_slice(&s.body()).unwrap();
    let bare = body.to_string().len();
    body["form_response"]["answers"].as_array_mut().unwrap().push(json!({ "type": "text", "text": "" }));
    let missing = MIB - body.to_string().len();
    let text = format!("{}{}", "ä".repeat(missing / 2), "x".repeat(missing % 2));
    body["form_response"]["answers"].as_array_mut().unwrap().last_mut().unwrap()["text"] = text.into();
    let body = body.to_string();
    assert!(body.len() == MIB && bare < MIB);
    let signature = Hmac::<sha2::Sha256>::new_from_slice(s.secret.as_bytes()).unwrap().chain_update(&body);
    let signature = format!("sha256={}", BASE64.encode(&signature.finalize().into_bytes()));
    let headers = [("typeform-signature".to_owned(), signature)];
    s.verified_as(&headers, body.as_bytes(), &[s.secret()], s.now()).unwrap();
    let events = read(&Provider::Typeform, &[], body.as_bytes());
    assert_eq!(events[0].identity, s.event().identity);
}

#[test]
fn batches_give_each_event_its_own_key() {
    let text = "a 🎉".repeat(1_800);
    for count in [99, 100, 1_000] {
        let event = |n: usize| {
            json!({ "portalId": 1, "subscriptionId": 2, "subscriptionType": "contact.propertyChange", "objectId": n,
                "eventId": if n == 50 { 1 } else { n }, "occurredAt": 3, "attemptNumber": usize::from(n == 50),
                "propertyValue": text })
        };
        let mut all: Vec<Value> = (0..count).map(event).collect();
        all[50] = json!({ "attemptNumber": 1 });
        for (name, value) in all[1].as_object().unwrap().clone() {
            if name != "attemptNumber" {
                all[50][name] = value;
            }
        }
        let events = read(&Provider::Hubspot, &[], Value::Array(all).to_string().as_bytes());
        assert_eq!((events.len(), keys(&events).len()), (count, count - 1));
        assert!(!events[1].fingerprint.differs_from(&events[50].fingerprint), "an attempt of the same event");
    }
    let change = |n: usize| json!({ "field": "leadgen", "value": { "leadgen_id": n } });
    let in_one = json!({ "object": "page", "entry": [{ "id": 1, "time": 2, "changes": (0..1_000).map(change).collect::<Vec<_>>() }] });
    let entry = |n: usize| json!({ "id": 1, "time": 2, "changes": [change(n)] });
    let in_many = json!({ "object": "page", "entry": (0..1_000).map(entry).collect::<Vec<_>>() });
    for body in [in_one, in_many] {
        assert_eq!(keys(&read(&Provider::Meta, &[], body.to_string().as_bytes())).len(), 1_000);
    }
    let lines: Vec<String> = (0..1_500)
        .map(|n| {
            let id = if n % 100 == 99 { n - 1 } else { n };
            json!({ "sg_event_id": format!("id-{id}"), "event": "open", "pad": "x".repeat(650) }).to_string()
        })
        .collect();
    let events = read(&Provider::Sendgrid, &[], format!("[{}]\r\n", lines.join(",\r\n")).as_bytes());
    assert_eq!((events.len(), keys(&events).len()), (1_500, 1_485));
}

#[test]
fn more_events_than_anybody_sends_are_one_that_has_no_key() {
    for count in [INTAKE_EVENTS_MAX, INTAKE_EVENTS_MAX + 1] {
        let body = format!("[{}]", vec!["{}"; count].join(","));
        let events = read(&Provider::Hubspot, &[], body.as_bytes());
        assert!(events.iter().all(|event| event.identity.is_err()));
        assert_eq!(events.len(), if count > INTAKE_EVENTS_MAX { 1 } else { count });
    }
}

#[test]
fn a_soap_message_of_a_hundred_is_read_and_a_deep_one_is_not() {
    let s = named("salesforce/01_first");
    let whole = String::from_utf8(s.body()).unwrap();
    let (from, to) = (whole.find("<Notification>").unwrap(), whole.find("</Notification>").unwrap() + 15);
    let one = &whole[from..to];
    let many: String = (0..100)
        .map(|n| {
            let text = "&amp;".repeat(2_100);
            one.replace("04l00000000000001AAA", &format!("04l{n:015}")).replace(
                "Moreau",
                &format!("Moreau</sf:LastName><sf:Description>{text}</sf:Description><sf:LastName>"),
            )
        })
        .collect();
    let body = format!("{}{many}{}", &whole[..from], &whole[to..]);
    assert!(body.len() > MIB);
    let events = read(&Provider::Salesforce, &[("content-type", "text/xml")], body.as_bytes());
    assert_eq!(keys(&events).len(), 100);
    assert_eq!(events[7].payload["Notification"]["sObject"]["Description"], "&".repeat(2_100));

    let deep = format!("{}{}{}", &whole[..from], "<a>".repeat(10_000), "</a>".repeat(10_000));
    let got = s.verified_as(&s.headers(), deep.as_bytes(), &[s.secret()], s.now());
    assert!(matches!(got, Err(SignatureError::Unreadable { .. })), "{got:?}");
}

#[test]
fn a_multipart_form_has_its_key_behind_a_large_part_and_many_small_ones() {
    let boundary = "b".repeat(70);
    let part = |name: &str, value: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let answers: serde_json::Map<String, Value> =
        (1..=2_000).map(|n| (format!("q3_a{n:04}"), "x".repeat(430).into())).collect();
    let answers = Value::Object(answers);
    let mut body = part("rawRequest", &answers.to_string());
    (0..200).for_each(|n| body.push_str(&part("tag", &n.to_string())));
    body.push_str(&part("formID", "243330000000001"));
    body.push_str(&part("submissionID", "6123456789012345678"));
    body.push_str("--");
    body.push_str(&boundary);
    let kind = format!("multipart/form-data; boundary={boundary}");
    for (end, whole) in [("--\r\n", true), ("--", true), ("", false), ("\r\n", false)] {
        let events = read(&Provider::Jotform, &[("content-type", &kind)], format!("{body}{end}").as_bytes());
        let identity = events[0].identity.as_ref();
        assert_eq!(identity.is_ok(), whole, "{end:?}: {identity:?}");
        if whole {
            assert_eq!(identity.unwrap().as_str(), "jotform:243330000000001:6123456789012345678");
            assert_eq!(events[0].payload["rawRequest"], answers);
            assert_eq!(events[0].payload["tag"].as_array().unwrap().len(), 200);
        }
    }
    let many: String = (0..10_001).map(|n| part("a", &n.to_string())).collect();
    let events =
        read(&Provider::Jotform, &[("content-type", &kind)], format!("{many}--{boundary}--").as_bytes());
    assert!(events[0].identity.as_ref().unwrap_err().to_string().contains("more than 10000 parts"));
}

#[test]
fn files_and_odd_character_sets_of_a_form_are_kept() {
    let body = b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\nContent-Type: image/png\r\n\r\n\
        \x00\xff\r\n--b\r\nContent-Disposition: form-data; name=\"latin\"\r\nContent-Type: text/plain; charset=iso-8859-1\
        \r\n\r\n\xfc\r\n--b\r\nContent-Disposition: form-data; name=\"odd\"\r\n\r\n\xff\xfe\r\n--b--\r\n";
    let events = read(&Provider::Zapier, &[("content-type", "Multipart/Form-Data; boundary=\"b\"")], body);
    let file =
        json!({ "filename": "a.bin", "content_type": "image/png", "base64": BASE64.encode(b"\x00\xff") });
    let odd = json!({ "base64": BASE64.encode(b"\xff\xfe") });
    assert_eq!(events[0].payload, json!({ "f": file, "latin": "ü", "odd": odd }));
}

#[test]
fn ten_thousand_parameters_are_sorted_as_twilio_sorts_them() {
    let mut parameters: Vec<(String, String)> =
        (0..10_000).map(|n| (format!("p{n:05}"), format!("{n} {}", "y".repeat(80)))).collect();
    parameters.push(("MessageSid".to_owned(), format!("SM{:032}", 1)));
    parameters.push(("AccountSid".to_owned(), format!("AC{:032}", 1)));
    parameters.push(("SmsStatus".to_owned(), "received".to_owned()));
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters.iter().rev()).finish();
    parameters.sort_unstable();
    let signed: String = parameters.iter().map(|(name, value)| format!("{name}{value}")).collect();
    let mac = Hmac::<sha1::Sha1>::new_from_slice(b"token").unwrap().chain_update(URL).chain_update(signed);
    let signature = BASE64.encode(&mac.finalize().into_bytes());
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let headers = Headers::new([kind, ("x-twilio-signature", &signature)]);
    let req = Request::post(URL, &headers, body.as_bytes());
    Provider::Twilio.verify(&req, &Trust::of([Secret::new("token")]), Timestamp::default()).unwrap();
    assert!(read(&Provider::Twilio, &[kind], body.as_bytes())[0].identity.is_ok());
}

#[test]
fn json_that_is_nested_too_deeply_is_kept_raw() {
    for (depth, is_read) in [(100, true), (512, false), (100_000, false)] {
        let mut body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        body.push_str(&" ".repeat(MIB - body.len()));
        let events = read(&Provider::StandardWebhooks, &[("webhook-id", "m")], body.as_bytes());
        assert!(events[0].identity.is_ok(), "the id stands in a header");
        assert_eq!(events[0].payload.is_array(), is_read, "{depth}");
        let hash = HEXLOWER.encode(&oncegate_core::key::sha256(events[0].payload.to_string().as_bytes()));
        assert_eq!(hash.len(), 64);
    }
}

//! Every sample gets the verdict, the keys, the answer and the fingerprint that its file prescribes.

use oncegate_core::webhook::{
    EventRules, Headers, Kept, NoIdentity, Provider, Reading, Request, SecretError, SignatureError,
};
use serde_json::Value;

use crate::sample::{Sample, all, named};

#[test]
fn each_sample_gets_its_verdict() {
    for s in all() {
        let got = s.verified();
        let greeted = s.as_it_is(|req| s.provider().greeting(req, &s.trust()));
        let no_key = || s.event().identity.is_err();
        let as_expected = match (s.verify.expected.as_str(), s.verify.scheme.as_str()) {
            // ed25519 is not supported; its key is refused before the signature is looked at.
            (_, "standard_webhooks_v1a") => {
                matches!(got, Err(SignatureError::BadSecret { why: SecretError::Asymmetric, .. }))
            }
            ("valid" | "valid_signature_body_not_json" | "valid_body_not_covered", _) => got.is_ok(),
            ("handshake", _) => got.is_ok() || matches!(greeted, Some(Ok(_))),
            ("handshake_refused", _) => matches!(greeted, Some(Err(SignatureError::WrongVerifyToken { .. }))),
            ("valid_no_key", _) => got.is_ok() && no_key(),
            // For as long as its time is believed, a token is one event's.
            ("replayed_token", _) => {
                let (first, again) = (named("mailgun/01_first").event(), s.event());
                got.is_ok() && first.repeat == again.repeat && again.repeat.is_some()
            }
            ("unsigned", _) => got.is_ok() && greeted.is_none(),
            ("unsigned_no_key" | "unsigned_malformed", _) => got.is_ok() && no_key(),
            ("unsigned_key_reused_with_other_body", _) => {
                let (first, again) = (named("zapier/01_first").event(), s.event());
                first.identity == again.identity && first.fingerprint.differs_from(&again.fingerprint)
            }
            ("invalid_shared_secret", _) => matches!(
                got,
                Err(SignatureError::NoSharedSecret { .. } | SignatureError::WrongSharedSecret { secrets: 1 })
            ),
            ("malformed", _) => matches!(got, Err(SignatureError::Unreadable { .. })),
            ("invalid_signature", _) => matches!(got, Err(SignatureError::Mismatch { .. })),
            ("missing_signature", _) => matches!(got, Err(SignatureError::MissingHeader { .. })),
            ("expired", _) => {
                let (at, tolerance) = s.signed_at().unwrap();
                let off_by = s.now().as_secs().abs_diff(at);
                let too_old = off_by > tolerance as u64;
                too_old
                    && matches!(got, Err(SignatureError::OutsideTolerance { off_by_s, .. }) if off_by_s == off_by)
            }
            // Official libraries look at one side only; here a clock that is an hour off is not believed.
            ("valid_in_official_library_future_timestamp", _) => {
                matches!(got, Err(SignatureError::OutsideTolerance { direction: "ahead of", .. }))
            }
            (verdict, _) => panic!("{}: no rule for the verdict {verdict}", s.name()),
        };
        assert!(as_expected, "{}: wanted {}, got {got:?} {greeted:?}", s.name(), s.verify.expected);
        let shared = s.verify.scheme.starts_with("shared_secret");
        // Make's HTTP module signs nothing, its subscriptions do.
        assert!(s.provider().signs() != shared || s.provider == "make", "{}: signed or not", s.name());
    }
}

#[test]
fn each_sample_gets_the_answer_it_needs() {
    let mut answers = 0;
    for s in all() {
        let Some(Value::Object(wanted)) = &s.expected_response else { continue };
        let reading = (s.method == "POST").then(|| s.reading());
        let answer = match s.as_it_is(|req| s.provider().greeting(req, &s.trust())) {
            Some(greeted) => greeted.ok(),
            None => match reading {
                Some(Reading::Handshake(answer)) => answer,
                _ => s.as_it_is(|req| s.provider().acknowledgement(req)),
            },
        };
        assert_eq!(wanted["status"] == 403, answer.is_none() && s.method == "GET", "{}", s.name());
        let Some(answer) = answer else { continue };
        answers += 1;
        if let Some(kind) = wanted.get("headers").and_then(|h| h["Content-Type"].as_str()) {
            assert!(answer.content_type.starts_with(kind), "{}: {answer:?}", s.name());
        }
        if let Some(body) = wanted.get("body_text") {
            assert_eq!(Value::String(answer.body.clone()), *body, "{}", s.name());
        }
        if let Some(body) = wanted.get("body_json") {
            assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), *body, "{}", s.name());
        }
    }
    assert_eq!(answers, 3 + 4, "three tests of the connection and Salesforce's acknowledgements");
}

#[test]
fn a_request_with_only_a_v1a_signature_is_told_what_is_supported() {
    let (v1a, v1) = (named("standard_webhooks/09_asymmetric_v1a"), named("standard_webhooks/01_first"));
    let refused = v1a.verified_as(&v1a.headers(), &v1a.body(), &[v1.secret()], v1a.now()).unwrap_err();
    assert!(matches!(refused, SignatureError::Unsupported { .. }));
    assert!(refused.to_string().contains("v1a (ed25519)") && refused.to_string().contains("not supported"));
}

/// The source's own rules, where the suggested key needs some.
fn declared(s: &Sample) -> (EventRules, &'static str) {
    let fields: (&[&str], &str) = match s.name().as_str() {
        "make/05_http_module_unresolved_variable" => (&["bundle.lead_id"], "make:test-endpoint:"),
        "google_forms/05_edited_response" => (&["form_id", "response_id", "timestamp"], "google_forms:"),
        _ => return (EventRules::default(), ""),
    };
    let key = Some(fields.0.iter().map(|field| field.parse().unwrap()).collect());
    (EventRules { key, ..EventRules::default() }, fields.1)
}

#[test]
fn each_sample_gets_its_keys() {
    let mut keys = 0;
    for s in all() {
        let (rules, prefix) = declared(&s);
        if s.method == "GET" || s.name() == "woocommerce/00_ping" {
            continue;
        }
        let events = match s.read_by(&rules) {
            Reading::Handshake(_) => {
                assert_eq!(s.verify.expected, "handshake", "{}", s.name());
                continue;
            }
            Reading::Events(events) => events,
        };
        if s.suggested_keys.is_empty() {
            continue;
        }
        // A colon within a field is escaped, or two fields could be taken for another two.
        let made = events.iter().filter_map(|event| event.identity.as_ref().ok());
        let made: Vec<_> = made.map(|key| format!("{prefix}{}", key.as_str().replace("\\:", ":"))).collect();
        assert_eq!(made, s.suggested_keys, "{}", s.name());
        keys += made.len();
    }
    assert_eq!(keys, KEYS);
}

/// Keys that the samples suggest.
const KEYS: usize = 135;

#[test]
fn what_has_no_key_is_told_why() {
    for (name, why) in [
        ("contact_form_7/04_awkward_no_id", "`gate-id` is missing"),
        ("contact_form_7/05_awkward_broken_json_text_plain", "is not JSON"),
        ("gravity_forms/04_awkward_mapped_without_entry_id", "is missing"),
        ("wpforms/04_awkward_entry_id_zero", "`entry_id` is 0"),
        ("zapier/05_awkward_xml_without_root", "is not JSON"),
        ("hubspot_workflow/04_awkward_customised_body", "`form-submissions.form-id` is missing"),
    ] {
        let told = named(name).event().identity.unwrap_err().to_string();
        assert!(told.contains(why), "{name}: {told}");
    }
    // A page's other changes come with its leads.
    let batch = named("meta/01b_batch").events();
    let [.., feed] = batch.as_slice() else { panic!("four changes") };
    assert!(matches!(&feed.identity, Err(NoIdentity::Missing { field }) if field == "value.leadgen_id"));
    // The execution id was never filled in, and would make all events one.
    let s = named("make/05_http_module_unresolved_variable");
    let key = Some(vec!["execution".parse().unwrap()]);
    let Reading::Events(events) = s.read_by(&EventRules { key, ..EventRules::default() }) else { panic!() };
    assert!(matches!(&events[0].identity, Err(NoIdentity::Placeholder { .. })), "{events:?}");
    for (key, is_one) in [
        ("{{id}}", true),
        ("row-{{ id }}", true),
        ("{{1__id}}-x", true),
        ("undefined", true),
        (" null ", true),
        ("[object Object]", true),
        ("{{}}", false),
        ("null and void", false),
        ("a}}{{b", false),
        ("{id}", false),
        ("plain", false),
    ] {
        let headers = Headers::new([("idempotency-key", key)]);
        let req = Request::post("https://gate.example.com/in/x", &headers, b"{}");
        let Reading::Events(events) = Provider::Zapier.read(&req, "x", &EventRules::default()) else {
            panic!()
        };
        let refused = matches!(&events[0].identity, Err(NoIdentity::Placeholder { .. }));
        assert_eq!(refused, is_one, "{key}: {:?}", events[0].identity);
    }
}

#[test]
fn a_repeat_of_one_event_has_its_key_and_no_differing_fingerprint() {
    let mut repeats = 0;
    for s in all() {
        let Some(first) = &s.same_event_as else { continue };
        let first = named(&format!("{}/{first}", s.provider)).events();
        for again in s.events() {
            let first = first.iter().find(|first| first.identity == again.identity);
            let first =
                first.unwrap_or_else(|| panic!("{}: {:?} is another event", s.name(), again.identity));
            // The same form as JSON in place of form fields: names are nested there, and no webhook sends both.
            if ["formstack/01b_first_json", "gravity_forms/01b_first_form_encoded"]
                .contains(&s.name().as_str())
            {
                continue;
            }
            assert!(!first.fingerprint.differs_from(&again.fingerprint), "{}", s.name());
            repeats += 1;
        }
    }
    assert_eq!(repeats, 34);
}

#[test]
fn a_changed_body_under_the_same_key_has_a_differing_fingerprint() {
    let mut providers = 0;
    for name in Provider::NAMES {
        // What a workflow tells of a contact, or Salesforce of a record, is as it is by now; others change the id
        // itself.
        if ["hmac", "hubspot_workflow", "salesforce", "meta", "linkedin", "sendgrid_inbound"].contains(name) {
            continue;
        }
        let of = |case: &str| {
            let mut all = all();
            all.retain(|s| s.provider == *name && s.case.starts_with(case) && !s.case.starts_with("03b"));
            all.swap_remove(0).events().swap_remove(0)
        };
        let (first, tampered) = (of("01_first"), of("03_tampered"));
        assert_eq!(first.identity, tampered.identity, "{name}");
        assert!(first.fingerprint.differs_from(&tampered.fingerprint), "{name}");
        providers += 1;
    }
    assert_eq!(providers, Provider::NAMES.len() - 6);
}

#[test]
fn a_part_of_a_batch_is_read_again_as_the_one_event_it_is() {
    let mut parts = 0;
    for s in all().into_iter().filter(|s| s.method == "POST") {
        let Reading::Events(events) = s.reading() else { continue };
        for event in events.into_iter().filter(|event| event.identity.is_ok()) {
            let (head, body) = s.kept(Kept::Verified { of_batch: event.of_batch });
            let stored = if event.of_batch { event.payload.to_string().into_bytes() } else { body };
            let read = |req: &Request<'_>| s.provider().read(req, s.source(), &EventRules::default());
            let Reading::Events(again) = s.asked(&s.url(), &head, &stored, read) else { panic!() };
            let [again] = again.as_slice() else { panic!("{}: one event, not {again:?}", s.name()) };
            assert_eq!((&again.identity, &again.payload), (&event.identity, &event.payload), "{}", s.name());
            // Released, it is stored once more, and read as the same again.
            let store = oncegate_core::key::StoreSecret::new([7; 32]);
            let why = Kept::Verified { of_batch: again.of_batch };
            let keep = |req: &Request<'_>| s.provider().kept(req, "", &s.trust(), &store, why);
            let (head, stored_again) = s.asked(&s.url(), &head, &stored, keep);
            assert_eq!(stored_again, stored, "{}", s.name());
            let Reading::Events(twice) = s.asked(&s.url(), &head, &stored_again, read) else { panic!() };
            assert_eq!(twice[0].identity, event.identity, "{}", s.name());
            parts += 1;
        }
    }
    assert!(parts > 100);
}

#[test]
fn no_credential_of_a_body_is_stored() {
    for (name, credential) in [
        ("salesforce/04_awkward_entities_nil_cdata", "00Dmade!up.session"),
        ("jotform/01_first", "path-secret-made-up"),
        ("jotform/06_awkward_raw_request_not_json", "path-secret-made-up"),
        ("formstack/01_first_form_encoded", "HandshakeKey"),
        ("slack/01_first", "deprecatedTokenMadeUp"),
        ("slack/05_slash_command_form", "deprecatedTokenMadeUp"),
    ] {
        let s = named(name);
        assert!(String::from_utf8(s.body()).unwrap().contains(credential), "{name}");
        let (head, body) = s.kept(Kept::Verified { of_batch: false });
        assert!(!format!("{head:?} {}", String::from_utf8(body).unwrap()).contains(credential), "{name}");
        for event in s.events() {
            assert!(!event.payload.to_string().contains(credential), "{name}");
        }
    }
}

#[test]
fn a_partial_and_a_full_response_are_two_events() {
    let (full, partial) =
        (named("typeform/01_first").event(), named("typeform/04_partial_same_token").event());
    assert_ne!(full.identity, partial.identity);
    assert_eq!(partial.event_type.as_deref(), Some("form_response_partial"));
}

#[test]
fn a_body_that_is_no_json_keeps_the_key_of_its_header() {
    let event = named("github/07_official_vector").event();
    assert_eq!(event.identity.unwrap().as_str(), "github:72d3162e-0000-11f1-8000-000000000007");
    assert_eq!(event.payload, serde_json::json!("Hello, World!"));
}

#[test]
fn an_empty_body_keeps_the_key_of_its_header() {
    let event = named("standard_webhooks/08_awkward_empty_body").event();
    assert!(event.identity.is_ok());
    assert_eq!(event.payload, serde_json::Value::Null);
}

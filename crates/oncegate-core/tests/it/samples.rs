//! Every sample gets the verdict, the key and the fingerprint that its file prescribes.

use oncegate_core::webhook::{Reading, SecretError, SignatureError};

use crate::sample::{all, named};

const PROVIDERS: [&str; 9] = [
    "typeform",
    "tally",
    "webflow",
    "formstack",
    "stripe",
    "shopify",
    "calendly",
    "github",
    "standard_webhooks",
];

#[test]
fn each_sample_gets_its_verdict() {
    for s in all() {
        let got = s.verified();
        let as_expected = match (s.verify.expected.as_str(), s.verify.scheme.as_str()) {
            // ed25519 is not supported; its key is refused before the signature is looked at.
            (_, "standard_webhooks_v1a") => {
                matches!(got, Err(SignatureError::BadSecret { why: SecretError::Asymmetric, .. }))
            }
            ("valid" | "handshake" | "valid_signature_body_not_json", _) => got.is_ok(),
            ("invalid_signature", _) => matches!(got, Err(SignatureError::Mismatch { .. })),
            ("missing_signature", _) => matches!(got, Err(SignatureError::MissingHeader { .. })),
            ("expired", _) => {
                let (_, tolerance) = s.signed_at().unwrap();
                matches!(got, Err(SignatureError::OutsideTolerance { off_by_s, .. }) if off_by_s == tolerance as u64 + 1)
            }
            // Official libraries look at one side only; here a clock that is an hour off is not believed.
            ("valid_in_official_library_future_timestamp", _) => {
                matches!(got, Err(SignatureError::OutsideTolerance { direction: "ahead of", .. }))
            }
            (verdict, _) => panic!("{}: no rule for the verdict {verdict}", s.name()),
        };
        assert!(as_expected, "{}: wanted {}, got {got:?}", s.name(), s.verify.expected);
    }
}

#[test]
fn a_request_with_only_a_v1a_signature_is_told_what_is_supported() {
    let (v1a, v1) = (named("standard_webhooks/09_asymmetric_v1a"), named("standard_webhooks/01_first"));
    let refused = v1a.verified_as(&v1a.headers(), &v1a.body(), &[v1.secret()], v1a.now()).unwrap_err();
    assert!(matches!(refused, SignatureError::Unsupported { .. }));
    assert!(refused.to_string().contains("v1a (ed25519)") && refused.to_string().contains("not supported"));
}

#[test]
fn each_sample_gets_its_key() {
    for s in all() {
        if s.verify.expected == "handshake" {
            assert_eq!(s.reading(), Reading::Handshake, "{}", s.name());
        } else if let [key] = s.suggested_keys.as_slice() {
            // A colon within a field is escaped, or two fields could be taken for another two.
            let made = s.event().identity.unwrap().as_str().replace("\\:", ":");
            assert_eq!(&made, key, "{}", s.name());
        }
    }
}

#[test]
fn a_repeat_of_one_event_has_its_key_and_no_differing_fingerprint() {
    let mut repeats = 0;
    for s in all() {
        let Some(first) = &s.same_event_as else { continue };
        let (first, again) = (named(&format!("{}/{first}", s.provider)).event(), s.event());
        assert_eq!(first.identity, again.identity, "{}", s.name());
        // The same form as JSON in place of form fields: names are nested there, and no webhook sends both.
        if s.name() == "formstack/01b_first_json" {
            continue;
        }
        assert!(!first.fingerprint.differs_from(&again.fingerprint), "{}", s.name());
        repeats += 1;
    }
    assert_eq!(repeats, 12);
}

#[test]
fn a_changed_body_under_the_same_key_has_a_differing_fingerprint() {
    for provider in PROVIDERS {
        let first = named(&format!(
            "{provider}/01_first{}",
            if provider == "formstack" { "_form_encoded" } else { "" }
        ));
        let first = first.event();
        let tampered = named(&format!("{provider}/03_tampered")).event();
        assert_eq!(first.identity, tampered.identity, "{provider}");
        assert!(first.fingerprint.differs_from(&tampered.fingerprint), "{provider}");
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

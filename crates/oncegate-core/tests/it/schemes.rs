//! The configurable scheme, provider names, and what is particular to single providers.

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use oncegate_core::identity::KeyField;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{
    EventRules, Headers, HmacScheme, Provider, ProviderError, Reading, Request, SecretError, SignatureError,
    Trust,
};
use serde_json::json;

use crate::sample::{named, only_event};

fn sha256(key: &str, body: &[u8]) -> Vec<u8> {
    Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes())
        .unwrap()
        .chain_update(body)
        .finalize()
        .into_bytes()
        .to_vec()
}

fn sha512(key: &str, body: &[u8]) -> Vec<u8> {
    Hmac::<sha2::Sha512>::new_from_slice(key.as_bytes())
        .unwrap()
        .chain_update(body)
        .finalize()
        .into_bytes()
        .to_vec()
}

fn scheme(written: serde_json::Value) -> Result<HmacScheme, String> {
    serde_json::from_value(written).map_err(|e| e.to_string())
}

#[test]
fn a_scheme_says_hash_encoding_and_prefix() {
    let body = b"{\"id\":7}";
    let (short, long) = (sha256("s3cret", body), sha512("s3cret", body));
    for (written, signature) in [
        (json!({"header": "X-Sig"}), HEXLOWER.encode(&short)),
        (json!({"header": "X-Sig", "prefix": "sha256="}), format!("sha256={}", HEXLOWER.encode(&short))),
        (json!({"header": "X-Sig", "encoding": "base64"}), BASE64.encode(&short)),
        (json!({"header": "X-Sig", "encoding": "base64"}), BASE64_NOPAD.encode(&short)),
        (json!({"header": "X-Sig", "algorithm": "sha512"}), HEXLOWER.encode(&long)),
        (
            json!({"header": "X-Sig", "algorithm": "sha512", "encoding": "base64", "prefix": "v1="}),
            format!("v1={}", BASE64.encode(&long)),
        ),
    ] {
        let provider = Provider::Hmac(scheme(written.clone()).unwrap());
        let verify = |signature: &str| {
            let headers = Headers::new([("x-sig", signature)]);
            provider.verify(
                &Request::post("https://gate.example.com/in/x", &headers, body),
                &Trust::of([Secret::new("s3cret")]),
                Timestamp::default(),
            )
        };
        verify(&signature).unwrap();
        assert!(matches!(verify("§"), Err(SignatureError::Malformed { .. })), "{written}");
        assert!(verify(&signature[..signature.len() - 4]).is_err(), "{written}: cut short");
        if written.get("prefix").is_some() {
            let bare = signature.split_once('=').unwrap().1;
            assert!(matches!(verify(bare), Err(SignatureError::Malformed { .. })), "{written}");
        }
    }
}

#[test]
fn a_scheme_that_cannot_be_is_refused_with_a_reason() {
    for (written, reason) in [
        (json!({}), "missing field `header`"),
        (json!({"header": "X Sig"}), "cannot be the name of a header"),
        (json!({"header": ""}), "cannot be the name of a header"),
        (json!({"header": "X-Sig", "prefix": "t=1,v1="}), "comma or white space"),
        (json!({"header": "X-Sig", "algorithm": "sha1"}), "unknown variant `sha1`"),
        (json!({"header": "X-Sig", "secret": "x"}), "unknown field `secret`"),
    ] {
        let refused = scheme(written).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn providers_go_by_name() {
    let some = || Some(scheme(json!({"header": "X-Sig"})).unwrap());
    for name in Provider::NAMES {
        let scheme = if *name == "hmac" { some() } else { None };
        assert_eq!(Provider::from_name(name, scheme).unwrap().name(), *name);
    }
    let mut once = Provider::NAMES.to_vec();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), Provider::NAMES.len());
    assert_eq!(Provider::from_name("hmac", None), Err(ProviderError::SchemeMissing));
    assert!(matches!(Provider::from_name("github", some()), Err(ProviderError::SchemeUnused { .. })));
    let unknown = Provider::from_name("typefrom", None).unwrap_err().to_string();
    assert!(unknown.contains("typefrom") && unknown.contains("typeform, tally"), "{unknown}");
}

#[test]
fn secrets_are_checked_before_the_first_request() {
    let check = |provider: &Provider, text: &str| provider.check_secret(&Secret::new(text));
    let standard = Provider::StandardWebhooks;
    assert_eq!(check(&standard, "whsec_+twL9Lirq/AYSV+/vpPkGo0K+M+0kXV9ZMaDhNDFPok="), Ok(()));
    assert_eq!(check(&standard, "+twL9Lirq/AYSV+/vpPkGo0K+M+0kXV9ZMaDhNDFPok"), Ok(()));
    assert_eq!(check(&standard, "whsec_"), Err(SecretError::NotBase64));
    assert_eq!(check(&standard, "whsec_not base64!"), Err(SecretError::NotBase64));
    assert_eq!(
        check(&standard, "whpk_NOeK5qPTn7Zu5V1JlAag4dYhifZvvpHwrSpyJdRiK88="),
        Err(SecretError::Asymmetric)
    );
    for provider in [standard, Provider::Github, Provider::Typeform, Provider::Tally] {
        assert_eq!(check(&provider, " \n"), Err(SecretError::Blank));
    }
}

#[test]
fn github_form_bodies_carry_json_in_payload() {
    let body = b"payload=%7B%22action%22%3A%22opened%22%2C%22issue%22%3A%7B%22id%22%3A9007199254740993%7D%7D";
    let signature = format!("sha256={}", HEXLOWER.encode(&sha256("s3cret", body)));
    let headers = Headers::new([
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", "d-1"),
        ("X-GitHub-Event", "issues"),
    ]);
    let req = Request::post("https://gate.example.com/in/x", &headers, body);
    Provider::Github.verify(&req, &Trust::of([Secret::new("s3cret")]), Timestamp::default()).unwrap();
    let fields: Vec<KeyField> = vec!["action".parse().unwrap(), "issue.id".parse().unwrap()];
    let event = only_event(Provider::Github.read(
        &req,
        "gh",
        &EventRules { key: Some(fields), ..EventRules::default() },
    ));
    assert_eq!(event.identity.unwrap().as_str(), "opened:9007199254740993");
    assert_eq!(event.event_type.as_deref(), Some("issues"));
    let event = only_event(Provider::Github.read(&req, "gh", &EventRules::default()));
    assert_eq!(event.identity.unwrap().as_str(), "github:d-1");

    let json = Headers::new([("Content-Type", "application/json")]);
    let req = Request::post("https://gate.example.com/in/x", &json, b"{\"payload\":\"{}\"}");
    assert_eq!(
        only_event(Provider::Github.read(&req, "gh", &EventRules::default())).payload,
        json!({"payload": "{}"})
    );
}

#[test]
fn a_real_event_does_not_become_a_handshake_by_an_unsigned_header() {
    let issue = named("github/01_first");
    let headers = Headers::new([("X-GitHub-Event", "ping"), ("X-GitHub-Delivery", "d-1")]);
    let reading = Provider::Github.read(
        &Request::post("https://gate.example.com/in/x", &headers, &issue.body()),
        "gh",
        &EventRules::default(),
    );
    assert!(matches!(reading, Reading::Events(_)));
}

#[test]
fn ids_and_signatures_of_two_header_families_are_not_mixed() {
    let svix = named("standard_webhooks/06_svix_header_names");
    let mut headers = svix.headers();
    headers.push(("webhook-id".to_owned(), "msg_forged".to_owned()));
    svix.verified_as(&headers, &svix.body(), &[svix.secret()], svix.now()).unwrap();
    let fields = Headers::new(headers);
    let event = only_event(svix.provider().read(
        &Request::post("https://gate.example.com/in/x", &fields, &svix.body()),
        "s",
        &EventRules::default(),
    ));
    assert_eq!(event.identity.unwrap().as_str(), "standard_webhooks:s:msg_2TestAAAAAAAAAAAAAAAAAAAAAA");
}

#[test]
fn header_values_that_are_no_utf8_are_kept_as_latin_1() {
    let headers = Headers::new([("X-Name", &b" J\xf6rg\t"[..]), ("x-name", "Jörg 2".as_bytes())]);
    assert_eq!(headers.all("X-NAME").collect::<Vec<_>>(), ["Jörg", "Jörg 2"]);
    assert_eq!(headers.iter().next(), Some(("x-name", "Jörg")));
}

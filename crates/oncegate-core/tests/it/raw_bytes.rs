//! Case C71: signatures are over the bytes that arrived, not over JSON written again.

use oncegate_core::identity::KeyField;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{EventRules, Headers, HmacScheme, Provider, Request, SignatureError, Trust};

use crate::sample::only_event;

/// Body, signature, content type, the fields of the key, the key.
const CASES: [(&str, &str, &str, [&str; 2], &str); 4] = [
    (
        "{\"form_id\":\"f_contact\",\"submission_id\":\"s_1002\",\"note\":\"héllo 😀\"}",
        "994770bc644e5c5e9deeb18aa9223bf532fa21a7625e14f92b4d0157a846b14b",
        "application/json",
        ["form_id", "submission_id"],
        "f_contact:s_1002",
    ),
    (
        "{\"form_id\":\"f_contact\",\"submission_id\":\"s_1003\",\"note\":\"\\u001B[0m\",\"n\":1.0}",
        "743ec24a30e93b570ac431dbc388d36f26820aa6d0e40b610713e60b7bdf92d2",
        "application/json",
        ["form_id", "submission_id"],
        "f_contact:s_1003",
    ),
    (
        "[{\"form_id\":\"f_contact\",\"submission_id\":\"s_1004\"}]\r\n",
        "81d6e439c2379c6404738f6eabf5074ea4797f94ba719388bc7f94f846ab1680",
        "application/json",
        ["0.form_id", "0.submission_id"],
        "f_contact:s_1004",
    ),
    (
        "form_id=f_contact&submission_id=s_1005&name=A%20B+C",
        "ed1f9f74e9647bdbd3406f0e84a050ac6a6572213aa067bedb8725fc777e5b14",
        "application/x-www-form-urlencoded; charset=utf-8",
        ["form_id", "submission_id"],
        "f_contact:s_1005",
    ),
];

fn provider() -> Provider {
    let scheme: HmacScheme = serde_json::from_str(r#"{"header": "X-Signature"}"#).unwrap();
    Provider::from_name("hmac", Some(scheme)).unwrap()
}

fn verify(body: &[u8], signature: &str) -> Result<(), SignatureError> {
    let headers = Headers::new([("x-signature", signature)]);
    let secret = Secret::new("test-secret-1");
    provider().verify(
        &Request::post("https://gate.example.com/in/x", &headers, body),
        &Trust::of([secret]),
        Timestamp::default(),
    )
}

#[test]
fn c71_signature_over_raw_bytes() {
    for (body, signature, ..) in CASES {
        verify(body.as_bytes(), signature).unwrap();
        verify(body.as_bytes(), &signature.to_uppercase()).unwrap();
        for at in 0..body.len() {
            let mut changed = body.as_bytes().to_vec();
            changed[at] ^= 0x01;
            assert!(
                matches!(verify(&changed, signature), Err(SignatureError::Mismatch { .. })),
                "{body} at {at}"
            );
        }
    }
    let of_the_ascii_rewrite = "00993eea05b325abf41e50cd180443907c3ba425b449494a912d494d8404f49a";
    assert!(verify(CASES[0].0.as_bytes(), of_the_ascii_rewrite).is_err());
}

#[test]
fn c71_the_verified_body_is_then_read() {
    for (body, signature, content_type, fields, key) in CASES {
        let headers = Headers::new([("X-Signature", signature), ("Content-Type", content_type)]);
        let declared: Option<Vec<KeyField>> = Some(fields.iter().map(|f| f.parse().unwrap()).collect());
        let req = Request::post("https://gate.example.com/in/x", &headers, body.as_bytes());
        let event = only_event(provider().read(
            &req,
            "contact",
            &EventRules { key: declared, ..EventRules::default() },
        ));
        assert_eq!(event.identity.unwrap().as_str(), key);
        if content_type.contains("urlencoded") {
            assert_eq!(event.payload["name"], "A B C");
        }
    }
}

//! C71: signatures are over the bytes that came.

use crate::harness::{Receiver, Setup, Signed, eventually};

const FORMS: &str = "
automations:
  forms:
    steps: [{ name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }]
sources:
  flat: { provider: hmac, automation: forms, secret: env:FORMS, hmac: { header: X-Signature }, key: [form_id, submission_id] }
  list: { provider: hmac, automation: forms, secret: env:FORMS, hmac: { header: X-Signature }, key: [0.form_id, 0.submission_id] }
";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Source, content type, body, signature, key; as the case gives them.
const REQUESTS: [(&str, &str, &str, &str, &str); 4] = [
    (
        "flat",
        JSON,
        "{\"form_id\":\"f_contact\",\"submission_id\":\"s_1002\",\"note\":\"h\u{e9}llo \u{1f600}\"}",
        "994770bc644e5c5e9deeb18aa9223bf532fa21a7625e14f92b4d0157a846b14b",
        "f_contact:s_1002",
    ),
    (
        "flat",
        JSON,
        r#"{"form_id":"f_contact","submission_id":"s_1003","note":"\u001B[0m","n":1.0}"#,
        "743ec24a30e93b570ac431dbc388d36f26820aa6d0e40b610713e60b7bdf92d2",
        "f_contact:s_1003",
    ),
    (
        "list",
        JSON,
        "[{\"form_id\":\"f_contact\",\"submission_id\":\"s_1004\"}]\r\n",
        "81d6e439c2379c6404738f6eabf5074ea4797f94ba719388bc7f94f846ab1680",
        "f_contact:s_1004",
    ),
    (
        "flat",
        FORM,
        "form_id=f_contact&submission_id=s_1005&name=A%20B+C",
        "ed1f9f74e9647bdbd3406f0e84a050ac6a6572213aa067bedb8725fc777e5b14",
        "f_contact:s_1005",
    ),
];

fn signed(kind: &str, body: &[u8], signature: &str) -> Signed {
    Signed::with(&[("content-type", kind), ("x-signature", signature)], body)
}

#[tokio::test]
async fn c71_signature_is_verified_over_the_raw_bytes() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(FORMS, &receiver).var("FORMS", "test-secret-1").start().await;
    for (source, kind, body, signature, key) in REQUESTS {
        // One byte changed, wherever it is, is refused.
        for at in 0..body.len() {
            let mut changed = body.as_bytes().to_vec();
            changed[at] ^= 1;
            let said = gate.api.deliver(source, &signed(kind, &changed, signature)).await;
            said.problem(401, "invalid_signature");
        }
        let said = gate.api.deliver(source, &signed(kind, body.as_bytes(), signature)).await;
        assert_eq!(said.ok()["status"], "accepted", "{body}");
        let request = eventually(&format!("{key} runs"), async || {
            receiver.requests().into_iter().find(|request| request.body == body.as_bytes())
        })
        .await;
        assert_eq!(request.method, "POST");
        assert!(gate.api.find("forms", key).await.is_some(), "{key}");
    }
    // What a rewrite to ASCII escapes would sign.
    let rewritten = "00993eea05b325abf41e50cd180443907c3ba425b449494a912d494d8404f49a";
    let (source, kind, body, ..) = REQUESTS[0];
    gate.api
        .deliver(source, &signed(kind, body.as_bytes(), rewritten))
        .await
        .problem(401, "invalid_signature");
    assert_eq!(receiver.requests().len(), 4);
}

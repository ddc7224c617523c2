//! What holds for every answer, and addresses and names that try to be clever.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{ADMIN, Gate, Raw, Receiver, Setup, WELCOME, eventually, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

#[tokio::test]
async fn no_answer_is_guessed_at_and_none_of_the_api_is_kept() {
    let gate = gate().await;
    let owner = gate.api.claim("story", "s_1").await;
    for (method, path) in [
        (Method::GET, "/healthz"),
        (Method::HEAD, "/healthz"),
        (Method::POST, "/in/nobody"),
        (Method::GET, "/in/nobody"),
        (Method::GET, "/nothing"),
        (Method::GET, "/v1beta"),
        (Method::GET, "/%ff"),
        (Method::GET, "/v1"),
        (Method::GET, "/v1/nothing"),
        (Method::GET, "/v1/%ff"),
        (Method::DELETE, "/v1/claims"),
        (Method::POST, "/v1/claims"),
        (Method::GET, "/v1/claims"),
        (Method::GET, "/v1/inbox"),
        (Method::GET, "/v1/audit"),
        (Method::GET, "/v1/rejected"),
        (Method::GET, &format!("/v1/claims/{}", owner.claim_id)),
        (Method::POST, &format!("/v1/claims/{}/done", owner.claim_id)),
        (Method::POST, owner.done_url.as_deref().unwrap()),
    ] {
        for request in [gate.api.request(method.clone(), path), gate.api.bare(method.clone(), path)] {
            let said = send(request).await;
            assert_eq!(said.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
            let is_api = path.contains("/v1") && path != "/v1beta";
            assert_eq!(said.header("cache-control"), is_api.then_some("no-store"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn an_address_that_is_not_utf8_is_a_problem_like_any_other() {
    let gate = gate().await;
    for path in [
        "/%ff",
        "/v1/claims/%ff",
        "/v1/claims/%ff/done",
        "/v1/rejected/%C3",
        "/in/%ff",
        "/v1/automations/%80/pause",
    ] {
        for method in ["GET", "POST"] {
            let mut raw = Raw::connect(&gate).await;
            let head = "host: gate\r\ncontent-length: 0\r\nauthorization: Bearer";
            raw.send(format!("{method} {path} HTTP/1.1\r\n{head} {ADMIN}\r\n\r\n")).await;
            let answer = raw.answer().await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{method} {path}: {answer}");
            assert!(answer.contains("application/problem+json"), "{method} {path}: {answer}");
            assert!(answer.contains("\"code\":\"not_found\""), "{method} {path}: {answer}");
        }
    }
}

/// With these names serde_json passes text and numbers to itself, if some crate of the build switches that on; then a
/// caller could make a value of another kind than the one that was checked.
fn private_names() -> [Value; 2] {
    [json!({ "$serde_json::private::RawValue": "1" }), json!({ "$serde_json::private::Number": "1" })]
}

#[tokio::test]
async fn names_private_to_the_json_library_are_names_like_any_other() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    for (n, value) in private_names().into_iter().enumerate() {
        let key = format!("s_{n}");
        let claim = json!({ "automation": "story", "idempotency_key": key, "payload": value });
        let claimed = gate.api.claim_with(&claim).await;
        gate.api.done_with(&claimed, &json!({ "result": value })).await.ok();
        assert_eq!(gate.api.claim_with(&claim).await.is("stop duplicate").result, value);
        let other = json!({ "automation": "story", "idempotency_key": key, "payload": 1 });
        gate.api.claim_with(&other).await.is("stop payload_mismatch");
        let as_field = json!({ "automation": "story", "idempotency_key": value });
        gate.api.post("/v1/claims", &as_field).await.problem(422, "invalid_field");

        let order = json!({ "order": key, "extra": value });
        gate.api.order(&order).await.ok();
        assert_eq!(receiver.got("/send", n + 1).await[n].json(), order);
        let shown = eventually("it is there", async || gate.api.find("welcome", &key).await).await;
        assert_eq!(shown["payload"], order);
        assert_eq!(
            gate.api.order(&json!({ "order": value })).await.ok()["status"],
            "stored, not run: no identity"
        );
    }
}

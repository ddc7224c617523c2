//! Finish calls whose body breaks off, and those that are refused before it is read.

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::harness::{ADMIN, Claimed, Gate, Raw, Setup, json_body, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

/// Sends the beginning of a body that is announced to be longer, and nothing after it.
async fn broken_off(gate: &Gate, verb: &str, claimed: &Claimed, query: &str, headers: &str) -> String {
    let path = format!("/v1/claims/{}/{verb}{query}", claimed.claim_id);
    let headers = format!("content-type: application/json\r\ncontent-length: 200\r\n{headers}");
    let mut raw = Raw::post(gate, &path, &headers).await;
    raw.send(r#"{"note":"the target is down","#).await;
    raw.0.shutdown().await.unwrap();
    raw.until_closed().await
}

#[tokio::test]
async fn an_error_that_breaks_off_is_refused_because_it_may_have_said_that_it_can_be_retried() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    let query = format!("?token={}", claimed.token());
    let bearer = format!("authorization: Bearer {}\r\n", claimed.token());
    for (query, headers) in [(query.as_str(), ""), ("", bearer.as_str()), ("", "")] {
        let answer = broken_off(&gate, "error", &claimed, query, headers).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("\"code\":\"unreadable_body\""), "{answer}");
    }
    let shown = gate.api.show(&claimed.claim_id).await;
    assert_eq!(shown["processing_state"], "processing");
    assert_eq!(shown["history"].as_array().unwrap().len(), 1, "nothing was written");
    let said = gate.api.error(&claimed, &json!({ "note": "down", "retryable": true })).await.ok();
    assert!(said["due_at"].is_string(), "{said}");
}

#[tokio::test]
async fn done_and_heartbeat_count_even_if_their_body_breaks_off() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    let query = format!("?token={}", claimed.token());
    for verb in ["heartbeat", "done"] {
        let answer = broken_off(&gate, verb, &claimed, &query, "").await;
        assert!(answer.contains("\"answer\":\"accepted\""), "{verb}: {answer}");
    }
    assert_eq!(gate.api.show(&claimed.claim_id).await["processing_state"], "done");
    // Where the token would have been in the body, it was not seen.
    let answer = broken_off(&gate, "done", &claimed, "", "").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn a_token_in_the_url_is_checked_before_the_body_is_read() {
    let gate = gate().await;
    let (one, two) = (gate.api.claim("story", "s_1").await, gate.api.claim("story", "s_2").await);
    for verb in ["done", "error", "heartbeat"] {
        let path = format!("/v1/claims/{}/{verb}?token={}", one.claim_id, two.token());
        // Announced, and never sent.
        let mut raw = Raw::post(&gate, &path, "content-length: 1000000\r\n").await;
        let answer = raw.answer().await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("\"code\":\"invalid_token\""), "{answer}");
    }
}

#[tokio::test]
async fn another_token_in_the_header_does_not_hide_the_one_in_the_body() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    let path = format!("/v1/claims/{}/done", claimed.claim_id);
    let post = || gate.api.bare(Method::POST, &path).bearer_auth(ADMIN);
    send(post()).await.problem(403, "invalid_token");
    let said = send(json_body(post(), &json!({ "token": claimed.token(), "result": 7 }))).await;
    assert_eq!(said.ok()["answer"], "accepted");
    assert_eq!(gate.api.claim("story", "s_1").await.result, 7);
}

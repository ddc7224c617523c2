//! Every way to be refused is a problem document with a stable code.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Client, Gate, Setup, send};

async fn gate() -> Gate {
    Setup::alone("").start().await
}

const ID: &str = "0123456789abcdef0123456789abcdef";

/// Every address that needs a token, with its method.
fn guarded() -> Vec<(Method, String)> {
    let claim = |verb: &str| (Method::POST, format!("/v1/claims/{ID}/{verb}"));
    vec![
        (Method::POST, "/v1/claims".into()),
        (Method::POST, "/v1/claims/batch".into()),
        (Method::GET, "/v1/automations".into()),
        (Method::GET, "/v1/claims/groups".into()),
        (Method::GET, "/v1/claims/export".into()),
        (Method::GET, format!("/v1/claims/{ID}/history")),
        (Method::POST, "/v1/bulk".into()),
        (Method::GET, "/v1/bulk".into()),
        (Method::GET, "/v1/bulk/1".into()),
        (Method::GET, "/v1/bulk/1/claims".into()),
        (Method::POST, "/v1/bulk/1/undo".into()),
        (Method::POST, "/v1/automations/welcome/rename".into()),
        (Method::GET, "/v1/claims".into()),
        (Method::GET, format!("/v1/claims/{ID}")),
        claim("reset"),
        claim("run-now"),
        claim("mark-error"),
        claim("mark-done"),
        claim("dismiss"),
        claim("tag"),
        (Method::POST, "/v1/automations/welcome/pause".into()),
        (Method::POST, "/v1/automations/welcome/resume".into()),
        (Method::GET, "/v1/inbox".into()),
        (Method::GET, "/v1/rejected".into()),
        (Method::GET, "/v1/rejected/1".into()),
        (Method::POST, "/v1/rejected/1/release".into()),
        (Method::GET, "/v1/audit".into()),
    ]
}

#[tokio::test]
async fn without_a_known_token_nothing_is_told_or_done() {
    let gate = gate().await;
    let stranger = Client::new(gate.api.base(), "oga_not-a-token-of-this-server");
    for (method, path) in guarded() {
        let said = send(gate.api.bare(method.clone(), &path)).await;
        assert_eq!(said.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        said.problem(401, "missing_credentials");
        let basic = gate.api.bare(method.clone(), &path).header("authorization", "Basic YTpi");
        send(basic).await.problem(401, "missing_credentials");
        let said = send(stranger.request(method.clone(), &path)).await;
        assert_eq!(said.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        said.problem(401, "invalid_credentials");
        // More failures at a time than a few are answered 429.
        gate.advance(crate::harness::mins(1)).await;
    }
}

#[tokio::test]
async fn what_is_not_there_is_404() {
    let gate = gate().await;
    let reason = json!({ "reason": "why", "tag": "t" });
    for (method, path) in
        guarded().into_iter().filter(|(_, path)| path.contains(ID) || path.contains("rejected/1"))
    {
        let said = match method {
            Method::GET => gate.api.get(&path).await,
            _ if path.ends_with("mark-error") || path.ends_with("tag") => gate.api.post(&path, &reason).await,
            _ => gate.api.post(&path, &json!({ "reason": "why" })).await,
        };
        said.problem(404, "not_found");
    }
    for path in
        ["/", "/v1", "/v1/claim", "/v1/claims/", "/v1/claims/zz", "/v1/rejected/zz", "/in", "/admin.php"]
    {
        gate.api.get(path).await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn another_method_is_405_and_names_the_right_one() {
    let gate = gate().await;
    for (method, path) in guarded() {
        let wrong = if method == Method::GET { Method::DELETE } else { Method::PUT };
        let said = send(gate.api.request(wrong.clone(), &path)).await;
        assert!(said.header("allow").is_some_and(|allow| allow.contains(method.as_str())), "{wrong} {path}");
        said.problem(405, "method_not_allowed");
    }
    // Of a source that nobody declared there is nothing to say but that; of one, see intake/doors.rs.
    send(gate.api.bare(Method::GET, "/in/orders")).await.problem(404, "unknown_source");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_told_what_is_wrong_with_it() {
    let gate = gate().await;
    let json = "application/json";
    let huge = json!({ "automation": "story", "idempotency_key": "k", "payload": "x".repeat(1_100_000) });
    for (kind, body, status, code, says) in [
        (json, "{\"automation\":".to_owned(), 400, "unreadable_body", "not JSON"),
        (json, "[]".to_owned(), 400, "unreadable_body", "must be a JSON object"),
        (json, "\"story\"".to_owned(), 400, "unreadable_body", "must be a JSON object"),
        (json, "{} {}".to_owned(), 400, "unreadable_body", "not JSON"),
        (json, format!("{}{}", "[".repeat(500), "]".repeat(500)), 400, "unreadable_body", "nested deeper"),
        (json, huge.to_string(), 413, "body_too_large", "1048576"),
        ("text/plain", "automation=story".to_owned(), 415, "unsupported_content_type", "`text/plain`"),
        ("multipart/form-data; boundary=x", "--x--".to_owned(), 415, "unsupported_content_type", "multipart"),
    ] {
        let post = gate.api.request(Method::POST, "/v1/claims").header("content-type", kind);
        let problem = send(post.body(body)).await.problem(status, code);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
}

#[tokio::test]
async fn acts_say_which_field_is_missing_or_wrong() {
    let gate = gate().await;
    let owner = gate.api.claim("story", "s_1").await;
    for (verb, json, field) in [
        ("reset", json!({}), "reason"),
        ("reset", json!({ "reason": "  " }), "reason"),
        ("reset", json!({ "reason": "two\nlines" }), "reason"),
        ("reset", json!({ "reason": "x".repeat(2_001) }), "reason"),
        ("reset", json!({ "reason": "why", "by": "Ann\u{1b}[0m" }), "by"),
        ("reset", json!({ "reason": "why", "verified": "maybe" }), "verified"),
        ("reset", json!({ "reason": "why", "run_now": 1 }), "run_now"),
        ("reset", json!({ "reason": "why", "confirmHolder": "x" }), "confirmHolder"),
        ("mark-error", json!({ "reason": "why" }), "tag"),
        ("mark-done", json!({ "reason": "why", "tag": "t" }), "tag"),
        ("dismiss", json!({}), "reason"),
        ("run-now", json!({}), "reason"),
    ] {
        let problem = gate.api.act(verb, &owner.claim_id, &json).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{verb} {json}");
    }
    for path in ["/v1/automations/story/pause", "/v1/automations/story/resume"] {
        assert_eq!(gate.api.post(path, &json!({})).await.problem(422, "invalid_field")["field"], "reason");
    }
    assert_eq!(gate.api.show(&owner.claim_id).await["history"].as_array().unwrap().len(), 1);
    assert!(gate.api.audit().await.is_empty());
}

#[tokio::test]
async fn a_list_refuses_what_it_does_not_know() {
    let gate = gate().await;
    for (path, field) in [
        ("/v1/claims?inbox=lost", "inbox"),
        ("/v1/claims?inbox=rejected", "inbox"),
        ("/v1/claims?state=running", "state"),
        ("/v1/claims?limit=0", "limit"),
        ("/v1/claims?limit=501", "limit"),
        ("/v1/claims?limit=ten", "limit"),
        ("/v1/claims?cursor=first", "cursor"),
        ("/v1/claims?idempotency_key=k", "idempotency_key"),
        ("/v1/claims?order=asc", "order"),
        ("/v1/rejected?state=done", "state"),
        ("/v1/audit?limit=-1", "limit"),
    ] {
        assert_eq!(gate.api.get(path).await.problem(422, "invalid_field")["field"], field, "{path}");
    }
}

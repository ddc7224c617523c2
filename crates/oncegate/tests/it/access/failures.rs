//! Failed authentications: slowed, counted, and never in the way of a token that is right.

use super::*;
use crate::harness::{hours, secs};

async fn wrong(gate: &Gate, token: &str, forwarded: Option<&str>) -> Said {
    let mut request = gate.api.bare(Method::GET, "/v1/inbox").bearer_auth(token);
    if let Some(address) = forwarded {
        request = request.header("x-forwarded-for", address);
    }
    send(request).await
}

#[tokio::test]
async fn wrong_tokens_are_told_to_wait_and_right_ones_are_always_taken() {
    let gate = two().await;
    for n in 0..10 {
        wrong(&gate, &format!("guess-{n}"), None).await.problem(401, "invalid_credentials");
    }
    let said = wrong(&gate, "guess", None).await;
    assert_eq!(said.header("retry-after"), Some("1"));
    said.problem(429, "too_many_failures");
    // A colleague behind the same address, also with a token that was never seen before.
    gate.api.get("/v1/inbox").await.ok();
    with_token(&gate, json!({ "name": "new", "role": "viewer" })).await.get("/v1/inbox").await.ok();
    // Whoever sends none guesses nothing, and is told what is missing.
    send(gate.api.bare(Method::GET, "/v1/inbox")).await.problem(401, "missing_credentials");
    gate.advance(secs(1)).await;
    let said = wrong(&gate, "guess", None).await;
    assert_eq!(said.header("retry-after"), Some("2"), "it grows");
    gate.advance(secs(120)).await;
    wrong(&gate, "guess", None).await.problem(401, "invalid_credentials");
}

#[tokio::test]
async fn tokens_of_claims_count_as_well() {
    let gate = two().await;
    let held = gate.api.claim("shared", "k").await;
    let path = format!("/v1/claims/{}/done", held.claim_id);
    let guess =
        async |token: &str| send(gate.api.bare(Method::POST, &format!("{path}?token=ogt_{token}"))).await;
    for n in 0..10 {
        guess(&n.to_string()).await.problem(403, "invalid_token");
    }
    guess("x").await.problem(429, "too_many_failures");
    gate.api.done(&held).await.ok();
}

#[tokio::test]
async fn behind_a_proxy_callers_are_told_apart_only_if_the_proxy_is_trusted() {
    for (trusted, tenth) in [("trusted_proxies: [127.0.0.1]", 401), ("", 429)] {
        let gate = Setup::alone(trusted).start().await;
        for n in 0..10 {
            let from = format!("198.51.100.{n}");
            wrong(&gate, "guess", Some(&from)).await.problem(401, "invalid_credentials");
        }
        assert_eq!(wrong(&gate, "guess", Some("203.0.113.7")).await.status, tenth, "{trusted}");
    }
}

#[tokio::test]
async fn the_audit_has_one_row_per_address_and_hour_without_the_token() {
    let mut gate = Setup::alone("trusted_proxies: [127.0.0.1]").start().await;
    for n in 0..3 {
        wrong(&gate, &format!("secret-guess-{n}"), Some("203.0.113.7")).await;
    }
    gate.advance(hours(1)).await;
    wrong(&gate, "secret-guess", Some("2001:db8::1")).await;
    gate.restart().await;
    let rows = gate.api.get("/v1/audit?action=auth_failed").await.ok();
    let told: Vec<String> = rows["audit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{}: {}", row["subject"].as_str().unwrap(), row["detail"].as_str().unwrap()))
        .collect();
    assert!(told.iter().any(|row| row.starts_with("203.0.113.7: 3 failed authentications")), "{told:?}");
    assert!(told.iter().any(|row| row.starts_with("2001:db8::/64: 1 failed")), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(!rows.to_string().contains("secret-guess"));
}

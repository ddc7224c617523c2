//! Connections that nobody can hold for nothing.

use std::time::Duration;

use oncegate::app::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{ADMIN, Gate, Raw, Setup, eventually, mins};

const SHORT: Duration = Duration::from_millis(200);

async fn gate(limits: Limits) -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").limits(limits).start().await
}

/// Nothing ends by itself before a test does.
fn patient() -> Limits {
    Limits { head: mins(10), idle: mins(10), write_stall: mins(10), ..Limits::default() }
}

const GET: &str = "GET /healthz HTTP/1.1\r\nhost: gate\r\n\r\n";

#[tokio::test]
async fn a_head_that_does_not_end_ends_the_connection_however_slowly_it_goes_on() {
    let gate = gate(Limits { head: SHORT, ..patient() }).await;
    assert_eq!(Raw::connect(&gate).await.until_closed().await, "", "nothing was ever sent");

    let mut slow = Raw::connect(&gate).await;
    slow.send("GET /healthz HTTP/1.1\r\n").await;
    eventually("the connection is cut", async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        slow.0.write_all(b"x-slow: 1\r\n").await.err()
    })
    .await;

    // The second request of a connection likewise.
    let mut second = Raw::connect(&gate).await;
    second.send(GET).await;
    assert!(second.answer().await.starts_with("HTTP/1.1 200"));
    second.send("GET /healthz").await;
    second.until_closed().await;
}

#[tokio::test]
async fn between_two_requests_a_connection_may_rest_for_longer_but_not_for_ever() {
    let resting = gate(Limits { head: SHORT, ..patient() }).await;
    let mut raw = Raw::connect(&resting).await;
    for _ in 0..3 {
        raw.send(GET).await;
        assert!(raw.answer().await.starts_with("HTTP/1.1 200"));
        tokio::time::sleep(2 * SHORT).await;
    }
    let ending = gate(Limits { idle: SHORT, ..patient() }).await;
    let mut raw = Raw::connect(&ending).await;
    raw.send(GET).await;
    raw.answer().await;
    assert_eq!(raw.until_closed().await, "");
}

#[tokio::test]
async fn a_call_that_waits_is_not_idle() {
    let gate = gate(Limits { head: SHORT, idle: SHORT, write_stall: SHORT, ..patient() }).await;
    let holder = gate.api.claim("story", "s_1").await;
    let path = "/v1/claims?automation=story&idempotency_key=s_1&wait=25";
    let headers = format!("authorization: Bearer {ADMIN}\r\ncontent-length: 0\r\n");
    let mut raw = Raw::post(&gate, path, &headers).await;
    tokio::time::sleep(4 * SHORT).await;
    gate.api.done(&holder).await.ok();
    assert!(raw.answer().await.contains("\"reason\":\"duplicate\""));
}

#[tokio::test]
async fn a_caller_that_takes_no_answers_is_let_go() {
    let gate = gate(Limits { write_stall: SHORT, ..patient() }).await;
    let claimed = gate.api.claim("story", "s_1").await;
    gate.api.done_with(&claimed, &json!({ "result": "x".repeat(60_000) })).await.ok();
    let get = format!(
        "GET /v1/claims/{} HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {ADMIN}\r\n\r\n",
        claimed.claim_id
    );
    let mut raw = Raw::connect(&gate).await;
    let all = async {
        loop {
            if raw.0.write_all(get.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("the connection is cut");
}

#[tokio::test]
async fn beyond_the_limit_connections_wait_for_a_place() {
    let gate = gate(Limits { connections: Some(2), ..patient() }).await;
    let (mut one, mut two) = (Raw::connect(&gate).await, Raw::connect(&gate).await);
    for raw in [&mut one, &mut two] {
        raw.send(GET).await;
        raw.answer().await;
    }
    let mut three = Raw::connect(&gate).await;
    three.send(GET).await;
    let answered = tokio::time::timeout(SHORT, three.0.readable()).await;
    assert!(answered.is_err(), "there is no place");
    drop(one);
    assert!(three.answer().await.starts_with("HTTP/1.1 200"));
    two.send(GET).await;
    two.answer().await;
}

#[tokio::test]
async fn a_stop_lets_requests_end_and_closes_what_is_idle() {
    let mut gate = gate(patient()).await;
    let mut idle = Raw::connect(&gate).await;
    idle.send(GET).await;
    idle.answer().await;
    let body = json!({ "automation": "story", "idempotency_key": "s_1" }).to_string();
    let (early, late) = body.split_at(10);
    let headers = format!("authorization: Bearer {ADMIN}\r\ncontent-length: {}\r\n", body.len());
    let mut busy = Raw::post(&gate, "/v1/claims", &headers).await;
    busy.send(early).await;
    // Read by the gate: what is sent after it on another connection is answered.
    gate.api.inbox().await;
    let host = gate.api.base().strip_prefix("http://").unwrap().to_owned();
    tokio::join!(gate.stop(), async {
        eventually("nobody is let in", async || TcpStream::connect(&host).await.err()).await;
        assert_eq!(idle.until_closed().await, "");
        busy.send(late).await;
        let answer = busy.answer().await;
        assert!(answer.contains("\"decision\":\"run\""), "{answer}");
    });
}

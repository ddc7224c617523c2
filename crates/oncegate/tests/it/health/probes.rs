//! `/healthz` and `/readyz`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Client, Gate, Setup, eventually, secs, send};

async fn ready(api: &Client) -> (u16, Value) {
    let said = send(api.bare(Method::GET, "/readyz")).await;
    assert_eq!(said.header("cache-control"), Some("no-store"));
    let mut body = said.body;
    // Which gate it is; a test of `doctor --public` looks at that.
    assert!(body.as_object_mut().unwrap().remove("store").is_some_and(|store| store.is_string()));
    (said.status, body)
}

fn not_ready(reason: &str) -> (u16, Value) {
    (503, json!({ "status": "not_ready", "reasons": [reason] }))
}

/// Time enough for the next look at the store.
async fn looks_again(gate: &Gate) {
    gate.advance(secs(2)).await;
}

#[tokio::test]
async fn ready_means_that_a_write_reaches_the_disk() {
    let mut gate = Setup::alone("").max_bytes(600_000).start().await;
    assert_eq!(ready(&gate.api).await, (200, json!({ "status": "ready", "reasons": [] })));
    // As with a real disk: what is small may still fit when a claim does not.
    eventually("it is full", async || {
        let claim = json!({ "automation": "a", "idempotency_key": uuid(), "payload": "x".repeat(20_000) });
        (gate.api.post("/v1/claims", &claim).await.status == 503).then_some(())
    })
    .await;
    assert_eq!(ready(&gate.api).await.0, 200, "believed for a moment: it is asked every second by many");
    looks_again(&gate).await;
    assert_eq!(ready(&gate.api).await, not_ready("store_full"));
    assert_eq!(send(gate.api.bare(Method::GET, "/healthz")).await.status, 200, "a restart would not help");
    gate.grow(50_000_000).await;
    assert_eq!(ready(&gate.api).await.0, 200);
}

fn uuid() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("k{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[tokio::test]
async fn a_store_that_does_not_answer_in_time_is_not_ready_and_many_who_ask_are_one_write() {
    let gate = Setup::alone("").start().await;
    assert_eq!(ready(&gate.api).await.0, 200);
    let other = rusqlite::Connection::open(gate.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    looks_again_without_tick(&gate);
    let (one, two) = tokio::join!(ready(&gate.api), ready(&gate.api));
    assert_eq!((one, two), (not_ready("store_slow"), not_ready("store_slow")));
    other.execute_batch("ROLLBACK").unwrap();
    eventually("it is ready again", async || {
        looks_again_without_tick(&gate);
        (ready(&gate.api).await.0 == 200).then_some(())
    })
    .await;
}

/// The tick would wait for the lock as well.
fn looks_again_without_tick(gate: &Gate) {
    gate.advance_wall(secs(2));
}

#[tokio::test]
async fn a_gate_that_is_about_to_stop_says_so_before_it_takes_no_more() {
    let limits = oncegate::app::Limits { drain_notice: secs(2), ..Default::default() };
    let mut gate = Setup::alone("").limits(limits).start().await;
    let api = gate.api.another();
    let told = async {
        eventually("it is told", async || (ready(&api).await == not_ready("draining")).then_some(())).await;
        // What is sent to it meanwhile is done all the same.
        api.claim("a", "k").await.is("run first");
    };
    tokio::join!(gate.stop(), told);
    assert!(api.bare(Method::GET, "/readyz").send().await.is_err());
}

#[tokio::test]
async fn a_request_is_known_by_its_id() {
    let gate = Setup::alone("").start().await;
    let with = |id: &'static str| gate.api.request(Method::GET, "/v1/claims/none").header("x-request-id", id);
    let said = send(with("zap-run-4711")).await;
    assert_eq!(said.header("x-request-id"), Some("zap-run-4711"));
    assert_eq!(said.body["request_id"], "zap-run-4711");
    // Not somebody's address: ids are logged.
    let said = send(with("ann@example.com")).await;
    let made = said.header("x-request-id").unwrap().to_owned();
    assert_ne!(made, "ann@example.com");
    assert_eq!(said.body["request_id"], made);
}

//! Large bodies: who may send them, and how many there may be at a time.

use std::time::Duration;

use oncegate::app::Limits;
use serde_json::{Value, json};

use crate::harness::{ADMIN, Gate, Raw, Setup, Signed, eventually, hex, hmac_sha256};

/// Nobody listens at port 9: what is accepted here need not come about.
const SOURCES: &str = "
outgoing: { allow_private: ['127.0.0.1:9'] }
automations:
  welcome: { steps: [{ name: send, http: { url: 'http://127.0.0.1:9/send' }, repeat: by_key }] }
  story: { ttl: 10m }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
  shop: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
  repo: { provider: github, automation: welcome, secret: env:ORDERS }
  svix: { provider: standard_webhooks, automation: welcome, secret: env:SVIX }
";

async fn gate(limits: Limits) -> Gate {
    let setup = Setup::alone(SOURCES);
    setup.var("SVIX", "whsec_MDEyMzQ1Njc4OWFiY2RlZg==").limits(limits).start().await
}

/// The right form, and the wrong secret.
fn forged() -> String {
    format!("x-signature: {}\r\n", "ab".repeat(32))
}

async fn newest(gate: &Gate) -> Value {
    gate.api.rejected().await.remove(0)
}

#[tokio::test]
async fn a_large_body_whose_head_shows_that_it_cannot_be_right_is_not_read() {
    let gate = gate(Limits::default()).await;
    let old = "webhook-id: a\r\nwebhook-timestamp: 1000000000\r\nwebhook-signature: v1,AAAA\r\n";
    for (source, headers, says) in [
        ("orders", "", "no `x-signature` header"),
        ("shop", "x-signature: zz\r\n", "does not have the form"),
        ("repo", "x-hub-signature: sha1=00\r\n", "no `x-hub-signature-256` header"),
        ("svix", old, "behind this server's clock"),
    ] {
        // Announced, and never sent; then sent in pieces of which nobody said how many there are.
        let announced = format!("{headers}content-length: 4000000\r\n");
        let mut raw = Raw::post(&gate, &format!("/in/{source}"), &announced).await;
        let answer = raw.answer().await;
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("invalid_signature"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "nothing can follow what was not read: {answer}");
        let row = newest(&gate).await;
        let reason = row["reason"].as_str().unwrap();
        assert!(reason.contains(says) && reason.contains("65536 bytes and was not read"), "{row}");
        let kept = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok();
        assert_eq!(kept["body"], "");

        let chunked = format!("{headers}transfer-encoding: chunked\r\n");
        let mut raw = Raw::post(&gate, &format!("/in/{source}"), &chunked).await;
        for _ in 0..3 {
            raw.send(format!("{:x}\r\n{}\r\n", 30_000, "x".repeat(30_000))).await;
        }
        assert!(raw.answer().await.starts_with("HTTP/1.1 401"));
        // What goes on being sent is thrown away, so that the answer is not lost by a reset.
        raw.send(format!("{:x}\r\n{}\r\n0\r\n\r\n", 300_000, "x".repeat(300_000))).await;
    }
    // One row for what looks alike; each is counted.
    let rows = gate.api.rejected().await;
    assert_eq!(rows.iter().map(|row| 1 + row["repeats"].as_u64().unwrap()).sum::<u64>(), 8, "{rows:?}");
}

#[tokio::test]
async fn a_small_body_without_a_signature_is_kept_as_it_came() {
    let gate = gate(Limits::default()).await;
    for size in [0, 10, 64 * 1024] {
        let unsigned = Signed::with(&[("content-type", "application/json")], vec![b'x'; size]);
        gate.api.deliver("orders", &unsigned).await.problem(401, "invalid_signature");
        let row = newest(&gate).await;
        let kept = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok();
        assert_eq!(kept["body"].as_str().unwrap().len(), size);
    }
    // The sender sees why it is refused, even while it is still sending.
    for size in [64 * 1024 + 1, 20_000_000] {
        let unsigned = Signed::with(&[], vec![b'x'; size]);
        gate.api.deliver("orders", &unsigned).await.problem(401, "invalid_signature");
    }
}

#[tokio::test]
async fn github_may_send_more_than_others() {
    let gate = gate(Limits::default()).await;
    let body = json!({ "action": "opened", "note": "x".repeat(6_000_000) }).to_string();
    let signature = format!("sha256={}", hex(&hmac_sha256(b"orders-secret", body.as_bytes())));
    let headers = [
        ("content-type", "application/json"),
        ("x-hub-signature-256", &*signature),
        ("x-github-event", "issues"),
        ("x-github-delivery", "d_1"),
    ];
    let said = gate.api.deliver("repo", &Signed::with(&headers, body.clone())).await;
    assert_eq!(said.ok()["status"], "accepted");
    let said = gate.api.deliver("orders", &Signed::hmac("orders-secret", body)).await;
    said.problem(413, "body_too_large");
    let mut raw =
        Raw::post(&gate, "/in/repo", "x-hub-signature-256: sha256=00\r\ncontent-length: 26214401\r\n").await;
    assert!(raw.answer().await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn large_bodies_share_the_memory_there_is_and_small_ones_need_none() {
    let gate = gate(Limits { bytes_in_flight: 1024 * 1024, ..Limits::default() }).await;
    let headers = format!("{}content-length: 2000000\r\n", forged());
    let large = |order: usize| json!({ "order": format!("o_{order}"), "note": "x".repeat(200_000) });
    let mut order = 0;
    // If the order takes the last of it first, it is the hog that is refused.
    let (hog, refused) = eventually("the memory is taken", async || {
        order += 1;
        let mut hog = Raw::post(&gate, "/in/orders", &headers).await;
        hog.send(vec![b'x'; 1024 * 1024 + 32 * 1024]).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((hog, gate.api.order(&large(order)).await)).filter(|(_, said)| said.status != 200)
    })
    .await;
    assert_eq!(refused.header("retry-after"), Some("5"));
    refused.problem(503, "overloaded");
    let claim = json!({ "automation": "story", "idempotency_key": "s_1", "payload": "x".repeat(200_000) });
    gate.api.post("/v1/claims", &claim).await.problem(503, "overloaded");
    let claimed = gate.api.claim("story", "s_1").await;
    gate.api
        .error(claimed.is("run first"), &json!({ "note": "x".repeat(200_000) }))
        .await
        .problem(503, "overloaded");
    assert_eq!(gate.api.show(&claimed.claim_id).await["processing_state"], "processing");
    let small = json!({ "order": "small", "note": "x".repeat(50_000) });
    assert_eq!(gate.api.order(&small).await.ok()["status"], "accepted");

    drop(hog);
    eventually("the memory is given back", async || {
        order += 1;
        Some(gate.api.order(&large(order)).await).filter(|said| said.status == 200)
    })
    .await;
    // Once for each request, and given back each time.
    for _ in 0..20 {
        order += 1;
        assert_eq!(gate.api.order(&large(order)).await.ok()["status"], "accepted");
        let forged = Signed::hmac("wrong", vec![b'x'; 500_000]);
        gate.api.deliver("orders", &forged).await.problem(401, "invalid_signature");
    }
}

#[tokio::test]
async fn many_large_bodies_at_a_time_are_all_taken() {
    let gate = gate(Limits::default()).await;
    let mut tasks = vec![];
    for n in 0..12 {
        let api = gate.api.another();
        tasks.push(tokio::spawn(async move {
            api.order(&json!({ "order": format!("o_{n}"), "note": "x".repeat(1_000_000) })).await
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().ok()["status"], "accepted");
    }
    let mut raw = Raw::post(
        &gate,
        "/v1/claims",
        &format!("authorization: Bearer {ADMIN}\r\ncontent-length: 1048577\r\n"),
    )
    .await;
    assert!(raw.answer().await.starts_with("HTTP/1.1 413"));
}

//! No room left in the database file.

use serde_json::json;

use crate::harness::{Receiver, Setup, WELCOME, eventually};

#[tokio::test]
async fn c42_a_full_store_refuses_and_acknowledges_nothing() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).max_bytes(700_000).start().await;
    gate.api.order(&json!({ "order": "before" })).await.ok();
    receiver.got("/send", 1).await;
    let held = gate.api.claim("load", "held").await;

    let mut room = 0;
    let refused = loop {
        let heavy = json!({ "automation": "load", "idempotency_key": format!("k{room}"), "payload": "x".repeat(8_000) });
        let said = gate.api.post("/v1/claims", &heavy).await;
        if said.status != 200 {
            break said;
        }
        room += 1;
        assert!(room < 500, "it never gets full");
    };
    assert_eq!(refused.header("retry-after"), Some("5"));
    refused.problem(503, "store_unavailable");
    assert!(room > 10, "{room}");
    let event = json!({ "order": "o_1", "note": "x".repeat(8_000) });
    let said = gate.api.order(&event).await;
    assert_eq!(said.header("retry-after"), Some("5"), "so that the sender comes again");
    said.problem(503, "store_unavailable");

    // Nothing was claimed, and everything can still be read.
    assert!(gate.api.find("load", &format!("k{room}")).await.is_none());
    assert!(gate.api.find("welcome", "o_1").await.is_none());
    assert_eq!(gate.api.list("automation=load&limit=500").await.len(), room + 1);
    assert_eq!(gate.api.show(&held.claim_id).await["processing_state"], "processing");
    gate.api.inbox().await;
    gate.api.rejected().await;
    assert_eq!(gate.api.get("/healthz").await.status, 200);
    assert_eq!(receiver.requests().len(), 1);

    // With room, the sender's next try is the first.
    gate.grow(10_000_000).await;
    assert_eq!(gate.api.order(&event).await.ok()["status"], "accepted");
    receiver.got("/send", 2).await;
    gate.api.done(&held).await.ok();
    eventually("the event runs once", async || {
        gate.api.find("welcome", "o_1").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
}

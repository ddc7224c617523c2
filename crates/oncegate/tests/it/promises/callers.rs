//! Callers of the gate API beside work that somebody else has begun.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Claimed, Gate, Setup, eventually, secs};

async fn stops(gate: &Gate, id: &str) -> Value {
    gate.api.show(id).await["stopped"]["count"].clone()
}

/// A claim that waits for somebody on this record.
async fn waiting(gate: &Gate, key: &str, record: &str) -> (JoinHandle<Claimed>, String) {
    let claim = json!({ "automation": "story", "idempotency_key": key, "record": record, "wait": 25 });
    let api = gate.api.another();
    let waiter = tokio::spawn(async move { api.claim_with(&claim).await });
    let id = eventually("the claim waits", async || {
        let claim = gate.api.find("story", key).await?;
        (claim["stopped"]["count"] == 1).then(|| claim["claim_id"].as_str().unwrap().to_owned())
    })
    .await;
    (waiter, id)
}

#[tokio::test]
async fn a_call_that_waits_is_one_stop_however_often_it_looks_and_wakes_when_the_holder_ends() {
    // The key it waits with, and what it is told in the end.
    for (key, ends) in [("s_1", "stop duplicate"), ("s_2", "run first")] {
        let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
        let claim = json!({ "automation": "story", "idempotency_key": "s_1", "record": "crm:1" });
        let holder = gate.api.claim_with(&claim).await;
        let (waiter, id) = waiting(&gate, key, "crm:1").await;
        for _ in 0..4 {
            gate.advance(secs(5)).await;
            // Rings for those who wait; they look, and find it as before.
            gate.api.heartbeat(&holder).await.ok();
            assert_eq!(stops(&gate, &id).await, 1, "{key}");
        }
        assert!(!waiter.is_finished(), "{key}");
        let ended = gate.now();
        gate.api.done(&holder).await.ok();
        eventually("it is woken", async || waiter.is_finished().then_some(())).await;
        waiter.await.unwrap().is(ends);
        assert_eq!(gate.now(), ended, "{key}: at once");
        assert_eq!(stops(&gate, &id).await, 1, "{key}");
        let history = gate.api.show(&id).await["history"].clone();
        let rows = history.as_array().unwrap().iter().filter(|row| row["kind"] == "stop").count();
        assert_eq!(rows, 1, "{key}: {history}");
    }
}

#[tokio::test]
async fn a_call_that_waits_in_vain_is_one_stop_too() {
    for (key, ends) in [("s_1", "stop in_progress"), ("s_2", "stop record_busy")] {
        let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
        let claim = json!({ "automation": "story", "idempotency_key": "s_1", "record": "crm:1" });
        gate.api.claim_with(&claim).await.is("run first");
        let (waiter, id) = waiting(&gate, key, "crm:1").await;
        eventually("its time is over", async || {
            gate.advance(secs(1)).await;
            waiter.is_finished().then_some(())
        })
        .await;
        waiter.await.unwrap().is(ends);
        assert_eq!(stops(&gate, &id).await, 1, "{key}");
    }
}

//! Callers of the gate API beside work that somebody else has begun.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{counts, in_state, order, started, step, yaml};
use crate::harness::{Claimed, Gate, Hold, Receiver, Reply, Setup, at, eventually, secs};

#[tokio::test]
async fn a_caller_cannot_take_over_a_flow_that_has_begun() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: never"), step("two", "repeat: never")];
    // One at a time, so that work that is due can be met before the runner comes to it.
    let yaml = yaml("", &steps) + "runner: { concurrency: 1 }\n";
    let gate = started(&yaml, &receiver).await;
    let claim = in_state(&gate, 1, "error").await;
    let hold = Hold::new();
    receiver.script("/one", [Reply::held(&hold)]);
    order(&gate, "o_2").await;
    receiver.got("/one", 2).await;
    gate.advance_to(at(claim["due_at"].as_str().unwrap())).await;
    let caller = gate.api.claim("welcome", "o_1").await;
    let note = caller.is("stop in_progress").note.clone().unwrap();
    assert!(note.contains("steps have begun"), "{note}");
    assert_eq!(gate.api.find("welcome", "o_1").await.unwrap()["attempt"], 1, "nothing was taken");

    hold.let_go();
    in_state(&gate, 2, "done").await;
    eventually("the other one is done too", async || {
        gate.api.find("welcome", "o_2").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [2, 3]);
    let acted: Vec<_> = receiver.requests().into_iter().filter(|r| r.answered == Some(200)).collect();
    let keys: std::collections::BTreeSet<_> = acted.iter().map(|r| r.key()).collect();
    assert_eq!((acted.len(), keys.len()), (4, 4), "each step of each order acted once");
}

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

//! What is acknowledged does not depend on what the work behind it does.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::{Hold, Receiver, Reply, eventually, secs};
use crate::promises::{order, started, step, yaml};

#[tokio::test]
async fn while_every_step_hangs_all_that_is_sent_is_acknowledged_and_runs_once_later() {
    const ORDERS: usize = 300;
    let (receiver, hold) = (Receiver::start().await, Hold::new());
    receiver.always("/one", Reply::held(&hold));
    let yaml = yaml("", &[step("one", "repeat: by_key, timeout: 240s")]) + "runner: { concurrency: 8 }\n";
    let mut gate = started(&yaml, &receiver).await;
    // The first is there already. As many calls hang as there may be to one target.
    let hanging = async |count| {
        eventually("calls hang", async || (receiver.requests().len() == count).then_some(())).await
    };
    for number in 2..=ORDERS {
        order(&gate, &format!("o_{number}")).await;
    }
    hanging(4).await;
    // Nobody else answered for them: the queue is in the store, and outlasts the process.
    gate.crash();
    gate.reopen().await;
    assert_eq!(gate.api.order(&json!({ "order": "o_300" })).await.ok()["status"], "already accepted");
    receiver.always("/one", Reply::status(200));
    hold.let_go();
    eventually("each is done", async || {
        // What waits for its target waits for some seconds.
        gate.advance(secs(1)).await;
        (gate.api.list("state=done&limit=500").await.len() == ORDERS).then_some(())
    })
    .await;
    let orders: BTreeSet<_> =
        receiver.requests().iter().map(|request| request.json()["order"].to_string()).collect();
    assert_eq!(orders.len(), ORDERS);
    // What hung when the process ended is asked again under its key, and nothing else is.
    assert!(receiver.by_key().len() == ORDERS && receiver.requests().len() <= ORDERS + 8);
}

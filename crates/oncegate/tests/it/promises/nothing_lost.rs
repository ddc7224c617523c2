//! What is acknowledged does not depend on what the work behind it does.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::{Hold, Receiver, Reply, Setup, Signed, eventually, secs};
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

#[tokio::test]
async fn a_long_queue_for_a_target_that_hangs_stands_before_nobody_and_is_left_as_it_is() {
    const ORDERS: usize = 150;
    let (receiver, swift, hold) = (Receiver::start().await, Receiver::start().await, Hold::new());
    receiver.always("/one", Reply::held(&hold));
    let automation = |name: &str, at: &str| {
        format!(
            "  {name}: {{ steps: [{{ name: one, http: {{ url: '{at}/one' }}, repeat: by_key, timeout: 240s }}] }}\n"
        )
    };
    let source = |name: &str| {
        format!(
            "  {name}: {{ provider: hmac, automation: {name}, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}\n"
        )
    };
    let yaml = format!(
        "automations:\n{}{}sources:\n{}{}runner: {{ concurrency: 8 }}\n",
        automation("slow", "$RECEIVER"),
        automation("swift", &swift.url()),
        source("slow"),
        source("swift")
    );
    let yaml = format!("outgoing: {{ allow_private: ['127.0.0.1'] }}\n{yaml}");
    let gate = Setup::alone(&yaml.replace("$RECEIVER", &receiver.url())).start().await;
    let order_of = async |source: &str, key: &str| {
        gate.api.deliver(source, &Signed::order(&json!({ "order": key }))).await.ok();
    };
    for number in 1..=ORDERS {
        order_of("slow", &format!("s_{number}")).await;
    }
    eventually("calls hang", async || (receiver.requests().len() == 4).then_some(())).await;
    order_of("swift", "q_1").await;
    eventually("the other is done", async || {
        (gate.api.list("state=done&limit=500").await.len() == 1).then_some(())
    })
    .await;
    // Four hang, four waited for them in vain; nobody has touched the others.
    let untouched = gate.api.list("state=none&limit=500").await;
    let untouched = untouched.iter().filter(|claim| claim["attempt"] == 0).count();
    assert!(untouched >= ORDERS - 16, "{untouched}");
    receiver.always("/one", Reply::status(200));
    hold.let_go();
    eventually("each is done", async || {
        gate.advance(secs(1)).await;
        (gate.api.list("state=done&limit=500").await.len() == ORDERS + 1).then_some(())
    })
    .await;
    assert_eq!((receiver.by_key().len(), swift.by_key().len()), (ORDERS, 1));
}

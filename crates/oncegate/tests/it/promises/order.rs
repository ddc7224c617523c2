//! Events of one record run one after another in order of arrival, and nobody else waits for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli;
use crate::harness::{Hold, Receiver, Reply, Setup, Signed, eventually, mins, secs};

const YAML: &str = "
automations:
  profile:
    record: 'crm:{{ payload.who }}'
    loop_limit: { runs: 1000, within: 10m }
    steps:
      - { name: put, http: { url: '$RECEIVER/{{ payload.who }}', json: { seq: '{{ payload.seq }}' } }, repeat: by_key }
  deals:
    record: 'crm:{{ payload.who }}'
    loop_limit: { runs: 1000, within: 10m }
    steps:
      - { name: put, http: { url: '$RECEIVER/{{ payload.who }}', json: { seq: '{{ payload.seq }}' } }, repeat: by_key }
sources:
  orders: { provider: hmac, automation: profile, secret: env:ORDERS, hmac: { header: X-Signature }, key: [who, seq] }
  deals: { provider: hmac, automation: deals, secret: env:ORDERS, hmac: { header: X-Signature }, key: [who, seq] }
";

fn numbers(receiver: &Receiver, who: &str) -> Vec<i64> {
    receiver.to(&format!("/{who}")).iter().map(|r| r.json()["seq"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_written_in_order_of_arrival_while_others_go_on() {
    const EVENTS: i64 = 200;
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.script("/slow", [Reply::Held(hold.clone(), Box::new(Reply::status(200)))]);
    let gate = Setup::new(YAML, &receiver).start().await;
    let mut arrived: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for n in 0..EVENTS {
        let who = ["slow", "ann", "bob", "eve", "kim"][(n * n + n / 7) as usize % 5];
        // Two automations on one record are one line.
        let source = ["orders", "deals"][n as usize % 2];
        gate.api.deliver(source, &Signed::order(&json!({ "who": who, "seq": n }))).await.ok();
        arrived.entry(who).or_default().push(n);
    }
    let others: usize = arrived.iter().filter(|(who, _)| **who != "slow").map(|(_, n)| n.len()).sum();
    eventually("all but the slow one's are done", async || {
        (gate.api.list("state=done&limit=500").await.len() == others).then_some(())
    })
    .await;
    assert_eq!(numbers(&receiver, "slow").len(), 1, "its first is still at it");
    hold.let_go();
    eventually("all are done", async || {
        (gate.api.list("state=done&limit=500").await.len() == EVENTS as usize).then_some(())
    })
    .await;
    for (who, sent) in &arrived {
        assert_eq!(&numbers(&receiver, who), sent, "{who}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_events_wait_while_an_earlier_one_backs_off_and_go_on_after_its_final_error() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(YAML, &receiver).start().await;
    // Not taken, taken, and refused for good.
    receiver.script("/ann", [Reply::status(425), Reply::status(200), Reply::status(422)]);
    let send = async |who: &str, n: i64| {
        gate.api.order(&json!({ "who": who, "seq": n })).await.ok();
    };
    let found = async |key: &str, state: &str| {
        eventually(&format!("{key} is {state}"), async || {
            gate.api.find("profile", key).await.filter(|claim| claim["processing_state"] == state)
        })
        .await
    };
    send("ann", 1).await;
    found("ann:1", "error").await;
    send("ann", 2).await;
    send("bob", 3).await;
    found("bob:3", "done").await;
    gate.advance(secs(10)).await;
    let waits = found("ann:2", "none").await;
    assert_eq!(waits["waits_for"], json!({ "automation": "profile", "idempotency_key": "ann:1" }));
    assert_eq!(numbers(&receiver, "ann"), [1]);
    let said = cli::run(&gate, &["show", "profile", "ann:2"]).ok();
    assert!(said.contains("waits for    ann:1 of profile, which came earlier on this record"), "{said}");
    assert_eq!(gate.api.inbox().await["parked"], 0, "waiting is nobody's business");
    gate.advance(secs(30)).await;
    found("ann:2", "error").await;
    assert_eq!(numbers(&receiver, "ann"), [1, 1, 2], "the retry first");
    // The second failed for good; the third goes on, and whoever resets the second is told.
    send("ann", 4).await;
    found("ann:4", "done").await;
    let failed = found("ann:2", "error").await;
    let newer = json!({ "automation": "profile", "idempotency_key": "ann:4" });
    assert_eq!((&failed["overtaken_by"], &failed["waits_for"]), (&newer, &Value::Null));
    let said = cli::run(&gate, &["reset", "profile", "ann:2", "--reason", "the CRM is mended"]).ok();
    assert!(said.contains("warning: ann:4 of profile came later and has written this record"), "{said}");
    let id = failed["claim_id"].as_str().unwrap();
    let told = gate.api.run_now(id).await.ok();
    assert_eq!(told["overtaken_by"], newer);
    found("ann:2", "done").await;
    gate.advance(mins(5)).await;
    assert_eq!(numbers(&receiver, "ann"), [1, 1, 2, 4, 2]);
}

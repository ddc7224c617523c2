//! Promises that hold only as long as somebody looks: each test here fails without the line that keeps its promise.

mod acts;
mod callers;

use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Setup, at, eventually};

/// The automation `welcome` with a policy and steps, and the source that leads to it.
pub(crate) fn yaml(policy: &str, steps: &[String]) -> String {
    let steps: String = steps.iter().map(|step| format!("      - {step}\n")).collect();
    format!(
        "
automations:
  welcome:
    ttl: 10m
    {policy}
    steps:
{steps}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
"
    )
}

/// A step that posts to the path of its name.
pub(crate) fn step(name: &str, more: &str) -> String {
    format!("{{ name: {name}, http: {{ url: '$RECEIVER/{name}' }}, {more} }}")
}

pub(crate) async fn order(gate: &Gate, key: &str) {
    let said = gate.api.order(&json!({ "order": key })).await;
    assert_eq!(said.ok()["status"], "accepted");
}

/// A gate that was sent the order `o_1`.
pub(crate) async fn started(yaml: &str, receiver: &Receiver) -> Gate {
    let gate = Setup::new(yaml, receiver).start().await;
    order(&gate, "o_1").await;
    gate
}

/// Waits until an attempt at `o_1` has come to this state.
pub(crate) async fn in_state(gate: &Gate, attempt: u32, state: &str) -> Value {
    eventually(&format!("attempt {attempt} is {state}"), async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        (claim["processing_state"] == state && claim["attempt"] == attempt).then_some(claim)
    })
    .await
}

/// Lets time pass until its next try is due.
pub(crate) async fn until_due(gate: &Gate, claim: &Value) {
    gate.advance_to(at(claim["due_at"].as_str().expect("it has a due time"))).await;
}

pub(crate) fn id(claim: &Value) -> &str {
    claim["claim_id"].as_str().unwrap()
}

/// A person's plain reset that also starts it.
pub(crate) async fn reset_and_run(gate: &Gate, claim: &Value) {
    let json = json!({ "reason": "looked: it did not happen", "run_now": true });
    gate.api.act("reset", id(claim), &json).await.ok();
}

/// How many requests came to each of these paths.
pub(crate) fn counts<const N: usize>(receiver: &Receiver, paths: [&str; N]) -> [usize; N] {
    paths.map(|path| receiver.to(path).len())
}

//! Claims that wait for their holder.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::harness::{ADMIN, Claimed, Gate, Setup, eventually, secs};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

/// A claim that waits; ready once it was stopped for the first time.
async fn waiting(gate: &Gate, holder: &Claimed, claim: Value) -> JoinHandle<Claimed> {
    let before = stops(gate, holder).await;
    let api = gate.api.another();
    let task = tokio::spawn(async move { api.claim_with(&claim).await });
    eventually("the claim waits", async || (stops(gate, holder).await > before).then_some(())).await;
    task
}

async fn stops(gate: &Gate, holder: &Claimed) -> u64 {
    gate.api.show(&holder.claim_id).await["stopped"]["count"].as_u64().unwrap_or_default()
}

fn claim(wait: impl Into<Value>) -> Value {
    json!({ "automation": "story", "idempotency_key": "s_1", "wait": wait.into() })
}

#[tokio::test]
async fn a_parallel_claim_waits_for_its_holder_and_gets_the_result() {
    let gate = gate().await;
    let holder = gate.api.claim("story", "s_1").await;
    let mut waiters = vec![];
    for wait in [json!(25), json!("20"), json!("20s")] {
        waiters.push(waiting(&gate, &holder, claim(wait)).await);
    }
    gate.api.done_with(&holder, &json!({ "result": { "id": 9 } })).await.ok();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().is("stop duplicate").result, json!({ "id": 9 }));
    }
    assert_eq!(gate.api.show(&holder.claim_id).await["attempt"], 1);
}

#[tokio::test]
async fn a_wait_that_is_over_is_answered_with_what_is_so() {
    let gate = gate().await;
    let holder = gate.api.claim("story", "s_1").await;
    let waiter = waiting(&gate, &holder, claim(20)).await;
    gate.advance(secs(19)).await;
    assert!(!waiter.is_finished(), "not before its time");
    gate.advance(secs(1)).await;
    assert_eq!(waiter.await.unwrap().is("stop in_progress").retry_after_s, Some(580));
}

#[tokio::test]
async fn of_several_that_wait_one_runs_when_the_holder_is_reset() {
    let gate = gate().await;
    let holder = gate.api.claim("story", "s_1").await;
    let waiters = [waiting(&gate, &holder, claim(25)).await, waiting(&gate, &holder, claim(25)).await];
    let confirmed = json!({ "reason": "it hangs", "confirm_holder": "attempt-1" });
    gate.api.act("reset", &holder.claim_id, &confirmed).await.ok();
    let runner = eventually("one of them runs", async || {
        Some(gate.api.show(&holder.claim_id).await).filter(|claim| claim["attempt"] == 2)
    })
    .await;
    assert_eq!(runner["processing_state"], "processing");
    gate.advance(secs(25)).await;
    let mut words = vec![];
    for waiter in waiters {
        words.push(waiter.await.unwrap().words());
    }
    words.sort();
    assert_eq!(words, ["run first", "stop in_progress"]);
}

#[tokio::test]
async fn a_claim_waits_for_its_record_too() {
    let gate = gate().await;
    let claim = |key: &str, wait: u64| json!({ "automation": "story", "idempotency_key": key, "record": "crm:1", "wait": wait });
    let holder = gate.api.claim_with(&claim("s_1", 0)).await;
    let waiter = tokio::spawn({
        let (api, claim) = (gate.api.another(), claim("s_2", 25));
        async move { api.claim_with(&claim).await }
    });
    eventually("it waits", async || gate.api.find("story", "s_2").await).await;
    gate.api.done(&holder).await.ok();
    waiter.await.unwrap().is("run first");
    assert_eq!(gate.api.inbox().await["parked"], 0);
}

#[tokio::test]
async fn nothing_is_claimed_for_a_caller_that_hung_up_while_it_waited() {
    let gate = gate().await;
    let holder = gate.api.claim("story", "s_1").await;
    let host = gate.api.base().strip_prefix("http://").unwrap();
    let mut tcp = TcpStream::connect(host).await.unwrap();
    let path = "/v1/claims?automation=story&idempotency_key=s_1&wait=25";
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {ADMIN}\r\ncontent-length: 0\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await.unwrap();
    eventually("it waits", async || (stops(&gate, &holder).await == 1).then_some(())).await;
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    // Closed by the gate once it has let go of the call.
    let _ = tcp.read_to_string(&mut answer).await;
    assert_eq!(answer, "");

    let confirmed = json!({ "reason": "it hangs", "confirm_holder": "attempt-1" });
    gate.api.act("reset", &holder.claim_id, &confirmed).await.ok();
    gate.advance(secs(30)).await;
    let next = gate.api.claim("story", "s_1").await;
    assert_eq!(next.is("run first").attempt, 2, "nobody took the attempt in between");
}

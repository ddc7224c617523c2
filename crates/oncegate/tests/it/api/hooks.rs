//! `retrigger`: the tools of stopped callers are called back; and what is said where nobody calls them.

use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Reply, Setup, eventually, mins, secs};

const HOOKED: &str = "
automations:
  story:
    ttl: 10m
    retrigger: { url: '$RECEIVER/hook', headers: { X-Hook-Key: env:HOOK_KEY } }
  plain: { ttl: 10m }
";

async fn gate(receiver: &Receiver) -> Gate {
    Setup::new(HOOKED, receiver).var("HOOK_KEY", "s3cret-key").start().await
}

fn asks(key: &str) -> Value {
    json!({
        "automation": "story", "idempotency_key": key, "record": "crm:1",
        "run_url": "https://zapier.com/runs/1", "payload": { "email": "ann@example.com" },
    })
}

async fn kinds(gate: &Gate, id: &str) -> Vec<String> {
    let shown = gate.api.show(id).await;
    let rows = shown["history"].as_array().unwrap();
    rows.iter().map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_paused_callers_tool_is_called_with_what_it_sent_once_it_may_run() {
    let receiver = Receiver::start().await;
    let mut gate = gate(&receiver).await;
    assert_eq!(gate.api.pause("story").await.ok()["note"], Value::Null, "nobody has to replay anything");
    let stopped = gate.api.claim_with(&asks("k1")).await;
    stopped.is("stop paused");
    let shown = gate.api.show(&stopped.claim_id).await;
    assert_eq!((&shown["inbox"], &shown["parked"]), (&Value::Null, &Value::Null), "{shown}");
    assert!(shown["retrigger"]["due_at"].is_string(), "{shown}");
    gate.advance(mins(10)).await;
    gate.restart().await;
    assert!(receiver.to("/hook").is_empty(), "not while it is paused");
    gate.api.resume("story").await.ok();
    let call = receiver.got("/hook", 1).await.remove(0);
    let mut body = call.json();
    let ours = body.as_object_mut().unwrap().remove("oncegate").unwrap();
    assert_eq!(body, asks("k1"), "it can be sent again as it is");
    assert_eq!((&ours["claim_id"], &ours["reason"]), (&json!(stopped.claim_id), &json!("first")));
    assert_eq!(call.headers["x-hook-key"], "s3cret-key");
    assert!(!call.key().is_empty());

    // The tool claims by itself; then nobody is called any more.
    let run = gate.api.claim_with(&asks("k1")).await;
    run.is("run first");
    gate.advance(mins(5)).await;
    gate.api.done(&run).await.ok();
    gate.advance(mins(60)).await;
    assert_eq!(receiver.to("/hook").len(), 1);
    assert_eq!(kinds(&gate, &run.claim_id).await, ["stop", "retriggered", "run", "done"]);
}

#[tokio::test]
async fn a_tool_that_does_not_come_is_called_three_times_and_then_a_person_is() {
    let receiver = Receiver::start().await;
    receiver.script("/hook", [Reply::status(500), Reply::status(200), Reply::Reset]);
    let gate = gate(&receiver).await;
    gate.api.pause("story").await.ok();
    let id = gate.api.claim_with(&asks("k1")).await.claim_id;
    gate.api.resume("story").await.ok();
    gate.advance(secs(5)).await;
    for (count, wait) in [(1, mins(1)), (2, mins(5)), (3, mins(30))] {
        receiver.got("/hook", count).await;
        eventually("the call is written down", async || {
            (kinds(&gate, &id).await.iter().filter(|kind| *kind == "retriggered").count() == count)
                .then_some(())
        })
        .await;
        gate.advance(wait - secs(10)).await;
        assert_eq!(receiver.to("/hook").len(), count, "not before its time");
        gate.advance(secs(10)).await;
    }
    eventually("a person is to look", async || {
        (gate.api.show(&id).await["parked"] == "needs_replay").then_some(())
    })
    .await;
    let keys: std::collections::BTreeSet<_> =
        receiver.to("/hook").iter().map(|r| r.key().to_owned()).collect();
    assert_eq!(keys.len(), 3, "each call is one of its own");
    let told = kinds(&gate, &id).await;
    assert_eq!(told.iter().filter(|kind| *kind == "retrigger_failed").count(), 2, "{told:?}");
    assert_eq!(told.last().unwrap(), "retrigger_given_up");

    // Run now begins anew.
    assert_eq!(gate.api.run_now(&id).await.ok()["answer"], "queued");
    receiver.got("/hook", 4).await;
}

#[tokio::test]
async fn a_record_that_becomes_free_and_an_error_that_comes_due_call_the_tool() {
    let receiver = Receiver::start().await;
    let gate = gate(&receiver).await;
    let holder = json!({ "automation": "plain", "idempotency_key": "h", "record": "crm:1" });
    let holder = gate.api.claim_with(&holder).await;
    gate.api.claim_with(&asks("k1")).await.is("stop record_busy");
    for _ in 0..6 {
        gate.advance(secs(10)).await;
    }
    assert!(receiver.to("/hook").is_empty(), "the record is busy");
    gate.api.done(&holder).await.ok();
    eventually("the tool is called", async || {
        gate.advance(secs(5)).await;
        (!receiver.to("/hook").is_empty()).then_some(())
    })
    .await;
    let run = gate.api.claim_with(&asks("k1")).await;
    run.is("run first");
    let called = receiver.to("/hook").len();
    gate.api.error(&run, &json!({ "note": "CRM said 503", "retryable": true })).await.ok();
    eventually("the tool is called for its retry", async || {
        gate.advance(secs(5)).await;
        (receiver.to("/hook").len() > called).then_some(())
    })
    .await;
    let shown = gate.api.show(&run.claim_id).await;
    assert!(shown["due_at"].as_str().unwrap() <= gate.now().to_string().as_str(), "{shown}");
    gate.api.claim_with(&asks("k1")).await.is("run retry");
}

/// However many wait for a busy record, whoever stands behind them is not forgotten.
#[tokio::test]
async fn those_who_wait_for_a_record_do_not_keep_others_from_being_called() {
    let receiver = Receiver::start().await;
    let gate = gate(&receiver).await;
    let mut holders = vec![];
    for record in ["crm:1", "crm:2"] {
        let holder = json!({ "automation": "plain", "idempotency_key": record, "record": record });
        holders.push(gate.api.claim_with(&holder).await);
    }
    for n in 0..60 {
        gate.api.claim_with(&asks(&format!("k{n}"))).await.is("stop record_busy");
    }
    gate.advance(secs(1)).await;
    let mut last = asks("last");
    last["record"] = json!("crm:2");
    gate.api.claim_with(&last).await.is("stop record_busy");
    gate.api.done(&holders[1]).await.ok();
    for _ in 0..20 {
        gate.advance(secs(5)).await;
    }
    assert_eq!(receiver.got("/hook", 1).await[0].json()["idempotency_key"], "last");
}

#[tokio::test]
async fn one_that_cannot_be_read_keeps_nobody_from_being_called() {
    let receiver = Receiver::start().await;
    let gate = gate(&receiver).await;
    gate.api.pause("story").await.ok();
    for key in ["broken", "sound"] {
        let mut ask = asks(key);
        ask["record"] = json!(format!("crm:{key}"));
        gate.api.claim_with(&ask).await.is("stop paused");
        gate.advance(secs(1)).await;
    }
    let db = rusqlite::Connection::open(gate.database()).unwrap();
    db.execute("UPDATE claims SET record = '' WHERE idempotency_key = 'broken'", []).unwrap();
    gate.api.resume("story").await.ok();
    for _ in 0..5 {
        gate.advance(secs(5)).await;
    }
    assert_eq!(receiver.got("/hook", 1).await[0].json()["idempotency_key"], "sound");
}

#[tokio::test]
async fn where_nobody_calls_pausing_says_so_and_the_key_is_parked_with_its_run() {
    let gate = Setup::alone("automations: { plain: { ttl: 10m } }").start().await;
    let note = gate.api.pause("plain").await.ok()["note"].as_str().unwrap().to_owned();
    assert!(note.contains("needs_replay") && note.contains("by hand"), "{note}");
    let claim = json!({ "automation": "plain", "idempotency_key": "k", "run_url": "https://n8n.example/7" });
    let stopped = gate.api.claim_with(&claim).await;
    let shown = gate.api.show(&stopped.is("stop paused").claim_id).await;
    assert_eq!(shown["parked"], "needs_replay");
    assert_eq!(shown["run_url"], "https://n8n.example/7");
    assert_eq!(gate.api.resume("plain").await.ok()["note"], Value::Null);
    gate.api.run_now(&stopped.claim_id).await.problem(409, "no_runner");
}

#[tokio::test]
async fn a_hook_that_asks_to_wait_is_left_alone_by_all() {
    let receiver = Receiver::start().await;
    receiver.script("/hook", [Reply::retry_after(429, "120")]);
    let gate = gate(&receiver).await;
    for (key, calls) in [("k1", 1), ("k2", 1)] {
        gate.api.pause("story").await.ok();
        let asks = json!({ "automation": "story", "idempotency_key": key });
        let id = gate.api.claim_with(&asks).await.is("stop paused").claim_id.clone();
        gate.api.resume("story").await.ok();
        gate.advance(secs(45)).await;
        receiver.got("/hook", calls).await;
        if key == "k1" {
            eventually("it was told", async || {
                kinds(&gate, &id).await.contains(&"retrigger_failed".to_owned()).then_some(())
            })
            .await;
        } else {
            assert!(!kinds(&gate, &id).await.contains(&"retriggered".to_owned()), "nothing was sent");
        }
    }
    // The first one's turn comes again, too.
    eventually("both are called", async || {
        gate.advance(secs(5)).await;
        (receiver.to("/hook").len() >= 3).then_some(())
    })
    .await;
    receiver.got("/hook", 3).await;
}

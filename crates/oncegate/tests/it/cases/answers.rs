//! What the second one is told: the loser of a race, the sender of an edited form, the node whose clock runs ahead.

use serde_json::json;

use crate::harness::{Receiver, Setup, WELCOME, at, eventually, mins, secs};

#[tokio::test]
async fn c08_an_edited_submission_is_neither_run_nor_dropped_in_silence() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let order =
        |revision: u32, phone: &str| json!({ "order": "s_3001", "revision": revision, "phone": phone });
    gate.api.order(&order(1, "100")).await.ok();
    let done = eventually("the first is done", async || {
        gate.api.find("welcome", "s_3001").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
    assert_eq!(gate.api.order(&order(2, "200")).await.ok()["status"], "stored, not run: payload mismatch");
    gate.advance(mins(5)).await;
    assert_eq!(receiver.requests().len(), 1, "the contact is written once");
    assert_eq!(gate.api.keys_in("mismatch").await, ["s_3001"]);
    // What came is there for whoever has to judge it.
    let shown = gate.api.show(done["claim_id"].as_str().unwrap()).await;
    let edited = shown["deliveries"].as_array().unwrap().iter().find(|d| d["verdict"] == "mismatch").unwrap();
    let body = gate.api.get(&format!("/v1/rejected/{}", edited["id"])).await.ok()["body"].clone();
    assert!(body.as_str().unwrap().contains("\"200\""), "{body}");
}

#[tokio::test]
async fn c08_with_the_revision_in_its_key_an_edit_is_an_update() {
    let receiver = Receiver::start().await;
    let gate =
        Setup::new(&WELCOME.replace("key: [order]", "key: [order, revision]"), &receiver).start().await;
    for revision in [1, 2] {
        for _ in 0..2 {
            gate.api.order(&json!({ "order": "s_3001", "revision": revision })).await.ok();
        }
    }
    receiver.got("/send", 2).await;
    gate.advance(mins(5)).await;
    assert_eq!(receiver.requests().len(), 2, "each revision once");
    assert_eq!(gate.api.inbox().await["mismatch"], 0);
}

#[tokio::test]
async fn c17_the_losers_of_the_first_request_race_get_an_honest_answer() {
    let gate = Setup::alone("").start().await;
    let ask =
        json!({ "automation": "lead", "idempotency_key": "k-1", "payload": { "email": "ana@example.com" } });
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (api, ask) = (gate.api.another(), ask.clone());
        asked.spawn(async move { api.claim_with(&ask).await });
    }
    let answers = asked.join_all().await;
    let (ran, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.decision == "run");
    assert_eq!((ran.len(), lost.len()), (1, 19));
    for loser in &lost {
        assert_eq!(loser.is("stop in_progress").claim_id, ran[0].claim_id, "no made-up id");
        assert!(loser.retry_after_s.is_some_and(|s| s > 0), "{loser:?}");
    }
    let stopped = gate.api.post("/v1/claims?stop_status=409", &ask).await;
    assert_eq!((stopped.status, stopped.header("retry-after").is_some()), (409, true));

    gate.api.done_with(&ran[0], &json!({ "result": { "contact": 7 } })).await.ok();
    let third = gate.api.claim_with(&ask).await;
    assert_eq!(third.is("stop duplicate").result, json!({ "contact": 7 }));
}

/// On SQLite one process owns the store, so that a second node is a second caller whose own clock nobody asks.
#[tokio::test]
async fn c33_a_lease_is_written_and_judged_by_the_stores_clock_alone() {
    let gate = Setup::alone("automations: { sync: { ttl: 5m } }")
        .starts_at(at("2026-01-05T12:00:00Z"))
        .start()
        .await;
    let first = gate.api.claim("sync", "c_1").await;
    assert_eq!(first.is("run first").processing_started_at.as_deref(), Some("2026-01-05T12:00:00.000Z"));
    gate.advance(secs(150)).await;
    // Three minutes ahead, this node would take the lease of five minutes for over.
    let mut request = gate.api.request(reqwest::Method::POST, "/v1/claims");
    request =
        request.header("date", "Mon, 05 Jan 2026 12:05:30 GMT").header("content-type", "application/json");
    let body = json!({ "automation": "sync", "idempotency_key": "c_1" }).to_string();
    let second = crate::harness::send(request.body(body)).await.ok();
    assert_eq!((&second["decision"], &second["reason"]), (&json!("stop"), &json!("in_progress")));
    assert_eq!(second["processing_started_at"], "2026-01-05T12:00:00.000Z");
    assert_eq!(second["retry_after_s"], 150, "the age is 2:30 by the store");
    // A time of its own is not taken at all.
    let own = json!({ "automation": "sync", "idempotency_key": "c_2", "processing_started_at": "2026-01-05T12:05:30Z" });
    gate.api.post("/v1/claims", &own).await.problem(422, "invalid_field");
}

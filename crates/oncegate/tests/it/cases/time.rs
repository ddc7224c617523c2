//! Memory and clocks.

use serde_json::json;

use crate::harness::{Gate, Receiver, Setup, WELCOME, at, eventually, hours, mins, secs};

async fn nine_o_clock(yaml: &str, receiver: &Receiver) -> Gate {
    Setup::new(yaml, receiver).starts_at(at("2026-01-05T09:00:00Z")).start().await
}

#[tokio::test]
async fn c07_done_is_remembered_long_after_the_ttl() {
    let receiver = Receiver::start().await;
    let gate = nine_o_clock(WELCOME, &receiver).await;
    let owner = gate.api.claim("welcome", "f_contact:s_1001").await;
    gate.api.done(&owner).await.ok();
    let order = json!({ "order": "s_1001" });
    gate.api.order(&order).await.ok();
    receiver.got("/send", 1).await;
    eventually("the order is done", async || {
        gate.api.find("welcome", "s_1001").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;

    let shown = gate.api.show(&owner.claim_id).await;
    assert_eq!(shown["done_at"], json!(at("2026-01-05T09:00:00Z")));
    assert_eq!(shown["remembered_until"], json!(at("2026-04-05T09:00:00Z")), "90 days unless set otherwise");
    for time in
        ["2026-01-05T09:11:00Z", "2026-01-06T11:00:00Z", "2026-01-08T09:00:00Z", "2026-04-05T08:00:00Z"]
    {
        // Time passes; a clock that is merely set ahead proves nothing.
        gate.clock.advance(at(time).since(gate.now()));
        gate.advance(secs(15)).await;
        gate.api.claim("welcome", "f_contact:s_1001").await.is("stop duplicate");
        assert_eq!(gate.api.order(&order).await.ok()["status"], "already accepted");
    }
    assert_eq!(receiver.requests().len(), 1);

    // Past retention it is not taken for new in silence.
    gate.jump(hours(2));
    gate.advance(mins(11)).await;
    let again = gate.api.claim("welcome", "f_contact:s_1001").await;
    again.is("run first_after_retention");
    let history = gate.api.show(&again.claim_id).await["history"].clone();
    assert_eq!(history.as_array().unwrap().last().unwrap()["reason"], "first_after_retention");
}

#[tokio::test]
async fn c34_processing_started_at_in_the_future_is_no_three_hour_lock() {
    let yaml = "automations: { sync: { ttl: 10m, sla: 1h } }";
    let gate = Setup::alone(yaml).starts_at(at("2026-01-05T15:00:00Z")).start().await;
    let first = gate.api.claim("sync", "c_1").await;
    assert_eq!(first.is("run first").processing_started_at.as_deref(), Some("2026-01-05T15:00:00.000Z"));
    // Somebody mends the clock, which was three hours ahead.
    gate.clock.set_wall(at("2026-01-05T12:00:00Z"));

    let second = gate.api.claim("sync", "c_1").await;
    let note = second.is("stop in_progress").note.clone().unwrap();
    assert!(note.contains("clock problem") && note.contains("3 h ahead"), "{note}");
    assert!(second.retry_after_s.unwrap() <= 600, "{second:?}");

    gate.advance(mins(1)).await;
    assert_eq!(gate.api.inbox().await["stuck"], 1);
    let [row] = gate.api.list("inbox=stuck").await.try_into().unwrap();
    assert_eq!(
        row["processing_started_at"],
        json!(at("2026-01-05T15:00:00Z")),
        "shown as it is, not dropped"
    );
    let note = row["note"].as_str().unwrap();
    assert!(note.contains("clock problem") && note.contains("2 h 59 min ahead"), "{note}");

    // The TTL counts from when the store saw it, whatever the clocks say.
    gate.advance(mins(8) + secs(59)).await;
    gate.api.claim("sync", "c_1").await.is("stop in_progress");
    gate.advance(secs(2)).await;
    let taken = gate.api.claim("sync", "c_1").await;
    taken.is("run stale_retry");
    gate.api.done(&first).await.problem(409, "lost_claim");
    gate.api.done(&taken).await.ok();
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_makes_nothing_stale() {
    let gate = Setup::alone("automations: { sync: { ttl: 10m } }").start().await;
    let owner = gate.api.claim("sync", "c_1").await;
    gate.jump(hours(7));
    gate.advance(mins(9)).await;
    gate.api.claim("sync", "c_1").await.is("stop in_progress");
    assert_eq!(gate.api.inbox().await["stuck"], 0);
    gate.api.done(&owner).await.ok();
}

#[tokio::test]
async fn the_gates_own_downtime_makes_nothing_stale() {
    let mut gate = Setup::alone("automations: { sync: { ttl: 10m } }").start().await;
    let owner = gate.api.claim("sync", "c_1").await;
    gate.advance(mins(9)).await;
    gate.crash();
    gate.clock.advance(hours(3));
    gate.reopen().await;
    gate.api.claim("sync", "c_1").await.is("stop in_progress");
    gate.api.done(&owner).await.ok();
}

//! Work that lasts: longer than its TTL, over restarts, over pauses.

use serde_json::{Value, json};

use crate::harness::{Gate, Hold, Receiver, Reply, Setup, at, eventually, mins, secs};
use crate::promises::{in_state, started, step, until_due, yaml};

/// Waits until `o_1` waits for as long as its target asked for.
async fn deferred(gate: &Gate) -> Value {
    eventually("it waits", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        (claim["processing_state"] == "processing" && claim["due_at"].is_string()).then_some(claim)
    })
    .await
}

#[tokio::test]
async fn a_step_that_lasts_longer_than_the_ttl_is_kept_alive_by_the_runner() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.always("/one", Reply::held(&hold));
    let yaml =
        yaml("ttl_override: true", &[step("one", "repeat: by_key, timeout: 240s")]).replace("10m", "60s");
    let gate = started(&yaml, &receiver).await;
    receiver.got("/one", 1).await;
    for _ in 0..48 {
        gate.advance(secs(5)).await;
        // A third of the lease passes between two heartbeats; another third is patience with a busy machine.
        eventually("its lease is renewed", async || {
            let claimed = gate.api.claim("welcome", "o_1").await;
            let left = claimed.is("stop in_progress").retry_after_s.unwrap();
            (left >= 20).then_some(())
        })
        .await;
        assert_eq!(gate.api.inbox().await["stuck"], 0);
    }
    hold.let_go();
    let claim = in_state(&gate, 1, "done").await;
    assert_eq!((&claim["stale_retries_used"], &claim["late_at"]), (&json!(0), &json!(null)));
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn a_stop_hands_back_nothing_that_a_hook_has_taken() {
    let receiver = Receiver::start().await;
    // Its run has begun, and its answer has not come when the gate is told to stop.
    receiver.script("/hook", [Reply::Silence]);
    let hook = "{ name: hand over, forward: { url: '$RECEIVER/hook' }, repeat: by_key, timeout: 240s }";
    let mut gate = started(&yaml("", &[hook.to_owned()]), &receiver).await;
    let sent = receiver.got("/hook", 1).await[0].json();
    gate.stop().await;
    gate.reopen().await;
    let claim = in_state(&gate, 1, "processing").await;
    assert_eq!((&claim["holder"], &claim["due_at"]), (&json!("attempt-1"), &json!(null)));
    gate.advance(mins(5)).await;
    let done = gate.api.press(sent["oncegate"]["done_url"].as_str()).await.ok();
    assert_eq!((&done["answer"], &done["processing_state"]), (&json!("accepted"), &json!("done")));
    gate.advance(mins(30)).await;
    assert_eq!(receiver.requests().len(), 1);
    assert_eq!(gate.api.inbox().await["late"], 0);
}

#[tokio::test]
async fn a_wait_that_the_target_asked_for_goes_on_over_a_restart() {
    for crash in [false, true] {
        let receiver = Receiver::start().await;
        receiver.script("/one", [Reply::retry_after(503, "1800")]);
        let mut gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
        receiver.looks_at(&gate.clock);
        let claim = deferred(&gate).await;
        let due = claim["due_at"].clone();
        assert_eq!(due, json!(at("2026-01-05T10:30:00Z")));
        match crash {
            true => gate.crash(),
            false => gate.stop().await,
        }
        gate.clock.advance(mins(2));
        gate.reopen().await;
        assert_eq!(deferred(&gate).await["due_at"], due);
        gate.advance_to(at("2026-01-05T10:29:55Z")).await;
        assert_eq!(receiver.requests().len(), 1);
        assert_eq!(deferred(&gate).await["attempt"], 1);
        until_due(&gate, &claim).await;
        let claim = in_state(&gate, 2, "done").await;
        assert_eq!((&claim["retries_used"], &claim["stale_retries_used"]), (&json!(0), &json!(0)));
        assert_eq!(receiver.got("/one", 2).await[1].at, Some(at("2026-01-05T10:30:00Z")));
    }
}

#[tokio::test]
async fn waits_that_the_target_asked_for_are_not_counted_as_crashes() {
    let receiver = Receiver::start().await;
    let waits = (0..4).map(|_| Reply::retry_after(429, "60"));
    receiver.script("/one", waits.chain([Reply::Silence, Reply::status(200)]));
    let mut gate = started(&yaml("", &[step("one", "repeat: by_key, timeout: 240s")]), &receiver).await;
    for sent in 1..=4 {
        receiver.got("/one", sent).await;
        until_due(&gate, &deferred(&gate).await).await;
    }
    receiver.got("/one", 5).await;
    gate.crash();
    gate.reopen().await;
    in_state(&gate, 6, "done").await;
    assert_eq!((receiver.requests().len(), receiver.by_key().len()), (6, 1));
}

#[tokio::test]
async fn what_is_not_taken_up_any_more_says_that_a_call_of_it_is_unknown() {
    let receiver = Receiver::start().await;
    receiver.always("/one", Reply::Silence);
    let mut gate = started(&yaml("", &[step("one", "repeat: by_key, timeout: 240s")]), &receiver).await;
    for sent in 1..=4 {
        receiver.got("/one", sent).await;
        gate.crash();
        gate.reopen().await;
    }
    let claim = in_state(&gate, 4, "error").await;
    assert_eq!((&claim["error_cause"], &claim["due_at"]), (&json!("outcome_unknown"), &json!(null)));
    let note = claim["note"].as_str().unwrap();
    assert!(note.starts_with("outcome unknown: ") && note.contains("look whether it happened"), "{note}");
    assert_eq!(
        claim["history"].as_array().unwrap().last().unwrap()["note"],
        note,
        "the history says it, too"
    );
    let calls = claim["calls"].as_array().unwrap();
    assert!(calls.len() == 4 && calls.iter().all(|call| call["outcome"] == "unknown"), "{calls:?}");
    assert_eq!(receiver.requests().len(), 4, "and nobody sends it again");
}

#[tokio::test]
async fn a_deferred_claim_outlives_a_pause_longer_than_its_ttl() {
    for policy in ["on_stale: retry_once", "on_stale: hold"] {
        let receiver = Receiver::start().await;
        receiver.script("/one", [Reply::retry_after(429, "60")]);
        let gate = started(&yaml(policy, &[step("one", "repeat: never")]), &receiver).await;
        deferred(&gate).await;
        gate.api.pause("welcome").await.ok();
        gate.advance(mins(30)).await;
        assert!(gate.api.inbox().await.values().all(|n| *n == 0), "{policy}: nobody need look");
        gate.api.claim("welcome", "o_1").await.is("stop in_progress");
        assert_eq!(receiver.requests().len(), 1);
        gate.api.resume("welcome").await.ok();
        let claim = in_state(&gate, 2, "done").await;
        assert_eq!(
            (&claim["retries_used"], &claim["stale_retries_used"]),
            (&json!(0), &json!(0)),
            "{policy}"
        );
        assert_eq!(receiver.requests().len(), 2, "{policy}");
    }
}

#[tokio::test]
async fn a_token_of_a_claim_that_was_forgotten_does_not_fit_the_next_one_of_its_key() {
    let gate = Setup::alone("automations: { story: { ttl: 10m, retention: 1d } }").start().await;
    let old = gate.api.claim("story", "s_1").await;
    gate.api.done(&old).await.ok();
    gate.clock.advance(mins(25 * 60));
    gate.advance(mins(11)).await;
    eventually("it is forgotten", async || gate.api.find("story", "s_1").await.is_none().then_some(())).await;

    let new = gate.api.claim("story", "s_1").await;
    assert_eq!(new.is("run first_after_retention").attempt, 1, "counted anew, as that of the old token");
    assert_eq!(new.claim_id, old.claim_id);
    assert_ne!(new.token, old.token);
    gate.api.done(&old).await.problem(409, "lost_claim");
    gate.api.error(&old, &json!({ "note": "boom" })).await.problem(409, "lost_claim");
    gate.api.heartbeat(&old).await.problem(409, "lost_claim");
    assert_eq!(gate.api.show(&new.claim_id).await["processing_state"], "processing");
    gate.api.claim("story", "s_1").await.is("stop in_progress");
    assert_eq!(gate.api.done(&new).await.ok()["answer"], "accepted");
}

//! What people do: each act needs a reason, is audited, and voids tokens where it must.

use serde_json::{Value, json};

use crate::harness::{Claimed, Gate, Receiver, Setup, WELCOME, eventually};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

/// A claim in each state that a caller can bring about.
async fn claim_in(gate: &Gate, state: &str) -> Claimed {
    let claimed = gate.api.claim("story", state).await;
    match state {
        "error" => drop(gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok()),
        "done" => drop(gate.api.done_with(&claimed, &json!({ "result": 1 })).await.ok()),
        "none" => {
            gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
            gate.api.reset(&claimed.claim_id).await.ok();
        }
        _ => {}
    }
    claimed
}

#[tokio::test]
async fn each_act_leads_where_it_says_or_refuses_with_the_way_on() {
    let reason = |more: Value| {
        let mut json = json!({ "reason": "looked at it", "by": "Ann" });
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json
    };
    let confirm = json!({ "confirm_holder": "attempt-1" });
    for (act, more, state, expected) in [
        ("reset", json!({}), "error", Ok("none")),
        ("reset", json!({}), "processing", Err("live_holder")),
        ("reset", confirm.clone(), "processing", Ok("none")),
        ("reset", json!({}), "done", Err("needs_verified")),
        ("reset", confirm, "done", Err("needs_verified")),
        ("reset", json!({ "verified": "true" }), "done", Ok("none")),
        ("mark-error", json!({ "tag": "mass-dup-7" }), "none", Ok("error")),
        ("mark-error", json!({ "tag": "mass-dup-7" }), "processing", Ok("error")),
        ("mark-error", json!({ "tag": "mass-dup-7" }), "done", Ok("error")),
        ("mark-error", json!({ "tag": "mass-dup-7" }), "error", Ok("error")),
        ("mark-done", json!({}), "error", Ok("done")),
        ("mark-done", json!({}), "none", Err("nothing_to_do")),
        ("mark-done", json!({}), "processing", Err("nothing_to_do")),
        ("mark-done", json!({}), "done", Err("nothing_to_do")),
        ("dismiss", json!({}), "none", Ok("none")),
        ("dismiss", json!({}), "error", Ok("none")),
        ("dismiss", json!({}), "processing", Err("live_holder")),
        ("dismiss", json!({}), "done", Err("nothing_to_do")),
    ] {
        let gate = gate().await;
        let claimed = claim_in(&gate, state).await;
        let before = gate.api.show(&claimed.claim_id).await;
        let acts = gate.api.audit().await.len();
        let said = gate.api.act(act, &claimed.claim_id, &reason(more.clone())).await;
        let name = format!("{act} {more} of {state}");
        match expected {
            Ok(state) => {
                assert_eq!(said.ok()["processing_state"], state, "{name}");
                let row = gate.api.last_act().await;
                assert_eq!(row["action"], act.replace('-', "_"), "{name}");
                assert_eq!(
                    (&row["actor"], &row["reason"]),
                    (&json!("Ann (token:admin)"), &json!("looked at it"))
                );
                assert_eq!(row["subject"], claimed.claim_id);
                let history = gate.api.show(&claimed.claim_id).await["history"].clone();
                let last = history.as_array().unwrap().last().unwrap().clone();
                assert_eq!((&last["kind"], &last["actor"]), (&row["action"], &row["actor"]), "{name}");
                assert_eq!(history[0], before["history"][0], "nothing that happened is forgotten");
                // Whatever a person did, the token of before does not count any more.
                if state != "done" || before["processing_state"] != "done" {
                    gate.api.done(&claimed).await.problem(409, "lost_claim");
                }
            }
            Err(code) => {
                said.problem(409, code);
                assert_eq!(gate.api.show(&claimed.claim_id).await, before, "{name}: nothing changed");
                let audit = gate.api.audit().await;
                assert_eq!(audit.len(), acts, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_marked_error_names_its_tag_and_waits_for_a_person() {
    let gate = gate().await;
    let claimed = claim_in(&gate, "done").await;
    let mark = json!({ "reason": "the import ran twice", "tag": "mass-dup-7" });
    gate.api.act("mark-error", &claimed.claim_id, &mark).await.ok();
    let [row] = gate.api.list("inbox=error").await.try_into().unwrap();
    assert_eq!(row["note"], "mass-dup-7: the import ran twice");
    assert_eq!((&row["error_cause"], &row["due_at"]), (&json!("marked_after_done"), &json!(null)));
    gate.api.claim("story", "done").await.is("stop needs_review");
}

#[tokio::test]
async fn what_was_dismissed_does_not_run_until_it_is_reset() {
    let gate = gate().await;
    let claimed = claim_in(&gate, "error").await;
    let why = json!({ "reason": "the customer withdrew" });
    gate.api.act("dismiss", &claimed.claim_id, &why).await.ok();
    gate.api.claim("story", "error").await.is("stop dismissed");
    assert!(gate.api.inbox().await.values().all(|n| *n == 0));
    gate.api.act("dismiss", &claimed.claim_id, &why).await.problem(409, "nothing_to_do");
    gate.api.reset(&claimed.claim_id).await.ok();
    gate.api.claim("story", "error").await.is("run first");
}

#[tokio::test]
async fn a_reset_of_a_callers_claim_says_that_its_run_must_be_replayed() {
    let gate = gate().await;
    let claim =
        json!({ "automation": "story", "idempotency_key": "s_1", "run_url": "https://zapier.com/r/1" });
    let claimed = gate.api.claim_with(&claim).await;
    gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
    gate.api.reset(&claimed.claim_id).await.ok();
    let [row] = gate.api.list("inbox=parked").await.try_into().unwrap();
    assert_eq!((&row["parked"], &row["run_url"]), (&json!("needs_replay"), &json!("https://zapier.com/r/1")));
    gate.api.claim("story", "s_1").await.is("run first");
    assert_eq!(gate.api.inbox().await["parked"], 0);
}

#[tokio::test]
async fn mark_done_says_that_it_did_happen_and_duplicates_are_stopped() {
    let gate = gate().await;
    let claimed = claim_in(&gate, "error").await;
    gate.api.act("mark-done", &claimed.claim_id, &json!({ "reason": "seen in the CRM" })).await.ok();
    gate.api.claim("story", "error").await.is("stop duplicate");
    assert!(gate.api.show(&claimed.claim_id).await["remembered_until"].is_string());
}

#[tokio::test]
async fn reset_with_run_now_runs_what_oncegate_holds() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    let done = async |attempt: u32| {
        eventually("it is done", async || {
            let claim = gate.api.find("welcome", "o_1").await?;
            (claim["processing_state"] == "done" && claim["attempt"] == attempt).then_some(claim)
        })
        .await
    };
    let claim = done(1).await;
    let again = json!({ "reason": "was merged away", "verified": true, "run_now": true });
    gate.api.act("reset", claim["claim_id"].as_str().unwrap(), &again).await.ok();
    done(2).await;
    assert_eq!(gate.api.last_act().await["action"], "reset_and_run");
    let requests = receiver.got("/send", 2).await;
    assert_eq!(requests[0].body, requests[1].body);
}

#[tokio::test]
async fn pausing_is_audited_once_and_stops_new_runs_only() {
    let gate = gate().await;
    let owner = gate.api.claim("story", "s_1").await;
    for (verb, changed) in [("pause", true), ("pause", false), ("resume", true), ("resume", false)] {
        let path = format!("/v1/automations/Story/{verb}");
        let said = gate.api.post(&path, &json!({ "reason": "incident 7", "by": "Ann" })).await.ok();
        assert_eq!((&said["automation"], &said["changed"]), (&json!("story"), &json!(changed)));
        assert_eq!(said["paused"], verb == "pause");
        if verb == "pause" {
            gate.api.claim("story", "s_1").await.is("stop in_progress");
            gate.api.claim("story", "s_2").await.is("stop paused");
            gate.api.heartbeat(&owner).await.ok();
        }
    }
    let audit = gate.api.audit().await;
    let rows: Vec<_> = audit.iter().map(|row| (&row["action"], &row["subject"])).collect();
    let story = json!("story");
    assert_eq!(rows, [(&json!("resume"), &story), (&json!("pause"), &story)]);
    assert_eq!(
        (&audit[0]["actor"], &audit[0]["reason"]),
        (&json!("Ann (token:admin)"), &json!("incident 7"))
    );
    gate.api.claim("story", "s_2").await.is("run first");
}

//! What stays known whatever people press.

use serde_json::json;

use super::{id, in_state, started, step, yaml};
use crate::harness::{Hold, Receiver, Reply, Setup, mins};

#[tokio::test]
async fn what_was_dismissed_after_it_was_done_still_needs_verified_to_run_again() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let owner = gate.api.claim("story", "s_1").await;
    gate.api.done(&owner).await.ok();
    let why = json!({ "reason": "one of many", "tag": "mass-dup-7" });
    gate.api.act("mark-error", &owner.claim_id, &why).await.ok();
    let looked = json!({ "reason": "looked at it" });
    gate.api.act("dismiss", &owner.claim_id, &looked).await.ok();
    gate.api.claim("story", "s_1").await.is("stop dismissed");
    gate.api.reset(&owner.claim_id).await.problem(409, "needs_verified");
    gate.api.claim("story", "s_1").await.is("stop dismissed");
    let verified = json!({ "reason": "must happen again", "verified": true });
    gate.api.act("reset", &owner.claim_id, &verified).await.ok();
    gate.api.claim("story", "s_1").await.is("run first");
}

#[tokio::test]
async fn a_flow_that_was_marked_and_dismissed_after_it_was_done_is_not_started_by_run_now() {
    let receiver = Receiver::start().await;
    let gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
    let claim = in_state(&gate, 1, "done").await;
    let why = json!({ "reason": "one of many", "tag": "mass-dup-7" });
    gate.api.act("mark-error", id(&claim), &why).await.ok();
    gate.api.run_now(id(&claim)).await.problem(409, "needs_verified");
    gate.api.act("dismiss", id(&claim), &json!({ "reason": "looked at it" })).await.ok();
    gate.api.run_now(id(&claim)).await.problem(409, "needs_verified");
    gate.api.reset(id(&claim)).await.problem(409, "needs_verified");
    gate.advance(mins(30)).await;
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn what_is_marked_while_a_call_is_on_its_way_tells_that_nobody_knows_of_it() {
    let (receiver, hold) = (Receiver::start().await, Hold::new());
    receiver.script("/one", [Reply::held(&hold)]);
    let gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
    receiver.got("/one", 1).await;
    let claim = in_state(&gate, 1, "processing").await;
    let why = json!({ "reason": "it looks wrong", "tag": "wrong-form" });
    let marked = gate.api.act("mark-error", claim["claim_id"].as_str().unwrap(), &why).await.ok();
    assert_eq!(marked["error_cause"], "marked", "what the person said of it stays");
    let marked = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
    assert_eq!(marked["calls"][0]["outcome"], "unknown", "{marked}");
    // Another payload under its key only says so, and changes nothing of that.
    let other = gate.api.order(&json!({ "order": "o_1", "note": "another" })).await;
    assert_eq!(other.ok()["status"], "stored, not run: payload mismatch");
    let shown = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
    assert_eq!((&shown["error_cause"], &shown["note"]), (&json!("marked"), &marked["note"]));
    hold.let_go();
    assert_eq!(receiver.requests().len(), 1);
}

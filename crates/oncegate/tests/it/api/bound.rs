//! A token that is bound to one automation: others look as if they did not exist.

use serde_json::json;

use crate::harness::{Gate, Setup, eventually};

async fn gate() -> Gate {
    let gate = Setup::alone("automations: { ours: { ttl: 10m }, theirs: { ttl: 10m } }").start().await;
    for automation in ["ours", "theirs"] {
        for n in 0..3 {
            let claimed = gate.api.claim(automation, &format!("{automation} {n}")).await;
            gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
        }
    }
    gate
}

#[tokio::test]
async fn it_finds_counts_and_exports_its_own_only() {
    let gate = gate().await;
    let bound = gate.bound_to("ours").await;
    assert_eq!(bound.list("inbox=error").await.len(), 3);
    assert_eq!(bound.list("automation=theirs").await.len(), 0);
    assert_eq!(bound.list("q=theirs").await.len(), 0);
    let groups = bound.get("/v1/claims/groups?by=automation").await.ok();
    assert_eq!((&groups["total"], &groups["groups"][0]["automation"]), (&json!(3), &json!("ours")));
    let automations = bound.get("/v1/automations").await.ok();
    assert_eq!(automations["automations"].as_array().unwrap().len(), 1);
    let file = bound.get("/v1/claims/export").await.ok();
    let file = file.as_str().unwrap();
    assert_eq!((file.lines().count(), file.contains("theirs")), (4, false));
    let id = gate.api.list("automation=theirs").await[0]["claim_id"].as_str().unwrap().to_owned();
    bound.get(&format!("/v1/claims/{id}/history")).await.problem(404, "not_found");
    bound.act("tag", &id, &json!({ "reason": "r", "tag": "t" })).await.problem(404, "not_found");
}

#[tokio::test]
async fn it_acts_on_its_own_only_and_sees_its_own_acts_only() {
    let gate = gate().await;
    let bound = gate.bound_to("ours").await;
    let mut act = json!({ "action": "reset", "filter": { "inbox": "error" }, "reason": "r" });
    assert_eq!(bound.post("/v1/bulk", &act).await.ok()["matched"], 3);
    act["expect"] = 3.into();
    let id = bound.post("/v1/bulk", &act).await.ok()["bulk_id"].clone();
    eventually("it is finished", async || {
        (bound.get(&format!("/v1/bulk/{id}")).await.ok()["state"] == "finished").then_some(())
    })
    .await;
    assert_eq!(gate.api.list("inbox=error").await.len(), 3, "theirs stay");
    let admins =
        json!({ "action": "dismiss", "filter": { "automation": "theirs" }, "reason": "r", "expect": 3 });
    let theirs = gate.api.post("/v1/bulk", &admins).await.ok()["bulk_id"].clone();
    for path in [format!("/v1/bulk/{theirs}"), format!("/v1/bulk/{theirs}/claims")] {
        bound.get(&path).await.problem(404, "not_found");
    }
    bound.post(&format!("/v1/bulk/{theirs}/undo"), &json!({ "reason": "r" })).await.problem(404, "not_found");
    bound.get("/v1/bulk").await.problem(403, "forbidden");
    bound
        .post("/v1/automations/ours/rename", &json!({ "to": "x", "reason": "r" }))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn its_batch_answers_403_to_the_items_of_others() {
    let gate = gate().await;
    let bound = gate.bound_to("ours").await;
    let claim = |automation: &str| json!({ "automation": automation, "idempotency_key": "new" });
    let claims = json!({ "claims": [claim("theirs"), claim("ours")] });
    let results = bound.post("/v1/claims/batch", &claims).await.ok()["results"].clone();
    assert_eq!((&results[0]["status"], &results[0]["code"]), (&json!(403), &json!("forbidden")));
    assert_eq!((&results[1]["status"], &results[1]["decision"]), (&json!(200), &json!("run")));
    assert_eq!(gate.api.list("automation=theirs&state=processing").await.len(), 0);
}

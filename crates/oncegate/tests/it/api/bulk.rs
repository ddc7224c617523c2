//! Acts on many claims, as a person does them: count, look, act, undo.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Setup, WELCOME, eventually, json_body, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

async fn failed(gate: &Gate, keys: impl Iterator<Item = u32>) -> Vec<String> {
    let mut ids = Vec::new();
    for n in keys {
        let claimed = gate.api.claim("story", &format!("s_{n}")).await;
        gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
        ids.push(claimed.claim_id);
    }
    ids
}

async fn finished(gate: &Gate, id: &Value) -> Value {
    eventually("the act is finished", async || {
        let bulk = gate.api.get(&format!("/v1/bulk/{id}")).await.ok();
        (bulk["state"] == "finished").then_some(bulk)
    })
    .await
}

fn reset_errors() -> Value {
    json!({ "action": "reset", "filter": { "inbox": "error" }, "reason": "the CRM is back", "by": "Ann" })
}

fn expecting(mut body: Value, n: u32) -> Value {
    body["expect"] = n.into();
    body
}

#[tokio::test]
async fn a_bulk_act_is_counted_first_and_done_only_to_that_many() {
    let gate = gate().await;
    let ids = failed(&gate, 0..5).await;
    let done = gate.api.claim("story", "done").await;
    gate.api.done(&done).await.ok();
    for more in [json!({}), json!({ "dry_run": true, "expect": 5 })] {
        let mut body = reset_errors();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let count = gate.api.post("/v1/bulk", &body).await.ok();
        let expected =
            json!({ "dry_run": true, "matched": 5, "would_act": 5, "would_refuse": {}, "too_many": false });
        assert_eq!(count, expected);
    }
    let mut everything = reset_errors();
    everything["filter"] = json!({ "automation": "story" });
    let count = gate.api.post("/v1/bulk", &everything).await.ok();
    assert_eq!((&count["would_act"], &count["would_refuse"]), (&json!(5), &json!({ "needs_verified": 1 })));
    assert_eq!(gate.api.inbox().await["error"], 5, "counting does nothing");
    assert_eq!(gate.api.audit().await.len(), 0);

    let changed =
        gate.api.post("/v1/bulk", &expecting(reset_errors(), 4)).await.problem(409, "count_changed");
    assert_eq!(changed["matched"], 5);
    let begun = gate.api.post("/v1/bulk", &expecting(reset_errors(), 5)).await.ok();
    let bulk = finished(&gate, &begun["bulk_id"]).await;
    assert_eq!((&bulk["matched"], &bulk["acted"], &bulk["refused"]), (&json!(5), &json!(5), &json!({})));
    assert_eq!(bulk["filter"], json!({ "inbox": "error" }));
    for id in &ids {
        let claim = gate.api.show(id).await;
        assert_eq!((&claim["processing_state"], &claim["parked"]), (&json!("none"), &json!("needs_replay")));
        let last = claim["history"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&last["kind"], &last["actor"]), (&json!("reset"), &json!("Ann (token:admin)")));
        assert_eq!(last["note"], format!("the CRM is back (bulk {})", begun["bulk_id"]));
    }
    let [row] = gate.api.audit().await.try_into().unwrap();
    assert_eq!((&row["action"], &row["subject"]), (&json!("bulk_reset"), &json!("bulk 1")));
    assert_eq!(gate.api.get("/v1/bulk").await.ok()["bulk"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_undo_says_of_each_claim_what_became_of_it() {
    let gate = gate().await;
    let ids = failed(&gate, 0..4).await;
    let begun = gate.api.post("/v1/bulk", &expecting(reset_errors(), 4)).await.ok();
    finished(&gate, &begun["bulk_id"]).await;
    let again = gate.api.claim("story", "s_2").await;
    gate.api.done(&again).await.ok();
    let path = format!("/v1/bulk/{}/undo", begun["bulk_id"]);
    let undo = gate.api.post(&path, &json!({ "reason": "wrong list" })).await.ok();
    let undo = finished(&gate, &undo["bulk_id"]).await;
    assert_eq!(
        (&undo["reversed"], &undo["kept"], &undo["failed"]),
        (&json!(3), &json!({ "changed_since": 1 }), &json!(0))
    );
    let claims = gate.api.get(&format!("/v1/bulk/{}/claims", undo["bulk_id"])).await.ok();
    let fates: Vec<_> = claims["claims"].as_array().unwrap().iter().map(|c| c["fate"].clone()).collect();
    assert_eq!(fates, ["reversed", "reversed", "kept", "reversed"]);
    assert_eq!(gate.api.show(&ids[2]).await["processing_state"], "done");
    assert_eq!(gate.api.show(&ids[0]).await["note"], "boom");
    let again = gate.api.post(&path, &json!({ "reason": "twice" })).await.ok();
    assert_eq!(again, undo, "once");
    let of = gate.api.get(&format!("/v1/bulk/{}", begun["bulk_id"])).await.ok();
    assert_eq!(of["undone_by"], undo["bulk_id"]);
    let path = format!("/v1/bulk/{}/undo", undo["bulk_id"]);
    gate.api.post(&path, &json!({ "reason": "no" })).await.problem(409, "not_undone");
    gate.api.post("/v1/bulk/99/undo", &json!({ "reason": "no" })).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_repeated_bulk_reset_with_one_key_acts_once() {
    let gate = gate().await;
    failed(&gate, 0..3).await;
    let post = async || {
        let request = json_body(gate.api.request(Method::POST, "/v1/bulk"), &expecting(reset_errors(), 3));
        send(request.header("idempotency-key", "mend-1")).await
    };
    let first = post().await.ok();
    finished(&gate, &first["bulk_id"]).await;
    failed(&gate, 0..3).await;
    let again = post().await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.ok(), first);
    assert_eq!(gate.api.inbox().await["error"], 3, "those that failed since");
    assert_eq!(gate.api.get("/v1/bulk").await.ok()["bulk"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn thousands_that_run_now_run_a_few_at_a_time() {
    let receiver = Receiver::start().await;
    let target = receiver.address;
    let yaml =
        format!("runner: {{ concurrency: 4 }}\ntargets: {{ '{target}': {{ concurrency: 4 }} }}\n{WELCOME}");
    let gate = Setup::new(&yaml, &receiver).start().await;
    receiver.always("/send", crate::harness::Reply::status(400));
    for n in 0..60 {
        gate.api.order(&json!({ "order": format!("o_{n}") })).await.ok();
    }
    eventually("all of them failed", async || (gate.api.inbox().await["error"] == 60).then_some(())).await;
    let hold = crate::harness::Hold::new();
    receiver.always("/send", crate::harness::Reply::held(&hold));
    let sent = receiver.requests().len();
    let run =
        json!({ "action": "run_now", "filter": { "inbox": "error" }, "reason": "mended", "expect": 60 });
    let begun = gate.api.post("/v1/bulk", &run).await.ok();
    let bulk = finished(&gate, &begun["bulk_id"]).await;
    assert_eq!(bulk["acted"], 60);
    eventually("the runner is busy", async || (receiver.requests().len() == sent + 4).then_some(())).await;
    assert_eq!(gate.api.list("state=processing").await.len(), 4, "no herd");
    hold.let_go();
    eventually("all are done", async || (gate.api.list("state=done").await.len() == 60).then_some(())).await;
    assert_eq!(receiver.requests().len(), sent + 60, "each once");
}

#[tokio::test]
async fn what_a_bulk_act_needs_is_named() {
    let gate = gate().await;
    let filter = json!({ "inbox": "error" });
    for (body, field) in [
        (json!({ "filter": filter }), "action"),
        (json!({ "action": "delete", "filter": filter }), "action"),
        (json!({ "action": "reset" }), "filter"),
        (json!({ "action": "reset", "filter": {} }), "filter"),
        (json!({ "action": "reset", "filter": { "older_than": "1h" } }), "filter"),
        (json!({ "action": "reset", "filter": "all" }), "filter"),
        (json!({ "action": "reset", "filter": { "statee": "error" } }), "statee"),
        (json!({ "action": "reset", "filter": { "state": "broken" } }), "state"),
        (json!({ "action": "reset", "filter": filter, "tag": "x" }), "tag"),
        (json!({ "action": "dismiss", "filter": filter, "verified": true }), "verified"),
        (json!({ "action": "mark_error", "filter": filter }), "tag"),
        (json!({ "action": "reset", "filter": filter, "expect": 1 }), "reason"),
        (json!({ "action": "reset", "filter": filter, "expect": -1 }), "expect"),
    ] {
        let problem = gate.api.post("/v1/bulk", &body).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
}

#[tokio::test]
async fn who_waits_for_a_claim_is_told_when_a_bulk_act_decides_it() {
    let gate = gate().await;
    let holder = gate.api.claim("story", "s_1").await;
    let api = gate.api.another();
    let waiting = tokio::spawn(async move {
        api.claim_with(&json!({ "automation": "story", "idempotency_key": "s_1", "wait": 25 })).await
    });
    eventually("the claim waits", async || {
        let stopped = gate.api.show(&holder.claim_id).await["stopped"].clone();
        stopped.is_object().then_some(())
    })
    .await;
    let mark = json!({
        "action": "mark_error", "tag": "dup", "filter": { "state": "processing" }, "reason": "twins", "expect": 1
    });
    gate.api.post("/v1/bulk", &mark).await.ok();
    // Time stands still here: only a ring can end the wait.
    waiting.await.unwrap().is("stop needs_review");
    gate.api.done(&holder).await.problem(409, "lost_claim");
}

//! One person's data: handed out whole, forgotten whole, and nothing of it in the audit.

use super::*;
use crate::harness::{Signed, eventually, query};

const ANN: &str = "ann@example.com";

async fn told(gate: &Gate) {
    let hers = json!({ "email": "Ann@Example.com", "course": "pottery" });
    let held = gate
        .api
        .claim_with(&json!({ "automation": "shared", "idempotency_key": "order-1", "payload": hers.clone() }))
        .await;
    gate.api.done_with(&held, &json!({ "result": { "contact": ANN } })).await.ok();
    let held = gate.api.claim("shared", &format!("form:{ANN}")).await;
    gate.api.press(held.error_url.as_deref()).await.ok();
    let bob = json!({ "automation": "shared", "idempotency_key": "order-2", "payload": { "email": "bob@x.example" } });
    let held = gate.api.claim_with(&bob).await;
    gate.api.done(&held).await.ok();
}

fn hers() -> Value {
    json!({ "match": { "email": ANN }, "reason": "ticket 4711" })
}

#[tokio::test]
async fn one_persons_data_is_handed_out_and_nobody_elses() {
    let gate = two().await;
    told(&gate).await;
    let said = gate.api.post("/v1/person", &hers()).await;
    let rows = lines(&said);
    let keys: Vec<_> = rows.iter().map(|row| row["idempotency_key"].as_str().unwrap_or("end")).collect();
    assert_eq!(keys, ["order-1", "form:ann@example.com", "end"]);
    assert_eq!(rows[0]["payload"]["course"], "pottery");
    assert_eq!(rows[0]["result"]["contact"], ANN);
    assert!(rows[0]["history"].as_array().unwrap().len() >= 2);
    assert_eq!(rows[2]["claims"], 2);
    assert!(!said.body.to_string().contains("bob@"));
    // As a form has it.
    let form = query(&[("match", &json!({ "email": ANN }).to_string())]);
    let form = gate.api.request(Method::POST, "/v1/person").body(form);
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(lines(&send(form).await).len(), 3);
}

#[tokio::test]
async fn forgetting_counts_first_then_leaves_nothing_but_a_hash_that_stops_repeats() {
    let mut gate = two().await;
    told(&gate).await;
    let mut dry = hers();
    dry["dry_run"] = true.into();
    let counted = gate.api.post("/v1/forget", &dry).await.ok();
    assert_eq!(
        (&counted["claims"], &counted["live"], &counted["dry_run"]),
        (&json!(2), &json!(0), &json!(true))
    );
    assert_eq!(lines(&gate.api.post("/v1/person", &hers()).await).len(), 3, "nothing is gone yet");
    let said = gate.api.post("/v1/forget", &hers()).await.ok();
    assert_eq!((&said["forgotten"], &said["live"]), (&json!(2), &json!(0)));
    assert_eq!(lines(&gate.api.post("/v1/person", &hers()).await).len(), 1);
    // The same events again are known as such: nothing runs a second time because somebody was forgotten.
    gate.api.claim("shared", "order-1").await.is("stop duplicate");
    gate.api.claim("shared", &format!("form:{ANN}")).await.is("stop dismissed");
    gate.api.claim("shared", "order-2").await.is("stop duplicate");
    for path in ["/v1/claims", "/v1/audit", "/v1/workspaces/default/export"] {
        let said = gate.api.get(path).await;
        assert!(!said.body.to_string().to_lowercase().contains("ann@"), "{path}");
    }
    let act = gate.api.get("/v1/audit?action=forget").await.ok()["audit"][0].clone();
    assert_eq!((&act["reason"], &act["detail"]), (&json!("ticket 4711"), &json!("2 claims, 0 deliveries")));
    assert!(act["subject"].as_str().unwrap().starts_with("person "), "{act}");
    // Nor in the file, once the log is written back.
    gate.stop().await;
    #[expect(clippy::disallowed_methods, reason = "the test looks at what the disk holds")]
    let file = std::fs::read(gate.database()).unwrap();
    let holds = |needle: &str| {
        file.to_ascii_lowercase().windows(needle.len()).any(|window| window == needle.as_bytes())
    };
    assert!(!holds(ANN), "it is overwritten, not only unlinked");
    assert!(holds("bob@x.example"));
    gate.reopen().await;
}

#[tokio::test]
async fn what_is_live_is_not_forgotten() {
    let gate = two().await;
    told(&gate).await;
    let live = gate.api.claim("shared", &format!("again:{ANN}")).await;
    let problem = gate.api.post("/v1/forget", &hers()).await.problem(409, "still_live");
    assert_eq!(problem["claims"], json!([live.claim_id]));
    assert_eq!(lines(&gate.api.post("/v1/person", &hers()).await).len(), 4, "nothing was forgotten");
    gate.api.done(&live).await.ok();
    gate.api.post("/v1/forget", &hers()).await.ok();
}

#[tokio::test]
async fn one_key_is_forgotten_by_its_name() {
    let gate = two().await;
    told(&gate).await;
    let by_key = json!({ "automation": "shared", "idempotency_key": "order-2", "reason": "ticket 1" });
    let said = gate.api.post("/v1/forget", &by_key).await.ok();
    assert_eq!(said["forgotten"], 1);
    gate.api.claim("shared", "order-2").await.is("stop duplicate");
    let unknown = json!({ "automation": "shared", "idempotency_key": "nope", "reason": "r" });
    gate.api.post("/v1/forget", &unknown).await.problem(404, "not_found");
}

#[tokio::test]
async fn deliveries_that_never_ran_are_found_and_forgotten() {
    let gate = two().await;
    let body = json!({ "email": ANN }).to_string();
    gate.api
        .deliver("acme/orders", &Signed::hmac("wrong", body.clone()))
        .await
        .problem(401, "invalid_signature");
    gate.api.deliver("acme/orders", &Signed::hmac("orders-secret", body)).await.ok();
    let admin = acme(&gate).await;
    assert_eq!(admin.inbox().await["rejected"], 2);
    assert_eq!(lines(&admin.post("/v1/person", &hers()).await).len(), 3);
    assert_eq!(lines(&gate.api.post("/v1/person", &hers()).await).len(), 1, "it is another workspace's");
    let said = admin.post("/v1/forget", &hers()).await.ok();
    assert_eq!((&said["deliveries"], &said["forgotten"]), (&json!(2), &json!(2)));
    eventually("they are gone", async || (admin.inbox().await["rejected"] == 0).then_some(())).await;
}

#[tokio::test]
async fn what_would_match_everybody_or_name_somebody_for_ever_is_refused() {
    let gate = two().await;
    for (fields, field) in [
        (json!({ "reason": "r" }), "match"),
        (json!({ "match": {}, "reason": "r" }), "match"),
        (json!({ "match": { "email": " " }, "reason": "r" }), "match"),
        (json!({ "match": "ann", "reason": "r" }), "match"),
        (json!({ "match": { "email": ["x"] }, "reason": "r" }), "match"),
        (json!({ "match": { "email": ANN } }), "reason"),
        (json!({ "match": { "email": ANN }, "reason": "asked by ann@example.com" }), "reason"),
        (json!({ "match": { "email": ANN }, "reason": "r", "by": "Ann@example.com" }), "by"),
        (json!({ "match": { "email": ANN }, "automation": "shared", "reason": "r" }), "match"),
        (json!({ "idempotency_key": "k", "reason": "r" }), "match"),
        (
            json!({ "automation": "shared", "idempotency_key": "order-1", "reason": "order-1 asked" }),
            "reason",
        ),
    ] {
        let problem = gate.api.post("/v1/forget", &fields).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{fields}");
    }
}

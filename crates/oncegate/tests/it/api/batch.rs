//! Many claims in one call.

use oncegate_core::limits;
use serde_json::{Value, json};

use crate::harness::{Gate, Setup};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

fn item(key: &str) -> Value {
    json!({ "automation": "story", "idempotency_key": key })
}

async fn batch(gate: &Gate, claims: Value) -> Vec<Value> {
    let said = gate.api.post("/v1/claims/batch", &json!({ "claims": claims })).await;
    assert_eq!(said.header("cache-control"), Some("no-store"));
    said.ok()["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn each_item_is_answered_in_order_and_a_bad_one_is_its_own_422() {
    let gate = gate().await;
    let done = gate.api.claim("story", "done").await;
    gate.api.done_with(&done, &json!({ "result": { "contact": "crm-7" } })).await.ok();
    let results = batch(
        &gate,
        json!([
            item("new"),
            { "automation": "story" },
            item("done"),
            "no claim",
            { "automation": "story", "idempotency_key": "w", "wait": 5 },
            { "automation": "story", "idempotency_key": "w", "ttll": "5m" },
            item("new"),
            { "automation": "story", "key_fields": { "form": "f", "id": 7 } },
        ]),
    )
    .await;
    let told: Vec<_> = results
        .iter()
        .map(|r| match r["status"].as_u64() {
            Some(200) => format!("{} {}", r["decision"].as_str().unwrap(), r["reason"].as_str().unwrap()),
            _ => format!("{} {}", r["status"], r["field"].as_str().unwrap_or_default()),
        })
        .collect();
    let expected = [
        "run first",
        "422 idempotency_key",
        "stop duplicate",
        "422 claims",
        "422 wait",
        "422 ttll",
        "stop in_progress",
        "run first",
    ];
    assert_eq!(told, expected);
    assert_eq!(results[1]["code"], "invalid_field");
    assert_eq!(results[2]["result"], json!({ "contact": "crm-7" }));
    assert_eq!(results[7]["idempotency_key"], "form=f:id=7");
    // The answers are as good as those of single claims.
    gate.api.press(results[0]["done_url"].as_str()).await.ok();
    gate.api.claim("story", "new").await.is("stop duplicate");
    assert_eq!(gate.api.list("").await.len(), 3, "nothing was stored of what was refused");
}

#[tokio::test]
async fn a_batch_is_as_large_as_it_may_be_and_no_larger() {
    let gate = gate().await;
    let of = |n: usize| -> Value { (0..n).map(|n| item(&format!("k{n}"))).collect() };
    for (claims, rule) in [
        (of(limits::BATCH_CLAIMS_MAX + 1), "it holds 501"),
        (json!([]), "it holds 0"),
        (json!({}), "must be a list"),
        (json!(null), "is missing"),
    ] {
        let said = gate.api.post("/v1/claims/batch", &json!({ "claims": claims })).await;
        let problem = said.problem(422, "invalid_field");
        assert!(problem["detail"].as_str().unwrap().contains(rule), "{problem}");
        assert_eq!(problem["field"], "claims");
    }
    assert_eq!(gate.api.list("").await.len(), 0);
    let results = batch(&gate, of(limits::BATCH_CLAIMS_MAX)).await;
    assert!(results.iter().all(|r| r["decision"] == "run"));
    assert_eq!(results.len(), 500);
}

#[tokio::test]
async fn a_batch_of_five_mebibytes_is_read() {
    let gate = gate().await;
    let with = |size: usize| {
        let mut claim = item("large");
        claim["payload"] = "x".repeat(size).into();
        json!([claim])
    };
    assert_eq!(batch(&gate, with(4 * 1024 * 1024)).await[0]["decision"], "run");
    let said = gate.api.post("/v1/claims/batch", &json!({ "claims": with(5 * 1024 * 1024) })).await;
    said.problem(413, "body_too_large");
}

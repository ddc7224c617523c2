//! Notices, as callers and people meet them.

use serde_json::json;

use crate::harness::{Receiver, Setup, WELCOME, mins};

#[tokio::test]
async fn a_misspelt_automation_is_told_to_the_caller_and_to_people() {
    let gate = Setup::new(WELCOME, &Receiver::start().await).start().await;
    let typo = gate.api.claim("wellcome", "k1").await;
    let note = typo.is("run first").note.clone().unwrap();
    assert!(note.contains("`wellcome`") && note.contains("the nearest known name is `welcome`"), "{note}");
    assert_eq!(gate.api.claim("wellcome", "k2").await.note, None);

    let notices = gate.api.get("/v1/notices").await.ok();
    let notice = &notices["notices"][0];
    assert_eq!(notices["notices"].as_array().unwrap().len(), 1);
    assert_eq!((&notice["kind"], &notice["subject"]), (&json!("new_automation"), &json!("wellcome")));
    let path = format!("/v1/notices/{}/dismiss", notice["id"]);
    gate.api.post(&path, &json!({})).await.problem(422, "invalid_field");
    gate.api.post(&path, &json!({ "reason": "renamed there" })).await.ok();
    gate.api.post(&path, &json!({ "reason": "again" })).await.problem(409, "nothing_to_do");
    gate.api.post("/v1/notices/99/dismiss", &json!({ "reason": "none" })).await.problem(404, "not_found");
    assert_eq!(gate.api.get("/v1/notices").await.ok()["notices"], json!([]));
    let all = gate.api.get("/v1/notices?dismissed=true").await.ok();
    assert!(all["notices"][0]["dismissed_by"].as_str().unwrap().contains("admin"), "{all}");
    assert_eq!(gate.api.last_act().await["action"], "dismiss_notice");
}

#[tokio::test]
async fn a_constant_run_id_is_told_at_the_first_claim_that_brings_it() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let claim = |key: &str| json!({ "automation": "story", "idempotency_key": key, "run_id": "my-zap" });
    let first = gate.api.claim_with(&claim("k1")).await;
    assert_eq!(first.note, None);
    gate.api.done(&first).await.ok();
    gate.advance(mins(61)).await;
    let second = gate.api.claim_with(&claim("k2")).await;
    let note = second.is("run first").note.clone().unwrap();
    assert!(note.starts_with("run_id looks constant"), "{note}");
    gate.api.claim_with(&claim("k2")).await.is("stop in_progress");
    let notice = gate.api.get("/v1/notices").await.ok()["notices"][0].clone();
    assert_eq!((&notice["kind"], &notice["count"]), (&json!("constant_run_id"), &json!(2)), "{notice}");
}

#[tokio::test]
async fn who_is_not_let_in_leaves_no_notice() {
    let gate = Setup::new(WELCOME, &Receiver::start().await).start().await;
    let stranger = crate::harness::Client::new(gate.api.base(), "a-token-that-nobody-made");
    let claim = json!({ "automation": "wellcome", "idempotency_key": "k" });
    stranger.post("/v1/claims", &claim).await.problem(401, "invalid_credentials");
    gate.api.post("/v1/claims", &json!({ "automation": "welcom" })).await.problem(422, "invalid_field");
    assert_eq!(gate.api.get("/v1/notices").await.ok()["notices"], json!([]));
}

#[tokio::test]
async fn a_run_url_is_a_web_address_that_carries_no_password() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let long = format!("https://zapier.com/{}", "x".repeat(2_048));
    let at = "https://zapier.com/@team/run";
    for (url, fine) in [
        ("https://zapier.com/runs/1", true),
        ("http://n8n.internal:5678/execution/7?x=a@b", true),
        (at, true),
        ("https://ann:pw@zapier.com/runs/1", false),
        ("https://ann@zapier.com\\/runs", false),
        ("javascript:alert(1)", false),
        ("ftp://zapier.com/", false),
        ("https:///runs", false),
        ("https://zapier.com/a b", false),
        (&long, false),
    ] {
        let claim =
            json!({ "automation": "story", "idempotency_key": url.get(..40).unwrap_or(url), "run_url": url });
        let said = gate.api.post("/v1/claims", &claim).await;
        match fine {
            true => assert_eq!(said.ok()["decision"], "run", "{url}"),
            false => assert_eq!(said.problem(422, "invalid_field")["field"], "run_url", "{url}"),
        }
    }
    assert_eq!(
        gate.api.get("/v1/claims").await.ok()["claims"].as_array().unwrap().len(),
        3,
        "nothing stored"
    );
}

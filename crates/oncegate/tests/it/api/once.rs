//! The gate's own writes, repeated under one `Idempotency-Key`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Said, Setup, WELCOME, hours, json_body, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

async fn post(gate: &Gate, key: &str, path: &str, json: &Value) -> Said {
    send(json_body(gate.api.request(Method::POST, path), json).header("idempotency-key", key)).await
}

async fn failed(gate: &Gate, key: &str) -> String {
    let claimed = gate.api.claim("story", key).await;
    gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
    claimed.claim_id
}

#[tokio::test]
async fn a_repeated_reset_acts_once_and_is_answered_the_same() {
    let mut gate = gate().await;
    let id = failed(&gate, "s_1").await;
    let path = format!("/v1/claims/{id}/reset");
    let why = json!({ "reason": "the CRM is back", "by": "Ann" });
    let first = post(&gate, "r-1", &path, &why).await;
    assert_eq!(first.header("idempotent-replayed"), None);
    let first = first.ok();
    // It failed again meanwhile; a second reset would hide that.
    let again = gate.api.claim("story", "s_1").await;
    gate.api.error(again.is("run first"), &json!({ "note": "boom" })).await.ok();
    gate.restart().await;
    for spelling in ["r-1", "\"r-1\"", " r-1 "] {
        let repeat = post(&gate, spelling, &path, &why).await;
        assert_eq!(repeat.header("idempotent-replayed"), Some("true"));
        assert_eq!(repeat.header("content-type"), Some("application/json"));
        assert_eq!(repeat.ok(), first);
    }
    assert_eq!(gate.api.show(&id).await["processing_state"], "error");
    let resets = gate.api.audit().await;
    assert_eq!(resets.iter().filter(|row| row["action"] == "reset").count(), 1);

    // Another body, another call: refused, and nothing done.
    let other = json!({ "reason": "the CRM is back", "by": "Bob" });
    post(&gate, "r-1", &path, &other).await.problem(422, "idempotency_key_reused");
    let path_2 = format!("/v1/claims/{id}/dismiss");
    post(&gate, "r-1", &path_2, &why).await.problem(422, "idempotency_key_reused");
    assert_eq!(gate.api.show(&id).await["dismissed"], false);
    post(&gate, "r-2", &path, &other).await.ok();

    gate.advance_wall(hours(25));
    let other = json!({ "reason": "a day later", "by": "Bob" });
    let said = post(&gate, "r-1", &path, &other).await;
    assert_eq!((said.status, said.header("idempotent-replayed")), (200, None));
}

#[tokio::test]
async fn a_refusal_is_judged_anew() {
    let gate = gate().await;
    let held = gate.api.claim("story", "s_1").await;
    let path = format!("/v1/claims/{}/reset", held.claim_id);
    let why = json!({ "reason": "why" });
    post(&gate, "r", &path, &why).await.problem(409, "live_holder");
    gate.api.error(&held, &json!({ "note": "boom" })).await.ok();
    assert_eq!(post(&gate, "r", &path, &why).await.ok()["processing_state"], "none");
}

#[tokio::test]
async fn two_at_the_same_moment_are_one() {
    let gate = gate().await;
    let id = failed(&gate, "s_1").await;
    let (path, why) = (format!("/v1/claims/{id}/reset"), json!({ "reason": "why" }));
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let request = json_body(gate.api.another().request(Method::POST, &path), &why);
        posts.spawn(send(request.header("idempotency-key", "r")));
    }
    let answers: Vec<_> = posts.join_all().await;
    let replayed = answers.iter().filter(|said| said.header("idempotent-replayed").is_some()).count();
    assert_eq!(replayed, 7);
    let bodies: Vec<_> = answers.into_iter().map(Said::ok).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");
    let history = gate.api.show(&id).await["history"].clone();
    assert_eq!(history.as_array().unwrap().iter().filter(|row| row["kind"] == "reset").count(), 1);
}

/// Every write that takes the header: written once, replayed once.
#[tokio::test]
async fn every_act_takes_the_header() {
    let receiver = Receiver::start().await;
    let yaml = WELCOME.replace("automations:", "automations:\n  story: { ttl: 10m }");
    let gate = Setup::new(&yaml, &receiver).start().await;
    gate.api.order(&json!({ "n": 1 })).await.ok();
    let claim = |id: &str, verb: &str| format!("/v1/claims/{id}/{verb}");
    let ids = [failed(&gate, "a").await, failed(&gate, "b").await, failed(&gate, "c").await];
    let rejected = gate.api.rejected().await[0]["id"].clone();
    let why = json!({ "reason": "why" });
    let tagged = json!({ "reason": "why", "tag": "twins" });
    for (path, body, ok) in [
        (claim(&ids[0], "reset"), why.clone(), true),
        (claim(&ids[1], "mark-done"), why.clone(), true),
        (claim(&ids[1], "mark-error"), tagged.clone(), true),
        (claim(&ids[2], "dismiss"), why.clone(), true),
        (claim(&ids[2], "tag"), tagged, true),
        ("/v1/automations/story/pause".into(), why.clone(), true),
        ("/v1/automations/story/resume".into(), why.clone(), true),
        (format!("/v1/rejected/{rejected}/release"), why.clone(), false),
    ] {
        let acts = gate.api.audit().await.len();
        let said = post(&gate, &path, &path, &body).await;
        assert_eq!(said.status == 200, ok, "{path}: {}", said.body);
        let written = gate.api.audit().await.len();
        assert_eq!(written, acts + usize::from(ok), "{path}");
        let again = post(&gate, &path, &path, &body).await;
        assert_eq!(again.header("idempotent-replayed").is_some(), ok, "{path}");
        // A refusal is judged anew, so it has a request id of its own.
        let told = |said: Said| if ok { said.body } else { said.body["code"].clone() };
        assert_eq!((again.status, told(again)), (said.status, told(said)), "{path}");
        assert_eq!(gate.api.audit().await.len(), written, "{path}");
    }
}

#[tokio::test]
async fn a_header_that_names_no_key_is_400_and_nothing_is_done() {
    let gate = gate().await;
    let id = failed(&gate, "s_1").await;
    let path = format!("/v1/claims/{id}/reset");
    for value in ["", "\"", "a,b", &"x".repeat(513)] {
        post(&gate, value, &path, &json!({ "reason": "why" })).await.problem(400, "invalid_idempotency_key");
    }
    let two = json_body(gate.api.request(Method::POST, &path), &json!({ "reason": "why" }));
    let two = two.header("idempotency-key", "abc").header("idempotency-key", "abd");
    send(two).await.problem(400, "invalid_idempotency_key");
    assert_eq!(gate.api.show(&id).await["processing_state"], "error");
}

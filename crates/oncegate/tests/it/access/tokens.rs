//! Tokens: made, shown once, listed without their secret, ended by time or by a person.

use super::*;
use crate::harness::{ADMIN, hours, mins};

#[tokio::test]
async fn a_token_is_shown_once_and_works_until_it_expires() {
    let gate = two().await;
    let fields =
        json!({ "name": " Zap of the form ", "role": "caller", "automations": "Shared", "expires_in": "2h" });
    let made = gate.api.post("/v1/tokens", &fields).await.ok();
    let token = made["token"].as_str().unwrap();
    assert!(token.starts_with("oga_") && token.len() >= 36, "{token}");
    assert_eq!((&made["name"], &made["role"]), (&json!("Zap of the form"), &json!("caller")));
    assert_eq!((&made["automations"], &made["note"]), (&json!(["shared"]), &json!(null)));
    let zap = Client::new(gate.api.base(), token);
    zap.claim("shared", "k").await.is("run first");
    let listed = gate.api.get("/v1/tokens").await.ok();
    assert!(!listed.to_string().contains(token), "only its hash is kept");
    let row =
        listed["tokens"].as_array().unwrap().iter().find(|t| t["token_id"] == made["token_id"]).unwrap();
    assert_eq!((&row["good"], &row["created_by"]), (&json!(true), &json!("token:admin")));
    let own = zap.get("/v1/tokens/self").await.ok();
    assert_eq!((&own["name"], &own["workspace"]), (&json!("Zap of the form"), &json!("default")));
    gate.advance(hours(2)).await;
    let refused = zap.post("/v1/claims", &json!({ "automation": "shared", "idempotency_key": "k" })).await;
    refused.problem(401, "invalid_credentials");
}

#[tokio::test]
async fn a_revoked_token_opens_nothing_from_the_next_call_on() {
    let gate = two().await;
    let made = gate.api.post("/v1/tokens", &json!({ "name": "leaky", "role": "operator" })).await.ok();
    let leaky = Client::new(gate.api.base(), made["token"].as_str().unwrap());
    leaky.get("/v1/inbox").await.ok();
    let path = format!("/v1/tokens/{}/revoke", made["token_id"]);
    let said =
        gate.api.post(&path, &json!({ "reason": "stood in a public repository", "by": "mia" })).await.ok();
    assert_eq!((&said["revoked"], &said["note"]), (&json!(true), &json!(null)));
    leaky.get("/v1/inbox").await.problem(401, "invalid_credentials");
    gate.api.post(&path, &json!({ "reason": "again" })).await.problem(409, "nothing_to_do");
    let act = gate.api.last_act().await;
    assert_eq!((&act["action"], &act["actor"]), (&json!("token_revoked"), &json!("mia (token:admin)")));
    assert_eq!((&act["reason"], &act["detail"]), (&json!("stood in a public repository"), &json!("leaky")));
}

#[tokio::test]
async fn when_it_was_last_used_is_known_after_a_restart() {
    let mut gate = two().await;
    let viewer = with_token(&gate, json!({ "name": "mia", "role": "viewer" })).await;
    gate.advance(mins(5)).await;
    viewer.get("/v1/inbox").await.ok();
    gate.restart().await;
    let listed = gate.api.get("/v1/tokens").await.ok();
    assert_eq!(listed["tokens"][1]["last_used_at"], "2026-01-05T10:05:00.000Z");
}

#[tokio::test]
async fn what_is_wrong_with_a_new_token_is_told_by_field() {
    let gate = two().await;
    let good = json!({ "name": "a", "role": "viewer" });
    let long = "x".repeat(101);
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("a\nb")),
        ("name", json!(long)),
        ("role", json!("root")),
        ("automations", json!([])),
        ("automations", json!([7])),
        ("automations", json!({})),
        ("automations", json!(many)),
        ("automations", json!("a,,b")),
        ("expires_in", json!("90")),
        ("expires_in", json!("0s")),
        ("expires_in", json!("36500d")),
        ("expires_at", json!("2020-01-01T00:00:00Z")),
        ("expires_at", json!("tomorrow")),
        ("scope", json!("all")),
    ] {
        let mut fields = good.clone();
        fields[field] = value.clone();
        let problem = gate.api.post("/v1/tokens", &fields).await.problem(422, "invalid_field");
        let told = problem["field"].as_str().unwrap();
        assert!(
            told == field || (field == "automations" && told == "automation"),
            "{field} {value}: {problem}"
        );
    }
    let both =
        json!({ "name": "a", "role": "viewer", "expires_in": "1h", "expires_at": "2027-01-01T00:00:00Z" });
    gate.api.post("/v1/tokens", &both).await.problem(422, "invalid_field");
    let nowhere = json!({ "name": "a", "role": "viewer", "workspace": "nowhere" });
    gate.api.post("/v1/tokens", &nowhere).await.problem(404, "not_found");
    assert_eq!(
        gate.api.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().len(),
        1,
        "nothing was made"
    );
    let misspelt = json!({ "name": "a", "role": "caller", "automations": ["shard"] });
    let made = gate.api.post("/v1/tokens", &misspelt).await.ok();
    assert!(made["note"].as_str().unwrap().contains("shard"), "{made}");
}

#[tokio::test]
async fn a_bound_admin_makes_and_sees_only_tokens_that_reach_no_further() {
    let gate = two().await;
    let bound =
        with_token(&gate, json!({ "name": "lead", "role": "admin", "automations": ["shared"] })).await;
    let make = async |automations: Value| {
        let fields = json!({ "name": "x", "role": "admin", "automations": automations });
        bound.post("/v1/tokens", &fields).await
    };
    make(json!(null)).await.problem(403, "forbidden");
    make(json!(["shared", "other"])).await.problem(403, "forbidden");
    let made = make(json!(["shared"])).await.ok();
    let seen = bound.get("/v1/tokens").await.ok();
    let names: Vec<_> = seen["tokens"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, [json!("lead"), json!("x")], "the server's admin does not exist for it");
    let reason = json!({ "reason": "r" });
    bound.post("/v1/tokens/1/revoke", &reason).await.problem(404, "not_found");
    bound.post(&format!("/v1/tokens/{}/revoke", made["token_id"]), &reason).await.ok();
    // It is an admin of the default workspace, but not the server's.
    bound.get("/v1/workspaces").await.problem(403, "forbidden");
    get_in(&bound, "acme", "/v1/claims").await.problem(403, "forbidden");
}

#[tokio::test]
async fn nobody_is_locked_out_by_accident_and_the_start_lets_in_again() {
    let mut gate = two().await;
    let revoke = async |api: &Client, confirm: Value| {
        api.post("/v1/tokens/1/revoke", &json!({ "reason": "r", "confirm": confirm })).await
    };
    revoke(&gate.api, json!(null)).await.problem(409, "last_admin");
    revoke(&gate.api, json!("yes")).await.problem(422, "invalid_field");
    let said = revoke(&gate.api, json!("last_admin")).await.ok();
    assert!(said["note"].as_str().unwrap().contains("ONCEGATE_ADMIN_TOKEN"), "{said}");
    gate.api.get("/v1/inbox").await.problem(401, "invalid_credentials");
    // The next start brings the same token again.
    gate.restart().await;
    gate.api.get("/v1/inbox").await.ok();
    let rows = gate.api.get("/v1/audit?action=token_restored").await.ok();
    assert_eq!((rows["audit"].as_array().unwrap().len(), &rows["audit"][0]["actor"]), (1, &json!("start")));
    assert!(!rows.to_string().contains(ADMIN));
}

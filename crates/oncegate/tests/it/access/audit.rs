//! The audit: everything that people and tokens do, found by filter, taken out as a file.

use super::*;
use crate::harness::mins;

#[tokio::test]
async fn everything_a_person_or_token_does_is_found_in_it() {
    let gate = two().await;
    let mia = with_token(&gate, json!({ "name": "ops", "role": "admin" })).await;
    let held = mia.claim("shared", "k").await;
    mia.done(&held).await.ok();
    mia.act("reset", &held.claim_id, &json!({ "reason": "r", "verified": true, "by": "mia" })).await.ok();
    mia.pause("shared").await.ok();
    mia.resume("shared").await.ok();
    mia.post("/v1/workspaces", &json!({ "name": "birch" })).await.ok();
    let token = mia.post("/v1/tokens", &json!({ "name": "t", "role": "viewer" })).await.ok();
    mia.post(&format!("/v1/tokens/{}/revoke", token["token_id"]), &json!({ "reason": "r" })).await.ok();
    mia.get("/v1/workspaces/default/export").await;
    mia.post("/v1/person", &json!({ "match": { "email": "ann@example.com" } })).await;
    mia.post("/v1/forget", &json!({ "match": { "email": "ann@example.com" }, "reason": "ticket 7" }))
        .await
        .ok();
    mia.post("/v1/workspaces/birch/delete", &json!({ "confirm": "birch", "reason": "r" })).await.ok();
    mia.get("/v1/audit?format=jsonl").await;
    let rows = gate.api.get("/v1/audit?actor=token:ops").await.ok();
    let mut acts: Vec<&str> =
        rows["audit"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    acts.reverse();
    assert_eq!(
        acts,
        [
            "reset",
            "pause",
            "resume",
            "workspace_made",
            "token_made",
            "token_revoked",
            "workspace_exported",
            "person_exported",
            "forget",
            "workspace_deleted",
            "audit_exported"
        ]
    );
}

#[tokio::test]
async fn it_is_filtered_by_actor_action_subject_and_time() {
    let gate = two().await;
    gate.api.pause("shared").await.ok();
    gate.advance(mins(10)).await;
    gate.api.pause("other").await.ok();
    gate.api.resume("shared").await.ok();
    let found = async |query: &str| -> Vec<String> {
        let rows = gate.api.get(&format!("/v1/audit?actor=token:admin&{query}")).await.ok();
        let told =
            |row: &Value| format!("{} {}", row["action"].as_str().unwrap(), row["subject"].as_str().unwrap());
        rows["audit"].as_array().unwrap().iter().map(told).collect()
    };
    assert_eq!(found("action=pause").await, ["pause other", "pause shared"]);
    assert_eq!(found("subject=shared").await, ["resume shared", "pause shared"]);
    assert_eq!(found("since=5m").await, ["resume shared", "pause other"]);
    assert_eq!(found("until=2026-01-05T10:05:00Z").await, ["pause shared"]);
    assert_eq!(found("limit=1").await, ["resume shared"]);
    for (query, field) in [
        ("since=yesterday", "since"),
        ("format=xml", "format"),
        ("format=csv&limit=3", "limit"),
        ("who=x", "who"),
    ] {
        let problem = gate.api.get(&format!("/v1/audit?{query}")).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field);
    }
}

#[tokio::test]
async fn as_a_file_it_is_whole_and_safe_in_a_spreadsheet() {
    let gate = two().await;
    for n in 0..300 {
        let verb = if n % 2 == 0 { "pause" } else { "resume" };
        let why = json!({ "reason": format!("=HYPERLINK(\"x\"), {n}") });
        gate.api.post(&format!("/v1/automations/shared/{verb}"), &why).await.ok();
    }
    let of_it = "subject=shared&since=1h";
    let said = gate.api.get(&format!("/v1/audit?format=jsonl&{of_it}")).await;
    assert_eq!(said.header("content-disposition"), Some("attachment; filename=\"audit.jsonl\""));
    let rows = lines(&said);
    assert_eq!(rows.len(), 300);
    assert_eq!(rows[0]["reason"], "=HYPERLINK(\"x\"), 299", "newest first");
    let csv = gate.api.get(&format!("/v1/audit?format=csv&{of_it}")).await;
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let text = csv.body.as_str().unwrap();
    assert!(text.starts_with("id,at,actor,action,subject,reason,detail\r\n"), "{text}");
    assert_eq!(text.lines().count(), 301);
    assert!(text.contains(",resume,shared,\"'=HYPERLINK(\"\"x\"\"), 299\","), "{text}");
}

#[tokio::test]
async fn what_a_start_changed_is_one_row() {
    let mut gate = two().await;
    let rows = async |api: &Client| api.get("/v1/audit?action=configured").await.ok()["audit"].clone();
    let first = rows(&gate.api).await;
    assert_eq!(first[0]["detail"], "added automation other, added automation shared");
    gate.restart().await;
    assert_eq!(rows(&gate.api).await, first, "nothing changed");
    gate.restart_with(|yaml| yaml.replace("ttl: 10m", "ttl: 11m").replace("  other: {}\n", "")).await;
    assert_eq!(rows(&gate.api).await[0]["detail"], "changed automation shared, removed automation other");
    let of_acme = get_in(&gate.api, "acme", "/v1/audit?action=configured").await.ok();
    assert_eq!(of_acme["audit"][0]["detail"], "added automation shared, added source orders");
    gate.restart_with(|yaml| yaml.split("workspaces:").next().unwrap().to_owned()).await;
    let of_acme = get_in(&gate.api, "acme", "/v1/audit?action=configured").await.ok();
    assert_eq!(of_acme["audit"][0]["detail"], "removed automation shared, removed source orders");
}

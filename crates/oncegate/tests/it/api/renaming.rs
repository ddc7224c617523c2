//! Renaming an automation in the configuration.

use serde_json::json;

use crate::harness::Setup;

/// Renaming never forgets what was done (DESIGN §2), if the old name is told.
#[tokio::test]
async fn a_renamed_automation_remembers_under_was() {
    let mut gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let first = gate.api.claim("story", "s_1").await;
    gate.api.done(&first).await.ok();
    for start in 1..=2 {
        gate.restart_with(|_| "automations: { tale: { ttl: 10m, was: [Story] } }".to_owned()).await;
        let again = gate.api.claim("tale", "s_1").await;
        assert_eq!(again.is("stop duplicate").claim_id, first.claim_id, "start {start}");
    }
    let rows = gate.api.audit().await;
    assert_eq!(rows.len(), 1, "renamed once: {rows:?}");
}

/// An automation that only its claims have made is renamed by a call.
#[tokio::test]
async fn an_undeclared_automation_is_renamed_by_api_and_remembers() {
    let gate = Setup::alone("automations: { declared: { ttl: 10m } }").start().await;
    let first = gate.api.claim("stroy", "s_1").await;
    gate.api.done(&first).await.ok();
    gate.api.claim("other", "s_1").await;
    gate.api.claim("declared", "s_1").await;
    let rename = async |from: &str, to: &str| {
        let body = json!({ "to": to, "reason": "misspelt", "by": "Ann" });
        gate.api.post(&format!("/v1/automations/{from}/rename"), &body).await
    };
    rename("stroy", "other").await.problem(409, "not_renamed");
    rename("declared", "x").await.problem(409, "not_renamed");
    rename("nobody", "x").await.problem(404, "not_found");
    assert_eq!(rename("Stroy", "Story").await.ok(), json!({ "automation": "story", "was": "stroy" }));
    assert_eq!(gate.api.claim("story", "s_1").await.is("stop duplicate").claim_id, first.claim_id);
    let row = gate.api.last_act().await;
    assert_eq!(
        (&row["action"], &row["reason"], &row["actor"]),
        (&json!("rename"), &json!("misspelt"), &json!("Ann (token:admin)"))
    );
}

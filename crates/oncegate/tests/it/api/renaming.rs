//! Renaming an automation in the configuration.

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

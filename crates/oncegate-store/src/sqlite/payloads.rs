//! Payloads, and what steps were answered, go some time after done. Keys, states, results, history and fingerprints
//! stay: duplicates are told apart as before.

use oncegate_core::key::{AutomationName, Workspace};
use rusqlite::params;

use super::transition::Context;
use crate::StoreError;

/// Removes at most `limit`; as many as that means that there may be more. What a person still has to look at keeps what
/// there is to see.
pub(super) fn remove(cx: &Context<'_>, limit: u32) -> Result<u64, StoreError> {
    let mut automations = cx.db.prepare_cached("SELECT id, workspace_id, name FROM automations")?;
    let automations: Vec<(i64, i64, String)> =
        automations.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?.collect::<Result<_, _>>()?;
    let (mut looked_at, mut removed) = (0, 0);
    for (number, workspace, name) in automations {
        let Ok(name) = AutomationName::try_from(name.as_str()) else {
            tracing::error!(automation = number, "payloads of an automation with an unreadable name stay");
            continue;
        };
        let cut = cx
            .now
            .wall
            .before(cx.policies.policy(Workspace(workspace), &name).payload_retention())
            .as_millis();
        let (rows, of_them) = of_automation(cx, number, cut, u64::from(limit) - looked_at)?;
        (looked_at, removed) = (looked_at + rows, removed + of_them);
        if looked_at >= u64::from(limit) {
            return Ok(u64::from(limit));
        }
    }
    Ok(removed)
}

/// How many claims were looked at, and how many had something to remove.
fn of_automation(cx: &Context<'_>, automation: i64, cut: i64, limit: u64) -> Result<(u64, u64), StoreError> {
    let mut due = cx.db.prepare_cached(
        "SELECT id, claim_id FROM claims WHERE automation_id = ?1 AND done_at <= ?2 AND done_at IS NOT NULL \
         AND payload_removed_at IS NULL AND mismatch_at IS NULL AND late_at IS NULL ORDER BY done_at LIMIT ?3",
    )?;
    let due: Vec<(i64, Vec<u8>)> = due
        .query_map(params![automation, cut, i64::try_from(limit).unwrap_or(i64::MAX)], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (row, id) in &due {
        let payloads = cx.db.prepare_cached("DELETE FROM payloads WHERE claim_row = ?1")?.execute([row])?;
        let answers = cx
            .db
            .prepare_cached(
                "UPDATE step_calls SET answer = NULL WHERE claim_row = ?1 AND answer IS NOT NULL",
            )?
            .execute([row])?;
        // Of other payloads that came under this key, and were looked at.
        let bodies = cx
            .db
            .prepare_cached(
                "UPDATE deliveries SET headers = NULL, body = NULL, body_hash = NULL \
                 WHERE verdict = 'mismatch' AND claim_id = ?1 AND body IS NOT NULL",
            )?
            .execute([id])?;
        removed += u64::from(payloads + answers + bodies > 0);
        let at = if payloads + answers + bodies > 0 { cx.now.wall.as_millis() } else { 0 };
        cx.db
            .prepare_cached("UPDATE claims SET payload_removed_at = ?2 WHERE id = ?1")?
            .execute(params![row, at])?;
    }
    Ok((due.len() as u64, removed))
}

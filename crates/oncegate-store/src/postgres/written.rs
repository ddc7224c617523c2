//! What is written beside a claim's row: its payload, its history, and the audit.

use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::limits;

use super::context::Context;
use super::error::Fault;
use super::row::storable;
use crate::api::Payload;
use crate::transition::Line;
use crate::transition::claim::Keep;

impl Context<'_> {
    pub(super) async fn keep_payload(
        &self,
        id: ClaimRef,
        payload: &Payload,
        keep: Keep,
    ) -> Result<(), Fault> {
        let conflict = match keep {
            Keep::Not => return Ok(()),
            Keep::Instead => {
                "DO UPDATE SET body = excluded.body, json = excluded.json, stored_at = excluded.stored_at"
            }
            Keep::First => "DO NOTHING",
        };
        let sql = format!(
            "INSERT INTO payloads (workspace_id, claim_id, body, json, stored_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (workspace_id, claim_id) {conflict}"
        );
        let (json, now) = (storable(&payload.json), self.now.wall.as_millis());
        let kept = self.execute(&sql, &[&id.workspace.0, &&id.id.0[..], &payload.body, &json, &now]).await?;
        if kept > 0 {
            // A key that is run again after its retention, or by its caller after a reset, brings a new one.
            self.execute(
                "UPDATE claims SET payload_removed_at = NULL \
                 WHERE workspace_id = $1 AND claim_id = $2 AND payload_removed_at IS NOT NULL",
                &[&id.workspace.0, &&id.id.0[..]],
            )
            .await?;
        }
        Ok(())
    }

    pub(super) async fn history(&self, id: ClaimRef, line: &Line<'_>, actor: &str) -> Result<(), Fault> {
        let Line { kind, reason, attempt, note } = line;
        let (attempt, note) = (i64::from(*attempt), note.as_deref().map(storable));
        self.execute(
            "INSERT INTO history (workspace_id, claim_id, at, kind, reason, attempt, actor, note) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                &id.workspace.0,
                &&id.id.0[..],
                &self.now.wall.as_millis(),
                kind,
                reason,
                &attempt,
                &storable(actor),
                &note,
            ],
        )
        .await?;
        Ok(())
    }

    /// Somebody called who no longer holds the claim. The first ones have a row; a loop cannot fill the disk.
    pub(super) async fn late(&self, id: ClaimRef, line: &Line<'_>, actor: &str) -> Result<(), Fault> {
        let rows: i64 = self
            .query_one(
                "SELECT count(*) FROM history WHERE workspace_id = $1 AND claim_id = $2 AND kind = 'late'",
                &[&id.workspace.0, &&id.id.0[..]],
            )
            .await?
            .get(0);
        if rows >= i64::from(limits::STOP_HISTORY_ROWS_MAX) {
            return Ok(());
        }
        self.history(id, line, actor).await
    }

    pub(super) async fn audit(
        &self,
        workspace: Workspace,
        actor: &str,
        action: &str,
        subject: &str,
        reason: &str,
        detail: Option<&str>,
    ) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO audit (workspace_id, at, actor, action, subject, reason, detail) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                &workspace.0,
                &self.now.wall.as_millis(),
                &storable(actor),
                &action,
                &storable(subject),
                &storable(reason),
                &detail.map(storable),
            ],
        )
        .await?;
        Ok(())
    }
}

//! Where sources stand that oncegate itself looks at.

use async_trait::async_trait;
use oncegate_core::key::Workspace;
use rusqlite::{OptionalExtension, params};

use super::store::SqliteStore;
use super::transition::Context;
use super::writer::Manner;
use crate::StoreError;
use crate::api::Admitted;
use crate::positions::{Advance, Positions, SourcePosition};

#[async_trait]
impl Positions for SqliteStore {
    async fn position(
        &self,
        workspace: Workspace,
        source: String,
    ) -> Result<Option<SourcePosition>, StoreError> {
        self.readers
            .read(move |db| {
                let mut statement = db.prepare_cached(
                    "SELECT version, value FROM source_positions WHERE workspace_id = ?1 AND source = ?2",
                )?;
                let read =
                    |r: &rusqlite::Row<'_>| Ok(SourcePosition { version: r.get(0)?, value: r.get(1)? });
                Ok(statement.query_row(params![workspace.0, source], read).optional()?)
            })
            .await
    }

    async fn advance(&self, call: Advance) -> Result<Option<Vec<Admitted>>, StoreError> {
        self.transact(Manner::ASKING.killed_at("admit.before_commit", "admit.committed"), move |cx| {
            cx.advance(&call)
        })
        .await
    }
}

impl Context<'_> {
    fn advance(&self, call: &Advance) -> Result<Option<Vec<Admitted>>, StoreError> {
        let now = self.now.wall.as_millis();
        let moved = match call.seen {
            None => self.db.execute(
                "INSERT INTO source_positions (workspace_id, source, version, value, moved_at) \
                 VALUES (?1, ?2, 1, ?3, ?4) ON CONFLICT DO NOTHING",
                params![call.workspace.0, call.source, call.value, now],
            )?,
            Some(version) => self.db.execute(
                "UPDATE source_positions SET version = version + 1, value = ?4, moved_at = ?5 \
                 WHERE workspace_id = ?1 AND source = ?2 AND version = ?3",
                params![call.workspace.0, call.source, version, call.value, now],
            )?,
        };
        if moved == 0 {
            return Ok(None);
        }
        for (kind, detail) in &call.notices {
            self.notice(call.workspace, *kind, call.automation.as_str(), detail)?;
        }
        if let Some(over) = &call.over {
            self.db.execute(
                "DELETE FROM notices WHERE workspace_id = ?1 AND kind = ?2 AND subject = ?3 \
                 AND substr(detail, 1, length(?4)) = ?4",
                params![call.workspace.0, over.kind.as_str(), call.automation.as_str(), over.begins],
            )?;
        }
        let admitted = call.admit.as_ref().map(|admit| self.admit(admit)).transpose()?;
        Ok(Some(admitted.unwrap_or_default()))
    }
}

//! Where sources stand that oncegate itself looks at. Of nodes that move one at once the second waits for its row,
//! and finds another version, or that there is one.

use async_trait::async_trait;
use oncegate_core::key::Workspace;

use super::context::{Context, transact};
use super::error::Fault;
use super::queries;
use super::row::storable;
use super::store::{PgStore, read};
use crate::StoreError;
use crate::api::Admitted;
use crate::positions::{Advance, Positions, SourcePosition};

#[async_trait]
impl Positions for PgStore {
    async fn position(
        &self,
        workspace: Workspace,
        source: String,
    ) -> Result<Option<SourcePosition>, StoreError> {
        read!(self, |db| {
            let sql = "SELECT version, value FROM source_positions WHERE workspace_id = $1 AND source = $2";
            let row = queries::row_opt(&db, sql, &[&workspace.0, &source]).await?;
            Ok(row.map(|r| SourcePosition { version: r.get(0), value: r.get(1) }))
        })
    }

    async fn advance(&self, call: Advance) -> Result<Option<Vec<Admitted>>, StoreError> {
        // What another process of this name does is not done here, too.
        if self.shared.is_superseded() {
            return Ok(None);
        }
        transact!(&self.shared, |cx| cx.advance(&call).await)
    }
}

impl Context<'_> {
    async fn advance(&self, call: &Advance) -> Result<Option<Vec<Admitted>>, Fault> {
        let (value, now) = (storable(&call.value), self.now.wall.as_millis());
        let moved = match call.seen {
            None => {
                let sql = "INSERT INTO source_positions (workspace_id, source, version, value, moved_at) \
                    VALUES ($1, $2, 1, $3, $4) ON CONFLICT DO NOTHING";
                self.execute(sql, &[&call.workspace.0, &call.source, &value, &now]).await?
            }
            Some(version) => {
                let sql = "UPDATE source_positions SET version = version + 1, value = $4, moved_at = $5 \
                    WHERE workspace_id = $1 AND source = $2 AND version = $3";
                self.execute(sql, &[&call.workspace.0, &call.source, &version, &value, &now]).await?
            }
        };
        if moved == 0 {
            return Ok(None);
        }
        for (kind, detail) in &call.notices {
            self.notice(call.workspace, *kind, call.automation.as_str(), detail).await?;
        }
        if let Some(over) = &call.over {
            let sql = "DELETE FROM notices WHERE workspace_id = $1 AND kind = $2 AND subject = $3 \
                AND left(detail, length($4::text)) = $4";
            let (kind, subject) = (over.kind.as_str(), call.automation.as_str());
            self.execute(sql, &[&call.workspace.0, &kind, &subject, &storable(&over.begins)]).await?;
        }
        match &call.admit {
            Some(admit) => Ok(Some(self.admit(admit).await?)),
            None => Ok(Some(vec![])),
        }
    }
}

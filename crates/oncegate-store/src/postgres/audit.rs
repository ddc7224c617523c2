//! The audit: reading it, and what the configuration changed.

use oncegate_core::key::Workspace;
use oncegate_core::limits;
use tokio_postgres::types::ToSql;

use super::connection::Connection;
use super::context::Context;
use super::error::{Fault, unreadable};
use super::row::{storable, ts};
use crate::access::{AuditFilter, Declared, Deed, changes};
use crate::api::{AuditRow, Page};

pub(super) async fn read(
    db: &Connection,
    workspace: Workspace,
    filter: &AuditFilter,
) -> Result<Page<AuditRow>, Fault> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut sql = "SELECT id, at, actor, action, subject, reason, detail FROM audit \
                   WHERE workspace_id = $1 AND id < $2"
        .to_owned();
    let mut values: Vec<Box<dyn ToSql + Sync + Send>> =
        vec![Box::new(workspace.0), Box::new(filter.before.unwrap_or(i64::MAX))];
    let mut push = |condition: &str, value: Option<Box<dyn ToSql + Sync + Send>>| {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&condition.replace('@', &format!("${}", values.len())));
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(|t| Box::new(storable(t).into_owned()) as _);
    let time = |at: Option<oncegate_core::time::Timestamp>| at.map(|at| Box::new(at.as_millis()) as _);
    // `mia (token:ops)` is what mia did, and what the token did.
    push(
        " AND (actor = @::text OR left(actor, length(@) + 2) = @ || ' (' \
         OR right(actor, length(@) + 2) = '(' || @ || ')')",
        text(&filter.actor),
    );
    push(" AND action = @", text(&filter.action));
    push(" AND subject = @", text(&filter.subject));
    push(" AND at >= @", time(filter.since));
    push(" AND at < @", time(filter.until));
    push(" ORDER BY id DESC LIMIT @", Some(Box::new(i64::from(limit))));
    let params: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &**v as _).collect();
    let found = db.query(&sql, &params).await?;
    let rows: Vec<AuditRow> = found
        .iter()
        .map(|r| AuditRow {
            id: r.get(0),
            at: ts(r.get(1)),
            actor: r.get(2),
            action: r.get(3),
            subject: r.get(4),
            reason: r.get(5),
            detail: r.get(6),
        })
        .collect();
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

impl Context<'_> {
    pub(super) async fn note_deeds(&self, workspace: Workspace, deeds: &[Deed]) -> Result<(), Fault> {
        for d in deeds {
            self.audit(workspace, &d.actor, &d.action, &d.subject, &d.reason, d.detail.as_deref()).await?;
        }
        Ok(())
    }

    /// Of nodes that start at once with the same configuration, one finds it changed.
    pub(super) async fn note_declared(
        &self,
        workspace: Workspace,
        declared: &Declared,
    ) -> Result<Vec<String>, Fault> {
        let row = self
            .query_opt("SELECT value FROM declared WHERE workspace_id = $1 FOR UPDATE", &[&workspace.0])
            .await?;
        let before: Declared = match &row {
            None => Declared::new(),
            Some(r) => serde_json::from_str(r.get(0)).map_err(|e| {
                unreadable(format!("what was declared for workspace {} cannot be read: {e}", workspace.0))
            })?,
        };
        let changes = changes(&before, declared);
        if changes.is_empty() {
            return Ok(changes);
        }
        let value = serde_json::json!(declared).to_string();
        let sql = match row {
            Some(_) => "UPDATE declared SET value = $2 WHERE workspace_id = $1",
            // Another node's first start at this moment: the key tells them apart.
            None => "INSERT INTO declared (workspace_id, value) VALUES ($1, $2)",
        };
        self.execute(sql, &[&workspace.0, &storable(&value)]).await?;
        let detail = changes.join(", ");
        self.audit(workspace, "start", "configured", "oncegate.yaml", "", Some(&detail)).await?;
        Ok(changes)
    }
}

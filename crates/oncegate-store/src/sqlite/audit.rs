//! The audit: reading it, and what the configuration changed.

use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::person::Person;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::row::ts;
use super::transition::Context;
use crate::StoreError;
use crate::access::{AuditFilter, Declared, changes};
use crate::api::{AuditRow, Page};

pub(super) fn read(
    db: &Connection,
    workspace: Workspace,
    filter: &AuditFilter,
) -> Result<Page<AuditRow>, StoreError> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut sql = "SELECT id, at, actor, action, subject, reason, detail FROM audit \
                   WHERE workspace_id = ?1 AND id < ?2"
        .to_owned();
    let mut values: Vec<Value> = vec![workspace.0.into(), filter.before.unwrap_or(i64::MAX).into()];
    let mut push = |condition: &str, value: Option<Value>| {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&condition.replace('@', &format!("?{}", values.len())));
        }
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let time = |at: Option<oncegate_core::time::Timestamp>| at.map(|at| Value::from(at.as_millis()));
    // `mia (token:ops)` is what mia did, and what the token did.
    push(
        " AND (actor = @ OR substr(actor, 1, length(@) + 2) = @ || ' (' \
         OR substr(actor, -length(@) - 2) = '(' || @ || ')')",
        text(&filter.actor),
    );
    push(" AND action = @", text(&filter.action));
    push(" AND subject = @", text(&filter.subject));
    push(" AND at >= @", time(filter.since));
    push(" AND at < @", time(filter.until));
    push(" ORDER BY id DESC LIMIT @", Some(i64::from(limit).into()));
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement
        .query_map(params_from_iter(values), |r| {
            Ok(AuditRow {
                id: r.get(0)?,
                at: ts(r.get(1)?),
                actor: r.get(2)?,
                action: r.get(3)?,
                subject: r.get(4)?,
                reason: r.get(5)?,
                detail: r.get(6)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// Rows whose texts name somebody.
pub(super) fn naming(db: &Connection, workspace: Workspace, who: &Person) -> Result<u64, StoreError> {
    let mut statement =
        db.prepare_cached("SELECT actor, subject, reason, detail FROM audit WHERE workspace_id = ?1")?;
    let (mut rows, mut found) = (statement.query([workspace.0])?, 0);
    while let Some(r) = rows.next()? {
        for column in 0..4 {
            if r.get::<_, Option<String>>(column)?.is_some_and(|text| who.is_named_in(&text)) {
                found += 1;
                break;
            }
        }
    }
    Ok(found)
}

impl Context<'_> {
    pub(super) fn note_declared(
        &self,
        workspace: Workspace,
        declared: &Declared,
    ) -> Result<Vec<String>, StoreError> {
        let name = format!("declared {}", workspace.0);
        let before: Option<String> =
            self.db.query_row("SELECT value FROM meta WHERE name = ?1", [&name], |r| r.get(0)).optional()?;
        let before: Declared = match before.as_deref().map(serde_json::from_str) {
            None => Declared::new(),
            Some(Ok(before)) => before,
            Some(Err(e)) => return Err(StoreError::Inconsistent(format!("`{name}` cannot be read: {e}"))),
        };
        let changes = changes(&before, declared);
        if changes.is_empty() {
            return Ok(changes);
        }
        self.db.execute(
            "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value",
            params![name, serde_json::json!(declared).to_string()],
        )?;
        let detail = changes.join(", ");
        self.audit(workspace, "start", "configured", "oncegate.yaml", "", Some(&detail))?;
        Ok(changes)
    }
}

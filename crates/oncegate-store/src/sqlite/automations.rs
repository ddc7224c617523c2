//! Automations as people see them: since when, paused or not, and what needs them there.

use std::collections::HashMap;

use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Now;
use rusqlite::{Connection, params, params_from_iter};

use super::queries::{FAILED, LIST_OF, LIVE, MARKED, clock_params};
use super::row::ts;
use crate::StoreError;
use crate::api::Page;
use crate::people::AutomationRow;

pub(super) fn list(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
    now: Now,
) -> Result<Page<AutomationRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let only = only.map(|names| serde_json::json!(names).to_string());
    let mut statement = db.prepare_cached(
        "SELECT id, name, created_at, paused_at FROM automations WHERE workspace_id = ?1 AND id < ?2 \
         AND (?3 IS NULL OR name IN (SELECT value FROM json_each(?3))) ORDER BY id DESC LIMIT ?4",
    )?;
    let mut open = open(db, workspace, now)?;
    let mut found = statement.query(params![workspace.0, before.unwrap_or(i64::MAX), only, limit])?;
    let mut rows = Vec::new();
    while let Some(r) = found.next()? {
        let (id, name): (i64, String) = (r.get(0)?, r.get(1)?);
        let name = AutomationName::try_from(name.as_str())
            .map_err(|e| StoreError::Inconsistent(format!("automation {id}: {e}")))?;
        let paused_at = r.get::<_, Option<i64>>(3)?.map(ts);
        let inbox = open.remove(&id).unwrap_or_default();
        rows.push(AutomationRow { id, name, created_at: ts(r.get(2)?), paused_at, inbox });
    }
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// What stands in a list, by automation; read from the indexes that have only open claims.
fn open(
    db: &Connection,
    workspace: Workspace,
    now: Now,
) -> Result<HashMap<i64, Vec<(InboxList, u64)>>, StoreError> {
    let of = |rows: &str| {
        format!(
            "SELECT c.automation_id AS a, {LIST_OF} AS list FROM claims c WHERE c.workspace_id = ?1 AND {rows}"
        )
    };
    let sql = format!(
        "SELECT a, list, count(*) FROM ({} UNION ALL {} UNION ALL {} AND c.processing_state IN ('none', 'done')) \
         WHERE list IS NOT NULL GROUP BY a, list",
        of(LIVE),
        of(FAILED),
        of(MARKED),
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(clock_params(workspace, now)))?;
    let mut open: HashMap<i64, Vec<(InboxList, u64)>> = HashMap::new();
    while let Some(r) = rows.next()? {
        if let Some(list) = InboxList::parse(&r.get::<_, String>(1)?) {
            let count = u64::try_from(r.get::<_, i64>(2)?).unwrap_or_default();
            open.entry(r.get(0)?).or_default().push((list, count));
        }
    }
    Ok(open)
}

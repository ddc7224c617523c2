//! Automations as people see them: since when, paused or not, and what needs them there.

use std::collections::HashMap;

use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Now;

use super::connection::Connection;
use super::error::Fault;
use super::queries;
use super::row::ts;
use super::search::{FAILED, LIVE, MARKED, list_of, name_of, names};
use crate::api::Page;
use crate::people::AutomationRow;

/// Numbers do not rise here, so a page begins behind the automation that has the number `before`.
pub(super) async fn list(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
    now: Now,
) -> Result<Page<AutomationRow>, Fault> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut open = open(db, workspace, now).await?;
    let found = queries::rows(
        db,
        "SELECT id, name, created_at, paused_at FROM automations WHERE workspace_id = $1 \
         AND ($2::bigint IS NULL OR (created_at, id) < \
           (SELECT created_at, id FROM automations WHERE workspace_id = $1 AND id = $2)) \
         AND ($3::text[] IS NULL OR name = ANY($3)) ORDER BY created_at DESC, id DESC LIMIT $4",
        &[&workspace.0, &before, &only.map(names), &i64::from(limit)],
    )
    .await?;
    let mut rows = Vec::with_capacity(found.len());
    for r in &found {
        let id: i64 = r.get(0);
        let paused_at = r.get::<_, Option<i64>>(3).map(ts);
        let (name, created_at, inbox) =
            (name_of(r, 1, id)?, ts(r.get(2)), open.remove(&id).unwrap_or_default());
        rows.push(AutomationRow { id, name, created_at, paused_at, inbox });
    }
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// What stands in a list, by automation; read from the indexes that have only open claims.
async fn open(
    db: &Connection,
    workspace: Workspace,
    now: Now,
) -> Result<HashMap<i64, Vec<(InboxList, u64)>>, Fault> {
    let list = list_of(now);
    let of = |rows: &str| {
        format!(
            "SELECT c.automation_id AS a, {list} AS list FROM claims c WHERE c.workspace_id = $1 AND {rows}"
        )
    };
    let sql = format!(
        "SELECT a, list, count(*) FROM ({} UNION ALL {} UNION ALL {} AND c.processing_state IN ('none', 'done')) l \
         WHERE list IS NOT NULL GROUP BY a, list ORDER BY a, list",
        of(LIVE),
        of(FAILED),
        of(MARKED),
    );
    let mut open: HashMap<i64, Vec<(InboxList, u64)>> = HashMap::new();
    for r in db.query(&sql, &[&workspace.0]).await? {
        if let Some(list) = InboxList::parse(r.get(1)) {
            open.entry(r.get(0)).or_default().push((list, r.get::<_, i64>(2).unsigned_abs()));
        }
    }
    Ok(open)
}

//! Reading: one claim, what happened to it, what is due. Nothing here writes.

use oncegate_core::claim::Boot;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::time::{Now, Timestamp};
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::Params;
use super::error::{Fault, unreadable};
use super::in_line::earlier;
use super::row::{self, Stored, ts};
use super::steps;
use crate::api::{Due, HistoryRow, Page, Payload, WORKSPACES_SEEN, Work};
use crate::in_line::UNSEEN;

/// Every row of a statement that is prepared once.
pub(super) async fn rows(db: &Connection, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, Fault> {
    let statement = db.prepare_cached(sql).await?;
    db.query(&statement, params).await
}

/// One row of a statement that is prepared once, or none.
pub(super) async fn row_opt(db: &Connection, sql: &str, params: &Params<'_>) -> Result<Option<Row>, Fault> {
    let statement = db.prepare_cached(sql).await?;
    db.query_opt(&statement, params).await
}

/// Loads one claim; another workspace's is not there.
pub(super) async fn load(db: &Connection, claim: ClaimRef) -> Result<Option<Stored>, Fault> {
    let sql = format!("{} WHERE c.workspace_id = $1 AND c.claim_id = $2", *row::SELECT);
    row_opt(db, &sql, &[&claim.workspace.0, &&claim.id.0[..]]).await?.as_ref().map(row::read).transpose()
}

/// The number of an automation that has been seen.
pub(super) async fn automation(
    db: &Connection,
    workspace: Workspace,
    name: &AutomationName,
) -> Result<Option<i64>, Fault> {
    let sql = "SELECT id FROM automations WHERE workspace_id = $1 AND name = $2";
    Ok(row_opt(db, sql, &[&workspace.0, &name.as_str()]).await?.map(|r| r.get(0)))
}

const HISTORY: &str = "SELECT at, kind, reason, attempt, actor, note, id FROM history \
    WHERE workspace_id = $1 AND claim_id = $2";

fn history_row(r: &Row) -> HistoryRow {
    HistoryRow {
        at: ts(r.get(0)),
        kind: r.get(1),
        reason: r.get(2),
        attempt: u32::try_from(r.get::<_, i64>(3)).unwrap_or(u32::MAX),
        actor: r.get(4),
        note: r.get(5),
    }
}

/// The newest rows that one page takes, oldest of them first.
pub(super) async fn history(db: &Connection, id: ClaimRef) -> Result<Vec<HistoryRow>, Fault> {
    let sql = format!("{HISTORY} ORDER BY id DESC LIMIT $3");
    let limit = i64::from(limits::PAGE_ROWS_MAX);
    let found = rows(db, &sql, &[&id.workspace.0, &&id.id.0[..], &limit]).await?;
    Ok(found.iter().rev().map(history_row).collect())
}

pub(super) async fn history_page(
    db: &Connection,
    id: ClaimRef,
    after: Option<i64>,
    limit: u32,
) -> Result<Page<HistoryRow>, Fault> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let sql = format!("{HISTORY} AND id > $3 ORDER BY id LIMIT $4");
    let found =
        rows(db, &sql, &[&id.workspace.0, &&id.id.0[..], &after.unwrap_or(0), &i64::from(limit)]).await?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|r| r.get(6));
    Ok(Page { rows: found.iter().map(history_row).collect(), next })
}

pub(super) async fn work(db: &Connection, id: ClaimRef) -> Result<Option<Work>, Fault> {
    let Some(stored) = load(db, id).await? else { return Ok(None) };
    let payload = row_opt(
        db,
        "SELECT body, json FROM payloads WHERE workspace_id = $1 AND claim_id = $2",
        &[&id.workspace.0, &&id.id.0[..]],
    )
    .await?;
    let payload = payload.map(|r| Payload { body: r.get(0), json: r.get(1) });
    let calls = rows(db, steps::OF_CLAIM, &[&id.workspace.0, &&id.id.0[..]]).await?;
    let steps = calls.iter().map(steps::read).collect();
    let (version, view) = (stored.version, stored.view);
    Ok(Some(Work { claim: view.claim, version, automation: view.automation, key: view.key, payload, steps }))
}

/// The workspaces and names of a JSON list of them.
macro_rules! named {
    ($list:literal) => {
        concat!("SELECT (j ->> 0)::bigint, j ->> 1 FROM jsonb_array_elements(", $list, "::text::jsonb) j")
    };
}

/// Due by its time, or `processing` under a runner that is gone or went stale: candidates, over all workspaces. Who
/// takes one decides anew, in a transaction of its own workspace. `boot` is this node's: what its earlier starts left.
/// `runs` is a JSON list of workspaces and names: only of these.
pub(super) async fn due(
    db: &Connection,
    now: Now,
    boot: Boot,
    runs: Option<&str>,
    limit: u32,
) -> Result<Vec<Due>, Fault> {
    let over = boot.over();
    let unseen = now.wall.before(UNSEEN).as_millis();
    let all = i64::from(limit) + i64::from(WORKSPACES_SEEN);
    let found = rows(
        db,
        concat!(
            // Of each workspace its oldest, and then the first of each, the second of each, …
            "SELECT workspace_id, claim_id, name FROM ( \
               SELECT c.workspace_id, c.claim_id, c.name, c.due_at AS at, c.position, \
                 row_number() OVER (PARTITION BY c.workspace_id ORDER BY c.due_at, c.position) AS place \
                 FROM workspaces w CROSS JOIN LATERAL ( \
                 SELECT d.workspace_id, d.claim_id, da.name, d.due_at, d.position FROM claims d \
                   JOIN automations da ON da.workspace_id = d.workspace_id AND da.id = d.automation_id \
                   WHERE d.workspace_id = w.id AND d.due_at <= $1 AND d.due_at IS NOT NULL AND d.flow \
                   AND da.paused_at IS NULL AND (d.record IS NULL OR d.processing_state = 'processing' \
                   OR d.due_at <= $7 OR NOT EXISTS (SELECT 1",
            earlier!("d.workspace_id", "d.record", "d.position"),
            ")) AND ($6::text IS NULL OR (d.workspace_id, da.name) IN (",
            named!("$6"),
            ")) ORDER BY d.due_at, d.position LIMIT $5) c \
               UNION ALL \
               SELECT c.workspace_id, c.claim_id, a.name, c.processing_started_at, c.position, 0 FROM claims c \
                 JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
                 WHERE c.processing_state = 'processing' AND c.flow AND c.due_at IS NULL \
                 AND (c.lease_expires <= $2 OR (c.holder = 'runner' AND c.boot >= $3 AND c.boot < $4)) \
                 AND a.paused_at IS NULL AND ($6::text IS NULL OR (c.workspace_id, a.name) IN (",
            named!("$6"),
            "))) due ORDER BY place, at, position LIMIT $8"
        ),
        &[&now.wall.as_millis(), &now.lease.0, &over.start, &over.end, &i64::from(limit), &runs, &unseen, &all],
    )
    .await?;
    due_rows(&found)
}

/// Whose turn it is, of rows of workspace, id and automation. One bad row never stops a sweep: it is left out, and
/// told.
pub(super) fn due_rows(rows: &[Row]) -> Result<Vec<Due>, Fault> {
    let mut due = Vec::new();
    for r in rows {
        let (workspace, id) = (Workspace(r.get(0)), row::claim_id(r.try_get(1).map_err(unreadable)?)?);
        match AutomationName::try_from(r.get::<_, &str>(2)) {
            Ok(automation) => due.push(Due { id: ClaimRef { workspace, id }, automation, is_new: false }),
            Err(_) => {
                tracing::error!(claim = %id, "what is due is left out: its automation's name is unreadable");
            }
        }
    }
    Ok(due)
}

/// When the next work of the runner comes due.
pub(super) async fn next_due(db: &Connection, after: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT min(c.due_at) FROM workspaces w CROSS JOIN LATERAL (SELECT c.due_at FROM claims c \
        JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
        WHERE c.workspace_id = w.id AND c.due_at > $1 AND c.due_at IS NOT NULL AND c.flow AND a.paused_at IS NULL \
        ORDER BY c.due_at LIMIT 1) c";
    let found = row_opt(db, sql, &[&after.as_millis()]).await?;
    Ok(found.and_then(|r| r.get::<_, Option<i64>>(0)).map(ts))
}

//! Reading bulk acts: how they stand, and what became of each of their claims.

use oncegate_core::claim::Boot;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::time::Now;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::bulk::Fates;
use super::row::{self, ts};
use super::transition::judged;
use crate::StoreError;
use crate::api::Page;
use crate::bulk::{BulkAct, BulkClaim, BulkRow};

const SELECT: &str = "SELECT k.id, k.workspace_id, k.token_id, k.act, k.filter, k.reason, k.actor, k.matched, k.made_at, \
    k.finished_at, k.undoes, (SELECT u.id FROM bulk_acts u WHERE u.undoes = k.id) AS undone_by FROM bulk_acts k";

/// An act that goes on.
pub(super) struct Open {
    pub(super) id: i64,
    pub(super) workspace: Workspace,
    pub(super) act: BulkAct,
    pub(super) reason: String,
    pub(super) actor: String,
}

fn act(id: i64, json: &str) -> Result<BulkAct, StoreError> {
    serde_json::from_str(json).map_err(|_| StoreError::Inconsistent(format!("bulk act {id} does not read")))
}

pub(super) fn oldest_open(db: &Connection) -> Result<Option<Open>, StoreError> {
    let found: Option<(i64, i64, String, String, String)> = db
        .prepare_cached(
            "SELECT id, workspace_id, act, reason, actor FROM bulk_acts WHERE finished_at IS NULL ORDER BY id LIMIT 1",
        )?
        .query_row([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?)))
        .optional()?;
    let Some((id, workspace, json, reason, actor)) = found else { return Ok(None) };
    Ok(Some(Open { id, workspace: Workspace(workspace), act: act(id, &json)?, reason, actor }))
}

fn read(db: &Connection, r: &Row<'_>) -> Result<BulkRow, StoreError> {
    let id = r.get("id")?;
    let json: String = r.get("act")?;
    let mut counted = db.prepare_cached(
        "SELECT fate, coalesce(why, ''), count(*) FROM bulk_rows WHERE bulk_id = ?1 AND fate IS NOT NULL GROUP BY 1, 2",
    )?;
    let fates: Fates = counted
        .query_map([id], |r| Ok(((r.get(0)?, r.get(1)?), r.get::<_, i64>(2)?.unsigned_abs())))?
        .collect::<Result<_, _>>()?;
    Ok(BulkRow {
        id,
        workspace: Workspace(r.get("workspace_id")?),
        token_id: r.get("token_id")?,
        act: act(id, &json)?,
        told: r.get("filter")?,
        reason: r.get("reason")?,
        actor: r.get("actor")?,
        matched: r.get::<_, i64>("matched")?.unsigned_abs(),
        fates,
        made_at: ts(r.get("made_at")?),
        finished_at: r.get::<_, Option<i64>>("finished_at")?.map(ts),
        undoes: r.get("undoes")?,
        undone_by: r.get("undone_by")?,
    })
}

pub(super) fn one(db: &Connection, workspace: Workspace, id: i64) -> Result<Option<BulkRow>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT} WHERE k.workspace_id = ?1 AND k.id = ?2"))?;
    let mut rows = statement.query(params![workspace.0, id])?;
    rows.next()?.map(|r| read(db, r)).transpose()
}

pub(super) fn list(
    db: &Connection,
    workspace: Workspace,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<BulkRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut statement = db.prepare_cached(&format!(
        "{SELECT} WHERE k.workspace_id = ?1 AND k.id < ?2 ORDER BY k.id DESC LIMIT ?3"
    ))?;
    let mut found = statement.query(params![workspace.0, before.unwrap_or(i64::MAX), limit])?;
    let mut rows = Vec::new();
    while let Some(r) = found.next()? {
        rows.push(read(db, r)?);
    }
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// The claims of one act, oldest first.
pub(super) fn claims(
    db: &Connection,
    (workspace, bulk): (Workspace, i64),
    after: Option<i64>,
    limit: u32,
    now: Now,
    boot: Boot,
) -> Result<Page<BulkClaim>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut statement = db.prepare_cached(&format!(
        "SELECT {}, r.fate, r.why FROM bulk_rows r CROSS JOIN claims c ON c.id = r.claim_row \
         CROSS JOIN automations a ON a.id = c.automation_id \
         WHERE r.bulk_id = ?1 AND r.claim_row > ?2 AND c.workspace_id = ?3 ORDER BY r.claim_row LIMIT ?4",
        row::COLUMNS
    ))?;
    let mut found = statement.query(params![bulk, after.unwrap_or(0), workspace.0, limit])?;
    let (mut rows, mut seen, mut last) = (Vec::new(), 0, None);
    while let Some(r) = found.next()? {
        (seen, last) = (seen + 1, Some(r.get("id")?));
        let (fate, why) = (r.get("fate")?, r.get("why")?);
        match row::read(r) {
            Ok(stored) => {
                rows.push(BulkClaim { row: stored.row, view: judged(stored, now, boot), fate, why })
            }
            Err(error) => tracing::error!(%error, "a claim is left out of a list"),
        }
    }
    Ok(Page { rows, next: last.filter(|_| seen == limit) })
}

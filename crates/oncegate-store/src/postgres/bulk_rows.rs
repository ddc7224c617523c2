//! Reading bulk acts: how they stand, and what became of each of their claims.

use std::collections::{BTreeMap, HashMap};

use oncegate_core::claim::Boot;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::time::Now;
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::Params;
use super::error::{Fault, unreadable};
use super::queries;
use super::row::{self, judged, ts};
use crate::api::Page;
use crate::bulk::{BulkAct, BulkClaim, BulkRow};

/// Rows that [`read`] reads, from where they are.
pub(super) const SELECT: &str = "SELECT k.id, k.workspace_id, k.token_id, k.act, k.filter, k.reason, k.actor, \
    k.matched, k.made_at, k.finished_at, k.undoes, (SELECT u.id FROM bulk_acts u \
    WHERE u.workspace_id = k.workspace_id AND u.undoes = k.id) AS undone_by FROM bulk_acts k WHERE k.workspace_id = $1";

/// What became of the claims of these acts (`$2`), counted.
pub(super) const FATES: &str = "SELECT bulk_id, fate, coalesce(why, ''), count(*) FROM bulk_rows \
    WHERE workspace_id = $1 AND bulk_id = ANY($2::bigint[]) AND fate IS NOT NULL GROUP BY 1, 2, 3";

/// Fates and reasons, counted; by act.
pub(super) type Fates = HashMap<i64, BTreeMap<(String, String), u64>>;

pub(super) fn fates(rows: &[Row]) -> Fates {
    let mut fates = Fates::new();
    for r in rows {
        let count = r.get::<_, i64>(3).unsigned_abs();
        fates.entry(r.get(0)).or_default().insert((r.get(1), r.get(2)), count);
    }
    fates
}

pub(super) fn act(r: &Row) -> Result<BulkAct, Fault> {
    let id: i64 = r.get("id");
    serde_json::from_str(r.get("act")).map_err(|_| unreadable(format!("bulk act {id} does not read")))
}

pub(super) fn read(r: &Row, fates: &mut Fates) -> Result<BulkRow, Fault> {
    let id = r.get("id");
    Ok(BulkRow {
        id,
        workspace: Workspace(r.get("workspace_id")),
        token_id: r.get("token_id"),
        act: act(r)?,
        told: r.get("filter"),
        reason: r.get("reason"),
        actor: r.get("actor"),
        matched: r.get::<_, i64>("matched").unsigned_abs(),
        fates: fates.remove(&id).unwrap_or_default(),
        made_at: ts(r.get("made_at")),
        finished_at: r.get::<_, Option<i64>>("finished_at").map(ts),
        undoes: r.get("undoes"),
        undone_by: r.get("undone_by"),
    })
}

/// The act to go on with: of all workspaces, the one begun longest ago.
pub(super) async fn oldest_open(db: &Connection) -> Result<Option<(Workspace, i64)>, Fault> {
    let sql = "SELECT workspace_id, id FROM bulk_acts WHERE finished_at IS NULL \
        ORDER BY made_at, workspace_id, id LIMIT 1";
    Ok(queries::row_opt(db, sql, &[]).await?.map(|r| (Workspace(r.get(0)), r.get(1))))
}

/// The acts first, and then what became of their claims: so none is finished with claims that are still to come.
async fn with_fates(
    db: &Connection,
    workspace: Workspace,
    sql: &str,
    params: &Params<'_>,
) -> Result<Vec<BulkRow>, Fault> {
    let found = queries::rows(db, sql, params).await?;
    let ids: Vec<i64> = found.iter().map(|r| r.get("id")).collect();
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let mut fates = fates(&queries::rows(db, FATES, &[&workspace.0, &ids]).await?);
    found.iter().map(|r| read(r, &mut fates)).collect()
}

pub(super) async fn one(db: &Connection, workspace: Workspace, id: i64) -> Result<Option<BulkRow>, Fault> {
    let sql = format!("{SELECT} AND k.id = $2");
    Ok(with_fates(db, workspace, &sql, &[&workspace.0, &id]).await?.pop())
}

pub(super) async fn list(
    db: &Connection,
    workspace: Workspace,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<BulkRow>, Fault> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let sql = format!("{SELECT} AND k.id < $2 ORDER BY k.id DESC LIMIT $3");
    let params: &Params<'_> = &[&workspace.0, &before.unwrap_or(i64::MAX), &i64::from(limit)];
    let rows = with_fates(db, workspace, &sql, params).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// The claims of one act, oldest first.
pub(super) async fn claims(
    db: &Connection,
    (workspace, bulk): (Workspace, i64),
    after: Option<i64>,
    limit: u32,
    now: Now,
    boot: Boot,
) -> Result<Page<BulkClaim>, Fault> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let sql = format!(
        "SELECT {}, r.fate, r.why FROM bulk_rows r \
         JOIN claims c ON c.workspace_id = r.workspace_id AND c.claim_id = r.claim_id \
         JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
         WHERE r.workspace_id = $1 AND r.bulk_id = $2 AND r.position > $3 ORDER BY r.position LIMIT $4",
        row::COLUMNS
    );
    let found = db.query(&sql, &[&workspace.0, &bulk, &after.unwrap_or(0), &i64::from(limit)]).await?;
    let mut rows = Vec::with_capacity(found.len());
    for r in &found {
        let (fate, why) = (r.get("fate"), r.get("why"));
        match row::read(r) {
            Ok(stored) => {
                rows.push(BulkClaim { row: stored.view.row, view: judged(stored, now, boot), fate, why });
            }
            Err(error) => tracing::error!(?error, "a claim is left out of a list"),
        }
    }
    let next = found.last().filter(|_| found.len() == limit as usize).map(|r| r.get("position"));
    Ok(Page { rows, next })
}

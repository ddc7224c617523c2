//! Reading: one claim, lists, counts, what is due. Nothing here writes.

use oncegate_core::claim::Boot;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, ClaimId, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::time::{Now, millis};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Rows, params, params_from_iter};

use super::in_line::earlier;
use super::row::{self, ts};

use crate::StoreError;
use crate::api::{Due, HistoryRow, Page, Payload, WORKSPACES_SEEN, Work};
use crate::in_line::UNSEEN;
use crate::nodes::{Names, STRANDED_MAX};

/// The list a row stands in, in SQL: the same answer as [`oncegate_core::inbox::list_of`], which the conformance
/// suite compares on random rows. `?2` is the lease clock, `?3` the wall clock past which a start is a clock problem.
pub(super) const LIST_OF: &str = "CASE \
    WHEN c.processing_state = 'processing' AND (c.processing_started_at > ?3 \
        OR (c.lease_expires <= ?2 AND c.due_at IS NULL)) THEN 'stuck' \
    WHEN c.processing_state = 'error' THEN 'error' \
    WHEN c.mismatch_at IS NOT NULL THEN 'mismatch' \
    WHEN c.parked IS NOT NULL AND NOT c.dismissed THEN 'parked' \
    WHEN c.late_at IS NOT NULL THEN 'late' END";

pub(super) const LIVE: &str = "c.processing_state = 'processing'";
pub(super) const FAILED: &str = "c.processing_state = 'error'";
pub(super) const MARKED: &str =
    "(c.mismatch_at IS NOT NULL OR c.late_at IS NOT NULL OR c.parked IS NOT NULL)";

/// Rows that can be in a list at all, in the words of the partial index that has them.
pub(super) const fn candidates(list: InboxList) -> &'static str {
    match list {
        InboxList::Stuck => LIVE,
        InboxList::Error => FAILED,
        InboxList::Mismatch | InboxList::Parked | InboxList::Late => MARKED,
        InboxList::Rejected => "FALSE",
    }
}

pub(super) fn clock_params(workspace: Workspace, now: Now) -> [Value; 3] {
    [
        workspace.0.into(),
        now.lease.0.into(),
        (now.wall.as_millis().saturating_add(millis(limits::CLOCK_SLACK))).into(),
    ]
}

pub(super) fn counts(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    now: Now,
) -> Result<Vec<(InboxList, u64)>, StoreError> {
    // Two statements: a condition that is usually empty would hide the indexes from SQLite.
    let (of_claims, of_deliveries) = match only {
        None => ("", ""),
        Some(_) => (
            " AND c.automation_id IN (SELECT id FROM automations WHERE workspace_id = ?1 \
               AND name IN (SELECT value FROM json_each(?4)))",
            " AND automation IN (SELECT value FROM json_each(?2))",
        ),
    };
    let names = only.map(|only| serde_json::json!(only).to_string());
    let of = |rows: &str| {
        format!("SELECT {LIST_OF} AS list FROM claims c WHERE c.workspace_id = ?1 AND {rows}{of_claims}")
    };
    let sql = format!(
        "SELECT list, count(*) FROM ({} UNION ALL {} UNION ALL {} AND c.processing_state IN ('none', 'done')) \
         GROUP BY list",
        of(LIVE),
        of(FAILED),
        of(MARKED),
    );
    let mut found = vec![];
    let mut statement = db.prepare_cached(&sql)?;
    let clocks = clock_params(workspace, now).into_iter();
    let mut rows = statement.query(params_from_iter(clocks.chain(names.clone().map(Value::from))))?;
    while let Some(r) = rows.next()? {
        if let Some(list) = r.get::<_, Option<String>>(0)?.as_deref().and_then(InboxList::parse) {
            found.push((list, r.get::<_, i64>(1)?));
        }
    }
    let of_workspace = std::iter::once(Value::from(workspace.0));
    let rejected: i64 = db
        .prepare_cached(&format!(
            "SELECT count(*) FROM deliveries WHERE verdict IN ('rejected', 'unverified') \
             AND workspace_id = ?1{of_deliveries}"
        ))?
        .query_row(params_from_iter(of_workspace.clone().chain(names.clone().map(Value::from))), |r| {
            r.get(0)
        })?;
    let parked: i64 = db
        .prepare_cached(&format!(
            "SELECT count(*) FROM deliveries WHERE parked IS NOT NULL AND verdict = 'rejected' \
             AND workspace_id = ?1{of_deliveries}"
        ))?
        .query_row(params_from_iter(of_workspace.chain(names.map(Value::from))), |r| r.get(0))?;
    found.extend([(InboxList::Rejected, rejected - parked), (InboxList::Parked, parked)]);
    Ok(InboxList::ALL
        .into_iter()
        .map(|list| {
            let count = found.iter().filter(|(l, _)| *l == list).map(|(_, n)| *n).sum::<i64>();
            (list, u64::try_from(count).unwrap_or_default())
        })
        .collect())
}

/// The number of an automation that has been seen.
pub(super) fn automation(
    db: &Connection,
    workspace: Workspace,
    name: &AutomationName,
) -> Result<Option<i64>, StoreError> {
    Ok(db
        .prepare_cached("SELECT id FROM automations WHERE workspace_id = ?1 AND name = ?2")?
        .query_row(params![workspace.0, name.as_str()], |r| r.get(0))
        .optional()?)
}

const HISTORY: &str = "SELECT h.at, h.kind, h.reason, h.attempt, h.actor, h.note, h.id FROM history h \
    JOIN claims c ON c.id = h.claim_row WHERE c.claim_id = ?1 AND c.workspace_id = ?2";

fn history_row(r: &Row<'_>) -> rusqlite::Result<HistoryRow> {
    Ok(HistoryRow {
        at: ts(r.get(0)?),
        kind: r.get(1)?,
        reason: r.get(2)?,
        attempt: r.get(3)?,
        actor: r.get(4)?,
        note: r.get(5)?,
    })
}

/// The names of a workspace's automations, the oldest first: as many as a new name is compared to.
pub(super) fn automation_names(db: &Connection, workspace: Workspace) -> Result<Vec<String>, StoreError> {
    let mut statement =
        db.prepare_cached("SELECT name FROM automations WHERE workspace_id = ?1 ORDER BY id LIMIT ?2")?;
    let names = statement.query_map(params![workspace.0, limits::NAMES_COMPARED_MAX as i64], |r| r.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// The newest rows that one page takes, oldest of them first.
pub(super) fn history(db: &Connection, id: ClaimRef) -> Result<Vec<HistoryRow>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{HISTORY} ORDER BY h.id DESC LIMIT ?3"))?;
    let rows = statement
        .query_map(params![&id.id.0[..], id.workspace.0, limits::PAGE_ROWS_MAX], history_row)?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().rev().collect())
}

pub(super) fn history_page(
    db: &Connection,
    id: ClaimRef,
    after: Option<i64>,
    limit: u32,
) -> Result<Page<HistoryRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let mut statement = db.prepare_cached(&format!("{HISTORY} AND h.id > ?3 ORDER BY h.id LIMIT ?4"))?;
    let found = statement
        .query_map(params![&id.id.0[..], id.workspace.0, after.unwrap_or(0), limit], |r| {
            Ok((r.get::<_, i64>(6)?, history_row(r)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|(id, _)| *id);
    Ok(Page { rows: found.into_iter().map(|(_, row)| row).collect(), next })
}

pub(super) fn work(db: &Connection, id: ClaimRef) -> Result<Option<Work>, StoreError> {
    let Some(stored) = row::load(db, id)? else { return Ok(None) };
    let payload = db
        .prepare_cached("SELECT body, json FROM payloads WHERE claim_row = ?1")?
        .query_row([stored.row], |r| Ok(Payload { body: r.get(0)?, json: r.get(1)? }))
        .optional()?;
    let steps = super::steps::of_claim(db, stored.row)?;
    let (version, view) = (stored.version, stored.view);
    Ok(Some(Work { claim: view.claim, version, automation: view.automation, key: view.key, payload, steps }))
}

/// The automations of a JSON list of workspaces and names, looked up once for a whole statement.
macro_rules! named {
    ($list:literal) => {
        concat!(
            "SELECT n.id FROM json_each(",
            $list,
            ") j JOIN automations n ON n.workspace_id = j.value ->> 0 AND n.name = j.value ->> 1"
        )
    };
}

/// Such a list.
fn listed(names: &Names) -> String {
    let names: Vec<(i64, &str)> = names.iter().map(|(of, name)| (of.0, name.as_str())).collect();
    serde_json::json!(names).to_string()
}

/// Due by its time, or `processing` under a runner that is gone or went stale; of `runs`, if given, and nothing that is
/// new of `no_new`.
pub(super) fn due(
    db: &Connection,
    now: Now,
    boot: Boot,
    (runs, no_new): (Option<&Names>, &Names),
    limit: u32,
) -> Result<Vec<Due>, StoreError> {
    let mut statement = db.prepare_cached(concat!(
        // Of each workspace its oldest, and then the first of each, the second of each, …
        "SELECT workspace_id, claim_id, name, is_new FROM ( \
           SELECT c.workspace_id, c.claim_id, au.name, c.due_at AS at, c.attempt = 0 AND c.due_at > ?9 AS is_new, \
             row_number() OVER (PARTITION BY c.workspace_id ORDER BY c.due_at, c.id) AS place \
             FROM automations au CROSS JOIN (SELECT 0 AS tried UNION ALL SELECT 1) k \
             CROSS JOIN claims c ON c.id IN (SELECT d.id FROM claims d \
               WHERE d.automation_id = au.id AND (d.attempt > 0) = k.tried AND d.due_at IS NOT NULL AND d.flow = 1 \
               AND d.due_at <= CASE WHEN k.tried = 0 AND au.id IN (",
        named!("?10"),
        ") THEN ?9 ELSE ?1 END AND (d.record IS NULL OR d.processing_state = 'processing' \
               OR d.due_at <= ?7 OR NOT EXISTS (SELECT 1",
        earlier!("d.workspace_id", "d.record", "d.id"),
        ")) ORDER BY d.due_at, d.id LIMIT ?5) \
             WHERE au.paused_at IS NULL AND (?6 IS NULL OR au.id IN (",
        named!("?6"),
        ")) \
           UNION ALL \
           SELECT c.workspace_id, c.claim_id, a.name, c.processing_started_at, 0, 0 FROM claims c \
             JOIN automations a ON a.id = c.automation_id \
             WHERE c.processing_state = 'processing' AND c.flow = 1 AND c.due_at IS NULL \
             AND (c.lease_expires <= ?2 OR (c.holder = 'runner' AND c.boot >= ?3 AND c.boot < ?4)) \
             AND a.paused_at IS NULL AND (?6 IS NULL OR c.automation_id IN (",
        named!("?6"),
        "))) WHERE place <= ?5 ORDER BY place, at LIMIT ?8",
    ))?;
    let over = boot.over();
    due_rows(statement.query(params![
        now.wall.as_millis(),
        now.lease.0,
        over.start,
        over.end,
        limit,
        runs.map(listed),
        now.wall.before(UNSEEN).as_millis(),
        limit.saturating_add(WORKSPACES_SEEN),
        now.wall.before(limits::WAITS_UNSEEN_MAX).as_millis(),
        listed(no_new),
    ])?)
}

/// The automations that have work that is due, and are not `runnable`.
pub(super) fn stranded(
    db: &Connection,
    now: Now,
    boot: Boot,
    runnable: &Names,
) -> Result<Vec<(Workspace, AutomationName)>, StoreError> {
    let mut statement = db.prepare_cached(concat!(
        "SELECT workspace_id, name FROM automations au WHERE paused_at IS NULL AND (EXISTS ( \
           SELECT 1 FROM claims c WHERE c.automation_id = au.id AND (c.attempt > 0) IN (0, 1) \
             AND c.due_at <= ?1 AND c.due_at IS NOT NULL AND c.flow = 1) \
         OR id IN (SELECT +automation_id FROM claims \
             WHERE processing_state = 'processing' AND flow = 1 AND due_at IS NULL \
             AND (lease_expires <= ?2 OR (holder = 'runner' AND boot >= ?3 AND boot < ?4)))) \
         AND id NOT IN (",
        named!("?5"),
        ") ORDER BY id LIMIT ?6",
    ))?;
    let over = boot.over();
    let (now, runnable) = ((now.wall.as_millis(), now.lease.0), listed(runnable));
    let mut rows = statement.query(params![now.0, now.1, over.start, over.end, runnable, STRANDED_MAX])?;
    let mut found = Vec::new();
    while let Some(r) = rows.next()? {
        // One whose name is unreadable is told where its work is looked for.
        if let Ok(name) = AutomationName::try_from(r.get::<_, String>(1)?.as_str()) {
            found.push((Workspace(r.get(0)?), name));
        }
    }
    Ok(found)
}

/// Whose turn it is, of rows of workspace, id, automation and whether it is new. One bad row never stops a sweep: it is
/// left out, and told.
pub(super) fn due_rows(mut rows: Rows<'_>) -> Result<Vec<Due>, StoreError> {
    let mut due = Vec::new();
    while let Some(r) = rows.next()? {
        let (workspace, id) = (Workspace(r.get(0)?), ClaimId(r.get(1)?));
        match AutomationName::try_from(r.get::<_, String>(2)?.as_str()) {
            Ok(automation) => due.push(Due { id: ClaimRef { workspace, id }, automation, is_new: r.get(3)? }),
            Err(_) => {
                tracing::error!(claim = %id, "what is due is left out: its automation's name is unreadable")
            }
        }
    }
    Ok(due)
}

//! Reads a store's [`Vitals`], and proves that it takes a write.

use std::path::Path;

use oncegate_core::claim::Boot;
use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_core::time::{Now, Timestamp, millis};
use rusqlite::{Connection, OptionalExtension, params};

use super::queries::LIST_OF;
use super::{disk, row};
use crate::StoreError;
use crate::vitals::{Standing, Vitals};

/// All but the clocks.
pub(super) fn read(db: &Connection, dir: &Path, now: Now, boot: Boot) -> Result<Vitals, StoreError> {
    let (due, due_since) = due(db, now, boot)?;
    let sizes = disk::sizes(dir)?;
    let ticked_at: Option<i64> = db
        .prepare_cached("SELECT value FROM meta WHERE name = 'wall'")?
        .query_row([], |r| r.get(0))
        .optional()?;
    Ok(Vitals {
        inbox: inbox(db, now)?,
        due,
        due_since,
        database_bytes: sizes.database,
        wal_bytes: Some(sizes.wal),
        free_bytes: Some(sizes.free),
        now: now.wall,
        ticked_at: ticked_at.map(row::ts),
        clock_is_doubtful: false,
        backed_up_at: disk::newest_backup(dir)?.map(|backup| backup.at),
    })
}

/// Counted as [`super::queries::counts`] does, over all workspaces. The age is that of what made it stand there.
fn inbox(db: &Connection, now: Now) -> Result<Vec<Standing>, StoreError> {
    const SINCE: &str = "CASE \
        WHEN c.processing_state = 'processing' THEN c.processing_started_at \
        WHEN c.processing_state = 'error' THEN c.error_at \
        ELSE coalesce(c.mismatch_at, c.late_at, c.first_stop_at, c.updated_at) END";
    let of = |rows: &str| {
        format!("SELECT {LIST_OF} AS list, {SINCE} AS since FROM claims c WHERE ?1 IS NULL AND {rows}")
    };
    let sql = format!(
        "SELECT list, count(*), min(since) FROM ({} UNION ALL {} UNION ALL {}) WHERE list IS NOT NULL GROUP BY list",
        of("c.processing_state = 'processing'"),
        of("c.processing_state = 'error'"),
        of("(c.mismatch_at IS NOT NULL OR c.late_at IS NOT NULL OR c.parked IS NOT NULL) \
            AND c.processing_state IN ('none', 'done')"),
    );
    let ahead = now.wall.as_millis().saturating_add(millis(limits::CLOCK_SLACK));
    let mut found: Vec<(Option<InboxList>, i64, Option<i64>)> = db
        .prepare_cached(&sql)?
        .query_map(params![None::<i64>, now.lease.0, ahead], |r| {
            Ok((InboxList::parse(&r.get::<_, String>(0)?), r.get(1)?, r.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    for (list, which) in [
        (InboxList::Rejected, "verdict IN ('rejected', 'unverified') AND parked IS NULL"),
        (InboxList::Parked, "parked IS NOT NULL AND verdict = 'rejected'"),
    ] {
        let (count, since): (i64, Option<i64>) = db
            .prepare_cached(&format!("SELECT count(*), min(received_at) FROM deliveries WHERE {which}"))?
            .query_row([], |r| Ok((r.get(0)?, r.get(1)?)))?;
        match found.iter_mut().find(|(known, _, _)| *known == Some(list)) {
            Some((_, known, oldest)) => {
                *known += count;
                *oldest = oldest.iter().copied().chain(since).min();
            }
            None => found.push((Some(list), count, since)),
        }
    }
    Ok(InboxList::ALL
        .into_iter()
        .map(|list| {
            let standing = found.iter().find(|(l, _, _)| *l == Some(list));
            let count = standing.map_or(0, |(_, count, _)| count.unsigned_abs());
            Standing { list, count, since: standing.and_then(|(_, _, since)| since.map(row::ts)) }
        })
        .collect())
}

/// The same rows as [`super::queries::due`], counted.
fn due(db: &Connection, now: Now, boot: Boot) -> Result<(u64, Option<Timestamp>), StoreError> {
    let over = boot.over();
    let (count, since): (i64, Option<i64>) = db
        .prepare_cached(
            "SELECT count(*), min(at) FROM ( \
               SELECT c.due_at AS at FROM automations au JOIN claims c ON c.automation_id = au.id \
                 WHERE (c.attempt > 0) IN (0, 1) AND c.due_at <= ?1 AND c.due_at IS NOT NULL AND c.flow = 1 \
                 AND au.paused_at IS NULL \
               UNION ALL \
               SELECT c.processing_started_at FROM claims c JOIN automations a ON a.id = c.automation_id \
                 WHERE c.processing_state = 'processing' AND c.flow = 1 AND c.due_at IS NULL \
                 AND (c.lease_expires <= ?2 OR (c.holder = 'runner' AND c.boot >= ?3 AND c.boot < ?4)) \
                 AND a.paused_at IS NULL)",
        )?
        .query_row(params![now.wall.as_millis(), now.lease.0, over.start, over.end], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })?;
    Ok((count.unsigned_abs(), since.map(row::ts)))
}

/// Pages for one claim with its history and its place in the indexes.
const PROBE_BYTES: i64 = 64 * 1024;

/// Writes as much as a claim would and takes it away again. A full disk refuses that, while it may still take what
/// changes in its place, such as a tick. The pages stay in the file and are used again.
pub(super) fn probe(db: &Connection, now: Now) -> Result<(), StoreError> {
    let mut put = db.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('probe', ?1) ON CONFLICT DO UPDATE SET value = excluded.value",
    )?;
    put.execute([rusqlite::types::Value::Blob(vec![0; PROBE_BYTES.unsigned_abs() as usize])])?;
    put.execute([now.wall.as_millis()])?;
    Ok(())
}

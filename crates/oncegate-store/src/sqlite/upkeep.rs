//! What a store does by itself: forgetting, carrying its clocks on, knowing when the next work comes.

use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::time::{Now, Timestamp, millis};
use rusqlite::{Connection, params};

use super::row;
use crate::StoreError;

/// Leaves the hash of a key and when it was done.
pub(super) fn remember_pruned(db: &Connection, id: &[u8], done_at_ms: i64) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO pruned (claim_id, done_at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET done_at = excluded.done_at",
    )?
    .execute(params![id, done_at_ms])?;
    Ok(())
}

/// The wall clock was set back to `now`: what was to happen in ten minutes still is to happen in ten minutes. Only
/// what was written by the clock that was ahead, and so seems to come from the future, moves.
pub(super) fn shift_due(db: &Connection, back: Duration, now: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE claims SET due_at = due_at - ?1 WHERE due_at IS NOT NULL AND updated_at > ?2",
        params![millis(back), now.as_millis()],
    )?;
    Ok(())
}

/// Forgets what retention has ended for.
pub(super) fn reap(db: &Connection, now: Now, limit: u32) -> Result<u64, StoreError> {
    let cut = now.wall.as_millis();
    let mut due = db.prepare_cached(
        "SELECT id, claim_id, done_at FROM claims WHERE retain_until <= ?1 ORDER BY retain_until LIMIT ?2",
    )?;
    let rows: Vec<(i64, Vec<u8>, i64)> = due
        .query_map(params![cut, limit], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
        .collect::<Result<_, _>>()?;
    for (row, id, done_at) in &rows {
        remember_pruned(db, id, *done_at)?;
        // Bodies of mismatches stand there: nothing but the hash and the date outlives retention.
        db.prepare_cached("DELETE FROM deliveries WHERE claim_id = ?1")?.execute([id])?;
        db.prepare_cached("DELETE FROM claims WHERE id = ?1")?.execute([row])?;
    }
    let forgotten = |d: Duration| now.wall.before(d).as_millis();
    db.prepare_cached("DELETE FROM pruned WHERE done_at < ?1")?
        .execute([forgotten(limits::PRUNED_KEPT_FOR)])?;
    db.prepare_cached("DELETE FROM record_runs WHERE at < ?1")?
        .execute([forgotten(Duration::from_secs(86_400))])?;
    db.prepare_cached("DELETE FROM deliveries WHERE verdict = 'unverified' AND received_at < ?1")?
        .execute([forgotten(limits::UNVERIFIED_KEPT_FOR)])?;
    Ok(rows.len() as u64)
}

/// When the next work of the runner comes due.
pub(super) fn next_due(db: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<i64> = db
        .prepare_cached(
            "SELECT min(c.due_at) FROM claims c JOIN automations a ON a.id = c.automation_id \
             WHERE c.due_at IS NOT NULL AND c.flow = 1 AND a.paused_at IS NULL",
        )?
        .query_row([], |r| r.get(0))?;
    Ok(at.map(row::ts))
}

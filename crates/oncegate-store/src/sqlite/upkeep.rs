//! What a store does by itself: forgetting, carrying its clocks on, knowing when the next work comes.

use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::LoopLimit;
use oncegate_core::time::{Now, Timestamp, millis};
use rusqlite::{Connection, params};

use super::row;
use crate::StoreError;
use crate::observer::{Happened, Journal};

/// Leaves the hash of a key and when it was done.
pub(super) fn remember_pruned(
    db: &Connection,
    id: &[u8],
    done_at_ms: i64,
    now: Now,
) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO pruned (claim_id, done_at, pruned_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT DO UPDATE SET done_at = excluded.done_at, pruned_at = excluded.pruned_at",
    )?
    .execute(params![id, done_at_ms, now.wall.as_millis()])?;
    Ok(())
}

/// The wall clock was set back to `now`: what was to happen in ten minutes still is to happen in ten minutes. Only
/// what was written by the clock that was ahead, and so seems to come from the future, moves.
pub(super) fn shift_due(db: &Connection, back: Duration, now: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE claims SET due_at = due_at - ?1 WHERE due_at IS NOT NULL AND updated_at > ?2",
        params![millis(back), now.as_millis()],
    )?;
    db.execute(
        "UPDATE claims SET nudge_at = nudge_at - ?1 WHERE nudge_at IS NOT NULL AND updated_at > ?2",
        params![millis(back), now.as_millis()],
    )?;
    Ok(())
}

/// Forgets what retention has ended for.
///
/// Of each kind at most `limit` rows go; the answer is the number of the kind of which most went, so that `limit`
/// means that there may be more.
pub(super) fn reap(db: &Connection, now: Now, limit: u32, journal: &Journal) -> Result<u64, StoreError> {
    let mut most = reap_claims(db, now, limit, journal)?;
    for (kind, sql, kept_for) in REAPED {
        let cut = now.wall.before(kept_for).as_millis();
        let rows = db.prepare_cached(sql)?.execute(params![cut, limit])?;
        most = most.max(rows as u64);
        journal.note(Happened::Reaped(kind, rows as u64));
    }
    Ok(most)
}

/// What goes by its date alone, with the word it is counted under; `?1` is the date before which it goes, `?2` how many
/// rows may.
const REAPED: [(&str, &str, Duration); 9] = [
    (
        "undos",
        "UPDATE bulk_rows SET before = NULL WHERE (bulk_id, claim_row) IN \
         (SELECT r.bulk_id, r.claim_row FROM bulk_acts k CROSS JOIN bulk_rows r ON r.bulk_id = k.id \
         WHERE k.finished_at < ?1 AND r.before IS NOT NULL LIMIT ?2)",
        limits::BULK_UNDO_KEPT_FOR,
    ),
    (
        "requests",
        "DELETE FROM api_requests WHERE (workspace_id, idempotency_key) IN \
         (SELECT workspace_id, idempotency_key FROM api_requests WHERE at < ?1 LIMIT ?2)",
        limits::REQUESTS_KEPT_FOR,
    ),
    (
        "hashes",
        "DELETE FROM pruned WHERE claim_id IN (SELECT claim_id FROM pruned WHERE pruned_at < ?1 LIMIT ?2)",
        limits::PRUNED_KEPT_FOR,
    ),
    (
        "record_runs",
        "DELETE FROM record_runs WHERE (record_hash, automation_id, at, claim_id, attempt) IN \
         (SELECT record_hash, automation_id, at, claim_id, attempt FROM record_runs WHERE at < ?1 LIMIT ?2)",
        Duration::from_secs(86_400),
    ),
    (
        "unverified",
        "DELETE FROM deliveries WHERE id IN \
         (SELECT id FROM deliveries WHERE verdict = 'unverified' AND received_at < ?1 LIMIT ?2)",
        limits::UNVERIFIED_KEPT_FOR,
    ),
    (
        "released_bodies",
        "UPDATE deliveries SET headers = NULL, body = NULL, body_hash = NULL WHERE id IN \
         (SELECT id FROM deliveries WHERE verdict = 'released' AND body IS NOT NULL AND settled_at < ?1 LIMIT ?2)",
        limits::RELEASED_BODY_KEPT_FOR,
    ),
    (
        "set_aside",
        "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries \
         WHERE parked IS NOT NULL AND verdict = 'rejected' AND last_at < ?1 LIMIT ?2)",
        limits::SET_ASIDE_KEPT_FOR,
    ),
    (
        "senders",
        "DELETE FROM senders WHERE (workspace_id, sender_hash) IN \
         (SELECT workspace_id, sender_hash FROM senders WHERE at < ?1 LIMIT ?2)",
        LoopLimit::WITHIN_MAX,
    ),
    (
        // It names somebody, so it goes with what it tells of.
        "sender_notices",
        "DELETE FROM notices WHERE id IN \
         (SELECT id FROM notices WHERE kind = 'sender_limit' AND last_at < ?1 LIMIT ?2)",
        limits::SET_ASIDE_KEPT_FOR,
    ),
];

/// What somebody still has to look at stays, with its bodies, however old it is.
fn reap_claims(db: &Connection, now: Now, limit: u32, journal: &Journal) -> Result<u64, StoreError> {
    let mut due = db.prepare_cached(
        "SELECT id, claim_id, done_at FROM claims WHERE retain_until <= ?1 AND mismatch_at IS NULL AND late_at IS NULL \
         ORDER BY retain_until LIMIT ?2",
    )?;
    let rows: Vec<(i64, Vec<u8>, i64)> = due
        .query_map(params![now.wall.as_millis(), limit], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut room = limit as usize;
    for (row, id, done_at) in &rows {
        // Bodies of mismatches stand there: nothing but the hash and the date outlives retention.
        room -= db
            .prepare_cached(
                "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE claim_id = ?1 LIMIT ?2)",
            )?
            .execute(params![id, room as i64])?;
        // There may be more of this claim's: it goes when they are gone.
        if room == 0 {
            return Ok(u64::from(limit));
        }
        remember_pruned(db, id, *done_at, now)?;
        db.prepare_cached("DELETE FROM claims WHERE id = ?1")?.execute([row])?;
        journal.note(Happened::Reaped("claims", 1));
    }
    Ok((limit as usize - room).max(rows.len()) as u64)
}

/// When the next work of the runner comes due.
pub(super) fn next_due(db: &Connection, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<i64> = db
        .prepare_cached(
            "SELECT min(at) FROM (SELECT (SELECT c.due_at FROM claims c WHERE c.automation_id = au.id \
               AND (c.attempt > 0) = k.tried AND c.due_at > ?1 AND c.due_at IS NOT NULL AND c.flow = 1 \
               ORDER BY c.due_at LIMIT 1) AS at \
             FROM automations au CROSS JOIN (SELECT 0 AS tried UNION ALL SELECT 1) k WHERE au.paused_at IS NULL)",
        )?
        .query_row([after.as_millis()], |r| r.get(0))?;
    Ok(at.map(row::ts))
}

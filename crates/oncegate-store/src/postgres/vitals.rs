//! Reads a store's [`Vitals`].

use oncegate_core::claim::Boot;
use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_core::time::{Now, Timestamp, millis};

use super::connection::Connection;
use super::error::Fault;
use super::queries;
use super::row::ts;
use crate::vitals::{Standing, Vitals};

/// All but whether the clock is doubtful. Backups are the server's, and so are its log and its disk.
pub(super) async fn read(db: &Connection, now: Now, boot: Boot) -> Result<Vitals, Fault> {
    let (due, due_since) = due(db, now, boot).await?;
    let sql = "SELECT pg_database_size(current_database()), (SELECT wall FROM clock WHERE id = 1)";
    let row = queries::row_opt(db, sql, &[]).await?;
    Ok(Vitals {
        inbox: inbox(db, now).await?,
        due,
        due_since,
        database_bytes: row.as_ref().map_or(0, |r| r.get::<_, i64>(0)).unsigned_abs(),
        wal_bytes: None,
        free_bytes: None,
        now: now.wall,
        ticked_at: row.and_then(|r| r.get::<_, Option<i64>>(1)).map(ts),
        clock_is_doubtful: false,
        backed_up_at: None,
    })
}

/// Which list a claim stands in, if any, as [`oncegate_core::inbox::list_of`] has it; `$1` is the lease clock, `$2` the
/// wall clock and what it may be off.
const LIST_OF: &str = "CASE \
    WHEN c.processing_state = 'processing' AND (c.processing_started_at > $2 \
        OR (c.lease_expires <= $1 AND c.due_at IS NULL)) THEN 'stuck' \
    WHEN c.processing_state = 'error' THEN 'error' \
    WHEN c.mismatch_at IS NOT NULL THEN 'mismatch' \
    WHEN c.parked IS NOT NULL AND NOT c.dismissed THEN 'parked' \
    WHEN c.late_at IS NOT NULL THEN 'late' END";

/// Counted as the lists are, over all workspaces. The age is that of what made it stand there.
async fn inbox(db: &Connection, now: Now) -> Result<Vec<Standing>, Fault> {
    const SINCE: &str = "CASE \
        WHEN c.processing_state = 'processing' THEN c.processing_started_at \
        WHEN c.processing_state = 'error' THEN c.error_at \
        ELSE coalesce(c.mismatch_at, c.late_at, c.first_stop_at, c.updated_at) END";
    let of = |rows: &str| format!("SELECT {LIST_OF} AS list, {SINCE} AS since FROM claims c WHERE {rows}");
    let sql = format!(
        "SELECT list, count(*), min(since) FROM ({} UNION ALL {} UNION ALL {}) c WHERE list IS NOT NULL GROUP BY list",
        of("c.processing_state = 'processing'"),
        of("c.processing_state = 'error'"),
        of("(c.mismatch_at IS NOT NULL OR c.late_at IS NOT NULL OR c.parked IS NOT NULL) \
            AND c.processing_state IN ('none', 'done')"),
    );
    let ahead = now.wall.as_millis().saturating_add(millis(limits::CLOCK_SLACK));
    let mut found: Vec<(Option<InboxList>, i64, Option<i64>)> =
        queries::rows(db, &sql, &[&now.lease.0, &ahead])
            .await?
            .iter()
            .map(|r| (InboxList::parse(r.get(0)), r.get(1), r.get(2)))
            .collect();
    let sql = "SELECT parked IS NULL, count(*), min(received_at) FROM deliveries \
        WHERE verdict IN ('rejected', 'unverified') AND (parked IS NULL OR verdict = 'rejected') GROUP BY 1";
    for r in queries::rows(db, sql, &[]).await? {
        let list = if r.get(0) { InboxList::Rejected } else { InboxList::Parked };
        let (count, since): (i64, Option<i64>) = (r.get(1), r.get(2));
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
            Standing { list, count, since: standing.and_then(|(_, _, since)| since.map(ts)) }
        })
        .collect())
}

/// The same rows as [`queries::due`], counted.
async fn due(db: &Connection, now: Now, boot: Boot) -> Result<(u64, Option<Timestamp>), Fault> {
    let over = boot.over();
    let found = queries::row_opt(
        db,
        "SELECT count(*), min(at) FROM ( \
           SELECT c.due_at AS at FROM claims c \
             JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
             WHERE c.due_at <= $1 AND c.due_at IS NOT NULL AND c.flow AND a.paused_at IS NULL \
           UNION ALL \
           SELECT c.processing_started_at FROM claims c \
             JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
             WHERE c.processing_state = 'processing' AND c.flow AND c.due_at IS NULL \
             AND (c.lease_expires <= $2 OR (c.holder = 'runner' AND c.boot >= $3 AND c.boot < $4)) \
             AND a.paused_at IS NULL) due",
        &[&now.wall.as_millis(), &now.lease.0, &over.start, &over.end],
    )
    .await?;
    Ok(found.map_or((0, None), |r| (r.get::<_, i64>(0).unsigned_abs(), r.get::<_, Option<i64>>(1).map(ts))))
}

//! What a store does by itself: forgetting; and how a recovery ends.
//!
//! Every node forgets, each when its turn comes. Rows that another one is at are passed over, and every condition is
//! judged again by the statement that deletes, so that two at once do no more than one.

use std::time::Duration;

use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::policy::LoopLimit;

use super::context::{Context, read, transact};
use super::error::Fault;
use super::store::PgStore;
use super::{nodes, payloads, queries, workspaces};
use crate::StoreError;
use crate::observer::Happened;

/// Forgets what retention has ended for: of each kind at most `limit` rows, one workspace after the other. The answer
/// is the number of the kind of which most went, so that `limit` means that there may be more.
pub(super) async fn reap(store: &PgStore, limit: u32) -> Result<u64, StoreError> {
    // What a restored store remembers may be all that is known.
    if store.shared.recovering() || store.shared.is_superseded() || is_doubtful(store).await? {
        return Ok(0);
    }
    // A deleted workspace goes first: somebody asked for it.
    if workspaces::purge(store).await? {
        return Ok(u64::from(limit));
    }
    let open = read!(store, |db| {
        queries::rows(&db, "SELECT id FROM workspaces WHERE deleted_at IS NULL ORDER BY id", &[]).await
    })?;
    let (mut claims, mut by_date, mut bodies) = (0, [0; REAPED.len()], 0);
    for r in open {
        let workspace = Workspace(r.get(0));
        claims += reap_claims(store, workspace, left(limit, claims)).await?;
        let wanted = what_is_over(store, workspace).await?;
        for (n, gone) in by_date.iter_mut().enumerate().filter(|(n, _)| wanted[*n]) {
            let room = left(limit, *gone);
            let rows: Result<u64, StoreError> =
                transact!(&store.shared, |cx| cx.reap_by_date(workspace, &REAPED[n], room).await);
            *gone += rows?;
        }
        bodies += payloads::remove(store, workspace, left(limit, bodies)).await?;
    }
    Ok(by_date.into_iter().chain([claims, bodies]).max().unwrap_or(0).min(u64::from(limit)))
}

fn left(limit: u32, gone: u64) -> i64 {
    i64::try_from(u64::from(limit).saturating_sub(gone)).unwrap_or(0)
}

async fn is_doubtful(store: &PgStore) -> Result<bool, StoreError> {
    read!(store, |db| {
        let now = store.shared.ask_time(&db).await?;
        Ok(store.shared.cluster.is_doubtful(now))
    })
}

/// What goes by its date alone.
struct ByDate {
    /// The word it is counted under.
    kind: &'static str,
    /// Takes it away: `$1` the workspace, `$2` the date before which it goes, `$3` how many rows may.
    sql: &'static str,
    /// Whether there is any: `@` stands for that date.
    any: &'static str,
    kept_for: Duration,
}

const REAPED: [ByDate; 9] = [
    ByDate {
        kind: "undos",
        sql: "UPDATE bulk_rows SET before = NULL WHERE workspace_id = $1 AND (bulk_id, position) IN \
              (SELECT r.bulk_id, r.position FROM bulk_acts k \
              JOIN bulk_rows r ON r.workspace_id = k.workspace_id AND r.bulk_id = k.id \
              WHERE k.workspace_id = $1 AND k.finished_at < $2 AND r.before IS NOT NULL LIMIT $3)",
        any: "bulk_acts k JOIN bulk_rows r ON r.workspace_id = k.workspace_id AND r.bulk_id = k.id \
              WHERE k.workspace_id = $1 AND k.finished_at < @ AND r.before IS NOT NULL",
        kept_for: limits::BULK_UNDO_KEPT_FOR,
    },
    ByDate {
        kind: "requests",
        sql: "DELETE FROM api_requests WHERE workspace_id = $1 AND idempotency_key IN \
              (SELECT idempotency_key FROM api_requests WHERE workspace_id = $1 AND at < $2 LIMIT $3)",
        any: "api_requests WHERE workspace_id = $1 AND at < @",
        kept_for: limits::REQUESTS_KEPT_FOR,
    },
    ByDate {
        kind: "hashes",
        sql: "DELETE FROM pruned WHERE workspace_id = $1 AND pruned_at < $2 AND claim_id IN \
              (SELECT claim_id FROM pruned WHERE workspace_id = $1 AND pruned_at < $2 LIMIT $3)",
        any: "pruned WHERE workspace_id = $1 AND pruned_at < @",
        kept_for: limits::PRUNED_KEPT_FOR,
    },
    ByDate {
        kind: "record_runs",
        sql: "DELETE FROM record_runs WHERE workspace_id = $1 \
              AND (record_hash, automation_id, at, claim_id, attempt) IN \
              (SELECT record_hash, automation_id, at, claim_id, attempt FROM record_runs \
              WHERE workspace_id = $1 AND at < $2 LIMIT $3)",
        any: "record_runs WHERE workspace_id = $1 AND at < @",
        kept_for: Duration::from_secs(86_400),
    },
    ByDate {
        kind: "unverified",
        sql: "DELETE FROM deliveries WHERE workspace_id = $1 AND verdict = 'unverified' AND id IN \
              (SELECT id FROM deliveries WHERE workspace_id = $1 AND verdict = 'unverified' AND received_at < $2 \
              LIMIT $3)",
        any: "deliveries WHERE workspace_id = $1 AND verdict = 'unverified' AND received_at < @",
        kept_for: limits::UNVERIFIED_KEPT_FOR,
    },
    ByDate {
        kind: "released_bodies",
        sql: "UPDATE deliveries SET headers = NULL, body = NULL, body_hash = NULL WHERE workspace_id = $1 AND id IN \
              (SELECT id FROM deliveries WHERE workspace_id = $1 AND verdict = 'released' AND body IS NOT NULL \
              AND settled_at < $2 LIMIT $3)",
        any: "deliveries WHERE workspace_id = $1 AND verdict = 'released' AND body IS NOT NULL AND settled_at < @",
        kept_for: limits::RELEASED_BODY_KEPT_FOR,
    },
    ByDate {
        kind: "set_aside",
        sql: "DELETE FROM deliveries WHERE workspace_id = $1 AND verdict = 'rejected' AND last_at < $2 AND id IN \
              (SELECT id FROM deliveries WHERE workspace_id = $1 AND parked IS NOT NULL AND verdict = 'rejected' \
              AND last_at < $2 LIMIT $3)",
        any: "deliveries WHERE workspace_id = $1 AND parked IS NOT NULL AND verdict = 'rejected' AND last_at < @",
        kept_for: limits::SET_ASIDE_KEPT_FOR,
    },
    ByDate {
        kind: "senders",
        sql: "DELETE FROM senders WHERE workspace_id = $1 AND at < $2 AND sender_hash IN \
              (SELECT sender_hash FROM senders WHERE workspace_id = $1 AND at < $2 LIMIT $3)",
        any: "senders WHERE workspace_id = $1 AND at < @",
        kept_for: LoopLimit::WITHIN_MAX,
    },
    // It names somebody, so it goes with what it tells of.
    ByDate {
        kind: "sender_notices",
        sql: "DELETE FROM notices WHERE workspace_id = $1 AND kind = 'sender_limit' AND last_at < $2 AND id IN \
              (SELECT id FROM notices WHERE workspace_id = $1 AND kind = 'sender_limit' AND last_at < $2 LIMIT $3)",
        any: "notices WHERE workspace_id = $1 AND kind = 'sender_limit' AND last_at < @",
        kept_for: limits::SET_ASIDE_KEPT_FOR,
    },
];

/// Which kinds a workspace has something of: one question, because mostly there is nothing.
async fn what_is_over(store: &PgStore, workspace: Workspace) -> Result<Vec<bool>, StoreError> {
    read!(store, |db| {
        let now = store.shared.ask_time(&db).await?;
        let asked: Vec<String> = REAPED
            .iter()
            .enumerate()
            .map(|(n, r)| format!("EXISTS (SELECT 1 FROM {})", r.any.replace('@', &format!("${}", n + 2))))
            .collect();
        let cuts: Vec<i64> = REAPED.iter().map(|r| now.wall.before(r.kept_for).as_millis()).collect();
        let mut params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![&workspace.0];
        params.extend(cuts.iter().map(|cut| cut as &(dyn tokio_postgres::types::ToSql + Sync)));
        let found = queries::row_opt(&db, &format!("SELECT {}", asked.join(", ")), &params).await?;
        Ok((0..REAPED.len()).map(|n| found.as_ref().is_some_and(|r| r.get(n))).collect())
    })
}

/// What somebody still has to look at stays, with its bodies, however old it is.
const OVER: &str = "retain_until <= $2 AND mismatch_at IS NULL AND late_at IS NULL";

/// First the marks are committed, then the claims go: whoever looks meets one of them, or both, on any database.
async fn reap_claims(store: &PgStore, workspace: Workspace, room: i64) -> Result<u64, StoreError> {
    if room == 0 {
        return Ok(0);
    }
    let due = read!(store, |db| {
        let now = store.shared.ask_time(&db).await?;
        let sql = format!(
            "SELECT claim_id FROM claims WHERE workspace_id = $1 AND {OVER} ORDER BY retain_until LIMIT $3"
        );
        let rows = queries::rows(&db, &sql, &[&workspace.0, &now.wall.as_millis(), &room]).await?;
        Ok(rows.iter().map(|r| r.get(0)).collect::<Vec<Vec<u8>>>())
    })?;
    if due.is_empty() {
        return Ok(0);
    }
    let marked: Result<(), StoreError> = transact!(&store.shared, |cx| cx.mark_pruned(workspace, &due).await);
    marked?;
    transact!(&store.shared, |cx| cx.forget_claims(workspace, &due, room).await)
}

impl Context<'_> {
    /// Locks those of the claims that still are over, and that nobody else is at.
    async fn still_over(&self, workspace: Workspace, ids: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, i64)>, Fault> {
        if self.clock_is_doubtful {
            return Ok(vec![]);
        }
        let sql = format!(
            "SELECT claim_id, done_at FROM claims WHERE workspace_id = $1 AND {OVER} AND claim_id = ANY($3) \
             ORDER BY position FOR UPDATE SKIP LOCKED"
        );
        let rows = self.query(&sql, &[&workspace.0, &self.now.wall.as_millis(), &ids]).await?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
    }

    async fn mark_pruned(&self, workspace: Workspace, ids: &[Vec<u8>]) -> Result<(), Fault> {
        let (ids, done_at): (Vec<Vec<u8>>, Vec<i64>) =
            self.still_over(workspace, ids).await?.into_iter().unzip();
        self.execute(
            "INSERT INTO pruned (workspace_id, claim_id, done_at, pruned_at) \
             SELECT $1, u.id, u.done_at, $4 FROM unnest($2::bytea[], $3::bigint[]) AS u (id, done_at) \
             ON CONFLICT (workspace_id, claim_id) \
             DO UPDATE SET done_at = excluded.done_at, pruned_at = excluded.pruned_at",
            &[&workspace.0, &ids, &done_at, &self.now.wall.as_millis()],
        )
        .await?;
        Ok(())
    }

    /// How many claims, or deliveries of theirs, went. None goes whose mark is not committed.
    async fn forget_claims(&self, workspace: Workspace, ids: &[Vec<u8>], room: i64) -> Result<u64, Fault> {
        let over = self.still_over(workspace, ids).await?;
        let marked = self
            .query(
                "SELECT claim_id, done_at FROM pruned WHERE workspace_id = $1 AND claim_id = ANY($2)",
                &[&workspace.0, &ids],
            )
            .await?;
        let marked: Vec<(Vec<u8>, i64)> = marked.iter().map(|r| (r.get(0), r.get(1))).collect();
        let over = over.iter().filter(|claim| marked.contains(claim));
        let ids: Vec<&[u8]> = over.map(|(id, _)| &id[..]).collect();
        // Bodies of mismatches stand there: nothing but the hash and the date outlives retention.
        let bodies = self
            .execute(
                "DELETE FROM deliveries WHERE workspace_id = $1 AND id IN \
                 (SELECT id FROM deliveries WHERE workspace_id = $1 AND claim_id = ANY($2) LIMIT $3)",
                &[&workspace.0, &ids, &room],
            )
            .await?;
        // There may be more of them: the claims go when they are gone.
        if bodies >= room.unsigned_abs() {
            return Ok(bodies);
        }
        let gone = self.delete_claims(workspace, &ids).await?;
        self.journal.note(Happened::Reaped("claims", gone));
        Ok(bodies.max(gone))
    }

    /// Takes claims away that are locked, with everything that is kept by their id. Their deliveries are gone already.
    pub(super) async fn delete_claims(&self, workspace: Workspace, ids: &[&[u8]]) -> Result<u64, Fault> {
        for table in ["payloads", "history", "step_calls", "bulk_rows"] {
            let sql = format!("DELETE FROM {table} WHERE workspace_id = $1 AND claim_id = ANY($2)");
            self.execute(&sql, &[&workspace.0, &ids]).await?;
        }
        let sql = "DELETE FROM claims WHERE workspace_id = $1 AND claim_id = ANY($2)";
        self.execute(sql, &[&workspace.0, &ids]).await
    }

    async fn reap_by_date(&self, workspace: Workspace, what: &ByDate, room: i64) -> Result<u64, Fault> {
        if self.clock_is_doubtful {
            return Ok(0);
        }
        let cut = self.now.wall.before(what.kept_for).as_millis();
        let rows = self.execute(what.sql, &[&workspace.0, &cut, &room]).await?;
        self.journal.note(Happened::Reaped(what.kind, rows));
        Ok(rows)
    }

    /// A person says that the store may run again. The other nodes hear of it at their next tick.
    pub(super) async fn end_recovery(&self, reason: &str, actor: &str) -> Result<bool, Fault> {
        let half = self.query_opt("SELECT 1 FROM meta WHERE name = 'restoring' FOR UPDATE", &[]).await?;
        if half.is_some() {
            return Err(Fault::Failed(StoreError::Refused(
                "the restored database has not been gone through to its end, so open claims may still look as if they \
                 could run; begin the recovery again, which goes on where it stood, and then end it"
                    .into(),
            )));
        }
        let row = self.query_opt("SELECT value FROM meta WHERE name = 'recovery' FOR UPDATE", &[]).await?;
        let Some(recovery) = nodes::recovery(row.map(|r| r.get(0)))? else { return Ok(false) };
        self.execute("DELETE FROM meta WHERE name = 'recovery'", &[]).await?;
        let backup = format!("backup of {}", recovery.gap.backup_at);
        self.audit(Workspace::DEFAULT, actor, "end_recovery", &backup, reason, None).await?;
        Ok(true)
    }
}

//! A database that was brought back by its own means (pg_restore, point-in-time recovery) is put into recovery: what
//! was open in it may have been done since, so nothing of it runs until a person has said so.
//!
//! The database cannot tell by itself that it is older than the world, so somebody has to say it before the first node
//! starts on it. First comes the mark, in one transaction: from then on no node runs anything, whatever happens here.
//! Then the claims, one workspace after the other and some at a time. Who is interrupted goes on where it stood, and
//! the recovery cannot be ended before that is through.

use std::time::Duration;

use deadpool_postgres::{Pool, Transaction};
use oncegate_core::key::{StoreSecret, Workspace};
use oncegate_core::recovery::{self, Gap, Restores};
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::clock::WALL_SQL;
use super::context::TRIES;
use super::error::{Fault, unreadable};
use super::migrations::{self, fatal};
use super::nodes::SILENT_MS;
use super::options::{Options, Target};
use super::row::{self, Columns, storable};
use super::{nodes, pool};
use crate::StoreError;
use crate::api::Recovery;

/// Claims that one transaction goes through.
const PIECE: i64 = 200;

/// Numbers that a restored database leaves out, so that none that was given after the backup is given twice: far more
/// than there can have been.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

/// How far it has come, as it stands in `meta`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Walk {
    gap: Gap,
    lease: LeaseInstant,
    source: String,
    /// The workspace that it is in, and the last position in it that was looked at.
    workspace: i64,
    position: i64,
    open_claims: u64,
}

/// Puts a restored database into recovery; `source` says for the audit where it came from. Every node must be stopped.
/// `again`: although the database says that it is in recovery, because the backup was made while it was.
///
/// What was interrupted goes on: call it again.
///
/// # Errors
/// There is no store in the database, it is in recovery already and `again` was not said, a node runs on it, or the
/// database fails.
pub async fn recover(options: &Options, source: &str, again: bool) -> Result<Recovery, StoreError> {
    let pool = pool::make(Target::parse(&options.url)?, &options.node, &options.limits)?;
    has_store(&pool).await.map_err(fatal)?;
    migrations::migrate(&pool).await?;
    mark_when_alone(&pool, options, source, again).await?;
    let mut tries = 0;
    loop {
        match go_on(&pool).await {
            Ok(Some(recovery)) => return Ok(recovery),
            Ok(None) => tries = 0,
            Err(Fault::Again(why)) if tries < TRIES => {
                tries += 1;
                tracing::debug!(why, "a piece of the recovery is tried again");
                tokio::time::sleep(Duration::from_millis(u64::from(tries) * 10)).await;
            }
            Err(fault) => return Err(fatal(fault)),
        }
    }
}

async fn has_store(pool: &Pool) -> Result<(), Fault> {
    let found = pool.get().await?.query_one("SELECT to_regclass('oncegate.meta') IS NOT NULL", &[]).await?;
    match found.get(0) {
        true => Ok(()),
        false => Err(StoreError::Refused(
            "there is no store of oncegate in this database; restore your backup into it first, or name the right one \
             with --store"
                .into(),
        )
        .into()),
    }
}

/// A node of the backup looks alive until it has been silent for long enough; one that really lives is heard of.
async fn mark_when_alone(
    pool: &Pool,
    options: &Options,
    source: &str,
    again: bool,
) -> Result<(), StoreError> {
    let (mut first, mut tries) = (None, 0);
    loop {
        match mark(pool, options, source, again).await {
            Ok(None) => return Ok(()),
            Ok(Some((name, seen_at))) => {
                if seen_at > *first.get_or_insert(seen_at) {
                    return Err(StoreError::Refused(format!(
                        "node `{name}` runs on this database; stop every node, and begin the recovery again before the \
                         first of them starts"
                    )));
                }
                options.clock.sleep(Duration::from_millis(500)).await;
            }
            Err(Fault::Again(why)) if tries < TRIES => {
                tries += 1;
                tracing::debug!(why, "marking the database again");
                tokio::time::sleep(Duration::from_millis(u64::from(tries) * 10)).await;
            }
            Err(fault) => return Err(fatal(fault)),
        }
    }
}

/// From the commit of this on, nothing runs. `Some`: this node was heard of a moment ago, and nothing was written.
async fn mark(
    pool: &Pool,
    options: &Options,
    source: &str,
    again: bool,
) -> Result<Option<(String, i64)>, Fault> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    // Whoever joins the cluster waits here too.
    let clock = tx.query_one("SELECT lease, wall FROM clock WHERE id = 1 FOR UPDATE", &[]).await?;
    if let Some(text) = super::moving::mark(&tx).await? {
        return Err(super::moving::unfinished(&text).into());
    }
    if value(&tx, "restoring").await?.is_some() {
        return Ok(None);
    }
    let simulated = options.simulated.then(|| options.clock.read().wall.as_millis());
    let now: i64 =
        tx.query_one(&format!("SELECT coalesce($1::bigint, {WALL_SQL})"), &[&simulated]).await?.get(0);
    let live = tx
        .query_opt(
            "SELECT name, seen_at FROM nodes WHERE ended_at IS NULL AND seen_at > $1::bigint - $2::bigint \
             ORDER BY seen_at DESC LIMIT 1",
            &[&now, &SILENT_MS],
        )
        .await?;
    if let Some(r) = live {
        return Ok(Some((r.get(0), r.get(1))));
    }
    if let Some(known) = nodes::recovery(value(&tx, "recovery").await?)?.filter(|_| !again) {
        return Err(StoreError::Refused(format!(
            "this database is in recovery already, since {}; end that one, or, if this is a backup that was made during \
             it, say so with --again",
            known.gap.restored_at
        ))
        .into());
    }
    // The cluster's own last tick: at most a few seconds before the last thing that the backup knows, and never after.
    let backup_at = Timestamp::from_millis(clock.get(1));
    let gap = Gap { backup_at, restored_at: Timestamp::from_millis(now).max(backup_at) };
    let restores: Restores = match value(&tx, "restores").await? {
        Some(text) => serde_json::from_str(&text).map_err(unreadable)?,
        None => Restores::default(),
    };
    let walk = Walk {
        gap,
        lease: LeaseInstant(clock.get(0)),
        source: source.to_owned(),
        workspace: 0,
        position: 0,
        open_claims: 0,
    };
    set(&tx, "restores", &restores.with(gap)).await?;
    set(&tx, "recovery", &Recovery { gap, open_claims: 0 }).await?;
    set(&tx, "restoring", &walk).await?;
    // Starts after the backup had boots of their own. A process that still runs
    // from then finds that it is not this node.
    tx.execute(
        "UPDATE nodes SET start = start + $1, ended_at = coalesce(ended_at, seen_at)",
        &[&NUMBERS_LEFT_OUT],
    )
    .await?;
    leave_numbers_out(&tx).await?;
    tx.commit().await?;
    Ok(None)
}

/// People wrote down the numbers of deliveries and tokens. A sequence does not go back with its transaction; then more
/// numbers are left out.
async fn leave_numbers_out(tx: &Transaction<'_>) -> Result<(), Fault> {
    tx.query(
        "SELECT setval(pg_get_serial_sequence(format('oncegate.%I', c.relname), a.attname), \
         nextval(pg_get_serial_sequence(format('oncegate.%I', c.relname), a.attname)) + $1) \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = 'oncegate' AND c.relkind = 'r' AND a.attidentity <> ''",
        &[&NUMBERS_LEFT_OUT],
    )
    .await?;
    Ok(())
}

/// Goes through the next piece; what the recovery is, once there is no more. Who else does the same waits for the row
/// that says how far it has come.
async fn go_on(pool: &Pool) -> Result<Option<Recovery>, Fault> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let Some(text) = value(&tx, "restoring").await? else {
        let known = nodes::recovery(value(&tx, "recovery").await?)?;
        let gone = || StoreError::Inconsistent("the recovery was ended while it began".into());
        return Ok(Some(known.ok_or_else(gone)?));
    };
    let mut walk: Walk = serde_json::from_str(&text).map_err(unreadable)?;
    let at = Now { wall: walk.gap.restored_at, lease: walk.lease };
    let found = open(&tx, &walk).await?;
    let mut recovery = None;
    if let Some(last) = found.last() {
        let secret = secret(&tx).await?;
        for r in &found {
            if restore(&tx, r, &secret, &walk, at).await? {
                walk.open_claims += 1;
            }
        }
        walk.position = last.get("position");
        set(&tx, "restoring", &walk).await?;
    } else {
        let next = "SELECT min(id) FROM workspaces WHERE id > $1 AND deleted_at IS NULL";
        match tx.query_one(next, &[&walk.workspace]).await?.get(0) {
            Some(workspace) => {
                walk = Walk { workspace, position: 0, ..walk };
                end_bulk_acts(&tx, workspace, at).await?;
                set(&tx, "restoring", &walk).await?;
            }
            None => recovery = Some(end(&tx, &walk, at).await?),
        }
    }
    tx.commit().await?;
    Ok(recovery)
}

/// Open claims that the backup knows, behind where it stands.
async fn open(tx: &Transaction<'_>, walk: &Walk) -> Result<Vec<Row>, Fault> {
    let sql = format!(
        "{} WHERE c.workspace_id = $1 AND c.position > $2 AND c.processing_state <> 'done' AND c.created_at <= $3 \
         ORDER BY c.position LIMIT $4 FOR UPDATE OF c",
        *row::SELECT
    );
    let until = walk.gap.restored_at.as_millis();
    Ok(tx.query(&sql, &[&walk.workspace, &walk.position, &until, &PIECE]).await?)
}

/// Whether the claim became an error.
async fn restore(
    tx: &Transaction<'_>,
    r: &Row,
    secret: &StoreSecret,
    walk: &Walk,
    at: Now,
) -> Result<bool, Fault> {
    let stored = match row::read(r) {
        Ok(stored) => stored,
        // Nothing of it runs, because nothing can read it; the others must not be lost for it.
        Err(Fault::Failed(error @ StoreError::Inconsistent(_))) => {
            tracing::error!(%error, "a claim of the backup is left as it is");
            return Ok(false);
        }
        Err(fault) => return Err(fault),
    };
    let Some(claim) = recovery::restored(&stored.view.claim, walk.gap, at) else { return Ok(false) };
    let (workspace, id, now) = (stored.view.workspace, stored.id(), at.wall.as_millis());
    // What was sent without an answer then was never answered, as far as this store will ever know.
    tx.execute(
        "UPDATE step_calls SET outcome = 'unknown', finished_at = $3, \
         note = 'no answer was written down before the backup' \
         WHERE workspace_id = $1 AND claim_id = $2 AND outcome = 'in_flight'",
        &[&workspace.0, &&id.0[..], &now],
    )
    .await?;
    let columns = Columns::of(secret, workspace, &claim);
    let none: Option<&str> = None;
    let bytes = &id.0[..];
    let rest: [&(dyn ToSql + Sync); 6] = [&workspace.0, &bytes, &stored.version, &none, &none, &now];
    let params: Vec<_> = columns.values().into_iter().chain(rest).collect();
    let statement = tx.prepare_cached(&row::UPDATE).await?;
    if tx.execute(&statement, &params).await? != 1 {
        return Err(Fault::Again(format!("claim {id} was changed at the same time")));
    }
    tx.execute(
        "INSERT INTO history (workspace_id, claim_id, at, kind, reason, attempt, actor, note) \
         VALUES ($1, $2, $3, 'restored', $4, $5, 'restore', $6)",
        &[
            &workspace.0,
            &bytes,
            &now,
            &stored.view.claim.processing_state().as_str(),
            &i64::from(claim.attempt),
            &format!("from a backup of {}", walk.gap.backup_at),
        ],
    )
    .await?;
    Ok(true)
}

/// An act on many that was going on may have come to its end after the backup: going on with it would repeat it.
async fn end_bulk_acts(tx: &Transaction<'_>, workspace: i64, at: Now) -> Result<(), Fault> {
    tx.execute(
        "UPDATE bulk_rows SET fate = 'changed', why = 'restored' WHERE workspace_id = $1 AND fate IS NULL",
        &[&workspace],
    )
    .await?;
    tx.execute(
        "UPDATE bulk_acts SET finished_at = $2 WHERE workspace_id = $1 AND finished_at IS NULL",
        &[&workspace, &at.wall.as_millis()],
    )
    .await?;
    Ok(())
}

async fn end(tx: &Transaction<'_>, walk: &Walk, at: Now) -> Result<Recovery, Fault> {
    let recovery = Recovery { gap: walk.gap, open_claims: walk.open_claims };
    set(tx, "recovery", &recovery).await?;
    tx.execute("DELETE FROM meta WHERE name = 'restoring'", &[]).await?;
    let subject = format!("backup of {}", walk.gap.backup_at);
    let detail = format!("{}: {} open claims became errors", walk.source, walk.open_claims);
    tx.execute(
        "INSERT INTO audit (workspace_id, at, actor, action, subject, reason, detail) \
         VALUES ($1, $2, 'command line', 'restore', $3, 'oncegate recovery begin', $4)",
        &[&Workspace::DEFAULT.0, &at.wall.as_millis(), &subject, &storable(&detail)],
    )
    .await?;
    Ok(recovery)
}

async fn secret(tx: &Transaction<'_>) -> Result<StoreSecret, Fault> {
    let bytes = value(tx, "secret").await?.and_then(|text| nodes::secret(&text));
    let none = || StoreError::Inconsistent("the backup has no secret of its own".into());
    Ok(StoreSecret::new(bytes.ok_or_else(none)?))
}

async fn value(tx: &Transaction<'_>, name: &str) -> Result<Option<String>, Fault> {
    let row = tx.query_opt("SELECT value FROM meta WHERE name = $1 FOR UPDATE", &[&name]).await?;
    Ok(row.map(|r| r.get(0)))
}

async fn set(tx: &Transaction<'_>, name: &str, value: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string(value).map_err(unreadable)?;
    let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tx.execute(sql, &[&name, &text]).await?;
    Ok(())
}

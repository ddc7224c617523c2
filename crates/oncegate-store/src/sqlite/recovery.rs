//! A store in recovery: it was restored from a backup, and no person has said yet that it may run.

use oncegate_core::key::{ClaimId, ClaimRef, StoreSecret, Workspace};
use oncegate_core::recovery::{self, Gap, Restores};
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::row::{self, Extra};
use super::schema_meta::{set_value, value};
use super::transition::Context;
use crate::StoreError;
use crate::api::Recovery;

/// The recovery that the store is in.
pub(super) fn current(db: &Connection) -> Result<Option<Recovery>, StoreError> {
    json(db, "recovery")
}

/// The restores that the store went through.
pub(super) fn restores(db: &Connection) -> Result<Restores, StoreError> {
    Ok(json(db, "restores")?.unwrap_or_default())
}

fn json<T: serde::de::DeserializeOwned>(db: &Connection, name: &str) -> Result<Option<T>, StoreError> {
    let text: Option<String> = value(db, name)?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| {
        StoreError::Inconsistent(format!("what the store says of its {name} is unreadable: {e}"))
    })
}

fn set_json(db: &Connection, name: &str, value: &impl serde::Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_string(value).map_err(|e| StoreError::Inconsistent(e.to_string()))?;
    set_value(db, name, &text)
}

/// A person says that the store may run again.
pub(super) fn end(cx: &Context<'_>, reason: &str, actor: &str) -> Result<bool, StoreError> {
    let Some(recovery) = current(cx.db)? else { return Ok(false) };
    cx.db.execute("DELETE FROM meta WHERE name = 'recovery'", [])?;
    let backup = format!("backup of {}", recovery.gap.backup_at);
    cx.audit(Workspace::DEFAULT, actor, "end_recovery", &backup, reason, None)?;
    Ok(true)
}

/// Start numbers that the restored store leaves out, so that no number given after the backup is given twice: far more
/// than there can have been.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

/// Puts a copy of a backup into recovery, in the caller's transaction.
pub(super) fn begin(db: &Connection, now: Timestamp, backup: &str) -> Result<Recovery, StoreError> {
    let secret: Option<Vec<u8>> = value(db, "secret")?;
    let secret = secret
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
        .map(StoreSecret::new)
        .ok_or_else(|| StoreError::Inconsistent("the backup has no secret of its own".into()))?;
    // The store's own last tick: at most a few seconds before the copy was made, and never after it.
    let ticked: Option<i64> = value(db, "wall")?;
    let changed: Option<i64> =
        db.query_row("SELECT max(updated_at) FROM claims", [], |r| r.get(0)).optional()?.flatten();
    let backup_at = Timestamp::from_millis(ticked.or(changed).unwrap_or_default());
    let gap = Gap { backup_at, restored_at: now.max(backup_at) };
    let lease: i64 = value(db, "lease")?.unwrap_or_default();
    let at = Now { wall: gap.restored_at, lease: LeaseInstant(lease) };

    let mut open =
        db.prepare("SELECT workspace_id, claim_id FROM claims WHERE processing_state <> 'done' ORDER BY id")?;
    let open: Vec<(i64, [u8; 16])> =
        open.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut open_claims = 0;
    for (workspace, id) in open {
        let id = ClaimRef { workspace: Workspace(workspace), id: ClaimId(id) };
        let stored = match row::load(db, id) {
            Ok(Some(stored)) => stored,
            Ok(None) => continue,
            // Nothing of it runs, because nothing can read it; the others must not be lost for it.
            Err(error @ StoreError::Inconsistent(_)) => {
                tracing::error!(%error, "a claim of the backup is left as it is");
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(claim) = recovery::restored(&stored.view.claim, gap, at) else { continue };
        // What was sent without an answer then was never answered, as far as this store will ever know.
        db.prepare_cached(
            "UPDATE step_calls SET outcome = 'unknown', finished_at = ?2, \
             note = 'no answer was written down before the backup' WHERE claim_row = ?1 AND outcome = 'in_flight'",
        )?
        .execute(params![stored.row, at.wall.as_millis()])?;
        row::update(db, &secret, &stored, &claim, &Extra::default(), at)?;
        db.prepare_cached(
            "INSERT INTO history (claim_row, at, kind, reason, attempt, actor, note) \
             VALUES (?1, ?2, 'restored', ?3, ?4, 'restore', ?5)",
        )?
        .execute(params![
            stored.row,
            at.wall.as_millis(),
            stored.view.claim.processing_state().as_str(),
            claim.attempt,
            format!("from a backup of {backup_at}"),
        ])?;
        open_claims += 1;
    }
    // An act on many that was going on may have come to its end after the backup: going on with it would repeat it.
    db.execute("UPDATE bulk_rows SET fate = 'changed', why = 'restored' WHERE fate IS NULL", [])?;
    db.execute("UPDATE bulk_acts SET finished_at = ?1 WHERE finished_at IS NULL", [at.wall.as_millis()])?;
    let recovery = Recovery { gap, open_claims };
    // What was open is an error now: it cannot run twice, wherever the store was moved to.
    super::moving::forget_move(db)?;
    set_json(db, "restores", &restores(db)?.with(gap))?;
    set_json(db, "recovery", &recovery)?;
    // Starts after the backup had boots of their own, and people wrote down the numbers of deliveries and tokens.
    db.execute("UPDATE meta SET value = value + ?1 WHERE name = 'boot'", [NUMBERS_LEFT_OUT])?;
    // A table that was empty yet has no row there.
    db.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT name, 0 FROM sqlite_master WHERE type = 'table' \
         AND sql LIKE '%AUTOINCREMENT%' AND name NOT IN (SELECT name FROM sqlite_sequence)",
        [],
    )?;
    db.execute("UPDATE sqlite_sequence SET seq = seq + ?1", [NUMBERS_LEFT_OUT])?;
    db.execute(
        "INSERT INTO audit (workspace_id, at, actor, action, subject, reason, detail) \
         VALUES (?1, ?2, 'command line', 'restore', ?3, 'oncegate restore', ?4)",
        params![
            Workspace::DEFAULT.0,
            at.wall.as_millis(),
            format!("backup of {backup_at}"),
            format!("{backup}: {open_claims} open claims became errors"),
        ],
    )?;
    Ok(recovery)
}

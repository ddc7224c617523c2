//! Forward-only schema steps. A shipped step is never edited; a file from a later version is refused. Before a file of
//! an earlier version is changed, it is copied.

use std::path::Path;

use oncegate_core::time::Timestamp;
use rusqlite::Connection;

use super::backup;
use super::backups::BackupDir;
use super::dir::DataDir;
use crate::StoreError;

const STEPS: [&str; 12] = [
    include_str!("../../migrations/sqlite/0001_spine.sql"),
    include_str!("../../migrations/sqlite/0002_gate.sql"),
    include_str!("../../migrations/sqlite/0003_upkeep.sql"),
    include_str!("../../migrations/sqlite/0004_identity.sql"),
    include_str!("../../migrations/sqlite/0005_checks.sql"),
    include_str!("../../migrations/sqlite/0006_order.sql"),
    include_str!("../../migrations/sqlite/0007_review.sql"),
    include_str!("../../migrations/sqlite/0008_fair.sql"),
    include_str!("../../migrations/sqlite/0009_positions.sql"),
    include_str!("../../migrations/sqlite/0010_set_aside.sql"),
    include_str!("../../migrations/sqlite/0011_polls.sql"),
    include_str!("../../migrations/sqlite/0012_due.sql"),
];

/// The newest schema that this program knows.
pub(super) const KNOWN: i64 = STEPS.len() as i64;

/// The schema of a file; 0 is an empty one.
pub(super) fn found(db: &Connection) -> Result<i64, StoreError> {
    Ok(db.pragma_query_value(None, "user_version", |r| r.get(0))?)
}

/// Refuses what a later version wrote.
pub(super) fn not_newer(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    match found(db)? {
        found if found > KNOWN => Err(StoreError::Newer { path: path.to_owned(), found, known: KNOWN }),
        found => Ok(found),
    }
}

/// The same, without opening it as a database.
pub(super) fn not_newer_on_disk(path: &Path) -> Result<(), StoreError> {
    match super::dir::schema_on_disk(path) {
        found if found > KNOWN => Err(StoreError::Newer { path: path.to_owned(), found, known: KNOWN }),
        _ => Ok(()),
    }
}

/// Brings the file to the newest schema, after it was copied. `None`: it was new already, or there was nothing in it.
pub(super) fn migrate(db: &mut Connection, dir: &DataDir, now: Timestamp) -> Result<(), StoreError> {
    let path = dir.database();
    let found = not_newer(db, &path)?;
    if found > 0 && found < KNOWN {
        let copy = BackupDir::of_data(dir.path()).before_upgrade(found, now);
        let made = backup::copy_as_it_is(&path, &copy, now)
            .map_err(|e| StoreError::NotCopied { path: path.clone(), message: e.to_string() })?;
        tracing::info!(
            copy = %made.path.display(),
            from = found,
            to = KNOWN,
            "the file of an earlier version was copied and is upgraded now"
        );
    }
    step_up(db, found)
}

/// All steps or none: a file that cannot be upgraded stays as it was.
pub(super) fn step_up(db: &mut Connection, found: i64) -> Result<(), StoreError> {
    if found >= KNOWN {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for sql in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        tx.execute_batch(sql)?;
    }
    tx.pragma_update(None, "user_version", KNOWN)?;
    tx.commit()?;
    Ok(())
}

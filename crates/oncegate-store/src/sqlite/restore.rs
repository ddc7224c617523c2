//! Brings a backup back as a store in recovery. The old store, if there is one, is set aside and not deleted.

use std::path::{Path, PathBuf};

use oncegate_core::time::Timestamp;

use super::backup::{self, back_up};
use super::dir::{self, DataDir};
use super::{migrations, recovery, store};
use crate::StoreError;
use crate::api::Recovery;

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The recovery that the store is in now.
    pub recovery: Recovery,
    /// Where the store that was there before lies now.
    pub set_aside: Option<PathBuf>,
}

/// Restores `backup` into the data directory. Whatever fails, what was there before stays.
///
/// # Errors
/// The backup is damaged, newer, or not one; the directory is in use, or holds a store and `replace` was not said.
pub fn restore(
    backup: &Path,
    data: &Path,
    replace: bool,
    ephemeral: bool,
    now: Timestamp,
) -> Result<Restored, StoreError> {
    let at = |path: &Path, message: String| StoreError::Path { path: path.to_owned(), message };
    judge(backup)?;
    let dir = DataDir::open(data, ephemeral)?;
    let database = dir.database();
    if dir::has_database(&database) && !replace {
        return Err(at(
            data,
            "holds a store already; name another --data directory, or say --replace to set that store aside"
                .into(),
        ));
    }
    let coming = dir::with_suffix(&database, ".restoring");
    remove_database(&coming);
    back_up(backup, &coming, now)?;
    let recovery =
        prepare(&coming, now, &dir::file_name(backup)).inspect_err(|_| remove_database(&coming))?;
    let set_aside = match dir::has_database(&database) {
        true => {
            Some(dir::set_aside(&dir, now).map_err(|e| at(data, format!("could not set it aside: {e}")))?)
        }
        false => None,
    };
    dir::rename_synced(&coming, &database).map_err(|e| at(&database, e.to_string()))?;
    Ok(Restored { recovery, set_aside })
}

/// Refuses what cannot be restored, before anything is touched.
fn judge(backup: &Path) -> Result<(), StoreError> {
    let at = |message: String| StoreError::Path { path: backup.to_owned(), message };
    if !backup.exists() {
        return Err(at("there is no such file".into()));
    }
    let log = dir::with_suffix(backup, "-wal");
    if dir::size(&log) > 0 {
        return Err(at(format!(
            "has a log beside it ({}), so it was copied from an open store and is not whole by itself; write the log \
             back with `sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'`, or take another backup",
            dir::file_name(&log)
        )));
    }
    let db = backup::open_still(backup)?;
    let found = migrations::not_newer(&db, backup).map_err(|e| match e {
        StoreError::Newer { .. } => e,
        other => at(format!("is no backup of oncegate: {other}")),
    })?;
    if found == 0 {
        return Err(at("is no backup of oncegate".into()));
    }
    backup::is_whole(&db, backup, "integrity_check")
}

fn prepare(coming: &Path, now: Timestamp, backup: &str) -> Result<Recovery, StoreError> {
    let mut db = store::connect(coming)?;
    // One file at every moment: it is about to be renamed.
    db.pragma_update_and_check(None, "journal_mode", "DELETE", |r| r.get::<_, String>(0))?;
    let found = migrations::found(&db)?;
    migrations::step_up(&mut db, found)?;
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let recovery = recovery::begin(&tx, now, backup)?;
    tx.commit()?;
    db.close().map_err(|(_, e)| StoreError::from(e))?;
    Ok(recovery)
}

fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        dir::remove(&dir::with_suffix(path, suffix));
    }
}

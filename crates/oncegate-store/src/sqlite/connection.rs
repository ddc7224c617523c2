//! The writer's connection and what its promises rest on: write-ahead log, synced commits, plans that are kept.

use std::path::Path;

use rusqlite::Connection;

use crate::StoreError;

pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let at = |message: String| StoreError::Path { path: path.to_owned(), message };
    let db = Connection::open(path).map_err(|e| at(e.to_string()))?;
    // SQLite answers with the mode that it could set; a file system without shared memory cannot do WAL.
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "WAL", |r| r.get(0))?;
    if mode != "wal" {
        return Err(at(format!("the file system cannot do write-ahead logging (journal mode stays {mode})")));
    }
    be_durable(&db)?;
    db.pragma_update(None, "foreign_keys", true)?;
    // Fewer, larger checkpoints cost less than many small ones; the store's own writer has them made beside it.
    db.pragma_update(None, "wal_autocheckpoint", 20_000)?;
    db.pragma_update(None, "cache_size", -64 * 1024)?;
    keep_plans(&db)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.set_prepared_statement_cache_capacity(128);
    Ok(db)
}

/// An `Ok` of the store means synced to disk.
pub(super) fn be_durable(db: &Connection) -> Result<(), StoreError> {
    Ok(db.pragma_update(None, "synchronous", "FULL")?)
}

/// A connection that looks at a file which others may write to.
pub(super) fn read_only(path: &Path) -> Result<Connection, StoreError> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)
        .map_err(|e| StoreError::Path { path: path.to_owned(), message: e.to_string() })?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(db)
}

/// Otherwise SQLite plans a prepared statement anew for every value bound to it, to see whether a partial index fits
/// that value; half of a claim's time went there.
pub(super) fn keep_plans(db: &Connection) -> Result<(), StoreError> {
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

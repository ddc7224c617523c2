//! What an upgrade would do to a file, and doing it.

use std::path::Path;

use oncegate_core::limits;
use oncegate_core::time::Timestamp;

use super::backup;
use super::dir::{self, DataDir};
use super::{migrations, room, store};
use crate::StoreError;

/// How a file's schema stands to this program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The file's.
    pub found: i64,
    /// The newest that this program knows.
    pub known: i64,
    /// The file's size in bytes: a copy of it is made before an upgrade.
    pub bytes: u64,
    /// Free bytes where the copy would go, if the system tells.
    pub free: Option<u64>,
}

impl Schema {
    /// Whether opening the file with this program changes it.
    pub fn needs_upgrade(&self) -> bool {
        self.found < self.known
    }

    /// Bytes that must be free for the upgrade; 0 if there is nothing to do.
    pub fn needed(&self) -> u64 {
        if self.needs_upgrade() { self.bytes.saturating_add(limits::DISK_KEPT_FREE_BYTES) } else { 0 }
    }

    /// Whether there is room for the copy.
    pub fn has_room(&self) -> bool {
        self.free.is_none_or(|free| free >= self.needed())
    }
}

/// Looks at the store in a data directory, which may be in use, and changes nothing. `None`: there is none.
///
/// # Errors
/// It was written by a newer version, or is damaged.
pub fn check(data: &Path) -> Result<Option<Schema>, StoreError> {
    let path = data.join(dir::DATABASE);
    if dir::size(&path) == 0 {
        return Ok(None);
    }
    let db = match dir::size(&dir::with_suffix(&path, "-wal")) {
        // Nothing but the file itself is read, so that nothing is left beside it.
        0 => backup::open_still(&path)?,
        _ => store::read_only(&path)?,
    };
    let found = migrations::not_newer(&db, &path)?;
    backup::is_whole(&db, &path, "quick_check")?;
    Ok(Some(Schema { found, known: migrations::KNOWN, bytes: backup::size(&db)?, free: room::free(data) }))
}

/// Upgrades the store in a data directory that nobody uses, after copying it. What it was before.
///
/// # Errors
/// As [`check`], or there is no room for the copy, or the directory is in use.
pub fn upgrade(data: &Path, ephemeral: bool, now: Timestamp) -> Result<Option<Schema>, StoreError> {
    let Some(schema) = check(data)? else { return Ok(None) };
    let dir = DataDir::open(data, ephemeral)?;
    let mut db = store::connect(&dir.make_database()?)?;
    migrations::migrate(&mut db, &dir, now)?;
    db.close().map_err(|(_, e)| StoreError::from(e))?;
    Ok(Some(schema))
}

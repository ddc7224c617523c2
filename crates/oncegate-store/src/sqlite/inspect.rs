//! Looks at a store from outside, whether a gate runs on it or not: reads only, and changes nothing.

use std::path::Path;

use oncegate_core::time::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::dir::DATABASE;
use super::{connection, disk, migrations, moving, recovery, row};
use crate::StoreError;

/// What a store says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Its schema.
    pub schema: i64,
    /// The newest schema that this program knows.
    pub schema_known: i64,
    /// `wal`, once a gate has opened it.
    pub journal_mode: String,
    /// What a connection of the gate has: 2 is FULL, every commit is synced.
    pub synchronous: i64,
    /// The wall clock at the store's last tick.
    pub ticked_at: Option<Timestamp>,
    /// Where it was moved to, and when: what it has still to do is done there.
    pub moved: Option<(String, String)>,
    /// It is in recovery: nothing of it runs until somebody ends that.
    pub recovering: bool,
    /// What `PRAGMA quick_check` found; empty if all is well. Ten findings at most.
    pub damage: Vec<String>,
}

/// Reads what the store in a data directory says about itself. `None`: there is no store yet.
///
/// # Errors
/// The file is there and cannot be read as a database.
pub fn inspect(data: &Path) -> Result<Option<Inspection>, StoreError> {
    let path = data.join(DATABASE);
    // Made, but nothing was written to it yet.
    if disk::database_bytes(data) == 0 {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&path, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    connection::be_durable(&db)?;
    let schema = db.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let mut inspection = Inspection {
        schema,
        schema_known: migrations::KNOWN,
        journal_mode: db.pragma_query_value(None, "journal_mode", |r| r.get(0))?,
        synchronous: db.pragma_query_value(None, "synchronous", |r| r.get(0))?,
        ticked_at: None,
        moved: None,
        recovering: false,
        damage: damage(&db)?,
    };
    if inspection.damage.is_empty() && schema >= 1 {
        let wall: Option<i64> =
            db.query_row("SELECT value FROM meta WHERE name = 'wall'", [], |r| r.get(0)).optional()?;
        inspection.ticked_at = wall.map(row::ts);
        inspection.moved = moving::moved(&db)?.map(|mark| (mark.other, mark.at.to_string()));
        inspection.recovering = recovery::current(&db)?.is_some();
    }
    Ok(Some(inspection))
}

fn damage(db: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = db.prepare("PRAGMA quick_check(10)")?;
    let told: Vec<String> = match statement.query_map([], |r| r.get(0)).and_then(Iterator::collect) {
        Ok(told) => told,
        // A page so bad that the check itself cannot go on.
        Err(error) => vec![error.to_string()],
    };
    Ok(if told == ["ok"] { vec![] } else { told })
}

//! One consistent copy of the database, made while others write to it.
//!
//! SQLite's online backup copies pages within one read transaction of a connection of its own: in WAL mode the writer
//! never waits for it, and what it writes meanwhile is not in the copy. (`VACUUM INTO` would give a smaller file, but
//! not one whose rows can be counted against the very moment it was taken at.) Until it is synced, checked and counted,
//! the copy has another name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use rusqlite::{Connection, OpenFlags, backup};

use super::{connection, dir, migrations, moving, room};
use crate::StoreError;

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Made {
    /// Where it lies.
    pub path: PathBuf,
    /// When it was begun, by the store's clock.
    pub at: Timestamp,
    /// Its size.
    pub bytes: u64,
    /// Claims in it.
    pub claims: u64,
}

/// Which database.
#[derive(Clone, Debug)]
pub struct Source(PathBuf);

impl Source {
    /// That of a data directory. It is only read, so it may be in use.
    pub fn of_data(data: &Path) -> Self {
        Self(data.join(dir::DATABASE))
    }
}

impl AsRef<Path> for Source {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// What the name of a copy ends with until it is whole.
pub(super) const UNFINISHED: &str = ".unfinished";

/// Pages copied at a time, 16 MiB, and the pause between, in which the disk belongs to the writer.
const PACE: (i32, Duration) = (4_096, Duration::from_millis(5));

/// Copies `source` to `target`, which must not be there. Blocks; the writer is not kept waiting.
///
/// # Errors
/// There is no room, the source is damaged, newer or was moved, or a file cannot be written. Nothing is left behind
/// then.
pub fn back_up(source: impl AsRef<Path>, target: &Path, now: Timestamp) -> Result<Made, StoreError> {
    let source = source.as_ref();
    not_left_behind(&open_source(source)?, source)?;
    copy_as_it_is(source, target, now)
}

/// The same of a store that may have been moved: it is upgraded, too, to take the move back.
pub(super) fn copy_as_it_is(source: &Path, target: &Path, now: Timestamp) -> Result<Made, StoreError> {
    let at = |message: String| StoreError::Path { path: target.to_owned(), message };
    if target.exists() {
        return Err(at("is there already; a backup never replaces a file".into()));
    }
    let parent = dir::parent(target);
    dir::make_private(parent).map_err(|e| at(format!("cannot make its directory: {e}")))?;
    let from = open_source(source)?;
    has_room(&from, parent)?;
    let unfinished = dir::with_suffix(target, UNFINISHED);
    let made = copy(&from, source, &unfinished).and_then(|counted| {
        dir::sync(&unfinished).map_err(|e| at(e.to_string()))?;
        let found = examine(&unfinished)?;
        if found != counted {
            return Err(StoreError::Inconsistent(format!(
                "the copy {} does not hold the rows that were there",
                target.display()
            )));
        }
        let bytes = dir::rename_synced(&unfinished, target).map_err(|e| at(e.to_string()))?;
        Ok(Made { path: target.to_owned(), at: now, bytes, claims: counted.claims() })
    });
    if made.is_err() {
        dir::remove(&unfinished);
    }
    made
}

/// Rows of every table, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted(Vec<(String, u64)>);

impl Counted {
    fn claims(&self) -> u64 {
        self.0.iter().find(|(table, _)| table == "claims").map_or(0, |(_, rows)| *rows)
    }
}

fn counted(db: &Connection) -> Result<Counted, StoreError> {
    let mut tables = db.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let tables: Vec<String> = tables.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
    let count = |table: String| {
        let rows: i64 = db.query_row(&format!("SELECT count(*) FROM \"{table}\""), [], |r| r.get(0))?;
        Ok((table, rows.unsigned_abs()))
    };
    Ok(Counted(tables.into_iter().map(count).collect::<Result<_, StoreError>>()?))
}

/// What was moved goes on elsewhere: a copy of what was left behind would look like one of the store, and restored it
/// would be a second one.
fn not_left_behind(db: &Connection, path: &Path) -> Result<(), StoreError> {
    if !db.table_exists(None, "meta")? {
        return Ok(());
    }
    moving::not_moved(db, path)
}

fn open_source(path: &Path) -> Result<Connection, StoreError> {
    let at = |message: String| StoreError::Path { path: path.to_owned(), message };
    if !path.exists() {
        return Err(at(
            "there is no database here; name the data directory with --data or ONCEGATE_DATA".into()
        ));
    }
    let db = connection::read_only(path)?;
    match migrations::not_newer(&db, path)? {
        0 => Err(at("holds no data of oncegate".into())),
        _ => Ok(db),
    }
}

/// A backup that fills the disk would stop what it is there to protect.
fn has_room(from: &Connection, directory: &Path) -> Result<(), StoreError> {
    let needed = size(from)?.saturating_add(limits::DISK_KEPT_FREE_BYTES);
    match room::free(directory) {
        Some(free) if free < needed => Err(StoreError::Path {
            path: directory.to_owned(),
            message: format!(
                "has {} free, and a copy with what must stay free needs {}; free some space, or name a directory on \
                 another disk",
                dir::in_mib(free),
                dir::in_mib(needed)
            ),
        }),
        _ => Ok(()),
    }
}

/// The size of a copy of it.
pub(super) fn size(db: &Connection) -> Result<u64, StoreError> {
    let pages: i64 = db.pragma_query_value(None, "page_count", |r| r.get(0))?;
    let page: i64 = db.pragma_query_value(None, "page_size", |r| r.get(0))?;
    Ok(pages.saturating_mul(page).unsigned_abs())
}

fn copy(from: &Connection, source: &Path, to: &Path) -> Result<Counted, StoreError> {
    let at = |path: &Path, e: &dyn std::fmt::Display| StoreError::Path {
        path: path.to_owned(),
        message: e.to_string(),
    };
    // What an earlier try left, if it was killed.
    dir::remove(to);
    dir::private_file(to).map_err(|e| at(to, &e))?;
    // Rows and pages of one moment.
    let moment = from.unchecked_transaction()?;
    let counted = counted(&moment)?;
    let mut into = Connection::open(to).map_err(|e| at(to, &e))?;
    // It is synced once, as a whole, and has a name only afterwards.
    into.pragma_update(None, "synchronous", "OFF")?;
    into.pragma_update_and_check(None, "journal_mode", "MEMORY", |r| r.get::<_, String>(0))?;
    let copying = backup::Backup::new(from, &mut into).map_err(|e| at(source, &e))?;
    copying.run_to_completion(PACE.0, PACE.1, None).map_err(|e| at(to, &format!("copying failed: {e}")))?;
    drop(copying);
    into.close().map_err(|(_, e)| at(to, &e))?;
    Ok(counted)
}

/// Reads a file that nobody writes to, as it stands: whole, of oncegate, and how many rows it has.
fn examine(path: &Path) -> Result<Counted, StoreError> {
    let db = open_still(path)?;
    is_whole(&db, path, "integrity_check")?;
    counted(&db)
}

/// Opens a file that nobody writes to, leaving nothing beside it.
pub(super) fn open_still(path: &Path) -> Result<Connection, StoreError> {
    let at = |message: String| StoreError::Path { path: path.to_owned(), message };
    let encoded: String = path
        .to_str()
        .ok_or_else(|| at("the path is not text".into()))?
        .chars()
        .map(|c| match c {
            '%' => "%25".to_owned(),
            '?' => "%3f".to_owned(),
            '#' => "%23".to_owned(),
            c => c.to_string(),
        })
        .collect();
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(format!("file:{encoded}?immutable=1"), flags).map_err(|e| at(e.to_string()))
}

/// What SQLite says of the file itself.
pub(super) fn is_whole(db: &Connection, path: &Path, check: &str) -> Result<(), StoreError> {
    let damaged = |found: &str| StoreError::Inconsistent(format!("{} is damaged: {found}", path.display()));
    let found: String =
        db.pragma_query_value(None, check, |r| r.get(0)).map_err(|e| damaged(&e.to_string()))?;
    if found == "ok" { Ok(()) } else { Err(damaged(&found)) }
}

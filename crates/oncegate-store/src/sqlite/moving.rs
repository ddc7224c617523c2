//! An embedded store as what leaves: its rows, in the columns of a PostgreSQL store.

use std::path::Path;

use oncegate_core::claim::{Boot, NodeNumber};
use oncegate_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use super::dir::DataDir;
use super::schema_meta::{set_value, value};
use super::{connection, migrations, schema_meta};
use crate::StoreError;
use crate::moving::{Carried, Cell, Cells, Column, Kind, Mark};

/// A table of the database, and where its rows come from. A column that is not named here has the same name on both
/// sides.
struct Table {
    name: &'static str,
    /// The table here, which is called `t`, and its rows of the workspace `?1`.
    source: &'static str,
    rows: &'static str,
    /// Columns of the database that are called otherwise here, or follow from something else.
    given: &'static [(&'static str, &'static str)],
    /// Columns here that the database has no use for.
    left: &'static [&'static str],
    /// Rows that belong to no workspace any more.
    left_over: Option<&'static str>,
}

const OF_WORKSPACE: &str = "WHERE t.workspace_id = ?1";
const OF_CLAIM: &str = "JOIN claims c ON c.id = t.claim_row WHERE c.workspace_id = ?1";
const CLAIM: &[(&str, &str)] = &[("workspace_id", "c.workspace_id"), ("claim_id", "c.claim_id")];

const fn plain(name: &'static str) -> Table {
    Table { name, source: name, rows: OF_WORKSPACE, given: &[], left: &[], left_over: None }
}

const fn of_claim(name: &'static str) -> Table {
    Table { rows: OF_CLAIM, given: CLAIM, left: &["claim_row"], ..plain(name) }
}

/// Everything but `meta`, of which each value is carried for itself.
static TABLES: [Table; 18] = [
    Table {
        rows: "WHERE t.id = ?1",
        // The database has not been set back yet; what is still to be cleared away is cleared away there.
        given: &[("purging", "t.purged_to IS NOT NULL"), ("set_back", "0")],
        left: &["purged_to"],
        ..plain("workspaces")
    },
    plain("automations"),
    Table { given: &[("position", "t.id"), ("boot", BOOT)], left: &["id"], ..plain("claims") },
    of_claim("payloads"),
    Table {
        // A keyed hash does not tell its workspace, and the workspace is in the hash: in each it is true.
        rows: "WHERE EXISTS (SELECT 1 FROM workspaces w WHERE w.id = ?1 AND w.deleted_at IS NULL)",
        given: &[("workspace_id", "?1")],
        ..plain("pruned")
    },
    Table {
        rows: "JOIN automations a ON a.id = t.automation_id WHERE a.workspace_id = ?1",
        given: &[("workspace_id", "a.workspace_id")],
        left_over: Some("NOT EXISTS (SELECT 1 FROM automations a WHERE a.id = t.automation_id)"),
        ..plain("record_runs")
    },
    of_claim("history"),
    of_claim("step_calls"),
    plain("deliveries"),
    plain("audit"),
    plain("api_tokens"),
    plain("api_requests"),
    plain("bulk_acts"),
    Table {
        rows: "JOIN bulk_acts b ON b.id = t.bulk_id JOIN claims c ON c.id = t.claim_row WHERE b.workspace_id = ?1",
        given: &[("workspace_id", "b.workspace_id"), ("position", "t.claim_row"), ("claim_id", "c.claim_id")],
        left: &["claim_row"],
        ..plain("bulk_rows")
    },
    plain("notices"),
    plain("source_positions"),
    plain("senders"),
    Table {
        name: "declared",
        source: "meta",
        rows: "WHERE t.name = 'declared ' || ?1",
        given: &[("workspace_id", "?1")],
        left: &["name"],
        left_over: None,
    },
];

/// The process that held it is gone for certain, as the directory is locked. To every start of the first node that will
/// be, it is an earlier start of its own: it goes on at once, and another node after the TTL.
const BOOT: &str = "CASE WHEN t.boot IS NULL THEN NULL ELSE ?2 END";
const BEFORE_THE_FIRST_NODE: Boot = Boot { node: NodeNumber(1), start: 0 };

/// What stands in `meta` besides what is declared.
const META: [&str; 8] = ["secret", "boot", "lease", "wall", "restores", "recovery", "probe", MOVED];
/// The mark of a store that was moved.
pub(super) const MOVED: &str = "moved";

/// The store in a data directory, locked.
pub(crate) struct Leaving {
    db: Connection,
    dir: DataDir,
    replaced: u64,
}

impl Leaving {
    /// Locks the directory, and brings an earlier version's file to this one's form, as a start would.
    pub(crate) fn open(path: &Path, now: Timestamp) -> Result<Self, StoreError> {
        let at = |message: &str| StoreError::Path { path: path.to_owned(), message: message.to_owned() };
        if !path.join(super::dir::DATABASE).exists() {
            return Err(at("there is no database here; name the data directory with --from sqlite:DIR"));
        }
        // Nothing is begun here, so where it lies does not matter any more.
        let dir = DataDir::open(path, true)?;
        let database = dir.make_database()?;
        migrations::not_newer_on_disk(&database)?;
        let mut db = connection::connect(&database)?;
        if migrations::found(&db)? == 0 {
            return Err(at("holds no data of oncegate"));
        }
        migrations::migrate(&mut db, &dir, now)?;
        Ok(Self { db, dir, replaced: 0 })
    }

    /// What the store knows of itself.
    pub(crate) fn carried(&self) -> Result<Carried, StoreError> {
        let mut names = self.db.prepare("SELECT name FROM meta WHERE name NOT LIKE 'declared %'")?;
        let names: Vec<String> = names.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
        if let Some(unknown) = names.iter().find(|name| !META.contains(&name.as_str())) {
            return Err(StoreError::Inconsistent(format!("nobody knows how to move `{unknown}` of meta")));
        }
        let secret: Option<Vec<u8>> = value(&self.db, "secret")?;
        let secret = secret.and_then(|bytes| bytes.try_into().ok());
        let none = || StoreError::Inconsistent("the store's secret is not 32 bytes long".into());
        Ok(Carried {
            secret: secret.ok_or_else(none)?,
            lease: value(&self.db, "lease")?.unwrap_or_default(),
            wall: value(&self.db, "wall")?.unwrap_or_default(),
            restores: value(&self.db, "restores")?,
            recovery: value(&self.db, "recovery")?,
        })
    }

    /// The tables of the database that have rows here, in the order in which they go.
    pub(crate) fn tables(&self) -> Vec<&'static str> {
        TABLES.iter().map(|table| table.name).collect()
    }

    /// Every workspace there ever was: the audit of a deleted one is kept.
    pub(crate) fn workspaces(&self) -> Result<Vec<i64>, StoreError> {
        let mut ids = self.db.prepare("SELECT id FROM workspaces ORDER BY id")?;
        let ids = ids.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
        Ok(ids)
    }

    /// Every column here has its place there, and the other way round.
    pub(crate) fn fits(&self, name: &str, columns: &[Column]) -> Result<(), StoreError> {
        let table = table(name)?;
        let mut here = self.db.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let here: Vec<String> = here.query_map([table.source], |r| r.get(0))?.collect::<Result<_, _>>()?;
        let is_given = |name: &str| table.given.iter().any(|(given, _)| *given == name);
        let unknown = columns.iter().find(|c| !is_given(&c.name) && !here.contains(&c.name));
        let lost = here
            .iter()
            .find(|name| !table.left.contains(&name.as_str()) && !columns.iter().any(|c| c.name == **name));
        match unknown.map(|c| &c.name).or(lost) {
            None => Ok(()),
            Some(column) => Err(StoreError::Inconsistent(format!(
                "`{name}.{column}` is only on one side: this version cannot move it"
            ))),
        }
    }

    /// Reads a workspace's rows of a table, until `take` wants no more.
    pub(crate) fn read(
        &mut self,
        name: &str,
        columns: &[Column],
        workspace: i64,
        take: &mut dyn FnMut(Cells) -> bool,
    ) -> Result<(), StoreError> {
        let table = table(name)?;
        let from = |column: &Column| {
            let given = table.given.iter().find(|(given, _)| *given == column.name);
            given.map_or_else(|| format!("t.\"{}\"", column.name), |(_, sql)| (*sql).to_owned())
        };
        let list: Vec<String> = columns.iter().map(from).collect();
        // Named though it may not be used: the number of parameters is the same everywhere.
        let sql =
            format!("SELECT {} FROM {} t {} AND ?2 IS NOT NULL", list.join(", "), table.source, table.rows);
        let mut statement = self.db.prepare(&sql)?;
        let mut rows = statement.query(params![workspace, BEFORE_THE_FIRST_NODE.to_i64()])?;
        while let Some(row) = rows.next()? {
            let mut cells = Vec::with_capacity(columns.len());
            for (i, column) in columns.iter().enumerate() {
                cells.push(cell(row.get_ref(i)?, column, name, &mut self.replaced)?);
            }
            if !take(cells) {
                break;
            }
        }
        Ok(())
    }

    /// Rows that are not read, because what they belonged to is gone.
    pub(crate) fn left_over(&self, name: &str) -> Result<u64, StoreError> {
        let table = table(name)?;
        let Some(of) = table.left_over else { return Ok(0) };
        let sql = format!("SELECT count(*) FROM {} t WHERE {of}", table.source);
        let rows: i64 = self.db.query_row(&sql, [], |r| r.get(0))?;
        Ok(rows.unsigned_abs())
    }

    /// All of its rows, where each goes once.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let table = table(name)?;
        if table.source != table.name || name == "pruned" {
            return Ok(None);
        }
        let rows: i64 = self.db.query_row(&format!("SELECT count(*) FROM {name}"), [], |r| r.get(0))?;
        Ok(Some(rows.unsigned_abs()))
    }

    /// The highest number that a table has given out, also to rows that are gone; 0 if it does not remember.
    pub(crate) fn numbers_given(&self, name: &str) -> Result<i64, StoreError> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
        Ok(self.db.query_row(sql, [table(name)?.source], |r| r.get(0)).optional()?.unwrap_or_default())
    }

    /// How many zero characters were replaced.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Whether, and where to, it was moved.
    pub(crate) fn moved(&self) -> Result<Option<Mark>, StoreError> {
        moved(&self.db)
    }

    /// From the return of this on, no gate starts on the directory.
    pub(crate) fn mark_moved(&self, mark: &Mark) -> Result<(), StoreError> {
        let text = serde_json::to_string(mark).map_err(|e| StoreError::Inconsistent(e.to_string()))?;
        set_value(&self.db, MOVED, &text)
    }

    /// It may start again.
    pub(crate) fn unmark(&self) -> Result<(), StoreError> {
        forget_move(&self.db)
    }

    /// What a start on a directory that was moved is told.
    pub(crate) fn refusal(&self, mark: &Mark) -> StoreError {
        refusal(self.dir.path(), mark)
    }
}

/// Whether, and where to, a store was moved.
pub(super) fn moved(db: &Connection) -> Result<Option<Mark>, StoreError> {
    let text: Option<String> = schema_meta::value(db, MOVED)?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|e| StoreError::Inconsistent(format!("what the store says of its move is unreadable: {e}")))
}

/// It may start again.
pub(super) fn forget_move(db: &Connection) -> Result<(), StoreError> {
    db.execute("DELETE FROM meta WHERE name = ?1", [MOVED])?;
    Ok(())
}

/// Refuses a store that was moved: what it has still to do is done elsewhere.
pub(super) fn not_moved(db: &Connection, dir: &Path) -> Result<(), StoreError> {
    match moved(db)? {
        None => Ok(()),
        Some(mark) => Err(refusal(dir, &mark)),
    }
}

fn refusal(dir: &Path, mark: &Mark) -> StoreError {
    StoreError::Refused(format!(
        "the store in {} was moved to {} at {}: what it has still to do is done there. Start the gate with \
         --store postgres://…; or, if no gate has started there yet, take the move back with `oncegate move --undo`",
        dir.display(),
        mark.other,
        mark.at
    ))
}

fn table(name: &str) -> Result<&'static Table, StoreError> {
    let found = TABLES.iter().find(|table| table.name == name);
    found.ok_or_else(|| StoreError::Inconsistent(format!("there is no table `{name}`")))
}

fn cell(value: ValueRef<'_>, column: &Column, table: &str, replaced: &mut u64) -> Result<Cell, StoreError> {
    Ok(match (value, column.kind) {
        (ValueRef::Null, _) => Cell::Null,
        (ValueRef::Integer(n), Kind::Int | Kind::Int32) => Cell::Int(n),
        (ValueRef::Integer(n @ (0 | 1)), Kind::Bool) => Cell::Bool(n == 1),
        (ValueRef::Blob(bytes), Kind::Bytes) => Cell::Bytes(bytes.to_vec()),
        (ValueRef::Text(bytes), Kind::Text) => {
            let text = std::str::from_utf8(bytes).map_err(|_| {
                StoreError::Inconsistent(format!("a value of `{table}.{}` is not UTF-8", column.name))
            })?;
            let zeros = text.matches('\0').count();
            *replaced += zeros as u64;
            Cell::Text(if zeros == 0 { text.to_owned() } else { text.replace('\0', "\u{fffd}") })
        }
        (other, kind) => {
            return Err(StoreError::Inconsistent(format!(
                "`{table}.{}` holds {}, and {kind:?} is expected there",
                column.name,
                other.data_type()
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that a later version adds is either moved or forgotten here, and then this fails.
    #[test]
    fn every_table_is_moved() {
        let mut db = Connection::open_in_memory().unwrap();
        migrations::step_up(&mut db, 0).unwrap();
        let mut here = db
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
            .unwrap();
        let here: Vec<String> = here.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        for name in &here {
            assert!(TABLES.iter().any(|table| table.source == name), "{name}");
        }
        assert_eq!(here.len(), TABLES.len(), "`meta` gives `declared`");
    }
}

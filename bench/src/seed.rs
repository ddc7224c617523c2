//! A store that is full already: millions of claims that are done, written in bulk. Each is a copy of one that the gate
//! itself wrote, with another id and another key, so that the rows are those of this version whatever it stores.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

/// What a claim that is done takes up on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Claims that are done.
    pub(crate) claims: u64,
    /// Bytes for each, of all tables and indexes.
    pub(crate) bytes_each: f64,
}

/// Looks at a store that no gate has open.
pub(crate) fn size(store: &Path) -> Result<Size, String> {
    let look = || -> rusqlite::Result<Size> {
        let db = Connection::open(store.join("oncegate.db"))?;
        let number = |name: &str| db.pragma_query_value(None, name, |r| r.get::<_, f64>(0));
        let bytes = number("page_size")? * (number("page_count")? - number("freelist_count")?);
        let claims: u64 =
            db.query_row("SELECT count(*) FROM claims", [], |r| r.get::<_, i64>(0))?.unsigned_abs();
        Ok(Size { claims, bytes_each: bytes / claims.max(1) as f64 })
    };
    look().map_err(|e| e.to_string())
}

/// Adds `rows` copies of the first claim, which is done, and of its history. No gate has the store open.
pub(crate) fn fill(store: &Path, rows: u64) -> Result<(), String> {
    let rows = i64::try_from(rows).map_err(|e| e.to_string())?;
    copy(&store.join("oncegate.db"), rows).map_err(|e| e.to_string())
}

fn copy(path: &Path, rows: i64) -> rusqlite::Result<()> {
    let db = Connection::open(path)?;
    // Nothing is lost if it breaks off: the benchmark begins again.
    db.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; \
         PRAGMA cache_size = -262144; PRAGMA journal_mode = OFF",
    )?;
    // Sorting an index once is many times as fast as keeping it sorted.
    let mut indexes = db.prepare(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name IN ('claims', 'history') \
         AND sql IS NOT NULL",
    )?;
    let indexes: Vec<(String, String)> =
        indexes.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    for (name, _) in &indexes {
        db.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    let first: Option<(i64, i64)> = db
        .query_row(
            "SELECT id, (SELECT max(id) FROM claims) FROM claims WHERE processing_state = 'done' ORDER BY id",
            [],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .optional()?;
    let (model, last) = first.unwrap_or_default();
    let series = format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let (names, values) = columns(&db, "claims", |name| match name {
        "id" => Some(format!("{last} + i")),
        "claim_id" => Some("randomblob(16)".into()),
        "idempotency_key" => Some("'form_contact:' || lower(hex(randomblob(16)))".into()),
        _ => None,
    })?;
    db.execute_batch(&format!(
        "INSERT INTO claims ({names}) {series} SELECT {values} FROM n CROSS JOIN claims t ON t.id = {model}"
    ))?;
    let (names, values) = columns(&db, "history", |name| match name {
        "id" => Some("NULL".into()),
        "claim_row" => Some(format!("{last} + i")),
        _ => None,
    })?;
    db.execute_batch(&format!(
        "INSERT INTO history ({names}) {series} \
         SELECT {values} FROM n CROSS JOIN (SELECT * FROM history WHERE claim_row = {model} ORDER BY id) t"
    ))?;
    for (_, sql) in &indexes {
        db.execute_batch(sql)?;
    }
    db.execute_batch("PRAGMA journal_mode = WAL")
}

/// The columns of a table, and for each its value: what `other` says, or the copied row's own.
fn columns(
    db: &Connection,
    table: &str,
    other: impl Fn(&str) -> Option<String>,
) -> rusqlite::Result<(String, String)> {
    let mut names = db.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names: Vec<String> = names.query_map([table], |r| r.get(0))?.collect::<Result<_, _>>()?;
    let values: Vec<String> =
        names.iter().map(|name| other(name).unwrap_or_else(|| format!("t.{name}"))).collect();
    Ok((names.join(", "), values.join(", ")))
}

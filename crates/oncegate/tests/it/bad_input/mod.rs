//! What nobody should send: refused by name, with nothing stored and the server none the worse.

mod bytes;
mod cases;
mod fields;
mod wire;

use std::collections::BTreeMap;

use crate::harness::Gate;

/// How many rows each table has, but for those in which refused deliveries are kept on purpose.
fn rows(gate: &Gate) -> BTreeMap<String, i64> {
    let db = rusqlite::Connection::open(gate.database()).unwrap();
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('meta', 'deliveries', 'sqlite_sequence')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(tables.iter().any(|name| name == "claims") && tables.iter().any(|name| name == "automations"));
    let count =
        |name: &String| db.query_one(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap();
    tables.iter().map(|name| (name.clone(), count(name))).collect()
}

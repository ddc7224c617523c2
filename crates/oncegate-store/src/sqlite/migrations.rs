//! Forward-only schema steps. A shipped step is never edited; a file from a later version is refused.

use std::path::Path;

use rusqlite::Connection;

use crate::StoreError;

const STEPS: [&str; 2] = [
    include_str!("../../migrations/sqlite/0001_spine.sql"),
    include_str!("../../migrations/sqlite/0002_gate.sql"),
];

/// The newest schema that this program knows.
pub(super) fn known() -> i64 {
    STEPS.len() as i64
}

/// Brings the file to the newest schema, one step per transaction.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let known = known();
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    for (number, sql) in (1i64..).zip(STEPS).skip(usize::try_from(found).unwrap_or(0)) {
        let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "user_version", number)?;
        tx.commit()?;
    }
    Ok(())
}

//! What a commit's durability rests on.

use super::SqliteStore;
use super::writer::Manner;
use crate::StoreError;

/// As SQLite itself reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `wal`.
    pub journal_mode: String,
    /// 2 is FULL: every commit is synced.
    pub synchronous: i64,
    /// Whether rows may refer to nothing.
    pub foreign_keys: bool,
}

impl SqliteStore {
    /// What the writer's connection really runs with.
    ///
    /// # Errors
    /// The store is closed.
    pub async fn settings(&self) -> Result<Settings, StoreError> {
        self.writer
            .write(Manner::TELLING, |db| {
                Ok(Settings {
                    journal_mode: db.pragma_query_value(None, "journal_mode", |r| r.get(0))?,
                    synchronous: db.pragma_query_value(None, "synchronous", |r| r.get(0))?,
                    foreign_keys: db.pragma_query_value(None, "foreign_keys", |r| r.get(0))?,
                })
            })
            .await
    }
}

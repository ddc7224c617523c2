//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod backup;
mod backups;
mod dir;
mod intake;
mod migrations;
mod payloads;
#[cfg(test)]
mod plans;
mod queries;
mod readers;
mod recovery;
mod restore;
mod room;
mod row;
mod schema_meta;
mod steps;
mod store;
mod transition;
mod upgrade;
mod upkeep;
mod writer;

pub use backup::{Backup, Source, back_up};
pub use backups::{BackupDir, newest, nightly_due};
pub use restore::{Restored, restore};
pub use store::{Options, Settings, SqliteStore};
pub use upgrade::{Schema, check, upgrade};

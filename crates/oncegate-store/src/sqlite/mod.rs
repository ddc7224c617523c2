//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod audit;
mod automations;
mod backup;
mod backups;
mod batch;
mod bulk;
mod bulk_rows;
mod connection;
mod dir;
mod disk;
mod export;
mod family;
mod inspect;
mod intake;
mod migrations;
mod moving;
mod nodes;
mod notices;
mod nudges;
mod numbers;
mod payloads;
mod people;
mod person;
#[cfg(test)]
mod plans;
mod queries;
mod readers;
mod recovery;
mod repeats;
mod requests;
mod restore;
mod room;
mod row;
mod schema_meta;
mod search;
mod steps;
mod stops;
mod store;
mod transition;
mod upgrade;
mod upkeep;
mod vitals;
mod workspaces;
mod writer;
mod written;

pub use backup::{Made, Source, back_up};
pub use backups::{BackupDir, newest, nightly_due};
pub use disk::{Backup, FileSystem, Lasting, database_bytes, newest_backup, permissions, sync_time};
pub use inspect::{Inspection, inspect};
pub(crate) use moving::Leaving;
pub use restore::{Restored, restore};
pub use store::{Options, Settings, SqliteStore};
pub use upgrade::{Schema, check, upgrade};

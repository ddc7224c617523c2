//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod automations;
mod batch;
mod bulk;
mod bulk_rows;
mod dir;
mod disk;
mod export;
mod inspect;
mod intake;
mod migrations;
mod people;
#[cfg(test)]
mod plans;
mod queries;
mod readers;
mod requests;
mod row;
mod schema_meta;
mod search;
mod steps;
mod store;
mod transition;
mod upkeep;
mod vitals;
mod writer;

pub use disk::{Backup, FileSystem, Lasting, database_bytes, newest_backup, permissions, sync_time};
pub use inspect::{Inspection, inspect};
pub use store::{Options, Settings, SqliteStore};

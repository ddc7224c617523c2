//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod dir;
mod disk;
mod family;
mod inspect;
mod intake;
mod migrations;
mod notices;
mod nudges;
#[cfg(test)]
mod plans;
mod queries;
mod readers;
mod row;
mod schema_meta;
mod steps;
mod store;
mod transition;
mod upkeep;
mod vitals;
mod writer;

pub use disk::{Backup, FileSystem, Lasting, database_bytes, newest_backup, permissions, sync_time};
pub use inspect::{Inspection, inspect};
pub use store::{Options, Settings, SqliteStore};

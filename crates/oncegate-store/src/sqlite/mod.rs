//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod audit;
mod dir;
mod intake;
mod migrations;
mod person;
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
mod workspaces;
mod writer;

pub use store::{Options, Settings, SqliteStore};

//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod automations;
mod batch;
mod bulk;
mod bulk_rows;
mod dir;
mod export;
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
mod writer;

pub use store::{Options, Settings, SqliteStore};

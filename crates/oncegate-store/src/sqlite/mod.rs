//! The embedded store: SQLite in WAL mode, synchronous=FULL, one writer thread with group commit, separate
//! readers. One process owns the data directory.

mod access;
mod acts;
mod dir;
mod family;
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
mod writer;

pub use store::{Options, Settings, SqliteStore};

//! The store from outside, on real files: one binary, because linking is what tests cost most.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers are tests too")]

mod conformance;
mod moved;
mod nodes;
mod postgres;
mod sqlite;
mod sqlite_full;
mod sqlite_log;
mod sqlite_recent;
mod sqlite_stops;
mod upkeep;

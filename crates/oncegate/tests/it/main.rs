//! The gate as its users see it: the real program behind real sockets, on a real SQLite file, with time that the
//! tests turn by hand. One binary, because linking is what tests cost most.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails; helpers are tests too"
)]

mod access;
mod api;
mod bad_input;
mod cases;
mod cli;
#[path = "promises/conditions.rs"]
mod conditions;
mod config;
mod config_sources;
mod forward;
mod harness;
mod health;
mod intake;
#[path = "promises/lasting.rs"]
mod lasting;
mod limits;
#[path = "promises/lookups.rs"]
mod lookups;
#[path = "promises/loops.rs"]
mod loops;
#[path = "promises/mails.rs"]
mod mails;
#[path = "promises/news.rs"]
mod news;
#[path = "promises/nothing_lost.rs"]
mod nothing_lost;
#[path = "promises/one_runner.rs"]
mod one_runner;
#[path = "promises/order.rs"]
mod order;
mod parsers;
#[path = "promises/polls.rs"]
mod polls;
mod promises;
mod recipes;
#[path = "promises/repeats.rs"]
mod repeats;
#[path = "promises/resets.rs"]
mod resets;
mod restore_drill;
#[path = "promises/schedules.rs"]
mod schedules;
#[path = "promises/targets.rs"]
mod targets;
mod tidy;
mod upkeep;

/// The cases, claims by the API, and the promises that need neither a file, nor one runner alone, nor hours of ticks, run
/// on PostgreSQL, too: see the binary `cluster`.
const STORE: harness::Store = harness::Store::Sqlite;

//! The gate of a team: several nodes on one real PostgreSQL. First the real reports of the binary `it`, each request of
//! which goes to another of two nodes here, with time that the tests turn by hand; then nodes as processes of their own,
//! which are killed, frozen and cut off, by the database's clock.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails; helpers are tests too"
)]

mod api;
mod away;
mod cases;
mod frozen;
#[path = "../it/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "more of it is wanted where the store is a file")]
mod harness;
mod intake;
mod killed;
mod moved;
mod processes;
#[path = "../it/promises/mod.rs"]
#[allow(dead_code, reason = "more of it is wanted where hours of ticks take a moment")]
mod promises;
mod random;

/// Two nodes; callers ask them in turn.
const STORE: harness::Store = harness::Store::Postgres { nodes: 2 };

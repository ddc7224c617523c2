//! The store of a team: PostgreSQL, with as many nodes as there are, any of which may die.
//!
//! Laws of this module (docs/postgresql.md): every transaction stays in one workspace and is safe to try again;
//! versions are compared when rows are swapped; time is the database's; nothing rests on advisory locks, on
//! notifications, or on an isolation above read committed.

mod access;
mod acts;
mod audit;
mod automations;
mod batch;
mod bulk;
mod bulk_rows;
mod clock;
mod columns;
mod connection;
mod context;
mod desk;
mod desk_sql;
mod error;
mod export;
mod family;
mod hello;
mod in_line;
mod inspect;
mod intake;
mod migrations;
mod moving;
mod names;
mod nodes;
mod notices;
mod nudges;
mod options;
mod payloads;
mod people;
mod person;
mod pool;
mod positions;
mod queries;
mod queues;
mod recovery;
mod repeats;
mod requests;
mod row;
mod search;
mod senders;
mod shared;
mod steps;
mod store;
mod transition;
mod upkeep;
mod vitals;
mod workspaces;
mod written;

pub use inspect::{Inspection, inspect};
pub(crate) use moving::Arriving;
pub use options::{Limits, Options};
pub use recovery::recover;
pub use store::PgStore;

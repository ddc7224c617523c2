//! Where oncegate keeps its claims.
//!
//! A store loads the facts of one claim, asks [`oncegate_core::decide::decide`] (or its siblings for finish calls
//! and people's acts), and writes what it says, all in one transaction. It knows nothing of policy and calls
//! nobody. Everything above it speaks to the trait [`Store`]; nothing above it speaks SQL.

pub mod access;
pub mod api;
pub mod bulk;
pub mod clock;
pub mod deliveries;
mod error;
pub mod failpoint;
pub mod in_line;
mod intake;
pub mod moving;
pub mod nodes;
pub mod notices;
pub mod nudges;
pub mod observer;
pub mod people;
pub mod person;
pub mod positions;
pub mod postgres;
pub mod search;
pub mod sqlite;
pub mod step_calls;
pub mod transition;
pub mod vitals;

pub use api::Store;
pub use error::StoreError;

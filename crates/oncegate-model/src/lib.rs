//! An exhaustive search of what can happen to a few claims, under the core's real rules and the store's real
//! transitions. Only time, rows and whoever calls are modelled; what is decided and what is written is the product's.
//!
//! It is for tests: `tests/it/exhaustive.rs` searches every scope, `tests/it/mutations.rs` takes one guard at a time
//! out of the rules and asks the search to notice.

pub mod apply;
pub mod enabled;
pub mod ghost;
pub mod judge;
pub mod make;
pub mod moves;
pub mod mutants;
pub mod scope;
pub mod search;
pub mod shape;
pub mod tally;
pub mod world;

//! The gate API, on two nodes: all of the binary `it` but what looks into the embedded store's file, what is each
//! node's own, and what takes an hour of ticks.

#[path = "../it/api/acts.rs"]
mod acts;
#[path = "../it/api/batch.rs"]
mod batch;
#[path = "../it/api/bound.rs"]
mod bound;
#[path = "../it/api/claiming.rs"]
mod claiming;
#[path = "../it/api/finishing.rs"]
mod finishing;
#[path = "../it/api/lists.rs"]
mod lists;
#[path = "../it/api/once.rs"]
mod once;
#[path = "../it/api/parents.rs"]
mod parents;
#[path = "../it/api/renaming.rs"]
mod renaming;
#[path = "../it/api/unfinished.rs"]
mod unfinished;
#[path = "../it/api/waiting.rs"]
mod waiting;

//! The gate API, on two nodes: claims, their ends, parents and those who wait. Each test makes a cluster of its own, so
//! what has nothing to do with nodes is left to the binary `it`.

#[path = "../it/api/acts.rs"]
mod acts;
#[path = "../it/api/claiming.rs"]
mod claiming;
#[path = "../it/api/finishing.rs"]
mod finishing;
#[path = "../it/api/parents.rs"]
mod parents;
#[path = "../it/api/waiting.rs"]
mod waiting;

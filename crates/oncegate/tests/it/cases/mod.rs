//! Real reports, each a test named by its id.

mod answers;
mod batches;
mod claims;
mod doors;
mod full;
mod guards;
mod identity;
mod load;
mod paths;
mod people;
pub(crate) mod polls;
mod repeats;
mod resets;
mod runner;
pub(crate) mod schedules;
mod time;

//! Real reports, each a test named by its id.

mod answers;
mod claims;
mod doors;
mod full;
mod load;
mod paths;
mod people;
mod resets;
mod runner;
mod time;

//! Real reports, each a test named by its id.

mod claims;
mod doors;
mod load;
mod people;
mod runner;
mod time;

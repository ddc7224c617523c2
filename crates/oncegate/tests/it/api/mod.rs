//! The gate API as those who send HTTP see it.

mod acts;
mod batch;
mod bound;
mod bulk;
mod claiming;
mod connections;
mod finishing;
mod headers;
mod hooks;
mod lists;
mod notices;
mod once;
mod parents;
mod problems;
mod renaming;
mod searching;
mod unfinished;
mod waiting;

//! The gate API as those who send HTTP see it.

mod acts;
mod batch;
mod bound;
mod bulk;
mod claiming;
mod connections;
mod finishing;
mod headers;
mod lists;
mod once;
mod problems;
mod renaming;
mod searching;
mod unfinished;
mod waiting;

//! The gate API as those who send HTTP see it.

mod acts;
mod claiming;
mod connections;
mod finishing;
mod headers;
mod lists;
mod notices;
mod problems;
mod renaming;
mod unfinished;
mod waiting;

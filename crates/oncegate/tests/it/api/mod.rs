//! The gate API as those who send HTTP see it.

mod acts;
mod claiming;
mod connections;
mod finishing;
mod headers;
mod hooks;
mod lists;
mod notices;
mod parents;
mod problems;
mod renaming;
mod unfinished;
mod waiting;

//! The gate API as those who send HTTP see it.

mod acts;
mod claiming;
mod finishing;
mod lists;
mod problems;
mod waiting;

//! The binary's own library: configuration, the HTTP way in, and the program's verbs. Everything that decides lives
//! in the crates below.

pub mod app;
pub mod backups;
pub mod cli;
pub mod config;
mod http;
pub mod metrics;
#[doc(hidden)]
pub mod parsers;

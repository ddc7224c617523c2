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
pub mod place;

/// Every address the server answers at: method, path, and the least that a call must bring.
pub fn routes() -> Vec<(&'static str, &'static str, &'static str)> {
    http::routes::routes(false).into_iter().map(|r| (r.method, r.path, r.needs.as_str())).collect()
}

//! Where the store lies, for verbs that work on it without a gate.

use std::path::PathBuf;

use super::secret_text::SecretText;
use crate::place::{StoreUrl, needs_a_directory};

/// The same as of `serve`, so that a verb works on the store that the service's environment names.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    /// The directory of the store [default: oncegate-data].
    #[arg(long, env = "ONCEGATE_DATA")]
    data: Option<PathBuf>,
    /// The store, as `serve` takes it: `sqlite:DIR`, `postgres://…`, `file:PATH` [default: sqlite].
    #[arg(long, env = "ONCEGATE_STORE", hide_env_values = true)]
    store: Option<SecretText>,
}

impl StoreArgs {
    pub(super) fn url(&self) -> Result<StoreUrl, String> {
        StoreUrl::parse(self.store.as_ref().map(|s| &s.0), self.data.clone()).map_err(|e| e.to_string())
    }

    /// The directory; for a store that has none, an error with what to do `instead`.
    pub(super) fn directory(&self, instead: &str) -> Result<PathBuf, String> {
        needs_a_directory(&self.url()?, instead)
    }
}

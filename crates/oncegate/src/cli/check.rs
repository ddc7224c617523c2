//! `oncegate check`: is the configuration right?

use std::path::PathBuf;

use crate::app;
use crate::config::{self, ProcessEnvironment};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(long, env = "ONCEGATE_CONFIG", default_value = "oncegate.yaml")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let config = config::load(&args.config, &ProcessEnvironment).map_err(|e| e.to_string())?;
    app::caller(&config).map_err(|e| format!("{}: {e}", args.config.display()))?;
    super::say(format_args!(
        "{}: fine. {} source(s), {} automation(s){}.",
        args.config.display(),
        config.all().map(|d| d.sources.len()).sum::<usize>(),
        config.all().map(|d| d.automations.len()).sum::<usize>(),
        match config.workspaces.len() {
            0 => String::new(),
            n => format!(" in {} workspaces", n + 1),
        }
    ));
    Ok(())
}

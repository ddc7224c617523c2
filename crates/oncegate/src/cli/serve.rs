//! `oncegate serve`: run the gate until it is told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::secret::Secret;
use oncegate_store::clock::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use super::logs;
use crate::app::{self, Options};
use crate::config::{self, Config, ProcessEnvironment};
use crate::http::server;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; without it, `oncegate.yaml` is read if it is there.
    #[arg(long, env = "ONCEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// The directory of the embedded store [default: oncegate-data].
    #[arg(long, env = "ONCEGATE_DATA")]
    data: Option<PathBuf>,
    /// The store: `sqlite` in the data directory, or `sqlite:DIR` [default: sqlite].
    #[arg(long, env = "ONCEGATE_STORE")]
    store: Option<String>,
    /// IP address and port to listen on. Addresses other than loopback are reachable by others.
    #[arg(long, env = "ONCEGATE_LISTEN", default_value = "127.0.0.1:7480", value_parser = address)]
    listen: SocketAddr,
    /// Accept a data directory that does not survive a restart of the machine or container.
    #[arg(long, env = "ONCEGATE_EPHEMERAL")]
    ephemeral: bool,
    /// The first admin token, instead of one made and printed at the first start.
    #[arg(long, env = "ONCEGATE_ADMIN_TOKEN", hide = true, hide_env_values = true)]
    admin_token: Option<Token>,
    /// What is logged to stderr, e.g. `info` or `oncegate=debug`.
    #[arg(long, env = "ONCEGATE_LOG", default_value = "info")]
    log: String,
    /// How the log is written: text for people, json for collectors, one object a line.
    #[arg(long, env = "ONCEGATE_LOG_FORMAT", default_value = "text")]
    log_format: logs::Format,
    /// How long /readyz says that the gate is about to stop before it takes no more requests, e.g. `5s`: as long as
    /// what sends to it needs to notice.
    #[arg(long, env = "ONCEGATE_DRAIN_NOTICE", default_value = "0s", value_parser = notice)]
    drain_notice: Duration,
}

/// A token from the environment; does not print.
#[derive(Clone)]
struct Token(Secret);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::str::FromStr for Token {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Secret::new(text.trim())))
    }
}

pub(super) async fn run(args: Args) -> Result<(), String> {
    logs::start(&args.log, args.log_format)?;
    // Listened for before anything can run, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    server::raise_file_limit();
    let config = configuration(args.config.as_deref())?;
    let chosen = args.admin_token.is_some();
    let options = Options {
        config,
        data: data_dir(args.store.as_deref(), args.data)?,
        listen: args.listen,
        ephemeral: args.ephemeral,
        admin_token: args.admin_token.map(|t| t.0),
        clock: Arc::new(SystemClock::new()),
        max_bytes: None,
        limits: app::Limits { drain_notice: args.drain_notice, ..app::Limits::default() },
    };
    let running = app::start(options).await.map_err(|e| e.to_string())?;
    match &running.new_token {
        Some(token) => greet(token),
        None if chosen => {}
        None => tracing::info!(
            "the admin token was shown at the first start; if it is lost, start once with ONCEGATE_ADMIN_TOKEN"
        ),
    }
    if let Some(recovery) = &running.recovery {
        super::say(format_args!(
            "IN RECOVERY: restored from a backup of {}. NOTHING RUNS until you have looked and ended it: \
             POST /v1/recovery/end (docs/backup-and-restore.md)",
            recovery.gap.backup_at
        ));
    }
    super::say(format_args!("oncegate is listening on http://{}", running.address));
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
        _ = interrupt.recv() => tracing::info!("interrupted: draining"),
    }
    running.stop().await;
    Ok(())
}

fn configuration(path: Option<&Path>) -> Result<Config, String> {
    let default = Path::new("oncegate.yaml");
    let path = match path {
        Some(path) => path,
        None if default.exists() => default,
        None => return Ok(Config::default()),
    };
    config::load(path, &ProcessEnvironment).map_err(|e| e.to_string())
}

fn data_dir(store: Option<&str>, data: Option<PathBuf>) -> Result<PathBuf, String> {
    let named = match store.unwrap_or("sqlite").split_once(':') {
        None if store.is_none_or(|s| s == "sqlite") => None,
        Some(("sqlite", dir)) if !dir.is_empty() => Some(PathBuf::from(dir)),
        _ => {
            let store = store.unwrap_or_default();
            return Err(format!("--store {store}: this version knows `sqlite` and `sqlite:DIR`"));
        }
    };
    match (named, data) {
        (Some(named), Some(data)) if named != data => Err(format!(
            "--store names the directory {} and --data names {}; give one of them",
            named.display(),
            data.display()
        )),
        (Some(dir), _) | (None, Some(dir)) => Ok(dir),
        (None, None) => Ok("oncegate-data".into()),
    }
}

fn notice(text: &str) -> Result<Duration, String> {
    let notice = parse_duration(text).map_err(|e| e.to_string())?;
    match notice <= limits::DRAIN_NOTICE_MAX {
        true => Ok(notice),
        false => Err(format!("at most {} s", limits::DRAIN_NOTICE_MAX.as_secs())),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, e.g. 127.0.0.1:7480".to_owned())
}

/// Shown once; only its hash is kept.
fn greet(token: &str) {
    use std::io::Write;
    let greeting = format!(
        "\n  Admin token, shown this once (only its hash is stored):\n\n      {token}\n\n  Keep it, e.g.:  export ONCEGATE_TOKEN={token}\n"
    );
    // It cannot be shown again: if stderr is closed, stdout must do.
    if writeln!(std::io::stderr(), "{greeting}").is_err() {
        super::say(greeting);
    }
}

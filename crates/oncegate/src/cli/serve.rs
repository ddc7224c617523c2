//! `oncegate serve`: run the gate until it is told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_store::clock::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use super::logs;
use super::secret_text::SecretText;
use crate::app::{self, Options};
use crate::config::{self, Config, ProcessEnvironment};
use crate::http::server;
use crate::place::{self, StoreUrl};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; without it, `oncegate.yaml` is read if it is there.
    #[arg(long, env = "ONCEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// The directory of the embedded store [default: oncegate-data].
    #[arg(long, env = "ONCEGATE_DATA")]
    data: Option<PathBuf>,
    /// The store: `sqlite` in the data directory, `sqlite:DIR`, `postgres://user:password@host:5432/database`, or
    /// `file:PATH` of a file in which one of these stands [default: sqlite].
    #[arg(long, env = "ONCEGATE_STORE", hide_env_values = true)]
    store: Option<SecretText>,
    /// What this node is called, the same at each of its starts and no other's: for several on one PostgreSQL
    /// [default: the machine's name].
    #[arg(long, env = "ONCEGATE_NODE", value_parser = place::node_name)]
    node: Option<String>,
    /// IP address and port to listen on. Addresses other than loopback are reachable by others.
    #[arg(long, env = "ONCEGATE_LISTEN", default_value = "127.0.0.1:7480", value_parser = address)]
    listen: SocketAddr,
    /// Accept a data directory that does not survive a restart of the machine or container.
    #[arg(long, env = "ONCEGATE_EPHEMERAL")]
    ephemeral: bool,
    /// The first admin token, instead of one made and printed at the first start.
    #[arg(long, env = "ONCEGATE_ADMIN_TOKEN", hide = true, hide_env_values = true)]
    admin_token: Option<SecretText>,
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

pub(super) async fn run(args: Args) -> Result<(), String> {
    logs::start(&args.log, args.log_format)?;
    // Listened for before anything can run, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    server::raise_file_limit();
    let config = configuration(args.config.as_deref())?;
    let chosen = args.admin_token.is_some();
    let named = args.store.map(|t| t.0);
    if StoreUrl::shows_a_password(named.as_ref(), &ProcessEnvironment) {
        tracing::warn!(
            "the store's password stands among the arguments, which everybody on this machine can read; set \
             ONCEGATE_STORE, or write --store file:PATH"
        );
    }
    let store = StoreUrl::parse(named.as_ref(), args.data).map_err(|e| e.to_string())?;
    let options = Options {
        config,
        store,
        node: args.node.unwrap_or_else(place::machine_name),
        listen: args.listen,
        ephemeral: args.ephemeral,
        admin_token: args.admin_token.map(|t| t.0),
        clock: Arc::new(SystemClock::new()),
        simulated: false,
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

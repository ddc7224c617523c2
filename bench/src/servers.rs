//! The two servers under load, each a process of its own.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The token the load generator sends.
pub(crate) const TOKEN: &str = "benchmark-token-0123456789";

/// A running server; ends when dropped.
pub(crate) struct Server {
    /// `host:port`.
    pub(crate) address: String,
    _child: Child,
}

/// Starts oncegate on an empty store.
pub(crate) async fn start_gate(binary: &Path, data: &Path) -> Result<Server, String> {
    let _ = std::fs::remove_dir_all(data);
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data"]).arg(data);
    command.env("ONCEGATE_ADMIN_TOKEN", TOKEN).env_remove("ONCEGATE_CONFIG");
    start(command)
        .await
        .map_err(|e| format!("{}: {e}; build it first: cargo build --release", binary.display()))
}

/// Starts the handler that does nothing.
pub(crate) async fn start_empty_handler() -> Result<Server, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg("--empty-handler");
    start(command).await
}

async fn start(mut command: Command) -> Result<Server, String> {
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().map_err(|e| e.to_string())?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = lines.next_line().await.map_err(|e| e.to_string())?.ok_or("it ended before it listened")?;
    let address = line.rsplit("http://").next().unwrap_or_default().trim().to_owned();
    Ok(Server { address, _child: child })
}

/// Reads the body, as oncegate must, and answers a few bytes.
pub(crate) async fn empty_handler() -> Result<(), String> {
    let router = axum::Router::new().route(
        "/v1/claims",
        axum::routing::post(async |body: axum::body::Bytes| format!("{{\"read\":{}}}", body.len())),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    println!("listening on http://{}", listener.local_addr().map_err(|e| e.to_string())?);
    axum::serve(listener, router).await.map_err(|e| e.to_string())
}

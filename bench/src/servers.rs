//! The servers under load, each a process of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The token the load generators send; `load.lua` has it too.
pub(crate) const TOKEN: &str = "benchmark-token-0123456789";

/// A running server; ends when dropped.
pub(crate) struct Server {
    /// `host:port`.
    pub(crate) address: String,
    child: Child,
}

impl Server {
    /// Its process; `None` once it has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it as an operator would, so that a store closes its files.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        if let Some(id) = self.child.id() {
            let told = Command::new("kill").arg(id.to_string()).status().await;
            told.map_err(|e| format!("kill: {e}"))?;
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        ended.map_err(|_| "a server did not stop within 60 s".to_owned())?.map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// Where a gate keeps its claims.
pub(crate) enum StoreAt<'a> {
    /// In this directory.
    Sqlite(&'a Path),
    /// In this database; the directory is for what else a gate needs.
    Postgres(&'a str, &'a Path),
}

/// Starts oncegate. What is in the directory stays.
pub(crate) async fn start_gate(binary: &Path, store: StoreAt<'_>) -> Result<Server, String> {
    start_gate_with(binary, store, None).await
}

/// Starts oncegate with a configuration, whose `env:BENCH_SECRET` is the second.
pub(crate) async fn start_gate_with(
    binary: &Path,
    store: StoreAt<'_>,
    config: Option<(&Path, &str)>,
) -> Result<Server, String> {
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn"]);
    match store {
        StoreAt::Sqlite(data) => command.arg("--data").arg(data),
        StoreAt::Postgres(url, data) => command.args(["--store", url, "--data"]).arg(data),
    };
    command.env("ONCEGATE_ADMIN_TOKEN", TOKEN).env_remove("ONCEGATE_CONFIG").env_remove("ONCEGATE_STORE");
    if let Some((file, secret)) = config {
        command.arg("--config").arg(file).env("BENCH_SECRET", secret);
    }
    start(command).await.map_err(|e| format!("{}: {e}; is it built? cargo build --release", binary.display()))
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
    Ok(Server { address, child })
}

/// Starts Redis as durable as oncegate is: every answer after a sync.
pub(crate) async fn start_redis(directory: &Path) -> Result<Server, String> {
    std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        free.local_addr().map_err(|e| e.to_string())?.port().to_string()
    };
    let child = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--dir"])
        .arg(directory)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|_| "no redis-server".to_owned())?;
    let server = Server { address: format!("127.0.0.1:{port}"), child };
    for _ in 0..200 {
        if tokio::net::TcpStream::connect(&server.address).await.is_ok() {
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("redis-server did not come up".into())
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

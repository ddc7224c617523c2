//! Looks: at files, clocks, the configuration and the running gate. What it means is judged in `checks.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Uri};
use oncegate_connect::{CallOutcome, Caller, Options, OutgoingRequest, PrivateAllowance};
use oncegate_core::time::Timestamp;
use oncegate_store::clock::{Clock as _, SystemClock};
use oncegate_store::sqlite::{self, FileSystem, Inspection};
use oncegate_store::{StoreError, postgres};
use serde_json::Value;
use tokio::process::Command;

use super::{Args, Place, Seen, public};
use crate::app;
use crate::config::{self, Config, ProcessEnvironment};
use crate::place::StoreUrl;

/// The data directory from outside.
pub(super) struct Disk {
    pub(super) path: PathBuf,
    /// Of the directory, or of the nearest one above it that is there.
    pub(super) system: Result<FileSystem, String>,
    /// Permission bits of the directory and of what lies in it, with its name; `None` if it is not there.
    pub(super) directory: Result<Option<u32>, String>,
    pub(super) files: Vec<(&'static str, u32)>,
    pub(super) database_bytes: u64,
    /// How long a synced write takes; `None` if there is no directory yet.
    pub(super) sync: Option<Result<Duration, String>>,
}

/// The store's own word; `None` if there is no store yet.
pub(super) type Store = Result<Option<Inspection>, String>;

pub(super) struct Clock {
    pub(super) now: Timestamp,
    pub(super) ticked_at: Option<Timestamp>,
    /// Whether a gate answers, and so should tick.
    pub(super) is_ticking: bool,
}

pub(super) struct Backup {
    pub(super) now: Timestamp,
    pub(super) newest: Result<Option<sqlite::Backup>, String>,
    pub(super) has_store: bool,
}

/// `None`: there is no file, and none was named.
pub(super) type Configuration = Option<(PathBuf, Result<Config, String>)>;

pub(super) struct Gate {
    pub(super) url: String,
    /// Somebody said that it answers there.
    pub(super) is_named: bool,
    /// Whether it is ready, with its reasons; or why it did not answer.
    pub(super) answer: Result<Vec<String>, String>,
    /// By what it calls its store.
    pub(super) store: Option<String>,
}

/// What lies in the data directory.
pub(super) struct Directory {
    pub(super) disk: Disk,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) backup: Backup,
}

/// Looks at everything.
///
/// # Errors
/// The URL cannot be one.
pub(super) async fn look(args: &Args) -> Result<Seen, String> {
    let gate = gate(args.url.as_deref()).await?;
    let configuration = configuration(args.config.as_deref());
    let public = match args.public {
        true => {
            let config = configuration.as_ref().and_then(|(_, config)| config.as_ref().ok());
            let url = config.and_then(|config| config.public_url.as_deref());
            Some(public::look(url, gate.store.clone()).await?)
        }
        false => None,
    };
    let place = match args.store.url()? {
        StoreUrl::Sqlite(data) => Place::Directory(Box::new(directory(data, gate.answer.is_ok()).await?)),
        StoreUrl::Postgres(url) => {
            Place::Database(postgres::inspect(&url, &SystemClock::new()).await.map_err(|e| match e {
                StoreError::Away(why) => format!("the database does not answer: {why}"),
                other => other.to_string(),
            }))
        }
    };
    Ok(Seen {
        place,
        synchronised: synchronised().await,
        files: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
        configuration,
        gate,
        public,
    })
}

async fn directory(data: PathBuf, is_ticking: bool) -> Result<Directory, String> {
    // Files may be slow, and a damaged database takes long to read.
    let (disk, store, newest) = tokio::task::spawn_blocking(move || {
        let store = sqlite::inspect(&data).map_err(|e| e.to_string());
        (disk(&data), store, sqlite::newest_backup(&data).map_err(|e| e.to_string()))
    })
    .await
    .map_err(|e| e.to_string())?;
    let inspection = store.as_ref().ok().and_then(Option::as_ref);
    let now = SystemClock::new().read().wall;
    Ok(Directory {
        clock: Clock { now, ticked_at: inspection.and_then(|i| i.ticked_at), is_ticking },
        backup: Backup { now, newest, has_store: inspection.is_some() },
        disk,
        store,
    })
}

fn disk(data: &Path) -> Disk {
    let there = data.ancestors().find(|p| p.exists()).unwrap_or(Path::new("."));
    let bits =
        |name: &'static str| sqlite::permissions(&data.join(name)).ok().flatten().map(|bits| (name, bits));
    let directory = sqlite::permissions(data).map_err(|e| e.to_string());
    let is_there = matches!(directory, Ok(Some(_)));
    Disk {
        path: data.to_owned(),
        system: FileSystem::of(there).map_err(|e| e.to_string()),
        files: ["oncegate.db", "oncegate.db-wal", "oncegate.lock", "backups"]
            .into_iter()
            .filter_map(bits)
            .collect(),
        directory,
        database_bytes: sqlite::database_bytes(data),
        sync: is_there.then(|| sqlite::sync_time(data, &SystemClock::new()).map_err(|e| e.to_string())),
    }
}

fn configuration(named: Option<&Path>) -> Configuration {
    let default = Path::new("oncegate.yaml");
    let path = named.or(default.exists().then_some(default))?;
    let read = config::load(path, &ProcessEnvironment).map_err(|e| e.to_string());
    let checked = read.and_then(|config| match app::caller(&config) {
        Ok(_) => Ok(config),
        Err(e) => Err(format!("{}: {e}", path.display())),
    });
    Some((path.to_owned(), checked))
}

/// Asks systemd, whose `timedatectl` asks the kernel, whoever keeps the clock right. Where there is no systemd, as in
/// most containers, nobody is asked.
async fn synchronised() -> Option<bool> {
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Some(true);
    }
    let mut asked = Command::new("timedatectl");
    asked.args(["show", "--property=NTPSynchronized", "--value"]).kill_on_drop(true);
    let told = tokio::time::timeout(Duration::from_secs(2), asked.output()).await.ok()?.ok()?;
    match String::from_utf8_lossy(&told.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

async fn gate(named: Option<&str>) -> Result<Gate, String> {
    let url = named.unwrap_or("http://127.0.0.1:7480").trim_end_matches('/').to_owned();
    let (answer, store) = ready(&url).await?;
    Ok(Gate { url, is_named: named.is_some(), answer, store })
}

/// What `/readyz` says. An outer error is an URL that is none.
async fn ready(base: &str) -> Result<(Result<Vec<String>, String>, Option<String>), String> {
    let wrong =
        || format!("--url {base}: write http:// or https://, a name or an address, and a port if it has one");
    let uri: Uri = base.parse().map_err(|_| wrong())?;
    let (Some(host), Some(scheme)) = (uri.host(), uri.scheme_str()) else { return Err(wrong()) };
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    // Ours to call, wherever it is.
    let allowed: PrivateAllowance = format!("{host}:{port}").parse().map_err(|_| wrong())?;
    let options = Options { allow_private: vec![allowed], ..Options::default() };
    let caller = Caller::new(&options).map_err(|e| e.to_string())?;
    let mut request = OutgoingRequest::new(Method::GET, format!("{base}/readyz"), "doctor");
    request.timeout = Duration::from_secs(5);
    let now = SystemClock::new().read().wall;
    let (status, body) = match caller.call(&request, now).await {
        CallOutcome::Succeeded { status, answer } => (Some(status), Some(answer)),
        CallOutcome::Failed { status, answer, note, .. } | CallOutcome::Unknown { status, answer, note } => {
            if status.is_none() {
                return Ok((Err(note), None));
            }
            (status, answer)
        }
    };
    let document: Option<Value> = body.and_then(|answer| serde_json::from_slice(&answer.body).ok());
    let store = document.as_ref().and_then(|d| d["store"].as_str()).map(str::to_owned);
    let reasons = document.as_ref().and_then(|d| d["reasons"].as_array());
    let answer = match reasons {
        Some(reasons) => Ok(reasons.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        None => {
            Err(format!("something answers {} there, but not as a gate does", status.unwrap_or_default()))
        }
    };
    Ok((answer, store))
}

//! The demo's processes and their directory. Everything ends and vanishes with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::{Request, header};
use http_body_util::Full;
use oncegate_runner::entropy;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cli::lab::ledger::{self, Arrival, Delivery, Did};
use crate::cli::lab::wire;

/// The sample of the provider, untouched; its secret and its people do not exist.
const SAMPLE: &str = include_str!("../../../../../testdata/webhooks/typeform/01_first.json");

pub(super) struct Stage {
    gate: Option<Child>,
    receiver: Child,
    dir: TempDir,
    program: PathBuf,
    pub(super) gate_at: SocketAddr,
    pub(super) receiver_at: SocketAddr,
    token: String,
    secret: String,
    /// Effects that were told already.
    told: usize,
}

/// How long anything may take to happen.
const DEADLINE: Duration = Duration::from_secs(20);

/// Settings of this shell that are not meant for the demo's gate.
const NOT_INHERITED: [&str; 9] = [
    "ONCEGATE_CONFIG",
    "ONCEGATE_DATA",
    "ONCEGATE_STORE",
    "ONCEGATE_LISTEN",
    "ONCEGATE_EPHEMERAL",
    "ONCEGATE_LOG",
    "ONCEGATE_ADMIN_TOKEN",
    "ONCEGATE_TOKEN",
    "ONCEGATE_FAILPOINT",
];

impl Stage {
    /// Starts the receiver and writes the gate's configuration.
    pub(super) async fn open(no_dedupe: bool) -> Result<Self, String> {
        let dir = tempfile::Builder::new()
            .prefix("oncegate-demo-")
            .tempdir()
            .map_err(|e| format!("no temporary directory: {e}"))?;
        let program =
            std::env::current_exe().map_err(|e| format!("where this program lies cannot be told: {e}"))?;
        let mut receiver = quiet(&program, dir.path());
        receiver.args(["lab", "receiver", "--until-stdin-ends"]);
        receiver.arg("--file").arg(dir.path().join("receiver.jsonl"));
        receiver.arg("--hold-file").arg(dir.path().join("hold"));
        if no_dedupe {
            receiver.arg("--no-dedupe");
        }
        let mut receiver =
            receiver.stdin(Stdio::piped()).spawn().map_err(|e| format!("the receiver: {e}"))?;
        let receiver_at = announced(&mut receiver, "the receiver").await?;
        let sample: Value = serde_json::from_str(SAMPLE).map_err(|e| e.to_string())?;
        let stage = Self {
            gate: None,
            receiver,
            program,
            gate_at: free_address()?,
            receiver_at,
            token: format!("demo_{}", HEXLOWER.encode(&entropy::bytes::<16>())),
            secret: sample["secret"].as_str().unwrap_or_default().to_owned(),
            told: 0,
            dir,
        };
        stage.write("sample.json", SAMPLE)?;
        stage.write("oncegate.yaml", &config(receiver_at))?;
        Ok(stage)
    }

    /// Starts the gate, again on the same address and data.
    pub(super) async fn start_gate(&mut self) -> Result<(), String> {
        let mut gate = quiet(&self.program, self.dir.path());
        gate.args(["serve", "--ephemeral", "--store", "sqlite", "--log", "warn"]);
        gate.arg("--data").arg(self.dir.path().join("data"));
        gate.arg("--config").arg(self.dir.path().join("oncegate.yaml"));
        gate.arg("--listen").arg(self.gate_at.to_string());
        gate.env("ONCEGATE_ADMIN_TOKEN", &self.token).env("ONCEGATE_LAB_SECRET", &self.secret);
        // Ours before it is waited for: whoever interrupts the wait must find it.
        let gate = self.gate.insert(gate.spawn().map_err(|e| format!("the gate: {e}"))?);
        let ready = announced(gate, "the gate").await;
        ready.map(drop).map_err(|e| format!("{e}\n{}", self.log()))
    }

    /// kill -9: nothing in the gate gets to run any more.
    pub(super) async fn kill_gate(&mut self) -> Result<(), String> {
        match self.gate.take() {
            Some(mut gate) => gate.kill().await.map_err(|e| format!("the gate could not be killed: {e}")),
            None => Ok(()),
        }
    }

    pub(super) fn hold(&self) -> Result<(), String> {
        self.write("hold", "")
    }

    pub(super) fn release(&self) -> Result<(), String> {
        std::fs::remove_file(self.dir.path().join("hold")).map_err(|e| e.to_string())
    }

    /// A sender of the sample as it is, or of one fresh event called `event`.
    pub(super) fn send(&self, to: &str, event: Option<&str>, copies: u32) -> Result<Sending, String> {
        let file = self.dir.path().join(format!("sender-{}.jsonl", event.unwrap_or("sample")));
        let mut sender = quiet(&self.program, self.dir.path());
        sender.args(["lab", "sender", "--to", to, "--copies", &copies.to_string()]);
        sender.arg("--sample").arg(self.dir.path().join("sample.json"));
        sender.arg("--file").arg(&file);
        if let Some(event) = event {
            sender.args(["--events", "1", "--prefix", event]);
        }
        sender.env("ONCEGATE_LAB_SECRET", &self.secret);
        let process = sender.spawn().map_err(|e| format!("the sender: {e}"))?;
        Ok(Sending { process, file })
    }

    pub(super) fn arrivals(&self) -> Result<Vec<Arrival>, String> {
        ledger::read(&self.dir.path().join("receiver.jsonl"))
    }

    /// The effects in the receiver's file since this was last asked.
    pub(super) fn newly_counted(&mut self) -> Result<usize, String> {
        let effects = self.arrivals()?.iter().filter(|arrival| arrival.did == Did::Effect).count();
        Ok(effects.saturating_sub(std::mem::replace(&mut self.told, effects)))
    }

    /// Sabotage: the receiver forgets what reached it last.
    pub(super) fn lose_a_line(&self) -> Result<(), String> {
        let mut arrivals = self.arrivals()?;
        arrivals.pop();
        let lines: Vec<String> = arrivals.iter().filter_map(|a| serde_json::to_string(a).ok()).collect();
        self.write("receiver.jsonl", &format!("{}\n", lines.join("\n")))
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, String> {
        self.call("GET", &format!("http://{}{path}", self.gate_at), None, &[]).await
    }

    /// Posts JSON to the gate or to the receiver.
    pub(super) async fn post(
        &self,
        url: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Value, String> {
        self.call("POST", url, Some(body), headers).await
    }

    async fn call(
        &self,
        method: &str,
        url: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Value, String> {
        let mut request = Request::builder().method(method).uri(url);
        // The receiver is somebody else, who gets no token of the gate.
        if !url.contains(&self.receiver_at.to_string()) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::from(Bytes::from(body))).map_err(|e| e.to_string())?;
        let answer = wire::send(request, DEADLINE).await.map_err(|e| format!("{method} {url}: {e}"))?;
        let said = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.status {
            200..300 => Ok(said),
            status => Err(format!("{method} {url}: {status} {said}")),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.dir.path().join(name);
        #[expect(clippy::disallowed_methods, reason = "the demo's own directory")]
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn log(&self) -> String {
        #[expect(clippy::disallowed_methods, reason = "the demo's own directory")]
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Stage {
    /// Before the directory goes: a process that is still there could write into it.
    fn drop(&mut self) {
        self.gate.iter_mut().chain([&mut self.receiver]).for_each(end);
    }
}

/// Kills it, and waits for its end: a moment, as nothing in it gets to run any more.
fn end(process: &mut Child) {
    let _ = process.start_kill();
    for _ in 0..1000 {
        if !matches!(process.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A sender at work.
pub(super) struct Sending {
    process: Child,
    file: PathBuf,
}

impl Sending {
    /// Waits until every delivery was acknowledged.
    pub(super) async fn finish(mut self) -> Result<Vec<Delivery>, String> {
        let ended = self.process.wait().await.map_err(|e| format!("the sender: {e}"))?;
        if !ended.success() {
            return Err("the sender gave up".to_owned());
        }
        ledger::read(&self.file)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Asks again and again until it is so.
pub(super) async fn until<T, F>(what: &str, mut look: F) -> Result<T, String>
where
    F: AsyncFnMut() -> Result<Option<T>, String>,
{
    let looking = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, looking)
        .await
        .unwrap_or_else(|_| Err(format!("{what}: not within {} s", DEADLINE.as_secs())))
}

fn quiet(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    let log = std::fs::File::options().create(true).append(true).open(dir.join("log"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
        // In a group of its own, so that a ^C reaches the demo alone, which then ends the others.
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// The address at the end of the line a process prints when it answers.
async fn announced(process: &mut Child, who: &str) -> Result<SocketAddr, String> {
    let stdout = process.stdout.take().ok_or_else(|| format!("{who} has no output"))?;
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout);
    match tokio::time::timeout(DEADLINE, stdout.read_line(&mut line)).await {
        Ok(Ok(n)) if n > 0 => {}
        _ => return Err(format!("{who} did not start")),
    }
    let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
    address.ok_or_else(|| format!("{who} said: {line}"))
}

/// A port that stays the same over restarts. It lies below those that the system hands out by itself: between two
/// lives of the gate, one of those could be given to somebody else.
fn free_address() -> Result<SocketAddr, String> {
    for _ in 0..100 {
        let port = 10_000 + u16::from_be_bytes(entropy::bytes()) % 20_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("no free port was found".to_owned())
}

fn config(receiver: SocketAddr) -> String {
    format!(
        "\
outgoing:
  allow_private: ['{receiver}']
sources:
  form: {{ provider: typeform, secret: 'env:ONCEGATE_LAB_SECRET', automation: welcome }}
  trial: {{ provider: typeform, secret: 'env:ONCEGATE_LAB_SECRET', automation: trial }}
automations:
  welcome:
    steps:
      - {{ name: add-contact, http: {{ url: 'http://{receiver}/hold/contacts' }}, repeat: by_key }}
  trial:
    retries: [1s, 1s, 1s]
    steps:
      - {{ name: start-trial, http: {{ url: 'http://{receiver}/fail500/trials' }}, repeat: by_key }}
"
    )
}

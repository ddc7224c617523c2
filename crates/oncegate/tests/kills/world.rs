//! The processes of a test and their files. Whatever is left of them ends with the test; a failed test leaves its
//! directory to be looked at.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::wire;

/// How long anything may take to happen on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_oncegate");
pub(crate) const SECRET: &str = "tf-made-up-secret-5f1e0c9a";
const TOKEN: &str = "a-token-for-tests-only";

/// Where the repository keeps the provider's samples.
pub(crate) fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/webhooks/typeform/01_first.json")
}

/// Looks again and again until it is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: not within {} s", DEADLINE.as_secs());
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// A directory of the test's own.
pub(crate) struct Ground(PathBuf);

impl Ground {
    pub(crate) fn new(test: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("kills")
            .join(format!("{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Ends its process when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What reached a receiver, by its own file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Arrival {
    pub(crate) key: Option<String>,
    pub(crate) path: String,
    pub(crate) body_sha256: String,
    pub(crate) did: String,
}

/// What a sender was told, by its own file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) event: String,
    pub(crate) status: u16,
    pub(crate) answer: String,
    pub(crate) body_sha256: String,
}

/// A receiver that counts.
pub(crate) struct Receiver {
    pub(crate) at: SocketAddr,
    file: PathBuf,
    hold: PathBuf,
    _process: Process,
}

impl Receiver {
    pub(crate) fn start(ground: &Ground, name: &str, more: &[&str]) -> Self {
        let (file, hold) = (ground.path(&format!("{name}.jsonl")), ground.path(&format!("{name}.hold")));
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "receiver", "--until-stdin-ends", "--file"]).arg(&file);
        command.arg("--hold-file").arg(&hold).args(more);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut process = Process(child);
        let at = announced(&mut process.0).unwrap();
        Self { at, file, hold, _process: process }
    }

    pub(crate) fn hold(&self) {
        fs::write(&self.hold, "").unwrap();
    }

    pub(crate) fn release(&self) {
        fs::remove_file(&self.hold).unwrap();
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        lines(&self.file)
    }
}

/// Where a gate lives: its address, configuration and data outlast its processes.
pub(crate) struct Site {
    pub(crate) at: SocketAddr,
    config: PathBuf,
    data: PathBuf,
    log: PathBuf,
}

impl Site {
    pub(crate) fn new(ground: &Ground, config: &str) -> Self {
        let site = Self {
            at: free_address(),
            config: ground.path("oncegate.yaml"),
            data: ground.path("data"),
            log: ground.path("gate.log"),
        };
        fs::write(&site.config, config).unwrap();
        site
    }

    /// Starts a gate that answers when this returns; one with a failpoint may die before.
    pub(crate) fn start(&self, failpoint: Option<&str>) -> Gate {
        let log = fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--ephemeral", "--store", "sqlite", "--log", "warn"]);
        command.arg("--listen").arg(self.at.to_string());
        command.arg("--config").arg(&self.config).arg("--data").arg(&self.data);
        command.env("ONCEGATE_ADMIN_TOKEN", TOKEN).env("LAB_SECRET", SECRET);
        if let Some(failpoint) = failpoint {
            command.env("ONCEGATE_FAILPOINT", failpoint);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut process = Process(child);
        let answers = announced(&mut process.0).is_some();
        assert!(answers || failpoint.is_some(), "the gate did not start, see {}", self.log.display());
        Gate { process, at: self.at }
    }

    /// The database, while no gate has it.
    pub(crate) fn database(&self) -> PathBuf {
        self.data.join("oncegate.db")
    }
}

/// One life of a gate.
pub(crate) struct Gate {
    process: Process,
    pub(crate) at: SocketAddr,
}

impl Gate {
    /// kill -9, now.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().unwrap();
        let status = self.process.0.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the gate had ended by itself: {status}");
    }

    /// Waits for the failpoint to kill it.
    pub(crate) fn dies(mut self, failpoint: &str) {
        let status =
            until(&format!("the gate's death at {failpoint}"), || self.process.0.try_wait().unwrap());
        assert_eq!(status.signal(), Some(9), "not killed at {failpoint} but: {status}");
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> ExitStatus {
        until("the gate's end", || self.process.0.try_wait().unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let authorization = format!("Bearer {TOKEN}");
        let answer = wire::call(self.at, "GET", path, &[("authorization", &authorization)], b"").unwrap();
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "GET {path}: {said}");
        serde_json::from_str(&said).unwrap()
    }

    /// A POST of JSON, answered with 200; `None` if the gate died before it answered.
    pub(crate) fn post(&self, path: &str, json: &Value) -> Option<Value> {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        let answer = wire::call(self.at, "POST", path, &headers, json.to_string().as_bytes()).ok()?;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "POST {path}: {said}");
        Some(serde_json::from_str(&said).unwrap())
    }

    /// With which status a POST of JSON is refused.
    pub(crate) fn refused(&self, path: &str, json: &Value) -> u16 {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        wire::call(self.at, "POST", path, &headers, json.to_string().as_bytes()).unwrap().status
    }

    /// The claim of a Typeform event, as the list shows it.
    pub(crate) fn claim(&self, automation: &str, form: &str, token: &str) -> Option<Value> {
        let key = format!("typeform:form_response:{form}:{token}");
        let page = self.get(&format!("/v1/claims?automation={automation}&idempotency_key={key}"));
        page["claims"].as_array().unwrap().first().cloned()
    }

    /// The claim with its calls and history.
    pub(crate) fn whole(&self, claim: &Value) -> Value {
        self.get(&format!("/v1/claims/{}", claim["claim_id"].as_str().unwrap()))
    }
}

/// A sender that repeats until it is acknowledged.
pub(crate) struct Sender {
    process: Process,
    file: PathBuf,
}

impl Sender {
    /// The sample as it is (`fresh` = `None`), or so many fresh events whose tokens begin with a prefix.
    pub(crate) fn start(
        ground: &Ground,
        to: &str,
        sample: &Path,
        fresh: Option<(u32, &str)>,
        copies: u32,
    ) -> Self {
        let name = fresh.map_or("sample", |(_, prefix)| prefix);
        let file = ground.path(&format!("sender-{name}.jsonl"));
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "sender", "--to", to, "--copies", &copies.to_string()]);
        command.arg("--sample").arg(sample).arg("--file").arg(&file);
        if let Some((events, prefix)) = fresh {
            command.args(["--events", &events.to_string(), "--prefix", prefix]);
            command.env("ONCEGATE_LAB_SECRET", SECRET);
        }
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Self { process: Process(child), file }
    }

    /// Waits until every delivery has its 200.
    pub(crate) fn acknowledged(mut self) -> Vec<Delivery> {
        let status = until("the sender's end", || self.process.0.try_wait().unwrap());
        assert!(status.success(), "the sender gave up, see {}", self.file.display());
        lines(&self.file)
    }
}

fn announced(process: &mut Child) -> Option<SocketAddr> {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().rsplit_once("http://")?.1.parse().ok()
}

fn lines<T: for<'de> Deserialize<'de>>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A port that stays the same over restarts, below those that the system hands out by itself: while a gate is down,
/// one of those could be given to somebody else, or a sender could end up connected to itself.
fn free_address() -> SocketAddr {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap();
    let given = given.get_or_insert_default();
    loop {
        let port = 10_000 + u16::from_be_bytes(oncegate_runner::entropy::bytes()) % 20_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if given.insert(port) && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A source and an automation for each receiver. `once` may repeat under its key; `never` may not repeat at all.
pub(crate) fn config(once: &Receiver, never: Option<&Receiver>) -> String {
    let one = |name: &str, receiver: &Receiver, repeat: &str| {
        let at = receiver.at;
        (
            format!("  {name}: {{ provider: typeform, secret: 'env:LAB_SECRET', automation: {name} }}\n"),
            format!(
                "  {name}:\n    retries: [1s, 1s, 1s]\n    steps:\n      - {{ name: write, http: {{ url: \
                 'http://{at}/hold/{name}' }}, repeat: {repeat} }}\n"
            ),
        )
    };
    let mut parts = vec![one("once", once, "by_key")];
    parts.extend(never.map(|receiver| one("never", receiver, "never")));
    let (sources, automations): (String, String) = parts.into_iter().unzip();
    format!("outgoing:\n  allow_private: ['127.0.0.1']\nsources:\n{sources}automations:\n{automations}")
}

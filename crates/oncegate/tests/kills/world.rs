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
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_oncegate");
pub(crate) const SECRET: &str = "tf-made-up-secret-5f1e0c9a";
const TOKEN: &str = "a-token-for-tests-only";

/// Where the repository keeps the provider's samples.
pub(crate) fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/webhooks/typeform/01_first.json")
}

/// Looks again and again until it is so; the longer it takes, the less often, as each look costs the gate something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: not within {} s", DEADLINE.as_secs());
        std::thread::sleep((start.elapsed() / 8).clamp(Duration::from_millis(4), Duration::from_millis(250)));
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

impl Arrival {
    /// It asked what is there, and was meant to change nothing.
    pub(crate) fn looks(&self) -> bool {
        self.path.starts_with("/find/")
    }

    /// `/HOW/TOKEN/NAME`: which event it is of …
    pub(crate) fn token(&self) -> &str {
        self.path.split('/').nth(2).unwrap_or_default()
    }

    /// … and what is meant to happen once for that event.
    pub(crate) fn name(&self) -> &str {
        self.path.splitn(4, '/').nth(3).unwrap_or_default()
    }
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
    calm: PathBuf,
    _process: Process,
}

impl Receiver {
    pub(crate) fn start(ground: &Ground, name: &str, more: &[&str]) -> Self {
        let (file, hold) = (ground.path(&format!("{name}.jsonl")), ground.path(&format!("{name}.hold")));
        let calm = ground.path(&format!("{name}.calm"));
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "receiver", "--until-stdin-ends", "--file"]).arg(&file);
        command.arg("--hold-file").arg(&hold).arg("--calm-file").arg(&calm).args(more);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut process = Process(child);
        let at = announced(&mut process.0).unwrap();
        Self { at, file, hold, calm, _process: process }
    }

    pub(crate) fn hold(&self) {
        fs::write(&self.hold, "").unwrap();
    }

    pub(crate) fn release(&self) {
        fs::remove_file(&self.hold).unwrap();
    }

    /// From now on it does what it is asked for.
    pub(crate) fn calm(&self) {
        fs::write(&self.calm, "").unwrap();
    }

    pub(crate) fn book(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        lines_of(&self.book())
    }

    /// Grows with each request.
    pub(crate) fn size(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }
}

/// Where a gate lives: its address, configuration and data outlast its processes.
pub(crate) struct Site {
    pub(crate) at: SocketAddr,
    config: PathBuf,
    data: PathBuf,
    log: PathBuf,
    authorities: PathBuf,
}

impl Site {
    pub(crate) fn new(ground: &Ground, config: &str) -> Self {
        let site = Self {
            at: free_address(),
            config: ground.path("oncegate.yaml"),
            data: ground.path("data"),
            log: ground.path("gate.log"),
            authorities: ground.path("authorities.pem"),
        };
        fs::write(&site.config, config).unwrap();
        let authority = rcgen::generate_simple_self_signed(["nobody.example".to_owned()]).unwrap();
        fs::write(&site.authorities, authority.cert.pem()).unwrap();
        site
    }

    /// Starts a gate that answers when this returns; one with a failpoint may die before.
    pub(crate) fn start(&self, failpoint: Option<&str>) -> Gate {
        let mut gate = self.launch(failpoint);
        let answers = announced(&mut gate.process.0).is_some();
        assert!(answers || failpoint.is_some(), "the gate did not start, see {}", self.log.display());
        gate
    }

    /// Starts a gate, and waits for nothing.
    pub(crate) fn launch(&self, failpoint: Option<&str>) -> Gate {
        let log = fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--ephemeral", "--store", "sqlite", "--log", "warn"]);
        command.arg("--listen").arg(self.at.to_string());
        command.arg("--config").arg(&self.config).arg("--data").arg(&self.data);
        command.env("ONCEGATE_ADMIN_TOKEN", TOKEN).env("LAB_SECRET", SECRET);
        // Nobody here speaks TLS, and to read all that the system trusts takes longer than all else of a start.
        command.env("SSL_CERT_FILE", &self.authorities).env_remove("SSL_CERT_DIR");
        if let Some(failpoint) = failpoint {
            command.env("ONCEGATE_FAILPOINT", failpoint);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        Gate { process: Process(child), at: self.at }
    }

    /// How many events are accepted and not finished, while no gate runs. Only read: what a death left in the log of
    /// the database is for the next gate to find.
    pub(crate) fn in_flight(&self) -> u32 {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let count = rusqlite::Connection::open_with_flags(self.database(), flags).and_then(|db| {
            let open = "SELECT count(*) FROM claims WHERE processing_state IN ('none', 'processing') \
                        OR (processing_state = 'error' AND due_at IS NOT NULL)";
            db.query_row(open, [], |row| row.get(0))
        });
        // It may have died before there was a table.
        count.unwrap_or_default()
    }

    /// What the gates of this site had to say.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
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

    /// Whether the failpoint kills it before then.
    pub(crate) fn dies_within(&mut self, time: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                assert_eq!(status.signal(), Some(9), "not killed but: {status}");
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
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

    /// All claims that a list shows, over its pages; `filter` ends with `&` if there is one.
    pub(crate) fn list(&self, filter: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (vec![], String::new());
        loop {
            let page = self.get(&format!("/v1/claims?{filter}limit=500{cursor}"));
            all.extend(page["claims"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
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
        Self::mixed(ground, &[to.to_owned()], sample, fresh, copies, None)
    }

    /// The same to several addresses in turn, and in an order that is drawn from a seed.
    pub(crate) fn mixed(
        ground: &Ground,
        to: &[String],
        sample: &Path,
        fresh: Option<(u32, &str)>,
        copies: u32,
        seed: Option<u64>,
    ) -> Self {
        let name = fresh.map_or("sample", |(_, prefix)| prefix);
        let file = ground.path(&format!("sender-{name}.jsonl"));
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "sender", "--copies", &copies.to_string()]);
        command.args(to.iter().flat_map(|to| ["--to", to.as_str()]));
        // Over as many deaths as there may be on a busy machine.
        command.args(seed.map(|seed| format!("--seed={seed}"))).arg("--give-up=600");
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
        lines_of(&fs::read_to_string(&self.file).unwrap_or_default())
    }
}

fn announced(process: &mut Child) -> Option<SocketAddr> {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().rsplit_once("http://")?.1.parse().ok()
}

/// What stands after the last line break is still being written.
pub(crate) fn lines_of<T: for<'de> Deserialize<'de>>(text: &str) -> Vec<T> {
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

//! Nodes as processes of their own: the real program, which is started, killed, frozen and woken. Time is the machine's
//! and the database's; nobody turns it.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use oncegate_testing::{Database, Postgres};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{ADMIN, Client, Receiver, eventually};

/// How long a start may take: a node that was killed is waited for until it is sure to be gone.
const START: Duration = Duration::from_secs(60);

/// What nodes share: a database, and the receivers that they may call. A failed test leaves its directory, with what
/// the nodes said, to be looked at.
pub(crate) struct Team<'s> {
    pub(crate) database: Database<'s>,
    dir: tempfile::TempDir,
    yaml: String,
}

impl Team<'static> {
    /// On the server of this test binary, which nobody stops. `$RECEIVER` in the text stands for the receiver.
    pub(crate) fn new(yaml: &str, receiver: &Receiver) -> Self {
        Self::on(Postgres::shared(), yaml, receiver)
    }
}

impl<'s> Team<'s> {
    /// The same, on a server of the test's own.
    pub(crate) fn on(server: &'s Postgres, yaml: &str, receiver: &Receiver) -> Self {
        let dir =
            tempfile::Builder::new().prefix("cluster-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let yaml = yaml.replace("$RECEIVER", &receiver.url());
        let yaml = format!("outgoing: {{ allow_private: ['{}'] }}\n{yaml}", receiver.address);
        Self { database: server.database(), dir, yaml }
    }

    /// What its nodes are told.
    pub(crate) fn yaml(&self) -> &str {
        &self.yaml
    }

    /// A node that answers when this returns.
    pub(crate) async fn node(&self, name: &str) -> Node {
        self.start(name, &self.database.url(), &self.yaml, &[]).await
    }

    /// The same, which reaches the database at another port of this machine.
    pub(crate) async fn through(&self, name: &str, port: u16) -> Node {
        self.start(name, &self.database.url_through(port), &self.yaml, &[]).await
    }

    /// Two nodes, started at one moment on an empty database.
    pub(crate) async fn two(&self) -> [Node; 2] {
        let (a, b) = tokio::join!(self.node("a"), self.node("b"));
        [a, b]
    }

    /// The same, with what differs: where the database is reached, what is declared, what stands in its environment.
    pub(crate) async fn start(&self, name: &str, url: &str, yaml: &str, vars: &[(&str, &str)]) -> Node {
        let config = self.dir.path().join(format!("{name}.yaml"));
        let mut written = File::options().create(true).write(true).truncate(true).open(&config).unwrap();
        written.write_all(yaml.as_bytes()).unwrap();
        let log = File::options().create(true).append(true).open(self.dir.path().join(format!("{name}.log")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncegate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "info", "--node", name, "--config"]);
        command.arg(&config).env("ONCEGATE_STORE", url).env("ONCEGATE_ADMIN_TOKEN", ADMIN);
        command.env("ORDERS", "orders-secret").envs(vars.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.unwrap()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(START, said.next_line()).await.expect("the node starts").unwrap();
        let base = line.as_deref().and_then(|line| line.rsplit_once("listening on ")).map(|(_, url)| url);
        let base =
            base.unwrap_or_else(|| panic!("node {name} did not start, see {}", self.dir.path().display()));
        Node { process, base: base.trim().to_owned() }
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.dir.disable_cleanup(std::thread::panicking());
    }
}

/// One life of a node. It ends with its test.
pub(crate) struct Node {
    process: Child,
    pub(crate) base: String,
}

impl Node {
    /// Somebody who asks this node and no other.
    pub(crate) fn api(&self) -> Client {
        Client::new(&self.base, ADMIN)
    }

    /// kill -9; returns when it is gone.
    pub(crate) async fn kill(mut self) {
        self.process.start_kill().unwrap();
        let status = self.process.wait().await.unwrap();
        assert_eq!(status.signal(), Some(9), "the node had ended by itself: {status}");
    }

    /// Stands still (SIGSTOP): its connections stay open, and nothing answers.
    pub(crate) fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    /// Goes on where it stood (SIGCONT).
    pub(crate) fn wake(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id().expect("it runs")).unwrap()).unwrap()
    }
}

/// Somebody behind a load balancer in front of these nodes.
pub(crate) fn balanced(nodes: &[Node]) -> Client {
    Client::of(nodes.iter().map(|node| node.base.clone()).collect(), ADMIN)
}

/// The claim of a key, once it is in this state.
pub(crate) async fn in_state(api: &Client, automation: &str, key: &str, state: &str) -> serde_json::Value {
    eventually(&format!("{key} is {state}"), async || {
        api.find(automation, key).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

/// The lines of one kind in what is shown of a claim.
pub(crate) fn lines<'c>(claim: &'c serde_json::Value, kind: &str) -> Vec<&'c serde_json::Value> {
    claim["history"].as_array().unwrap().iter().filter(|line| line["kind"] == kind).collect()
}

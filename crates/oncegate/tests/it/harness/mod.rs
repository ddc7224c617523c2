//! Starts the gate, lets time pass, kills and restarts it, and waits for what shall come about.

mod client;
mod clock;
mod raw;
mod receiver;
mod sign;
mod smtp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oncegate::app::{self, Limits, Options, Running, StartError, StoreUrl};
use oncegate::config::{self, Environment};
use oncegate_core::access::Role;
use oncegate_core::key::{AutomationName, Workspace, sha256};
use oncegate_core::secret::Secret;
use oncegate_core::time::{Tick, Timestamp};
use oncegate_store::StoreError;
use oncegate_store::access::NewToken;
use oncegate_store::clock::Clock;
use oncegate_testing::{Database, Postgres};
use tokio::runtime::Runtime;

use crate::STORE;
pub(crate) use client::{Claimed, Client, Said, json_body, query, send};
pub(crate) use clock::TestClock;
pub(crate) use raw::Raw;
pub(crate) use receiver::{Hold, Receiver, Reply};
pub(crate) use sign::{Signed, base64, hex, hmac_sha256};
#[allow(unused_imports, reason = "one binary sends mails")]
pub(crate) use smtp::{MailServer, Post};

/// When tests begin, unless they say otherwise.
pub(crate) const MORNING: &str = "2026-01-05T10:00:00Z";
pub(crate) const ADMIN: &str = "the-admin-token-of-the-tests";

/// The automation `welcome` with one step that posts to the receiver, and the source `orders` that leads to it.
pub(crate) const WELCOME: &str = "
automations:
  welcome:
    ttl: 10m
    steps:
      - { name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap()
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn mins(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

pub(crate) const fn hours(n: u64) -> Duration {
    Duration::from_secs(3_600 * n)
}

/// The variables that `env:NAME` finds.
pub(crate) struct Vars(pub(crate) HashMap<String, String>);

impl Environment for Vars {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

/// What the gates of a test binary keep their claims in; each binary says so in its `STORE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each binary has one of them")]
pub(crate) enum Store {
    /// A file, and one node.
    Sqlite,
    /// A PostgreSQL, and so many nodes, which callers ask in turn.
    Postgres { nodes: usize },
}

impl Store {
    const fn nodes(self) -> usize {
        match self {
            Self::Sqlite => 1,
            Self::Postgres { nodes } => nodes,
        }
    }
}

/// How to start a gate.
pub(crate) struct Setup {
    yaml: String,
    vars: Vars,
    wall: Timestamp,
    max_bytes: Option<u64>,
    limits: Limits,
}

impl Setup {
    /// `$RECEIVER` in the text stands for the receiver, which the gate is allowed to call.
    pub(crate) fn new(yaml: &str, receiver: &Receiver) -> Self {
        Self::alone(&format!(
            "outgoing: {{ allow_private: ['{}'] }}\n{}",
            receiver.address,
            yaml.replace("$RECEIVER", &receiver.url())
        ))
    }

    /// A gate that calls nobody.
    pub(crate) fn alone(yaml: &str) -> Self {
        let vars = Vars([("ORDERS".to_owned(), sign::ORDERS.to_owned())].into());
        Self { yaml: yaml.to_owned(), vars, wall: at(MORNING), max_bytes: None, limits: Limits::default() }
    }

    /// Puts something before everything else in the file.
    #[allow(dead_code, reason = "wanted where the rest is made elsewhere")]
    pub(crate) fn top(mut self, yaml: &str) -> Self {
        self.yaml = format!("{yaml}\n{}", self.yaml);
        self
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.0.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn starts_at(mut self, wall: Timestamp) -> Self {
        self.wall = wall;
        self
    }

    pub(crate) fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    pub(crate) fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) async fn start(self) -> Gate {
        let dir = tempfile::Builder::new().prefix("gate-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let database = (STORE != Store::Sqlite).then(|| Postgres::shared().database());
        let clock = Arc::new(TestClock::at(self.wall));
        let mut live = vec![];
        for node in 0..STORE.nodes() {
            let listen = "127.0.0.1:0".parse().unwrap();
            live.push(start(&self, dir.path(), database.as_ref(), node, listen, &clock).await);
        }
        let bases = live.iter().map(|(_, running)| format!("http://{}", running.address)).collect();
        let api = Client::of(bases, ADMIN);
        Gate { api, clock, setup: self, dir, database, set_aside: vec![], live }
    }
}

/// Each start has a runtime of its own, so that a crash can end all of its tasks wherever they stand.
async fn start(
    setup: &Setup,
    data: &Path,
    database: Option<&Database<'static>>,
    node: usize,
    listen: SocketAddr,
    clock: &Arc<TestClock>,
) -> (Runtime, Running) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = || Options {
        config: config::parse(&setup.yaml, Path::new("oncegate.yaml"), &setup.vars)
            .unwrap_or_else(|e| panic!("{e}\n{}", setup.yaml)),
        store: match database {
            None => StoreUrl::Sqlite(data.to_owned()),
            Some(database) => StoreUrl::Postgres(Secret::new(database.url())),
        },
        node: format!("node-{node}"),
        listen,
        ephemeral: true,
        admin_token: Some(Secret::new(ADMIN)),
        clock: Arc::clone(clock) as _,
        simulated: true,
        max_bytes: setup.max_bytes,
        limits: setup.limits,
    };
    // What was killed lets go of its directory and its port only once the last of its tasks is gone.
    let running = eventually("the gate starts", async || match runtime.spawn(app::start(options())).await {
        Ok(Ok(running)) => Some(running),
        Ok(Err(StartError::Listen { .. } | StartError::Store(StoreError::Locked { .. }))) => None,
        Ok(Err(error)) => panic!("{error}"),
        Err(error) => panic!("{error}"),
    })
    .await;
    (runtime, running)
}

/// Keeps every claim and every act from being committed, as a slow disk would, until it is dropped.
#[expect(dead_code, reason = "what is undone when they are dropped")]
pub(crate) enum SlowDisk {
    Sqlite(rusqlite::Connection),
    Postgres(oncegate_testing::Held),
}

/// A gate that runs.
pub(crate) struct Gate {
    pub(crate) api: Client,
    pub(crate) clock: Arc<TestClock>,
    setup: Setup,
    dir: tempfile::TempDir,
    database: Option<Database<'static>>,
    set_aside: Vec<tempfile::TempDir>,
    /// One for each node; empty while nothing runs.
    live: Vec<(Runtime, Running)>,
}

impl Gate {
    /// Live time passes: both clocks go on, and the store ticks every 5 s.
    pub(crate) async fn advance(&self, d: Duration) {
        let mut left = d;
        while !left.is_zero() {
            let step = left.min(Tick::INTERVAL);
            self.clock.advance(step);
            for (_, node) in &self.live {
                node.gate.store().tick().await.unwrap();
            }
            left -= step;
        }
    }

    /// Live time passes until the wall clock shows this.
    pub(crate) async fn advance_to(&self, wall: Timestamp) {
        let now = self.now();
        assert!(now <= wall, "{now} is past {wall}");
        self.advance(wall.since(now)).await;
    }

    /// Time passes while nothing counts it; due work is looked for again.
    pub(crate) fn advance_wall(&self, d: Duration) {
        self.clock.advance(d);
    }

    /// The wall clock jumps ahead; no time passes, as when a machine was asleep.
    pub(crate) fn jump(&self, d: Duration) {
        self.clock.set_wall(self.now().after(d));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.read().wall
    }

    /// A caller whose operator's token is bound to one automation.
    pub(crate) async fn bound_to(&self, automation: &str) -> Client {
        let token = format!("oga_bound_to_{automation}");
        let made = NewToken {
            workspace: Workspace::DEFAULT,
            hash: sha256(token.as_bytes()),
            name: oncegate_core::access::TokenName::try_from(format!("bound to {automation}").as_str())
                .unwrap(),
            role: Role::Operator,
            automations: Some(vec![AutomationName::try_from(automation).unwrap()]),
            expires_at: None,
            actor: "start".into(),
        };
        assert!(self.running().gate.store().add_token(made).await.unwrap().is_some());
        Client::of(self.api.bases().to_vec(), &token)
    }

    /// The first node.
    fn running(&self) -> &Running {
        &self.live.first().unwrap().1
    }

    /// From now on nothing is committed, until what this returns is dropped.
    pub(crate) fn slow_disk(&self) -> SlowDisk {
        match &self.database {
            None => {
                let disk = rusqlite::Connection::open(self.database()).unwrap();
                disk.execute_batch("BEGIN IMMEDIATE").unwrap();
                SlowDisk::Sqlite(disk)
            }
            // Each claim writes one of them, and each act the other, behind everything else that it writes.
            Some(database) => {
                SlowDisk::Postgres(database.hold("LOCK TABLE oncegate.history, oncegate.audit IN SHARE MODE"))
            }
        }
    }

    /// The same data directory and port, after SIGTERM.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.reopen().await;
    }

    /// The same data directory and port with another configuration, after SIGTERM.
    pub(crate) async fn restart_with(&mut self, change: impl FnOnce(&str) -> String) {
        self.stop().await;
        self.setup.yaml = change(&self.setup.yaml);
        self.reopen().await;
    }

    /// The same data directory on a larger disk.
    pub(crate) async fn grow(&mut self, max_bytes: u64) {
        self.stop().await;
        self.setup.max_bytes = Some(max_bytes);
        self.reopen().await;
    }

    /// Sets a variable that the next start finds.
    pub(crate) fn set_var(&mut self, name: &str, value: &str) {
        self.setup.vars.0.insert(name.to_owned(), value.to_owned());
    }

    /// What runs is handed back; nothing answers until [`Gate::reopen`].
    pub(crate) async fn stop(&mut self) {
        for (runtime, running) in self.live.drain(..) {
            runtime.spawn(running.stop()).await.unwrap();
            runtime.shutdown_background();
        }
    }

    /// As after kill -9: every task ends where it stands and nothing is handed back.
    pub(crate) fn crash(&mut self) {
        for (runtime, running) in self.live.drain(..) {
            runtime.shutdown_background();
            drop(running);
        }
    }

    /// Killed, and its disk gone: a backup is restored into an empty directory. Nothing answers until
    /// [`Gate::reopen`].
    pub(crate) fn restore(&mut self, backup: &Path) {
        self.crash();
        let dir =
            tempfile::Builder::new().prefix("restored-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        oncegate_store::sqlite::restore(backup, dir.path(), false, true, self.now()).unwrap();
        // The old directory stays: the backup may lie in it.
        self.set_aside.push(std::mem::replace(&mut self.dir, dir));
    }

    pub(crate) async fn reopen(&mut self) {
        for (node, base) in self.api.bases().iter().enumerate() {
            let listen = base.strip_prefix("http://").unwrap().parse().unwrap();
            let database = self.database.as_ref();
            self.live.push(start(&self.setup, self.dir.path(), database, node, listen, &self.clock).await);
        }
        // Connections to what ran before are of no use.
        self.api = self.api.another();
    }

    /// The database file, where the store is one.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("oncegate.db")
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.crash();
    }
}

/// How long what shall come about may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until there is something, or fails naming what did not come about.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "did not come about: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Numbers that differ from run to run; the seed is printed, so that a failure can be looked at again.
pub(crate) struct Dice(u64);

impl Dice {
    #[expect(clippy::print_stdout, reason = "shown by the test runner when the test fails")]
    pub(crate) fn roll() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::hash::RandomState::new().build_hasher().finish();
        println!("seed {seed}");
        Self(seed)
    }

    /// Dice of their own for one who rolls at the same time.
    #[allow(dead_code, reason = "wanted where many roll")]
    pub(crate) fn split(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// 0 up to, not including, `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, usize::try_from(self.below(i as u64 + 1)).unwrap());
        }
    }
}

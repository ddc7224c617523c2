//! What is particular to the store on PostgreSQL.

use std::sync::Arc;

use oncegate_core::finish::{Answer, Call};
use oncegate_core::policy::Jitter;
use oncegate_core::secret::Secret;
use oncegate_store::Store;
use oncegate_store::api::{FinishCall, Nodes, PolicyBook};
use oncegate_store::clock::{Clock, ManualClock};
use oncegate_store::postgres::{Limits, Options, PgStore};
use oncegate_testing::{Database, Held, Postgres};

use crate::conformance::nodes::can;
use crate::conformance::{Asking, Backend, MORNING, Policies, SECOND, caller, runner, words};

mod forgetting;
mod intake;
mod nodes;
mod people;
mod reach;
mod recovery;
mod schema;
mod together;

/// A database for one cluster, for the conformance suite.
pub(crate) struct Cluster<'s> {
    database: Database<'s>,
}

impl Cluster<'static> {
    pub(crate) fn new() -> Self {
        Self { database: Postgres::shared().database() }
    }
}

impl<'s> Cluster<'s> {
    /// On a server of the test's own.
    pub(crate) fn of(server: &'s Postgres) -> Self {
        Self { database: server.database() }
    }

    /// Runs SQL as the administrator: rows are lines, columns are parted by `|`.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    /// Keeps a transaction open in which this was run.
    pub(crate) fn hold(&self, sql: &str) -> Held {
        self.database.hold(sql)
    }

    /// How many connections wait for a lock.
    pub(crate) fn waiting(&self) -> u32 {
        self.database.waiting()
    }

    /// A node that goes by this clock.
    pub(crate) async fn node(&self, name: &str, clock: &Arc<ManualClock>) -> PgStore {
        let clock = Arc::clone(clock) as _;
        PgStore::open(&Options { clock, ..self.options(name) }).await.unwrap()
    }

    /// A node that goes by the clock it is given.
    pub(crate) fn options(&self, node: &str) -> Options {
        Options {
            url: Secret::new(self.database.url().into_bytes()),
            node: node.into(),
            clock: Arc::new(ManualClock::at(MORNING)),
            simulated: true,
            policies: Arc::new(Policies),
            fresh_secret: [7; 32],
            // A machine that does much else at the time is not what is tested here.
            limits: Limits { connections: 4, wait: 30 * SECOND, ..Limits::default() },
        }
    }
}

#[async_trait::async_trait]
impl Backend for Cluster<'static> {
    async fn open(&self, clock: Arc<dyn Clock>, policies: Arc<dyn PolicyBook>) -> Arc<dyn Store> {
        Arc::new(PgStore::open(&Options { clock, policies, ..self.options("a") }).await.unwrap())
    }
}

/// Two nodes that go by one clock.
async fn two() -> (Cluster<'static>, Arc<ManualClock>, [PgStore; 2]) {
    let (cluster, clock) = (Cluster::new(), Arc::new(ManualClock::at(MORNING)));
    let open = |node: &'static str| {
        let options = Options { clock: Arc::clone(&clock) as _, ..cluster.options(node) };
        async move { PgStore::open(&options).await.unwrap() }
    };
    let nodes = [open("a").await, open("b").await];
    (cluster, clock, nodes)
}

/// What the holder of a claim says.
async fn say(store: &PgStore, claimed: &oncegate_store::api::Claimed, call: Call) {
    let (id, fence) = (claimed.id, claimed.view.as_ref().unwrap().claim.fence());
    let call = FinishCall { id, fence, call, jitter: Jitter::NONE, result: None, actor: "runner".into() };
    assert_eq!(store.finish(call).await.unwrap().unwrap().0, Answer::Accepted);
}

/// What the other says that it can do counts for as long as it is heard of.
#[tokio::test]
async fn c29_nobody_says_that_no_node_can_run_what_another_one_runs() {
    let (cluster, clock, [a, b]) = two().await;
    a.hello(can(&["welcome", "declared"], &["welcome"])).await.unwrap();
    b.hello(can(&["other"], &["other"])).await.unwrap();
    let id = a.claim(caller("k").queued()).await.unwrap().unwrap().id;
    assert_eq!(b.elsewhere().await.unwrap(), can(&["welcome", "declared"], &["welcome"]));
    assert_eq!(b.due(9).await.unwrap().len(), 0);
    assert_eq!(a.due(9).await.unwrap().len(), 1);
    let names: Vec<_> = b.nodes().await.unwrap().into_iter().map(|n| (n.name, n.alive, n.is_me)).collect();
    assert_eq!(names, [("a".to_owned(), true, false), ("b".to_owned(), true, true)]);
    // It takes the work and falls silent.
    let run = a.claim(runner(id, a.boot())).await.unwrap().unwrap();
    assert!(run.token.is_some());
    for _ in 0..4 {
        clock.advance(5 * SECOND);
        b.tick().await.unwrap();
    }
    assert_eq!(b.elsewhere().await.unwrap(), can(&[], &[]));
    assert!(!b.nodes().await.unwrap()[0].alive);
    let seen = b.claim(runner(id, b.boot())).await.unwrap().unwrap();
    assert_eq!(words(&seen.decision), "stop in_progress", "silent is not dead: its TTL decides");
    // The same node comes back, and goes on with its own at once.
    let again = Options { clock: Arc::clone(&clock) as _, ..cluster.options("a") };
    let again = PgStore::open(&again).await.unwrap();
    assert_eq!(again.due(9).await.unwrap().len(), 1);
    assert_eq!(words(&again.claim(runner(id, again.boot())).await.unwrap().unwrap().decision), "run resumed");
    assert_eq!(b.due(9).await.unwrap().len(), 0);
}

/// A lease that aged faster than time would be taken from a holder that lives.
#[tokio::test]
async fn a_tick_that_comes_late_lets_no_time_count_twice() {
    let cluster = Cluster::new();
    let clocks = [MORNING, MORNING].map(|at| Arc::new(ManualClock::at(at)));
    let open = |node: &'static str, clock: &Arc<ManualClock>| {
        let options = Options { clock: Arc::clone(clock) as _, ..cluster.options(node) };
        async move { PgStore::open(&options).await.unwrap() }
    };
    let [a, b] = [open("a", &clocks[0]).await, open("b", &clocks[1]).await];
    a.tick().await.unwrap();
    let began = a.now().lease;
    for n in 1..=20u32 {
        clocks[0].advance(5 * SECOND);
        a.tick().await.unwrap();
        // Its time was read before, and it waited.
        b.tick().await.unwrap();
        clocks[1].advance(5 * SECOND);
        a.tick().await.unwrap();
        assert_eq!(a.now().lease.since(began), n * 5 * SECOND);
    }
}

/// One schedule on two nodes, a run that takes 40 minutes, and somebody who presses "run now" meanwhile: a key for each
/// tick, and one record for them all.
#[tokio::test]
async fn c57_a_scheduled_import_runs_once_at_a_time_and_catches_up_once() {
    let (_cluster, clock, nodes) = two().await;
    let tick = |slot: &str| caller(&format!("import:{slot}")).on("import:crm");
    let live = async |minutes: u32| {
        for _ in 0..minutes * 12 {
            clock.advance(5 * SECOND);
            nodes[0].tick().await.unwrap();
            nodes[1].tick().await.unwrap();
        }
    };
    let (a, b) = tokio::join!(nodes[0].claim(tick("10:00")), nodes[1].claim(tick("10:00")));
    let (a, b) = (a.unwrap().unwrap(), b.unwrap().unwrap());
    let mut answers = [words(&a.decision), words(&b.decision)];
    answers.sort();
    assert_eq!(answers, ["run first", "stop in_progress"]);
    let since = |claimed: &oncegate_store::api::Claimed| claimed.view.as_ref().unwrap().claim.started_at();
    assert_eq!((since(&a), since(&b)), (Some(MORNING), Some(MORNING)), "both are told since when");
    let token = a.token.or(b.token).unwrap();
    let (id, fence) = nodes[0].secret().read_token(token.expose()).unwrap();
    let say = async |call| {
        let (result, actor, jitter) = (None, "token:crm".to_owned(), Jitter::NONE);
        let call = FinishCall { id, fence, call, jitter, result, actor };
        nodes[1].finish(call).await.unwrap().unwrap().0
    };
    for (minutes, slot, node) in [(10, "10:10 by mia", 1), (5, "10:15", 0), (5, "10:20", 1), (10, "10:30", 1)]
    {
        live(minutes).await;
        assert_eq!(say(Call::Heartbeat).await, Answer::Accepted);
        let told = nodes[node].claim(tick(slot)).await.unwrap().unwrap();
        assert_eq!(words(&told.decision), "stop record_busy", "{slot}");
    }
    live(10).await;
    assert_eq!(say(Call::Done).await, Answer::Accepted);
    let (a, b) = tokio::join!(nodes[0].claim(tick("10:30")), nodes[1].claim(tick("10:30")));
    let mut answers = [a, b].map(|claimed| words(&claimed.unwrap().unwrap().decision));
    answers.sort();
    assert_eq!(answers, ["run first", "stop in_progress"], "one catches up, wherever it is asked for");
    let again = nodes[0].claim(tick("10:00")).await.unwrap().unwrap();
    assert_eq!(words(&again.decision), "stop duplicate");
}

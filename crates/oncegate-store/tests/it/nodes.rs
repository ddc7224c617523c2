//! Two nodes on one PostgreSQL, by the machine's clocks and the database's: whose time counts, and what becomes of claims
//! whose connections are cut.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::decide::Decision;
use oncegate_core::finish::{Answer, Call};
use oncegate_core::policy::{Jitter, Ttl};
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_store::api::{ClaimCall, Claimed, FinishCall};
use oncegate_store::clock::{Clock, ManualClock, Reading, SystemClock};
use oncegate_store::postgres::{Limits, Options, PgStore};
use oncegate_store::{Store, StoreError};
use oncegate_testing::{Database, Postgres, Proxy};

use crate::conformance::{Asking, MINUTE, MORNING, Policies, caller, words};

/// The machine's clock, set ahead of it.
#[derive(Debug)]
struct Ahead(Duration, SystemClock);

#[async_trait::async_trait]
impl Clock for Ahead {
    fn read(&self) -> Reading {
        let reading = self.1.read();
        Reading { wall: reading.wall.after(self.0), ..reading }
    }

    async fn sleep(&self, d: Duration) {
        self.1.sleep(d).await;
    }
}

fn options(url: String, name: &str, ahead: Duration) -> Options {
    Options {
        url: Secret::new(url.into_bytes()),
        node: name.into(),
        clock: Arc::new(Ahead(ahead, SystemClock::new())),
        simulated: false,
        policies: Arc::new(Policies),
        fresh_secret: [7; 32],
        limits: Limits { connections: 8, ..Limits::default() },
    }
}

async fn node(url: String, name: &str, ahead: Duration) -> Arc<PgStore> {
    Arc::new(PgStore::open(&options(url, name, ahead)).await.unwrap())
}

async fn ask(store: &PgStore, call: ClaimCall) -> Claimed {
    store.claim(call).await.unwrap().unwrap()
}

/// What the database says the time is.
fn time(database: &Database) -> Timestamp {
    let ms = database.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    Timestamp::from_millis(ms.parse().unwrap())
}

/// Live time passes in the whole cluster, as if its nodes had ticked all along.
async fn live(database: &Database<'_>, nodes: &[&PgStore], d: Duration) {
    database.sql(&format!("UPDATE oncegate.clock SET lease = lease + {}", d.as_millis()));
    for node in nodes {
        node.tick().await.unwrap();
    }
}

#[tokio::test]
async fn c33_a_lease_is_written_and_judged_by_the_databases_clock_whatever_the_nodes_clocks_say() {
    let database = Postgres::shared().database();
    let one = node(database.url(), "one", Duration::ZERO).await;
    let two = node(database.url(), "two", 3 * MINUTE).await;
    let sync = |key: &str| {
        let mut call = caller(key);
        call.request.ttl = Some(Ttl::new(5 * MINUTE).unwrap());
        call
    };
    let started = |claimed: &Claimed| claimed.view.as_ref().unwrap().claim.started_at().unwrap();

    let before = time(&database);
    let first = ask(&one, sync("c_1")).await;
    assert_eq!(words(&first.decision), "run first");
    assert!((before..=time(&database)).contains(&started(&first)), "store time");
    // A node three minutes ahead writes the store's time, too: by both of the ways in which a claim is made.
    for key in ["c_2", "c_3"] {
        let before = time(&database);
        let other = ask(&two, sync(key)).await;
        assert!(
            (before..=time(&database)).contains(&started(&other)),
            "{key}: store time on the second node"
        );
    }

    live(&database, &[&one, &two], Duration::from_secs(150)).await;
    let second = ask(&two, sync("c_1")).await;
    assert_eq!(words(&second.decision), "stop in_progress", "2:30 old, whatever the node's clock says");
    assert_eq!(started(&second), started(&first));
    let Decision::Stop { retry_after: Some(left), .. } = second.decision else { panic!("{second:?}") };
    assert!((Duration::from_secs(130)..=Duration::from_secs(150)).contains(&left), "{left:?}");

    live(&database, &[&one, &two], Duration::from_secs(150)).await;
    let taken = ask(&two, sync("c_1")).await;
    assert_eq!(words(&taken.decision), "run stale_retry");
    let (id, fence) = one.secret().read_token(first.token.unwrap().expose()).unwrap();
    let done = FinishCall {
        id,
        fence,
        call: Call::Done,
        jitter: Jitter::NONE,
        result: None,
        actor: "token:crm".into(),
    };
    let (answer, _) = one.finish(done).await.unwrap().unwrap();
    assert_eq!(answer, Answer::LostClaim);
}

/// A tick that waited behind another node's does not take the cluster's clock back to when it began to wait: what passed
/// since would count twice, and leases would end early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_that_waited_does_not_take_the_clock_back() {
    let database = Postgres::shared().database();
    let store = node(database.url(), "a", Duration::ZERO).await;
    let other = database.hold("SELECT 1 FROM oncegate.clock FOR UPDATE");
    let waits = tokio::spawn(async move { store.tick().await });
    until("the tick waits", || database.waiting() == 1).await;
    let waited_until = time(&database);
    other.commit("UPDATE oncegate.clock SET wall = (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    waits.await.unwrap().unwrap();
    let wall: i64 = database.sql("SELECT wall FROM oncegate.clock").parse().unwrap();
    assert!(wall >= waited_until.as_millis(), "{} ms back", waited_until.as_millis() - wall);
}

/// The same by the clocks that tests turn, which are read before the row is locked: ten seconds are ten seconds, in
/// whichever order the nodes come to tick.
#[tokio::test]
async fn ticks_that_come_out_of_order_count_no_time_twice() {
    let database = Postgres::shared().database();
    let clocks = [0, 1].map(|_| Arc::new(ManualClock::at(MORNING)));
    let mut nodes = vec![];
    for (clock, name) in clocks.iter().zip(["a", "b"]) {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        let options = Options { clock, simulated: true, ..options(database.url(), name, Duration::ZERO) };
        nodes.push(PgStore::open(&options).await.unwrap());
    }
    let lease = || database.sql("SELECT lease FROM oncegate.clock").parse::<i64>().unwrap();
    let before = lease();
    for (node, step) in [(1, 5), (0, 4), (1, 5), (0, 5), (0, 1)] {
        clocks[node].advance(Duration::from_secs(step));
        nodes[node].tick().await.unwrap();
    }
    assert_eq!(lease() - before, 10_000);
}

/// How connections end while their claims are written and not committed.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Between node and database.
    Proxy,
    /// By the database.
    Database,
    /// The callers are gone.
    Callers,
}

/// Five claim one key, four of them by a node whose connections are cut before they commit; the fifth waits behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c44_a_claim_that_was_never_committed_stops_nobody() {
    for (cut, known) in [
        (Cut::Proxy, false),
        (Cut::Proxy, true),
        (Cut::Database, false),
        (Cut::Database, true),
        (Cut::Callers, false),
        (Cut::Callers, true),
    ] {
        let case = format!("{cut:?}, automation known: {known}");
        let database = Postgres::shared().database();
        let proxy = Proxy::to(database.server().port());
        let far = node(database.url_through(proxy.port()), "far", Duration::ZERO).await;
        let near = node(database.url(), "near", Duration::ZERO).await;
        let call = |n: u32| caller("k").under_run(&format!("run-{n}"));
        if known {
            for node in [&far, &near] {
                ask(node, caller(&format!("another-{}", Arc::as_ptr(node) as usize))).await;
            }
        }
        // Written behind everything else: the claim's row is there, and its transaction cannot end.
        let slow = database.hold("LOCK TABLE oncegate.history IN SHARE MODE");
        let mut four = tokio::task::JoinSet::new();
        for n in 1..=4 {
            let (far, call) = (Arc::clone(&far), call(n));
            four.spawn(async move { far.claim(call).await });
        }
        until(&format!("the first waits: {case}"), || database.waiting() >= 1).await;
        let fifth = tokio::spawn({
            let (near, call) = (Arc::clone(&near), call(5));
            async move { near.claim(call).await }
        });
        until(&format!("the fifth waits: {case}"), || database.waiting() >= 2).await;
        let mut told = vec![];
        while !four.is_empty() {
            // One that was between two tries has a new connection by now, and loses that, too.
            match cut {
                Cut::Proxy => drop(proxy.cut()),
                Cut::Database => {
                    let far = "application_name = 'oncegate/far' AND datname = current_database()";
                    database
                        .sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {far}"));
                }
                Cut::Callers => four.abort_all(),
            }
            match tokio::time::timeout(Duration::from_millis(100), four.join_next()).await {
                Ok(Some(Ok(Ok(claimed)))) => told.push(words(&claimed.unwrap().decision)),
                Ok(Some(Ok(Err(StoreError::Away(_) | StoreError::Unsure(_) | StoreError::Busy)))) => {}
                Ok(Some(Ok(Err(error)))) => panic!("{case}: {error}"),
                Ok(Some(Err(gone))) => assert!(gone.is_cancelled(), "{gone}"),
                Ok(None) | Err(_) => {}
            }
        }
        assert!(told.is_empty(), "{case}: nothing is committed, and they were told {told:?}");
        drop(slow);
        told.push(words(&fifth.await.unwrap().unwrap().unwrap().decision));

        // Whoever was told nothing asks again, under its own run.
        for n in 1..=4 {
            told.push(words(&ask(&far, call(n)).await.decision));
        }
        let ran = told.iter().filter(|words| words.starts_with("run ")).count();
        assert_eq!(ran, 1, "{case}: {told:?}");
        assert!(told.iter().all(|t| t.starts_with("run ") || t == "stop in_progress"), "{case}: {told:?}");
        let id = ask(&near, call(6)).await.id;
        let history = near.history(id).await.unwrap();
        // A caller that hung up may have been the one that ran; it was told so when it asked again.
        let first = history.iter().filter(|row| row.reason.as_deref() == Some("first")).count();
        assert_eq!((first, history.iter().all(|row| row.attempt == 1)), (1, true), "{case}: {history:?}");
    }
}

/// The database has committed, and its answer is lost on the way: the caller is not told `run`, nor that nothing was
/// written; the same run asks again and is the holder.
#[tokio::test]
async fn a_claim_whose_commit_was_not_heard_of_is_given_to_the_run_that_asks_again() {
    // The claim of an automation that the node knows is one statement, which names the key and commits by itself.
    for (known, last) in [(false, "COMMIT"), (true, "unheard-of")] {
        let database = Postgres::shared().database();
        let proxy = Proxy::to(database.server().port());
        let store = node(database.url_through(proxy.port()), "a", Duration::ZERO).await;
        let near = node(database.url(), "b", Duration::ZERO).await;
        if known {
            ask(&store, caller("another")).await;
        }
        let call = |run: &str| caller("unheard-of").under_run(run);
        proxy.lose_answers_to(last.as_bytes(), 1);
        let outcome = store.claim(call("zap-17")).await;
        assert!(matches!(outcome, Err(StoreError::Unsure(_))), "{last}: {outcome:?}");
        assert_eq!(proxy.lost(), 1);
        assert_eq!(words(&ask(&near, call("zap-18")).await.decision), "stop in_progress", "{last}");
        assert_eq!(words(&ask(&store, call("zap-17")).await.decision), "run same_run", "{last}");
    }
}

async fn until(what: &str, look: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !look() {
        assert!(tokio::time::Instant::now() < deadline, "did not come about: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

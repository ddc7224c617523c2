//! A store that begins as a directory and goes on in a database: what it said before the move, it keeps.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use oncegate_core::access::{Role, TokenName};
use oncegate_core::claim::{Boot, Holder, Lease, State};
use oncegate_core::finish::{Answer, Call};
use oncegate_core::identity::Likeness;
use oncegate_core::key::ClaimRef;
use oncegate_core::notice::NoticeKind;
use oncegate_core::policy::Jitter;
use oncegate_core::token::Token;
use oncegate_store::access::NewToken;
use oncegate_store::api::{
    AdmitCall, AdmitEvent, Claimed, Filter, FinishCall, PolicyBook, StepBegin, StepOutcome, Work, Workspace,
};
use oncegate_store::bulk::{BulkAct, BulkCall};
use oncegate_store::clock::{Clock, ManualClock};
use oncegate_store::moving::{MovedTable, move_store, take_back};
use oncegate_store::notices::NoticeFilter;
use oncegate_store::people::{Answering, Kept, Once, Request, Write};
use oncegate_store::postgres::{Options, PgStore, recover};
use oncegate_store::sqlite::{self, SqliteStore};
use oncegate_store::{Store, StoreError};

use crate::conformance::{
    Asking, Backend, DAY, HOUR, MINUTE, MORNING, WS, automation, caller, failed, fingerprint, key,
    plain_event, runner, scratch, words, workspace_name,
};
use crate::postgres::Cluster;

/// For the conformance suite: opened for the first time it is a directory, and from the second time on a database,
/// which the directory was moved into in between.
pub(crate) struct Moving {
    dir: tempfile::TempDir,
    cluster: std::sync::OnceLock<Cluster<'static>>,
    opened: AtomicUsize,
}

impl Moving {
    pub(crate) fn new() -> Self {
        Self { dir: scratch(), cluster: std::sync::OnceLock::new(), opened: AtomicUsize::new(0) }
    }
}

#[async_trait::async_trait]
impl Backend for Moving {
    async fn open(&self, clock: Arc<dyn Clock>, policies: Arc<dyn PolicyBook>) -> Arc<dyn Store> {
        let data = self.dir.path().join("data");
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        if opened == 0 {
            let options = sqlite::Options { clock, policies, ..crate::sqlite::options() };
            return Arc::new(SqliteStore::open(&data, &options).unwrap());
        }
        let cluster = self.cluster.get_or_init(Cluster::new);
        let options = Options { clock, policies, fresh_secret: fresh(), ..cluster.options("a") };
        if opened == 1 {
            move_store(&data, &options, |_| {}).await.unwrap();
            // The suite counts what its own calls leave in the audit.
            cluster.sql("DELETE FROM oncegate.audit WHERE action = 'move_store'");
        }
        Arc::new(PgStore::open(&options).await.unwrap())
    }
}

/// Other random bytes each time, as the program has them.
fn fresh() -> [u8; 32] {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes
}

/// Rows in every table there is, and what is under way: by a caller, by the runner, by a bulk act.
async fn lived(data: &Path, clock: &Arc<ManualClock>) -> Life {
    let options = sqlite::Options { clock: Arc::clone(clock) as _, ..crate::sqlite::options() };
    let store = SqliteStore::open(data, &options).unwrap();
    let store: &dyn Store = &store;
    let theirs = Workspace(2);
    store.add_workspace(workspace_name("client-2"), "mia".into()).await.unwrap();
    let hash = [9; 32];
    let token = store.add_token(self::token(WS, hash)).await.unwrap().unwrap();
    store.note_declared(WS, [("automation welcome".to_owned(), "1".to_owned())].into()).await.unwrap();
    store.notice(WS, NoticeKind::NoRunner, "welcome".into(), "nobody runs it".into()).await.unwrap();
    let stands = crate::conformance::positions::to(None, "1", &[]);
    store.advance(stands).await.unwrap();
    let told = |n: u8| Some(Likeness { hash: [n; 16], within: DAY });

    // Done long ago, and forgotten since but for its hash.
    let gone = store.claim(caller("gone")).await.unwrap().unwrap();
    finish(store, &gone, Call::Done).await;
    // A clock that leaps by more than a day is not believed.
    for _ in 0..182 {
        clock.advance(HOUR * 12);
        store.tick().await.unwrap();
    }
    assert!(store.reap(100).await.unwrap() > 0);

    let mut done = caller("done").with("ann").on("crm:1").under_run("run-1");
    done.request.likeness = told(1);
    done.run_url = Some("https://zapier.com/runs/1\0".into());
    let done = store.claim(done).await.unwrap().unwrap();
    finish(store, &done, Call::Done).await;
    let failing = store.claim(caller("failing")).await.unwrap().unwrap();
    finish(store, &failing, failed()).await;
    let held = store.claim(caller("held").on("crm:2").under_run("run-2")).await.unwrap().unwrap();
    store.claim(caller("theirs").within(theirs).with("bo")).await.unwrap();
    store.claim(caller("theirs").within(theirs).with("other")).await.unwrap();

    let request = |events: Vec<AdmitEvent>| AdmitCall {
        workspace: WS,
        source: "typeform".into(),
        automation: automation("welcome"),
        headers: "{}".into(),
        body: b"\xf0\x9f\x92\xa9 raw \x00 bytes".to_vec(),
        events,
        releases: None,
        actor: "webhook:typeform".into(),
    };
    let event = |identity| plain_event(identity, fingerprint("a"), "\"a\"");
    let sent = AdmitEvent { sender: crate::conformance::senders::sender(1), ..event(Ok(key("event"))) };
    store.admit(request(vec![sent, event(Err("no id".into()))])).await.unwrap();
    let event = store.find(WS, automation("welcome"), key("event")).await.unwrap().unwrap();
    let run = store.claim(runner(event, store.boot())).await.unwrap().unwrap();
    let step = StepBegin {
        id: event,
        fence: run.view.unwrap().claim.fence(),
        step: "create_contact".into(),
        idempotency_key: "og_1".into(),
        target: "POST https://crm.example/contacts".into(),
    };
    store.begin_step(step).await.unwrap().unwrap();

    // Asked for by name, and half done when the gate stops.
    let act = BulkCall {
        workspace: WS,
        act: BulkAct::Dismiss,
        filter: Filter { automation: Some(automation("welcome")), ..Filter::default() },
        told: "{}".into(),
        expect: store
            .count_bulk(
                WS,
                BulkAct::Dismiss,
                Filter { automation: Some(automation("welcome")), ..Filter::default() },
            )
            .await
            .unwrap()
            .matched,
        reason: "the CRM was down".into(),
        actor: "mia".into(),
        token_id: 1,
    };
    let answering: Answering = Arc::new(|_, _| Some(Kept { status: 202, body: Some("{}".into()) }));
    let named = Request { workspace: WS, key: key("bulk-1"), fingerprint: [1; 32] };
    store.write(Write::Bulk(act), Some(Once { request: named, answering })).await.unwrap();
    store.step_bulk(2).await.unwrap();
    let told = told_of(store).await;
    let all = Filter { limit: 100, ..Filter::default() };
    let [ours, others] =
        [store.list(WS, all.clone()).await.unwrap().rows, store.list(theirs, all).await.unwrap().rows];
    let claims = (ours.len() + others.len()) as u64;
    store.close().await;
    Life { hash, done: done.id, held: held.token.unwrap(), event, claims, token, told }
}

/// What is asked for again after the move.
struct Life {
    hash: [u8; 32],
    done: ClaimRef,
    held: Token,
    event: ClaimRef,
    /// How many there are, and the number of the token.
    claims: u64,
    token: i64,
    told: Told,
}

/// All that a store tells of what it holds, in words: they are compared.
type Told = Vec<String>;

async fn told_of(store: &dyn Store) -> Told {
    let mut claims = Vec::new();
    for workspace in [WS, Workspace(2)] {
        claims.extend(store.list(workspace, Filter { limit: 100, ..Filter::default() }).await.unwrap().rows);
    }
    let mut told = Vec::new();
    for view in &mut claims {
        told.push(format!("{:?}", store.history(view.at()).await.unwrap()));
        let Work { version, automation, key, payload, steps, .. } =
            store.work(view.at()).await.unwrap().unwrap();
        told.push(format!("{version} {automation} {key} {payload:?} {steps:?}"));
        told.push(format!("{:?}", store.deliveries(view.at(), 100).await.unwrap()));
        // What the process before held is, to a node, something that was held before it; that is looked at elsewhere.
        view.inbox = None;
        if let State::Processing(Lease { holder: Holder::Runner { boot }, .. }) = &mut view.claim.state {
            *boot = Boot::default();
        }
        told.push(format!("{view:?}"));
    }
    let audit = store.audit(WS, None, 100).await.unwrap().rows;
    let audit = audit.iter().filter(|row| row.action != "move_store");
    told.extend(audit.map(|row| format!("{row:?}")));
    let notices = NoticeFilter { limit: 100, ..NoticeFilter::default() };
    told.push(format!("{:?}", store.rejected(WS, None, None, 100).await.unwrap().rows));
    told.push(format!("{:?}", store.tokens(WS).await.unwrap()));
    told.push(format!("{:?}", store.notices(WS, notices).await.unwrap().rows));
    told.push(format!("{:?}", store.bulks(WS, None, 100).await.unwrap().rows));
    told.push(format!("{:?}", store.position(WS, "nightly".into()).await.unwrap()));
    told.push(format!("{:?}", store.workspaces().await.unwrap()));
    told
}

async fn finish(store: &dyn Store, claimed: &Claimed, call: Call) {
    let (id, fence) = (claimed.id, claimed.view.as_ref().unwrap().claim.fence());
    let result = Some("{\"contact\":7}".to_owned());
    let call = FinishCall { id, fence, call, jitter: Jitter::NONE, result, actor: "token:crm".into() };
    assert_eq!(store.finish(call).await.unwrap().unwrap().0, Answer::Accepted);
}

fn token(workspace: Workspace, hash: [u8; 32]) -> NewToken {
    let name = TokenName::try_from("zap").unwrap();
    let automations = Some(vec![automation("welcome")]);
    NewToken { workspace, hash, name, role: Role::Caller, automations, expires_at: None, actor: "mia".into() }
}

/// Nobody's nightly copies go on looking well, and no second store is made of what lies there.
fn what_is_left_behind_is_no_store(dir: &Path) {
    let copy = dir.join("copy.db");
    let made = sqlite::back_up(sqlite::Source::of_data(dir), &copy, MORNING).unwrap_err();
    assert!(made.to_string().contains("was moved to postgres://") && !copy.exists(), "{made}");
    let seen = sqlite::inspect(dir).unwrap().unwrap();
    assert!(seen.moved.is_some_and(|(to, _)| to.starts_with("postgres://")));
    let other = scratch();
    let by_hand = other.path().join("by-hand.db");
    rusqlite::Connection::open(dir.join("oncegate.db"))
        .unwrap()
        .execute("VACUUM INTO ?1", [by_hand.to_str().unwrap()])
        .unwrap();
    let restored = sqlite::restore(&by_hand, &other.path().join("data"), false, true, MORNING).unwrap_err();
    assert!(restored.to_string().contains("was moved to postgres://"), "{restored}");
}

#[tokio::test]
async fn everything_is_moved_and_counted_and_goes_on_where_it_stood() {
    let (dir, clock) = (scratch(), Arc::new(ManualClock::at(MORNING)));
    let life = lived(dir.path(), &clock).await;
    let cluster = Cluster::new();
    let options = Options { clock: Arc::clone(&clock) as _, fresh_secret: fresh(), ..cluster.options("a") };
    let mut told = Vec::new();
    let moved = move_store(dir.path(), &options, |table| told.push(table.clone())).await.unwrap();
    assert_eq!(moved.tables, told);
    for table in &moved.tables {
        assert!(table.rows > 0, "nothing of {} was there to move", table.name);
        let rows = cluster.sql(&format!("SELECT count(*) FROM oncegate.{}", table.name));
        let own = u64::from(table.name == "audit");
        assert_eq!(rows, (table.rows + own).to_string(), "{}", table.name);
    }
    assert_eq!(moved.replaced, 1, "PostgreSQL holds no zero character in a text");
    assert!(moved.to.starts_with("postgres://127.0.0.1:") && !moved.to.contains("made-up-password"));
    what_is_left_behind_is_no_store(dir.path());

    let store = PgStore::open(&options).await.unwrap();
    let store: &dyn Store = &store;
    for (now, before) in told_of(store).await.iter().zip(&life.told) {
        assert_eq!(now, &before.replace("\\0", "\u{fffd}"));
    }
    assert!(store.token_by_hash(life.hash).await.unwrap().is_some());
    // What is done stays done, what was known long ago is told; who holds a claim still holds it, and its token
    // counts.
    for (name, answer) in
        [("done", "stop duplicate"), ("gone", "run first_after_retention"), ("held", "stop in_progress")]
    {
        let claimed = store.claim(caller(name)).await.unwrap().unwrap();
        assert_eq!(words(&claimed.decision), answer, "{name}");
    }
    let (id, fence) = store.secret().read_token(life.held.expose()).unwrap();
    let (call, jitter) = (Call::Done, Jitter::NONE);
    let said = FinishCall { id, fence, call, jitter, result: None, actor: "token:crm".into() };
    assert_eq!(store.finish(said).await.unwrap().unwrap().0, Answer::Accepted);
    // The runner's process is gone for certain: a node goes on with its work at once, and knows what was sent.
    let due: Vec<ClaimRef> = store.due(9).await.unwrap().iter().map(|due| due.id).collect();
    assert_eq!(due, [life.event]);
    let run = store.claim(runner(life.event, store.boot())).await.unwrap().unwrap();
    assert_eq!(words(&run.decision), "run resumed");
    assert_eq!(store.work(life.event).await.unwrap().unwrap().steps[0].outcome, StepOutcome::Unknown);
    // New numbers follow the old ones, and the bulk act comes to its end.
    let new = store.claim(caller("new")).await.unwrap().unwrap();
    let newest = store.list(WS, Filter { limit: 1, ..Filter::default() }).await.unwrap().rows;
    assert_eq!(newest[0].at(), new.id, "newest first");
    assert!(store.add_token(token(WS, [10; 32])).await.unwrap().unwrap() > life.token);
    while store.step_bulk(10).await.unwrap().is_some() {}
    assert!(store.bulks(WS, None, 1).await.unwrap().rows[0].finished_at.is_some());
    assert!(store.show(life.done).await.unwrap().is_some());
    let audit = store.audit(WS, None, 100).await.unwrap().rows;
    let row = audit.iter().find(|row| row.action == "move_store").unwrap();
    assert!(row.detail.as_ref().unwrap().contains("claims"), "{row:?}");
}

/// Wherever it is cut: what starts is one store at most, and the same call brings it to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_move_begins_anew_and_never_do_both_start() {
    let (dir, clock) = (scratch(), Arc::new(ManualClock::at(MORNING)));
    let life = lived(dir.path(), &clock).await;
    let cluster = Arc::new(Cluster::new());
    let options = Options { clock: Arc::clone(&clock) as _, fresh_secret: fresh(), ..cluster.options("a") };
    for stop in ["workspaces", "claims", "declared"] {
        let (data, to) = (dir.path().to_owned(), options.clone());
        let cut = tokio::spawn(async move {
            move_store(&data, &to, |table| assert_ne!(table.name, stop, "as if it was killed here")).await
        });
        assert!(cut.await.unwrap_err().is_panic());
        let refused = PgStore::open(&options).await.err().unwrap().to_string();
        assert!(refused.contains("is being moved into this database"), "{refused}");
        let refused = recover(&options, "a dump", false).await.unwrap_err().to_string();
        assert!(refused.contains("is being moved into this database"), "{refused}");
        // The directory is the store, and lives on.
        let from = sqlite::Options { clock: Arc::clone(&clock) as _, ..crate::sqlite::options() };
        let store = SqliteStore::open(dir.path(), &from).unwrap();
        store.claim(caller(stop)).await.unwrap();
        store.close().await;
    }
    // Between the last two commits: the directory is marked, and the database not free yet.
    let held = Arc::new(Mutex::new(None));
    let (data, to) = (dir.path().to_owned(), options.clone());
    let (holds, cluster_too) = (Arc::clone(&held), Arc::clone(&cluster));
    let cut = tokio::spawn(async move {
        let hold = |table: &MovedTable| {
            if table.name == "declared" {
                *holds.lock().unwrap() = Some(cluster_too.hold("SELECT 1 FROM oncegate.clock FOR UPDATE"));
            }
        };
        move_store(&data, &to, hold).await
    });
    let reached = tokio::time::timeout(MINUTE, async {
        while held.lock().unwrap().is_none() || cluster.waiting() == 0 {
            assert!(!cut.is_finished(), "it never came to its last commit");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    reached.await.unwrap();
    cut.abort();
    let _ = cut.await;
    held.lock().unwrap().take();
    let from = sqlite::Options { clock: Arc::clone(&clock) as _, ..crate::sqlite::options() };
    let refused = SqliteStore::open(dir.path(), &from).err().unwrap().to_string();
    assert!(refused.contains("was moved to postgres://127.0.0.1"), "{refused}");
    let refused = PgStore::open(&options).await.err().unwrap().to_string();
    assert!(refused.contains("is being moved into this database"), "{refused}");

    let moved = move_store(dir.path(), &options, |_| {}).await.unwrap();
    let claims = moved.tables.iter().find(|table| table.name == "claims");
    assert_eq!(claims.unwrap().rows, life.claims + 3);
    let again = move_store(dir.path(), &options, |_| {}).await.unwrap();
    assert_eq!(again.tables, [], "it is over");
    assert!(SqliteStore::open(dir.path(), &from).is_err());
    let store = PgStore::open(&options).await.unwrap();
    for stop in ["workspaces", "claims", "declared"] {
        let claimed = store.claim(caller(stop)).await.unwrap().unwrap();
        assert_eq!(words(&claimed.decision), "stop in_progress", "{stop}");
    }
}

#[tokio::test]
async fn what_arrives_otherwise_than_it_was_sent_is_noticed() {
    let changes = [
        ("NEW.note := 'another'; RETURN NEW", "BEFORE INSERT", "a value"),
        ("RETURN NULL", "BEFORE INSERT", "a row that is dropped"),
    ];
    for (what, when, name) in changes {
        let (dir, clock) = (scratch(), Arc::new(ManualClock::at(MORNING)));
        lived(dir.path(), &clock).await;
        let cluster = Cluster::new();
        let options =
            Options { clock: Arc::clone(&clock) as _, fresh_secret: fresh(), ..cluster.options("a") };
        let meddle = |table: &MovedTable| {
            if table.name == "claims" {
                cluster.sql(&format!(
                    "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; END $$; \
                     CREATE TRIGGER meddle {when} ON oncegate.history FOR EACH ROW EXECUTE FUNCTION meddle()"
                ));
            }
        };
        let error = move_store(dir.path(), &options, meddle).await.unwrap_err().to_string();
        assert!(error.contains("`history`") && error.contains("is not what was sent"), "{name}: {error}");
        assert!(PgStore::open(&options).await.is_err(), "{name}");
        let from = sqlite::Options { clock, ..crate::sqlite::options() };
        assert!(SqliteStore::open(dir.path(), &from).is_ok(), "{name}: the directory is the store");
    }
}

#[tokio::test]
async fn a_move_goes_into_nothing_that_is_used_and_out_of_nothing_that_is() {
    let (dir, clock) = (scratch(), Arc::new(ManualClock::at(MORNING)));
    lived(dir.path(), &clock).await;
    let used = Cluster::new();
    let options = |cluster: &Cluster<'_>| Options {
        clock: Arc::clone(&clock) as _,
        fresh_secret: fresh(),
        ..cluster.options("a")
    };
    PgStore::open(&options(&used)).await.unwrap().close().await;
    let refusal = async |dir: &Path, to: &Options| match move_store(dir, to, |_| {}).await {
        Err(StoreError::Refused(words)) => words,
        other => panic!("{other:?}"),
    };
    assert!(refusal(dir.path(), &options(&used)).await.contains("there is a store in postgres://"));
    let nowhere = scratch();
    assert!(matches!(
        move_store(nowhere.path(), &options(&used), |_| {}).await,
        Err(StoreError::Path { .. })
    ));

    let empty = Cluster::new();
    let from = sqlite::Options { clock: Arc::clone(&clock) as _, ..crate::sqlite::options() };
    let store = SqliteStore::open(dir.path(), &from).unwrap();
    let locked = move_store(dir.path(), &options(&empty), |_| {}).await;
    assert!(matches!(locked, Err(StoreError::Locked { .. })), "{locked:?}");
    store.close().await;
    drop(store);
    // Begun, and given up for another database.
    let given_up = Cluster::new();
    let (data, to) = (dir.path().to_owned(), options(&given_up));
    let cut =
        tokio::spawn(async move { move_store(&data, &to, |_| panic!("as if it was killed here")).await });
    assert!(cut.await.unwrap_err().is_panic());
    move_store(dir.path(), &options(&empty), |_| {}).await.unwrap();
    // It was moved, and to there only, whatever else it was on its way to; another store does not come on top of it.
    for third in [Cluster::new(), given_up] {
        assert!(refusal(dir.path(), &options(&third)).await.contains("was moved to"));
        let undone = take_back(dir.path(), &options(&third)).await.unwrap_err().to_string();
        assert!(undone.contains("but elsewhere"), "{undone}");
        assert!(
            PgStore::open(&options(&empty)).await.is_ok() && SqliteStore::open(dir.path(), &from).is_err()
        );
    }
    let other = scratch();
    let own = sqlite::Options { fresh_secret: [8; 32], ..from.clone() };
    SqliteStore::open(other.path(), &own).unwrap().close().await;
    assert!(refusal(other.path(), &options(&empty)).await.contains("there is a store in"));
}

#[tokio::test]
async fn a_move_is_taken_back_until_a_node_has_started() {
    let (dir, clock) = (scratch(), Arc::new(ManualClock::at(MORNING)));
    lived(dir.path(), &clock).await;
    let from = sqlite::Options { clock: Arc::clone(&clock) as _, ..crate::sqlite::options() };
    let cluster = Cluster::new();
    let options = Options { clock: Arc::clone(&clock) as _, fresh_secret: fresh(), ..cluster.options("a") };
    assert!(take_back(dir.path(), &options).await.is_err(), "it was not moved");
    move_store(dir.path(), &options, |_| {}).await.unwrap();
    // What was done to the database meanwhile is forgotten with the move.
    recover(&options, "by mistake", false).await.unwrap();
    // A version before this one had moved it: it is copied and upgraded to take the move back.
    let moved = rusqlite::Connection::open(dir.path().join("oncegate.db")).unwrap();
    moved
        .execute_batch("DROP INDEX claims_in_line; DROP TABLE source_positions; DROP TABLE senders; PRAGMA user_version = 4")
        .unwrap();
    drop(moved);
    take_back(dir.path(), &options).await.unwrap();
    assert!(PgStore::open(&options).await.is_err());
    let store = SqliteStore::open(dir.path(), &from).unwrap();
    store.claim(caller("since")).await.unwrap();
    store.close().await;
    drop(store);
    move_store(dir.path(), &options, |_| {}).await.unwrap();
    let store = PgStore::open(&options).await.unwrap();
    assert!(store.recovery().await.unwrap().is_none());
    assert_eq!(words(&store.claim(caller("since")).await.unwrap().unwrap().decision), "stop in_progress");
    store.close().await;
    let refused = take_back(dir.path(), &options).await.unwrap_err().to_string();
    assert!(refused.contains("node `a` has started"), "{refused}");
    assert!(SqliteStore::open(dir.path(), &from).is_err(), "nothing was changed");
    assert!(PgStore::open(&options).await.is_ok());
}

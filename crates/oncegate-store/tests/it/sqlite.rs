//! What is particular to the embedded store: its directory, its file, its writer.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use oncegate_core::finish::{Answer, Call};
use oncegate_core::inbox::InboxList;
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_store::api::{ActCall, Filter, FinishCall, PolicyBook, Workspace};
use oncegate_store::clock::{Clock, ManualClock};
use oncegate_store::sqlite::{Options, Settings, SqliteStore};
use oncegate_store::{Store, StoreError};
use rusqlite::Connection;

use crate::conformance::claims::poll_once_and_drop;
use crate::conformance::{Asking, Backend, MORNING, Policies, WS, automation, caller, key, scratch, words};

/// A data directory of the embedded store, for the conformance suite.
pub(crate) struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { dir: scratch() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

#[async_trait::async_trait]
impl Backend for Files {
    async fn open(&self, clock: Arc<dyn Clock>, policies: Arc<dyn PolicyBook>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.data(), &Options { clock, policies, ..options() }).unwrap())
    }
}

/// `ephemeral`, because some machines that test have nothing but an overlay.
pub(crate) fn options() -> Options {
    let clock = Arc::new(ManualClock::at(MORNING));
    Options { clock, policies: Arc::new(Policies), fresh_secret: [7; 32], ephemeral: true, max_bytes: None }
}

/// Somebody with a SQLite shell.
pub(crate) fn raw(data: &Path) -> Connection {
    Connection::open(data.join("oncegate.db")).unwrap()
}

fn open(data: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(data, &options())
}

/// A list of words in a `CHECK` costs every row a table that is made, filled and thrown away.
#[tokio::test]
async fn no_row_that_is_written_often_is_checked_by_a_table_of_its_own() {
    let dir = scratch();
    open(dir.path()).unwrap().close().await;
    let db = raw(dir.path());
    for table in ["claims", "history", "payloads", "record_runs", "step_calls", "deliveries"] {
        let mut explain = db.prepare(&format!("EXPLAIN INSERT INTO {table} DEFAULT VALUES")).unwrap();
        let steps = explain.query_map([], |r| r.get(1)).unwrap().collect::<Result<Vec<String>, _>>().unwrap();
        assert!(steps.iter().any(|step| step == "Insert" || step == "IdxInsert"), "{table}: {steps:?}");
        assert!(!steps.iter().any(|step| step == "OpenEphemeral"), "{table}: {steps:?}");
    }
}

#[tokio::test]
async fn one_process_has_the_directory_and_a_closed_or_dropped_store_lets_go_of_it() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let Err(error) = open(dir.path()) else { panic!("opened twice") };
    assert!(matches!(&error, StoreError::Locked { path } if path == dir.path()), "{error}");
    assert!(error.to_string().contains("in use by another oncegate process"), "{error}");
    store.close().await;
    drop(store);
    for _ in 0..20 {
        drop(open(dir.path()).unwrap());
    }
}

#[tokio::test]
async fn a_closed_store_leaves_the_database_its_lock_and_its_reserve_and_nothing_else() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    store.claim(caller("k")).await.unwrap();
    store.list(WS, Filter::default()).await.unwrap();
    store.close().await;
    let mut names: Vec<_> =
        dir.path().read_dir().unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["oncegate.db", "oncegate.lock", "oncegate.reserve"]);
}

#[test]
fn memory_is_refused_unless_asked_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let Err(error) = SqliteStore::open(dir.path(), &Options { ephemeral: false, ..options() }) else {
        panic!("/dev/shm does not last")
    };
    let text = error.to_string();
    for said in [dir.path().to_str().unwrap(), "tmpfs", "--data", "--ephemeral"] {
        assert!(text.contains(said), "{text}");
    }
    assert!(open(dir.path()).is_ok(), "losing everything is fine for a drill");
}

#[test]
fn a_file_from_a_newer_version_is_refused_and_left_alone() {
    let dir = scratch();
    drop(open(dir.path()).unwrap());
    raw(dir.path()).pragma_update(None, "user_version", 9_999).unwrap();
    let Err(error) = open(dir.path()) else { panic!("opened a newer file") };
    assert!(matches!(error, StoreError::Newer { found: 9_999, .. }), "{error}");
    let boot: i64 =
        raw(dir.path()).query_row("SELECT value FROM meta WHERE name = 'boot'", [], |r| r.get(0)).unwrap();
    assert_eq!(boot, 1);
}

#[test]
fn nobody_else_on_the_machine_may_read_the_data() {
    let dir = scratch();
    let (ours, mounted) = (dir.path().join("a/b"), dir.path().join("volume"));
    std::fs::create_dir(&mounted).unwrap();
    std::fs::set_permissions(&mounted, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |p: &Path| p.metadata().unwrap().permissions().mode() & 0o777;
    for data in [&ours, &mounted] {
        let _store = open(data).unwrap();
        for file in data.read_dir().unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
    assert_eq!(mode(&ours), 0o700);
}

#[tokio::test]
async fn the_writer_syncs_every_commit_to_a_write_ahead_log() {
    let dir = scratch();
    let settings = open(dir.path()).unwrap().settings().await.unwrap();
    assert_eq!(settings, Settings { journal_mode: "wal".into(), synchronous: 2, foreign_keys: true });
}

/// The database is the last judge: what no code of ours would write, it refuses.
#[tokio::test]
async fn a_row_that_contradicts_itself_is_refused_by_the_file_itself() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let held = store.claim(caller("processing").on("crm:1")).await.unwrap().unwrap();
    store.claim(caller("other").on("crm:2")).await.unwrap();
    store.claim(caller("none").queued()).await.unwrap();
    store.claim(caller("done").of("at_claim")).await.unwrap();
    let db = raw(dir.path());
    db.pragma_update(None, "foreign_keys", true).unwrap();
    let set = |what: &str, whose: &str| format!("UPDATE claims SET {what} WHERE idempotency_key = '{whose}'");
    let bad = [
        set("processing_state = 'runing'", "none"),
        set("processing_state = 'processing'", "none"),
        set("processing_state = 'done'", "none"),
        set("processing_state = 'error'", "none"),
        set("processing_state = 'none'", "done"),
        set("lease_expires = NULL", "processing"),
        set("holder = NULL", "processing"),
        set("holder = 'somebody'", "processing"),
        set("processing_started_at = NULL", "processing"),
        set("attempt = 0", "processing"),
        set("dismissed = 1", "processing"),
        set("due_at = 1", "done"),
        set("retain_until = NULL", "done"),
        set("record_hash = zeroblob(16)", "done"),
        set("record_hash = zeroblob(15)", "processing"),
        set("record_hash = (SELECT record_hash FROM claims WHERE idempotency_key = 'other')", "processing"),
        set("claim_id = zeroblob(15)", "none"),
        set("claim_id = (SELECT claim_id FROM claims WHERE idempotency_key = 'other')", "none"),
        set("fingerprint = x'01'", "none"),
        set("version = 0", "none"),
        set("attempt = -1", "none"),
        set("attempt = 'first'", "none"),
        set("generation = -1", "none"),
        set("retries_used = 4", "none"),
        set("stale_retries_used = 2", "none"),
        set("parked = 'somewhere'", "none"),
        set("workspace_id = 77", "none"),
        set("automation_id = 77", "none"),
        "UPDATE automations SET stale_streak = -1".into(),
        "INSERT INTO automations (workspace_id, name, created_at) VALUES (1, 'welcome', 0)".into(),
        "INSERT INTO payloads (claim_row, body, json, stored_at) VALUES (77, x'', '', 0)".into(),
        "INSERT INTO api_tokens (workspace_id, hash, name, role, created_at, created_by) \
         VALUES (1, x'01', 'a', 'admin', 0, 'b')".into(),
        "INSERT INTO api_tokens (workspace_id, hash, name, role, created_at, created_by) \
         VALUES (1, zeroblob(32), 'a', 'root', 0, 'b')".into(),
        "INSERT INTO deliveries (workspace_id, source, automation, received_at, verdict) \
         VALUES (1, 's', 'a', 0, 'rejected')"
            .into(),
        "INSERT INTO step_calls (claim_row, step, attempt, resets, idempotency_key, target, sent_at, outcome) \
         VALUES (1, 's', 1, 0, 'k', 't', 0, 'succeeded')"
            .into(),
    ];
    for sql in bad {
        let error = db.execute(&sql, []).unwrap_err();
        let code = error.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{sql}: {error}");
    }
    assert!(store.show(held.id).await.unwrap().is_some());
}

#[tokio::test]
async fn history_and_audit_cannot_be_rewritten() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    store.claim(caller("k")).await.unwrap();
    store.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
    let db = raw(dir.path());
    for sql in [
        "UPDATE history SET actor = 'nobody'",
        "DELETE FROM history",
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
    ] {
        assert!(db.execute(sql, []).unwrap_err().to_string().contains("append-only"), "{sql}");
    }
}

/// Change, history and audit are one transaction: what cannot be written down does not happen.
#[tokio::test]
async fn a_change_without_its_history_or_audit_row_does_not_happen() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let held = store.claim(caller("k")).await.unwrap().unwrap();
    let before = store.show(held.id).await.unwrap().unwrap().claim;
    let act = ActCall {
        id: held.id,
        act: Act::MarkError { note: "n".into() },
        reason: "looked into it".into(),
        actor: "mia".into(),
    };
    let block = |table: &str| {
        let sql = format!(
            "DROP TRIGGER IF EXISTS blocked; \
             CREATE TRIGGER blocked BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'blocked'); END"
        );
        raw(dir.path()).execute_batch(&sql).unwrap();
    };
    block("audit");
    assert!(store.act(act.clone()).await.is_err());
    assert!(store.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.is_err());
    block("history");
    assert!(store.act(act).await.is_err());
    assert!(store.claim(caller("new")).await.is_err());
    let id = store.find(WS, automation("welcome"), key("new")).await.unwrap().unwrap();
    assert!(store.show(id).await.unwrap().is_none());
    assert_eq!(store.show(held.id).await.unwrap().unwrap().claim, before);
    assert_eq!(store.history(held.id).await.unwrap().len(), 1);
    raw(dir.path()).execute_batch("DROP TRIGGER blocked").unwrap();
    assert_eq!(
        words(&store.claim(caller("new")).await.unwrap().unwrap().decision),
        "run first",
        "not paused"
    );
}

#[tokio::test]
async fn one_unreadable_row_neither_stops_a_list_nor_hides_itself() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(store.claim(caller(&format!("k{n}"))).await.unwrap().unwrap().id);
    }
    raw(dir.path()).execute("UPDATE claims SET lease_ttl = 0 WHERE idempotency_key = 'k2'", []).unwrap();
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store.list(WS, Filter { before, limit: 2, ..Filter::default() }).await.unwrap();
        found.extend(page.rows.iter().map(oncegate_store::api::ClaimView::at));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, [ids[3], ids[1], ids[0]]);
    let error = store.show(ids[2]).await.unwrap_err();
    assert!(matches!(error, StoreError::Inconsistent(_)), "{error}");
    assert!(error.to_string().contains(&ids[2].to_string()), "{error}");
    assert!(store.counts(WS, None).await.unwrap().contains(&(InboxList::Stuck, 0)));
}

#[tokio::test]
async fn one_unreadable_automation_does_not_keep_the_work_of_others_from_its_turn() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    for name in ["broken", "welcome"] {
        store.claim(caller("k").of(name).queued()).await.unwrap();
    }
    raw(dir.path()).execute("UPDATE automations SET name = '' WHERE name = 'broken'", []).unwrap();
    let due: Vec<_> = store.due(9).await.unwrap().into_iter().map(|d| d.automation).collect();
    assert_eq!(due, [automation("welcome")]);
    assert!(store.reap(9).await.is_ok(), "nor what is to be forgotten");
}

#[tokio::test]
async fn one_unreadable_child_does_not_keep_its_parent_from_being_done() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let token = store.claim(caller("parent")).await.unwrap().unwrap().token.unwrap();
    let (id, fence) = store.secret().read_token(token.expose()).unwrap();
    let mut child = caller("child");
    child.parent = Some((id, fence));
    store.claim(child).await.unwrap().unwrap();
    raw(dir.path()).execute("UPDATE claims SET lease_ttl = 0 WHERE idempotency_key = 'child'", []).unwrap();
    let call = FinishCall {
        id,
        fence,
        call: Call::Done,
        jitter: Jitter::NONE,
        result: None,
        actor: "holder".into(),
    };
    assert_eq!(store.finish(call).await.unwrap().unwrap().0, Answer::Accepted);
}

#[tokio::test]
async fn one_failing_call_in_a_batch_does_not_fail_its_neighbours() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    // While somebody else writes, the calls gather.
    let db = raw(dir.path());
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async { db.execute_batch("ROLLBACK").unwrap() };
    let (a, bad, b, ()) = tokio::join!(
        store.claim(caller("a")),
        store.claim(caller("bad").within(Workspace(77))),
        store.claim(caller("b")),
        release,
    );
    assert!(matches!(bad, Err(StoreError::Inconsistent(_))), "{bad:?}");
    for good in [a, b] {
        assert_eq!(words(&good.unwrap().unwrap().decision), "run first");
    }
}

/// C18's root cause: a transaction that reads first and writes later fails at once when somebody wrote between.
#[tokio::test]
async fn somebody_who_writes_with_a_shell_delays_a_claim_and_does_not_break_it() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let db = raw(dir.path());
    for n in 0..30 {
        db.execute_batch("BEGIN IMMEDIATE; UPDATE workspaces SET name = name || '.'").unwrap();
        let release = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            db.execute_batch("COMMIT").unwrap();
        };
        let (claimed, ()) = tokio::join!(store.claim(caller(&format!("k{n}"))), release);
        assert_eq!(words(&claimed.unwrap().unwrap().decision), "run first");
    }
}

/// C44 with the timing made certain: four callers are gone before the writer gets its turn.
#[tokio::test]
async fn callers_gone_before_their_turn_claim_nothing() {
    let files = Files::new();
    let store = open(&files.data()).unwrap();
    let db = raw(&files.data());
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..4 {
        poll_once_and_drop(&store, caller("k")).await;
    }
    let (fifth, ()) = tokio::join!(store.claim(caller("k")), async { db.execute_batch("ROLLBACK").unwrap() });
    let fifth = fifth.unwrap().unwrap();
    assert_eq!(words(&fifth.decision), "run first");
    assert_eq!(store.history(fifth.id).await.unwrap().len(), 1);
}

/// What has happened is written down although nobody waits for the answer any more: the caller of done may have given
/// up while the disk was slow, and its effect must not run again.
#[tokio::test]
async fn a_done_whose_caller_is_gone_counts() {
    let files = Files::new();
    let store = open(&files.data()).unwrap();
    let claimed = store.claim(caller("k")).await.unwrap().unwrap();
    let (id, fence) = store.secret().read_token(claimed.token.unwrap().expose()).unwrap();
    let call = || oncegate_store::api::FinishCall {
        id,
        fence,
        call: oncegate_core::finish::Call::Done,
        jitter: oncegate_core::policy::Jitter::NONE,
        result: None,
        actor: "holder".into(),
    };
    let db = raw(&files.data());
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut gone = Box::pin(store.finish(call()));
    let polled = std::future::poll_fn(|cx| Poll::Ready(gone.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "the writer waits for the transaction outside");
    drop(gone);
    db.execute_batch("ROLLBACK").unwrap();
    // Behind it in the queue.
    let again = store.claim(caller("k")).await.unwrap().unwrap();
    assert_eq!(words(&again.decision), "stop duplicate");
}

#[tokio::test]
async fn more_calls_than_the_store_takes_are_told_to_come_back() {
    let dir = scratch();
    let store = open(dir.path()).unwrap();
    let db = raw(dir.path());
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        let mut call = Box::pin(store.claim(caller(&format!("k{}", waiting.len()))));
        let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        match polled {
            Poll::Ready(answer) => break answer,
            Poll::Pending => waiting.push(call),
        }
        assert!(waiting.len() < 20_000, "a queue without an end only hides that nothing moves");
    };
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    drop(waiting);
    db.execute_batch("ROLLBACK").unwrap();
    // The writer throws the abandoned calls away; then there is room again.
    let answer = loop {
        match store.claim(caller("k")).await {
            Err(StoreError::Busy) => tokio::task::yield_now().await,
            answer => break answer,
        }
    };
    assert_eq!(words(&answer.unwrap().unwrap().decision), "run first");
    let rows = store.list(WS, Filter { limit: 10, ..Filter::default() }).await.unwrap().rows;
    assert_eq!(rows.iter().map(|v| v.key.clone()).collect::<Vec<_>>(), [key("k")]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test is about the text of the crate itself")]
fn only_the_folders_of_the_databases_speak_sql() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in src.read_dir().unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&file).unwrap();
            for word in ["SELECT ", "INSERT ", "UPDATE ", "DELETE FROM", "PRAGMA", "CREATE TABLE"] {
                assert!(!text.contains(word), "{} says {word}", file.display());
            }
        }
    }
}

//! The previous release's file: copied, upgraded, and everything in it still there with the same answers.

use std::path::Path;

use oncegate_core::finish::{Answer, Call};
use oncegate_core::key::{ClaimId, ClaimRef, StoreSecret};
use oncegate_core::policy::Jitter;
use oncegate_core::time::millis;
use oncegate_core::token::Fence;
use oncegate_store::api::FinishCall;
use oncegate_store::sqlite::{BackupDir, SqliteStore, check, upgrade};
use oncegate_store::{Store, StoreError};
use rusqlite::{Connection, params};

use crate::conformance::{DAY, HOUR, MINUTE, MORNING, WS, automation, caller, key, scratch, words};
use crate::sqlite::options;

/// One claim of the previous release.
pub(super) struct Life {
    pub(super) key: &'static str,
    pub(super) state: &'static str,
    /// Whether a restore makes it an error.
    pub(super) is_open: bool,
    /// More columns; `$M` is the morning, `$H` an hour, `$D` a day.
    columns: &'static str,
    /// What a caller is told.
    answer: &'static str,
}

const fn life(
    key: &'static str,
    state: &'static str,
    is_open: bool,
    columns: &'static str,
    answer: &'static str,
) -> Life {
    Life { key, state, is_open, columns, answer }
}

const PROCESSING: &str = "processing_started_at = $M, lease_renewed = 1000000, lease_ttl = 900000, \
    lease_expires = 1900000, attempt = 1";

/// Every state that the previous release knows.
pub(super) const LIVES: [Life; 13] = [
    life(
        "done",
        "done",
        false,
        "attempt = 1, done_at = $M - $H, retain_until = $M + 89 * $D, result = '{\"id\":7}'",
        "stop duplicate",
    ),
    life("held", "processing", true, "holder = 'caller', run_id = 'run-1'", "stop in_progress"),
    life(
        "ours",
        "processing",
        true,
        "holder = 'runner', boot = 1, flow = 1, step_succeeded = 1, record = 'crm:ann', record_hash = zeroblob(16)",
        "stop in_progress",
    ),
    life(
        "deferred",
        "processing",
        true,
        "holder = 'runner', boot = 1, flow = 1, due_at = $M + $H, step_unknown = 1, lease_renewed = 1000000 + $H, lease_expires = 1900000 + $H",
        "stop in_progress",
    ),
    life(
        "retried",
        "error",
        true,
        "attempt = 1, retries_used = 1, error_at = $M, error_cause = 'failed', note = '503', due_at = $M + $H",
        "stop backing_off",
    ),
    life(
        "unknown",
        "error",
        true,
        "attempt = 2, error_at = $M, error_cause = 'outcome_unknown', note = 'no answer', step_unknown = 1",
        "stop needs_review",
    ),
    life(
        "marked",
        "error",
        false,
        "attempt = 1, error_at = $M, error_cause = 'marked_after_done', note = 'double: mass'",
        "stop needs_review",
    ),
    life("due", "none", true, "flow = 1, due_at = $M", "run first"),
    life(
        "stopped",
        "none",
        true,
        "parked = 'needs_replay', stops = 3, first_stop_at = $M, last_stop_at = $M",
        "run first",
    ),
    life("looping", "none", true, "flow = 1, parked = 'loop_suspected', mismatch_at = $M", "run first"),
    life("incident", "none", true, "flow = 1, parked = 'incident', late_at = $M", "run first"),
    life(
        "reset",
        "none",
        true,
        "flow = 1, parked = 'reset', generation = 3, resets = 2, attempt = 2",
        "run first",
    ),
    life("dismissed", "none", false, "dismissed = 1", "stop dismissed"),
];

fn id_of(key_text: &str) -> ClaimId {
    StoreSecret::new([7; 32]).claim_id(WS, 1, &key(key_text))
}

/// Writes a file as the previous release left it: its schema, word for word, and a row in every state.
pub(super) fn previous_release(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(include_str!("../../../migrations/sqlite/0001_spine.sql")).unwrap();
    let morning = MORNING.as_millis();
    db.execute_batch(&format!(
        "PRAGMA user_version = 1;
         INSERT INTO meta VALUES ('boot', 1), ('lease', 1000000), ('wall', {morning});
         INSERT INTO workspaces VALUES (1, 'default', {morning});
         INSERT INTO automations (id, workspace_id, name, created_at) VALUES (1, 1, 'welcome', {morning});
         INSERT INTO pruned VALUES (zeroblob(16), {morning}, {morning});
         INSERT INTO record_runs VALUES (zeroblob(16), 1, {morning}, zeroblob(16), 1);
         INSERT INTO audit VALUES (1, 1, {morning}, 'mara', 'reset', 'x', 'because', NULL);
         INSERT INTO api_tokens VALUES (zeroblob(32), 'admin', 'admin', {morning});
         INSERT INTO deliveries (workspace_id, source, automation, received_at, verdict, reason, body_hash, headers, body) \
             VALUES (1, 'forms', 'welcome', {morning}, 'rejected', 'no id', zeroblob(32), '[]', x'7b7d');"
    ))
    .unwrap();
    db.execute("INSERT INTO meta VALUES ('secret', ?1)", [&[7u8; 32][..]]).unwrap();
    for (row, life) in (1i64..).zip(&LIVES) {
        let mut columns = vec![life.columns.to_owned()];
        if life.state == "processing" {
            let own = |part: &&str| !life.columns.contains(part.split(' ').next().unwrap());
            columns.push(PROCESSING.split(", ").filter(own).collect::<Vec<_>>().join(", "));
        }
        let columns = columns
            .join(", ")
            .replace("$M", &morning.to_string())
            .replace("$H", &millis(HOUR).to_string())
            .replace("$D", &millis(DAY).to_string());
        // One statement per row, because the table's checks tie a state to its columns.
        let (mut names, mut values) = (vec![], vec![]);
        for column in columns.split(", ") {
            let (name, value) = column.split_once(" = ").unwrap();
            names.push(name);
            values.push(value);
        }
        let base =
            [("attempt", "0"), ("generation", "0")].into_iter().filter(|(name, _)| !names.contains(name));
        let (base_names, base_values): (Vec<_>, Vec<_>) = base.unzip();
        names.extend(base_names);
        values.extend(base_values);
        let sql = format!(
            "INSERT INTO claims (id, claim_id, workspace_id, automation_id, idempotency_key, processing_state, version, \
             opened_at, created_at, updated_at, {}) VALUES (?1, ?2, 1, 1, ?3, ?4, 1, ?5, ?5, ?5, {})",
            names.join(", "),
            values.join(", ")
        );
        db.execute(&sql, params![row, &id_of(life.key).0[..], life.key, life.state, morning]).unwrap();
        db.execute(
            "INSERT INTO history (claim_row, at, kind, reason, attempt, actor) VALUES (?1, ?2, 'run', 'first', 1, 'token:crm')",
            params![row, morning],
        )
        .unwrap();
        db.execute("INSERT INTO payloads VALUES (?1, x'7b7d', '{}', ?2)", params![row, morning]).unwrap();
        db.execute(
            "INSERT INTO step_calls (claim_row, step, attempt, resets, idempotency_key, target, sent_at, outcome, answer, finished_at) \
             VALUES (?1, 'send', 1, 0, 'og-1', 'POST x', ?2, 'succeeded', x'7b7d', ?2)",
            params![row, morning],
        )
        .unwrap();
    }
}

fn rows(path: &Path, tables: &[&str]) -> Vec<i64> {
    let db = Connection::open(path).unwrap();
    let count = |t: &&str| db.query_row(&format!("SELECT count(*) FROM {t}"), [], |r| r.get(0)).unwrap();
    tables.iter().map(count).collect()
}

fn copies(data: &Path) -> Vec<std::path::PathBuf> {
    match std::fs::read_dir(BackupDir::of_data(data).path()) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => vec![],
    }
}

const TABLES: [&str; 9] = [
    "claims",
    "payloads",
    "history",
    "step_calls",
    "deliveries",
    "audit",
    "api_tokens",
    "pruned",
    "record_runs",
];

#[tokio::test]
async fn the_previous_releases_file_is_copied_and_then_gives_the_same_answers() {
    let dir = scratch();
    let path = dir.path().join("oncegate.db");
    previous_release(&path);
    let (before, bytes) = (rows(&path, &TABLES), std::fs::read(&path).unwrap());
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert_eq!(rows(&path, &TABLES), before);
    let [copy] = &copies(dir.path())[..] else { panic!("{:?}", copies(dir.path())) };
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert_eq!(name, "before-upgrade-1-20260105T100000Z.db");
    assert_eq!(rows(copy, &TABLES), before);
    assert_eq!(std::fs::read(copy).unwrap().len(), bytes.len());
    assert!(store.recovery().await.unwrap().is_none());

    for life in LIVES {
        let id = ClaimRef { workspace: WS, id: id_of(life.key) };
        assert_eq!(store.find(WS, automation("welcome"), key(life.key)).await.unwrap(), Some(id));
        let view = store.show(id).await.unwrap().unwrap();
        assert_eq!(view.claim.processing_state().as_str(), life.state, "{}", life.key);
        assert_eq!(view.payload_removed_at, None);
        let work = store.work(id).await.unwrap().unwrap();
        assert_eq!((work.payload.unwrap().body, work.steps.len()), (b"{}".to_vec(), 1), "{}", life.key);
        assert_eq!(store.history(id).await.unwrap().len(), 1);
    }
    // Tokens that were given before still hold.
    let held = ClaimRef { workspace: WS, id: id_of("held") };
    let token = store.secret().token(held, Fence { attempt: 1, generation: 0 });
    let (id, fence) = store.secret().read_token(token.expose()).unwrap();
    for life in LIVES {
        let claimed = store.claim(caller(life.key)).await.unwrap().unwrap();
        assert_eq!(words(&claimed.decision), life.answer, "{}", life.key);
        if life.key == "done" {
            assert_eq!(claimed.view.unwrap().result.as_deref(), Some("{\"id\":7}"));
        }
    }
    let done = FinishCall {
        id,
        fence,
        call: Call::Done,
        jitter: Jitter::NONE,
        result: None,
        actor: "token:crm".into(),
    };
    assert_eq!(store.finish(done).await.unwrap().unwrap().0, Answer::Accepted);
    store.close().await;
    drop(store);
    // Opened again, it is not copied again.
    drop(SqliteStore::open(dir.path(), &options()).unwrap());
    assert_eq!(copies(dir.path()).len(), 1);
}

#[tokio::test]
async fn a_newer_file_is_refused_and_stays_byte_for_byte() {
    for mode in ["WAL", "DELETE"] {
        let dir = scratch();
        let path = dir.path().join("oncegate.db");
        drop(SqliteStore::open(dir.path(), &options()).unwrap());
        let db = Connection::open(&path).unwrap();
        db.execute_batch(&format!("PRAGMA journal_mode = {mode}; PRAGMA user_version = 99")).unwrap();
        db.close().unwrap();
        let before = std::fs::read(&path).unwrap();
        for error in [
            SqliteStore::open(dir.path(), &options()).err().unwrap(),
            check(dir.path()).unwrap_err(),
            upgrade(dir.path(), true, MORNING).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
            assert!(error.to_string().contains("written by a newer oncegate"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{mode}");
        assert!(copies(dir.path()).is_empty());
    }
}

#[tokio::test]
async fn an_upgrade_that_fails_leaves_the_old_file_as_it_was() {
    let dir = scratch();
    let path = dir.path().join("oncegate.db");
    previous_release(&path);
    // In the way of a step.
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE api_tokens_2 (x)").unwrap();
    let before = rows(&path, &TABLES);
    assert!(SqliteStore::open(dir.path(), &options()).is_err());
    let db = Connection::open(&path).unwrap();
    let schema: i64 = db.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
    assert_eq!((schema, rows(&path, &TABLES)), (1, before));
    let sql: String = db
        .query_row("SELECT group_concat(sql, ';') FROM sqlite_schema WHERE name = 'claims'", [], |r| r.get(0))
        .unwrap();
    assert!(!sql.contains("payload_removed_at") && !sql.contains("restored"), "all steps or none: {sql}");
    db.execute_batch("DROP TABLE api_tokens_2").unwrap();
    db.close().unwrap();
    drop(SqliteStore::open(dir.path(), &options()).unwrap());
    assert_eq!(copies(dir.path()).len(), 2, "one before each try");
}

#[tokio::test]
async fn a_file_that_cannot_be_copied_is_not_upgraded() {
    let dir = scratch();
    let path = dir.path().join("oncegate.db");
    previous_release(&path);
    let before = std::fs::read(&path).unwrap();
    std::fs::write(dir.path().join("backups"), "in the way").unwrap();
    let error = SqliteStore::open(dir.path(), &options()).err().unwrap();
    assert!(matches!(error, StoreError::NotCopied { .. }), "{error}");
    drop(Connection::open(&path).unwrap().execute_batch("PRAGMA journal_mode = DELETE"));
    let after = std::fs::read(&path).unwrap();
    // Bytes 18 and 19 say how its log is kept, 24 to 28 and 92 to 100 count changes.
    let same = |bytes: &[u8]| [&bytes[..18], &bytes[20..24], &bytes[28..92], &bytes[100..]].concat();
    assert!(same(&after) == same(&before));
}

#[tokio::test]
async fn what_an_upgrade_would_do_is_told_without_doing_it() {
    let dir = scratch();
    let path = dir.path().join("oncegate.db");
    assert_eq!(check(dir.path()).unwrap(), None);
    previous_release(&path);
    let before = std::fs::read(&path).unwrap();
    let schema = check(dir.path()).unwrap().unwrap();
    assert!(schema.found == 1 && schema.needs_upgrade() && schema.has_room(), "{schema:?}");
    assert!(schema.bytes == before.len() as u64 && schema.needed() > schema.bytes, "{schema:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    upgrade(dir.path(), true, MORNING).unwrap();
    assert_eq!(copies(dir.path()).len(), 1);
    let schema = check(dir.path()).unwrap().unwrap();
    assert!(!schema.needs_upgrade() && schema.needed() == 0, "{schema:?}");
    // A gate may run on it meanwhile.
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    store.claim(caller("k")).await.unwrap();
    assert!(!check(dir.path()).unwrap().unwrap().needs_upgrade());
    assert!(matches!(upgrade(dir.path(), true, MORNING.after(MINUTE)), Err(StoreError::Locked { .. })));
}

//! Backups every night and on demand, payloads that go, a store that is nearly full; as its users see them.
#![expect(clippy::disallowed_methods, reason = "one test puts a file in the way")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use oncegate::place::{Opening, StoreUrl, open_store};
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::secret::Secret;
use oncegate_runner::book::Book;
use oncegate_store::clock::SystemClock;
use oncegate_testing::Postgres;
use serde_json::json;

use crate::harness::{Gate, Receiver, Setup, at, eventually, hours, mins};

fn made(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return vec![] };
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn backups(gate: &Gate) -> PathBuf {
    gate.database().parent().unwrap().join("backups")
}

/// A night passes, most of it unseen by the clock of leases.
async fn until(gate: &Gate, wall: &str) {
    let left = at(wall).since(gate.now());
    gate.clock.advance(left.saturating_sub(mins(12)));
    gate.advance(left.min(mins(12))).await;
}

#[tokio::test]
async fn a_backup_is_made_every_night_and_a_missed_one_at_the_next_start() {
    let mut gate = Setup::alone("backup: { at: '03:00', keep: 2 }").start().await;
    gate.api.claim("story", "s_1").await;
    gate.advance(mins(1)).await;
    assert_eq!(made(&backups(&gate)), Vec::<PathBuf>::new(), "a fresh store has its first night ahead");
    let standing = gate.api.get("/v1/backup").await.ok();
    assert_eq!((&standing["nightly"], &standing["last_success_at"]), (&json!(true), &json!(null)));
    let mut nights = vec![];
    for night in ["2026-01-06T03:11:00Z", "2026-01-07T03:11:00Z", "2026-01-08T03:11:00Z"] {
        until(&gate, night).await;
        let newest = eventually("tonight's backup", async || {
            made(&backups(&gate))
                .last()
                .filter(|path| !nights.contains(*path))
                .cloned()
                .filter(|path| path.extension().is_some_and(|e| e == "db"))
        })
        .await;
        nights.push(newest);
    }
    eventually("the oldest goes", async || (made(&backups(&gate)) == nights[1..]).then_some(())).await;
    let standing = gate.api.get("/v1/backup").await.ok();
    assert!(standing["last_success_at"].as_str().unwrap().starts_with("2026-01-08T03:"), "{standing}");
    assert!(standing["next_at"].as_str().unwrap().starts_with("2026-01-09T03:"), "{standing}");

    // Down over two nights: one is made up for at the start.
    gate.stop().await;
    gate.clock.advance(hours(50));
    gate.reopen().await;
    eventually("the missed one", async || {
        let name = made(&backups(&gate)).last()?.file_name()?.to_str()?.to_owned();
        name.starts_with("oncegate-20260110T").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_backup_that_fails_is_shown_and_stops_nothing() {
    let gate = Setup::alone("").start().await;
    std::fs::write(backups(&gate), "in the way").unwrap();
    let problem = gate.api.post("/v1/backup", &json!({})).await.problem(503, "backup_failed");
    assert!(problem["detail"].as_str().unwrap().contains("backups"), "{problem}");
    let standing = gate.api.get("/v1/backup").await.ok();
    assert_eq!(standing["last_failure_at"], "2026-01-05T10:00:00.000Z");
    assert!(standing["last_failure"].is_string(), "{standing}");
    gate.api.claim("story", "s_1").await.is("run first");
    std::fs::remove_file(backups(&gate)).unwrap();
    let made = gate.api.post("/v1/backup", &json!({})).await.ok();
    assert_eq!(made["claims"], 1);
    assert_eq!(gate.api.get("/v1/backup").await.ok()["last_failure"], json!(null));
    gate.api.post("/v1/backup", &json!({ "to": "/etc/passwd" })).await.problem(422, "invalid_field");
}

#[tokio::test]
async fn a_removed_payload_is_told_and_run_now_is_refused() {
    let receiver = Receiver::start().await;
    let yaml = crate::harness::WELCOME.replace("ttl: 10m", "ttl: 10m\n    payload_retention: 0s");
    let gate = Setup::new(&yaml, &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    receiver.got("/send", 1).await;
    gate.clock.advance(mins(10));
    gate.advance(mins(1)).await;
    let claim = eventually("its payload is removed", async || {
        gate.clock.advance(mins(10));
        let claim = gate.api.find("welcome", "o_1").await?;
        claim["payload_removed_at"].is_string().then_some(claim)
    })
    .await;
    assert_eq!((&claim["payload"], &claim["processing_state"]), (&json!(null), &json!("done")));
    assert!(claim["result"].is_object() || claim["result"].is_null());
    let id = claim["claim_id"].as_str().unwrap();
    let reset = json!({ "reason": "again", "verified": true, "run_now": true });
    let problem = gate.api.act("reset", id, &reset).await.problem(409, "payload_removed");
    assert!(problem["detail"].as_str().unwrap().contains("payload_retention"), "{problem}");
    let listed = &gate.api.list("automation=welcome").await[0];
    assert_eq!(listed["payload_removed_at"], claim["payload_removed_at"]);
    assert_eq!(gate.api.order(&json!({ "order": "o_1" })).await.ok()["status"], "already accepted");
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn a_nearly_full_store_takes_nothing_new_and_finishes_what_it_has() {
    let gate = Setup::alone("").max_bytes(2 << 20).start().await;
    let mut held = vec![];
    let problem = loop {
        let json = json!({ "automation": "story", "idempotency_key": format!("k{}", held.len()), "payload": "x".repeat(20_000) });
        let said = gate.api.post("/v1/claims", &json).await;
        if said.status != 200 {
            break said.problem(503, "store_unavailable");
        }
        held.push(said.body["done_url"].as_str().unwrap().to_owned());
    };
    assert!(problem["detail"].as_str().unwrap().contains("kept for what runs already"), "{problem}");
    for done_url in &held {
        assert_eq!(gate.api.press(Some(done_url)).await.ok()["answer"], "accepted");
    }
}

fn oncegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncegate")).args(args).env("RUST_BACKTRACE", "0").output().unwrap()
}

fn told(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}{err}")
}

#[tokio::test]
async fn the_command_line_backs_up_a_running_gate_restores_and_ends_the_recovery() {
    let mut gate = Setup::alone("").start().await;
    gate.api.claim("story", "s_1").await;
    let dir = tempfile::Builder::new().prefix("cli-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let data = gate.database().parent().unwrap().to_str().unwrap().to_owned();

    let (copy, new) = (path("copy.db"), path("new"));
    let output = oncegate(&["backup", "--data", &data, "--to", &copy]);
    assert!(output.status.success() && told(&output).contains("1 claims"), "{}", told(&output));
    let output = oncegate(&["backup", "--data", &data, "--to", &copy]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let output = oncegate(&["upgrade", "--check", "--data", &data]);
    assert!(output.status.success() && told(&output).contains("nothing to do"), "{}", told(&output));
    let output = oncegate(&["recovery", "show", "--data", &data]);
    assert!(
        told(&output).contains("a gate runs on") && told(&output).contains("/v1/recovery/end"),
        "{}",
        told(&output)
    );

    let output = oncegate(&["restore", &copy, "--data", &new, "--ephemeral"]);
    assert!(output.status.success() && told(&output).contains("1 claims were open"), "{}", told(&output));
    let output = oncegate(&["restore", &copy, "--data", &new, "--ephemeral"]);
    assert!(!output.status.success() && told(&output).contains("--replace"), "{}", told(&output));
    let output = oncegate(&["restore", &copy, "--data", &new, "--ephemeral", "--replace"]);
    assert!(output.status.success() && told(&output).contains("before-restore-"), "{}", told(&output));
    let output = oncegate(&["recovery", "show", "--data", &new]);
    assert!(told(&output).contains("in recovery since"), "{}", told(&output));
    let output = oncegate(&["recovery", "end", "--data", &new, "--reason", "looked", "--by", "mara"]);
    assert!(told(&output).contains("is ended"), "{}", told(&output));
    let output = oncegate(&["recovery", "show", "--data", &new]);
    assert!(told(&output).contains("not in recovery"), "{}", told(&output));
    let output = oncegate(&["upgrade", "--check", "--data", &path("nothing")]);
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
    gate.stop().await;
}

/// Its database is brought back by its own means, and cannot know that: whoever brought it back says so.
#[tokio::test]
async fn the_command_line_puts_a_restored_database_into_recovery_unless_a_node_runs_on_it() {
    let database = Postgres::shared().database();
    let url = Secret::new(database.url().into_bytes());
    let open = async || {
        let how = Opening {
            node: "a".into(),
            clock: Arc::new(SystemClock::new()),
            simulated: false,
            policies: Arc::new(Book::default()),
            ephemeral: false,
            max_bytes: None,
        };
        open_store(&StoreUrl::Postgres(url.clone()), how, Arc::new(())).await
    };
    let begin = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncegate"));
        command.args(["recovery", "begin", "--from", "dump of Monday"]);
        command.env("ONCEGATE_STORE", database.url()).env("RUST_BACKTRACE", "0");
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let output = begin().await;
    assert!(!output.status.success() && told(&output).contains("no store"), "{}", told(&output));

    let store = open().await.unwrap();
    let automation = AutomationName::try_from("story").unwrap();
    store.set_paused(Workspace::DEFAULT, automation, true, "r".into(), "mia".into()).await.unwrap();
    let lives = async {
        loop {
            store.tick().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let output = tokio::select! {
        output = begin() => output,
        () = lives => unreachable!(),
    };
    assert!(!output.status.success() && told(&output).contains("node `a` runs"), "{}", told(&output));
    assert_eq!(store.recovery().await.unwrap(), None);
    store.close().await;

    let output = begin().await;
    assert!(output.status.success() && told(&output).contains("0 claims were open"), "{}", told(&output));
    let store = open().await.unwrap();
    assert!(store.recovery().await.unwrap().is_some());
    store.close().await;
    let output = begin().await;
    assert!(!output.status.success() && told(&output).contains("--again"), "{}", told(&output));
    assert!(!told(&output).contains("made-up-password"), "{}", told(&output));
}

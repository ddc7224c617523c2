//! `oncegate claim … -- COMMAND`: a command runs once, and the gate knows how it ended.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{PROGRAM, command, run, start, wait};
use crate::harness::{Gate, Setup, eventually, mins};

/// A gate, and a folder in which commands leave their traces.
pub(super) struct Bench {
    pub(super) gate: Gate,
    dir: tempfile::TempDir,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let gate = Setup::alone("automations: { backup: { ttl: 5m } }").start().await;
        Self { gate, dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How often a command ran: it adds a line to the file `ran` each time.
    pub(super) fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("ran")).map_or(0, |text| text.lines().count())
    }

    /// `claim backup KEY flags -- sh -c SCRIPT`, in the folder.
    pub(super) fn once(&self, key: &str, flags: &[&str], script: &str) -> std::process::Command {
        let arguments = [&["claim", "backup", key], flags, &["--", "sh", "-c", script]].concat();
        let mut command = command(&self.gate, &arguments);
        command.current_dir(self.dir.path());
        command
    }

    pub(super) async fn claim(&self, key: &str) -> serde_json::Value {
        self.gate.api.find("backup", key).await.unwrap()
    }
}

pub(super) const COUNT: &str = "echo ran >> ran";

/// Reads what a command prints until one line is this.
fn reads(child: &mut Child, line: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|read| read == line), "it never said `{line}`");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn parallel_starts_run_the_command_once() {
    let bench = Bench::new().await;
    let children: Vec<Child> = (0..6).map(|_| start(bench.once("monday", &[], COUNT))).collect();
    let mut codes: Vec<i32> = children.into_iter().map(|child| wait(child).code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 3, 3, 3, 3, 3]);
    assert_eq!(bench.runs(), 1);
    let claim = bench.claim("monday").await;
    assert_eq!((&claim["processing_state"], &claim["attempt"]), (&json!("done"), &json!(1)));
    // The next morning cron starts it again, with another key.
    assert_eq!(wait(start(bench.once("tuesday", &[], COUNT))).ok(), "");
    assert_eq!(bench.runs(), 2);
}

#[tokio::test]
async fn a_stop_is_told_and_can_be_made_quiet() {
    let bench = Bench::new().await;
    wait(start(bench.once("monday", &[], COUNT))).ok();
    let said = wait(start(bench.once("monday", &[], COUNT))).fails(3);
    assert_eq!(said, "oncegate: stop: duplicate\n");
    assert_eq!(wait(start(bench.once("monday", &["--quiet", "--stop-exit", "0"], COUNT))).ok(), "");
    assert_eq!(bench.runs(), 1);
}

#[tokio::test]
async fn the_commands_status_and_output_are_its_own() {
    let bench = Bench::new().await;
    for (key, script, flags, code, note, due) in [
        ("k1", "echo out; echo err >&2; exit 4", &[][..], 4, "`sh` ended with exit status 4", false),
        ("k2", "exit 75", &["--retryable"], 75, "`sh` ended with exit status 75", true),
        ("k3", "kill -9 $$", &[], 137, "`sh` was ended by signal 9", false),
    ] {
        let ran = wait(start(bench.once(key, flags, script)));
        assert_eq!(ran.code, code, "{ran:?}");
        let claim = bench.claim(key).await;
        assert_eq!((&claim["processing_state"], &claim["note"]), (&json!("error"), &json!(note)));
        assert_eq!(claim["due_at"].is_string(), due, "{claim}");
        if key == "k1" {
            assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
        }
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_left_to_the_next_one() {
    let bench = Bench::new().await;
    let said = run(&bench.gate, &["claim", "backup", "k1", "--", "no-such-program-anywhere"]).fails(127);
    assert!(said.contains("cannot be started"), "{said}");
    let claim = bench.claim("k1").await;
    assert_eq!(claim["processing_state"], "error");
    assert!(claim["due_at"].is_string(), "nothing happened, so it may be tried again: {claim}");
    let folder = bench.path("");
    run(&bench.gate, &["claim", "backup", "k2", "--", folder.to_str().unwrap()]).fails(126);
}

#[tokio::test]
async fn the_command_knows_its_claim_and_may_finish_it_itself() {
    let bench = Bench::new().await;
    let script = format!(
        "{PROGRAM} done --result \"$ONCEGATE_IDEMPOTENCY_KEY/$ONCEGATE_ATTEMPT/$ONCEGATE_RUN_REASON\""
    );
    let out = wait(start(bench.once("monday", &[], &script))).ok();
    assert_eq!(out, "backup monday: done\n");
    assert_eq!(bench.claim("monday").await["result"], "monday/1/first");
    let script = format!("{PROGRAM} error \"$ONCEGATE_ERROR_URL\" --note 'no disk' --retryable; exit 1");
    assert_eq!(wait(start(bench.once("tuesday", &[], &script))).code, 1);
    let claim = bench.claim("tuesday").await;
    assert_eq!(claim["note"], "no disk", "what the command said first stands");
    assert!(claim["due_at"].is_string());
}

#[tokio::test]
async fn signals_are_passed_on_and_the_command_decides() {
    let bench = Bench::new().await;
    for (key, sent, name) in
        [("k1", Signal::TERM, "TERM"), ("k2", Signal::INT, "INT"), ("k3", Signal::HUP, "HUP")]
    {
        let script = format!("trap 'exit 7' {name}; echo ready; for n in $(seq 600); do sleep 0.05; done");
        let mut child = start(bench.once(key, &[], &script));
        reads(&mut child, "ready");
        signal(&child, sent);
        assert_eq!(wait(child).code, 7, "{name}");
        assert_eq!(bench.claim(key).await["note"], "`sh` ended with exit status 7");
    }
}

#[tokio::test]
async fn a_killed_wrapper_leaves_a_stuck_claim_and_never_a_second_run() {
    let bench = Bench::new().await;
    let script = "echo ran >> ran; echo $$ > pid; echo ready; for n in $(seq 600); do sleep 0.05; done";
    let mut child = start(bench.once("monday", &[], script));
    reads(&mut child, "ready");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bench.claim("monday").await["processing_state"], "processing");
    wait(start(bench.once("monday", &[], COUNT))).fails(3);
    assert_eq!(bench.gate.api.keys_in("stuck").await, Vec::<String>::new());
    bench.gate.advance(mins(6)).await;
    assert_eq!(bench.gate.api.keys_in("stuck").await, ["monday"]);
    let page = run(&bench.gate, &["list", "--inbox"]).ok();
    assert!(page.contains("→ oncegate show backup monday"), "{page}");
    assert_eq!(bench.runs(), 1);
    let pid = std::fs::read_to_string(bench.path("pid")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn heartbeats_keep_a_long_command_alive() {
    let bench = Bench::new().await;
    let script = "echo ran >> ran; until [ -e enough ]; do sleep 0.05; done";
    let child = start(bench.once("monday", &["--heartbeat", "1s"], script));
    eventually("it runs", async || (bench.runs() == 1).then_some(())).await;
    for _ in 0..3 {
        bench.gate.advance(mins(4)).await;
        let now = bench.gate.now().to_string();
        eventually("a heartbeat", async || (bench.claim("monday").await["updated_at"] == now).then_some(()))
            .await;
    }
    assert_eq!(
        bench.gate.api.claim("backup", "monday").await.words(),
        "stop in_progress",
        "after 12 min with a TTL of 5"
    );
    std::fs::write(bench.path("enough"), "").unwrap();
    assert_eq!(wait(child).ok(), "");
    assert_eq!(bench.claim("monday").await["processing_state"], "done");
}

#[tokio::test]
async fn who_lost_the_claim_is_asked_to_stop() {
    let bench = Bench::new().await;
    let script = "trap 'exit 9' TERM; echo ready; for n in $(seq 600); do sleep 0.05; done";
    let mut child = start(bench.once("monday", &["--heartbeat", "1s", "--run-id", "host-a"], script));
    reads(&mut child, "ready");
    let id = bench.claim("monday").await["claim_id"].as_str().unwrap().to_owned();
    run(&bench.gate, &["reset", &id, "--reason", "host-a is gone", "--confirm-holder", "host-a"]).ok();
    let ran = wait(child);
    assert_eq!(ran.code, 9, "{ran:?}");
    assert!(ran.err.contains("lost_claim") && ran.err.contains("SIGTERM"), "{}", ran.err);
}

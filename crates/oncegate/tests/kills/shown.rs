//! `oncegate demo`: what it shows, that it can fail, and that it leaves nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Ground, PROGRAM};

/// Runs the demo as in somebody's shell, with settings there that are not meant for it.
fn demo(test: &str, args: &[&str]) -> Output {
    let ground = Ground::new(test);
    let tmp = ground.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let start = Instant::now();
    let mut command = Command::new(PROGRAM);
    command.arg("demo").args(args).env("TMPDIR", &tmp).env("ONCEGATE_CONFIG", "/nowhere.yaml");
    command.env("ONCEGATE_STORE", "sqlite:/nowhere").env("ONCEGATE_FAILPOINT", "admit.committed@1");
    let output = command.output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
    let left: Vec<_> = fs::read_dir(&tmp).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_demo_shows_that_both_books_agree() {
    let output = demo("demo", &[]);
    let page = text(&output.stdout);
    assert!(output.status.success(), "{page}\n{}", text(&output.stderr));
    assert!(page.contains("agree: 4 events, 4 effects"), "{page}");
    let widest = page.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "{widest} columns\n{page}");
    assert!(!page.contains('\u{1b}'), "no colour carries meaning\n{page}");
}

#[test]
fn the_demo_as_json_has_the_same_table() {
    let output = demo("demo-json", &["--json"]);
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{page}");
    assert_eq!(page["agree"], true);
    for row in page["scenarios"].as_array().unwrap() {
        assert_eq!((&row["effects"], &row["state"]), (&1.into(), &"done".into()), "{row}");
        assert_eq!(row["attempts"], row["requests"], "{row}");
    }
    assert_eq!(page["scenarios"].as_array().unwrap().len(), 4);
}

#[test]
fn the_demo_fails_when_the_books_disagree() {
    for (sabotage, seen) in
        [("no-dedupe", "the receiver counted 2 effects; one was meant"), ("lose-line", "the receiver saw 0")]
    {
        let output = demo(&format!("demo-{sabotage}"), &["--sabotage", sabotage]);
        let page = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{sabotage}: {page}\n{}", text(&output.stderr));
        assert!(page.contains("NOT AS IT MUST BE") && page.contains(seen), "{sabotage}: {page}");
    }
}

#[test]
fn a_demo_that_is_stopped_leaves_no_process_and_no_file() {
    let ground = Ground::new("demo-stopped");
    let tmp = ground.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let mut demo = Command::new(PROGRAM)
        .arg("demo")
        .env("TMPDIR", &tmp)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("kill -9")), "it ended too early");
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "files were left behind");
    // Every process of the demo has its directory in its command line. Only Linux lists them as files.
    let mark = tmp.to_string_lossy().into_owned();
    let left = fs::read_dir("/proc").into_iter().flatten().filter_map(|process| {
        let line = fs::read_to_string(process.ok()?.path().join("cmdline")).ok()?;
        line.contains(&mark).then_some(line)
    });
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new(), "processes were left behind");
}

//! `oncegate doctor`, beside a running gate and without one.
#![expect(clippy::disallowed_methods, reason = "this test makes and damages what doctor looks at")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::program::{Program, doctor};

/// What it said of each check, and its exit status.
fn ask(dir: &Path, args: &[&str]) -> (Value, Option<i32>) {
    let output = doctor(dir, &[&["--json"], args].concat());
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let problems = document["problems"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{document}");
    (document, output.status.code())
}

#[track_caller]
fn is(document: &Value, check: &str, mark: &str) {
    let found = document["checks"].as_array().unwrap().iter().find(|c| c["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no check {check} in {document}"));
    assert_eq!(found["mark"], mark, "{found}");
    assert_eq!(found["mend"].is_string(), mark == "warn" || mark == "problem", "{found}");
}

#[tokio::test]
async fn it_looks_at_a_gate_that_runs_and_at_what_one_leaves_behind() {
    let dir = tempfile::Builder::new().prefix("doctor-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(dir.path().join("oncegate.yaml"), "public_url: http://hooks.example.com\n").unwrap();
    let (before, _) = ask(dir.path(), &[]);
    for check in ["gate", "permissions", "sync", "durability", "schema", "integrity", "backup"] {
        is(&before, check, "skipped");
    }
    assert!(!dir.path().join("data").exists(), "it makes nothing");

    let program = Program::serve(dir.path(), &[], &[]);
    program.api.claim("a", "k").await.is("run first");
    let (running, _) = ask(dir.path(), &["--url", program.api.base()]);
    for check in ["gate", "configuration", "permissions", "durability", "schema", "integrity"] {
        is(&running, check, "ok");
    }
    is(&running, "public_url", "warn");
    is(&running, "backup", "warn");
    program.api.claim("a", "k").await.is("stop in_progress");
    let base = program.api.base().to_owned();
    tokio::task::spawn_blocking(move || program.stop()).await.unwrap();

    let (stopped, code) = ask(dir.path(), &["--url", &base]);
    is(&stopped, "gate", "problem");
    assert_eq!(code, Some(1));
    is(&stopped, "integrity", "ok");
    is(&stopped, "clock and store", "ok");

    let data = dir.path().join("data");
    let bits =
        |path: &Path, bits| std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).unwrap();
    bits(&data, 0o755);
    bits(&data.join("oncegate.db"), 0o644);
    is(&ask(dir.path(), &[]).0, "permissions", "problem");
    // A page that a failing disk has changed: the first that belongs to an index (its first byte says so), and so
    // holds no part of the schema.
    let database = data.join("oncegate.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes.chunks_exact_mut(4096).find(|page| page[0] == 0x0a).unwrap().fill(0xa5);
    std::fs::write(&database, bytes).unwrap();
    is(&ask(dir.path(), &[]).0, "integrity", "problem");
    std::fs::write(&database, "this is no database, though somebody put it here").unwrap();
    is(&ask(dir.path(), &[]).0, "durability", "problem");
    std::fs::write(dir.path().join("oncegate.yaml"), "sorces: {}\n").unwrap();
    let (slip, _) = ask(dir.path(), &[]);
    is(&slip, "configuration", "problem");
}

#[test]
fn it_speaks_to_people() {
    let dir = tempfile::Builder::new().prefix("doctor-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = doctor(dir.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n  skipped  gate "), "{text}");
    assert!(text.contains("15 checks: "), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe: {text}");
}

//! Exit statuses, messages, help: what scripts and newcomers rely on.

use std::io::Read;

use serde_json::{Value, json};

use super::{PROGRAM, bare, command, ended, run, start};
use crate::harness::{ADMIN, Setup};

#[tokio::test]
async fn exit_statuses_are_as_promised() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let done = gate.api.claim("story", "finished").await;
    gate.api.done(&done).await.ok();
    let told = run(&gate, &["claim", "story", "k1"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    let stopped = run(&gate, &["claim", "story", "k1"]);
    assert_eq!((stopped.code, stopped.err.as_str()), (3, ""), "{stopped:?}");
    assert!(stopped.out.starts_with("stop: in progress\n"), "{}", stopped.out);

    let nowhere = "http://127.0.0.1:9";
    let id = "0".repeat(32);
    for (arguments, code, says) in [
        (vec!["check", "--config", "absent.yaml"], 1, "absent.yaml"),
        (vec!["list", "--inbox", "nonsense"], 2, "possible values"),
        (vec!["claim", "story"], 2, "<KEY>"),
        (vec!["list", "--url", "ftp://a"], 2, "ONCEGATE_URL"),
        (vec!["show", "only-a-name"], 2, "32 hexadecimal digits"),
        (vec!["done"], 2, "ONCEGATE_DONE_URL"),
        (vec!["reset", "story", "k1"], 2, "--reason"),
        (vec!["show", "story", "unheard-of"], 4, "no claim with the key"),
        (vec!["show", &id], 4, "not_found"),
        (vec!["show", "--delivery", "77"], 4, "not_found"),
        (vec!["pause", "unheard-of", "--reason", "x"], 4, "not_found"),
        (vec!["claim", "story", "a\nb"], 5, "idempotency_key"),
        (vec!["reset", "story", "finished", "--reason", "x"], 5, "needs_verified"),
        (vec!["reset", "story", "k1", "--reason", "x"], 5, "live_holder"),
        (vec!["run-now", "story", "k1", "--reason", "x"], 5, "409"),
        (vec!["list", "--url", nowhere], 6, "oncegate serve"),
        (vec!["list", "--inbox", "--url", nowhere], 6, "ONCEGATE_URL"),
        (vec!["claim", "story", "k2", "--url", nowhere], 6, "--run-id"),
    ] {
        let said = run(&gate, &arguments).fails(code);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    for token in [Some("oga_wrong"), None, Some(" ")] {
        let mut asked = bare(&["list"]);
        asked.env("ONCEGATE_URL", gate.api.base()).envs(token.map(|token| ("ONCEGATE_TOKEN", token)));
        let said = ended(asked).fails(7);
        assert!(said.contains("set ONCEGATE_TOKEN, or pass --token-file"), "{said}");
    }
}

#[tokio::test]
async fn a_token_comes_from_a_file_as_well() {
    let gate = Setup::alone("").start().await;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{ADMIN}\n")).unwrap();
    let with = |path: &str| bare(&["list", "--url", gate.api.base(), "--token-file", path]);
    assert_eq!(ended(with(file.to_str().unwrap())).ok(), "No claim fits.\n");
    let said = ended(with("absent")).fails(2);
    assert!(said.contains("--token-file") && said.contains("absent"), "{said}");
    // What is wrong with it is told without showing it.
    std::fs::write(&file, "hush\u{1}hush").unwrap();
    let said = ended(with(file.to_str().unwrap())).fails(7);
    assert!(!said.contains("hush"), "{said}");
}

/// Verbs as `--help` lists them.
fn verbs(of: &[&str]) -> Vec<String> {
    let help = ended(bare(&[of, &["--help"]].concat())).ok();
    // The first page has several groups, each under a heading of its own; those below have one.
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    lines
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned))
        .filter(|v| !v.is_empty())
        .collect()
}

#[test]
fn every_verb_shows_an_example_and_the_statuses_are_in_the_help() {
    let found = verbs(&[]);
    assert!(found.len() >= 20, "{found:?}");
    for verb in &found {
        let help = ended(bare(&[verb, "--help"])).ok();
        assert!(
            help.contains(&format!("\n  oncegate {verb} "))
                || help.contains(&format!("\n  oncegate {verb}\n")),
            "{help}"
        );
        let lines = help.lines().map(|line| line.chars().count()).max();
        assert!(lines <= Some(140), "{verb}: {lines:?}");
        assert!(!help.contains("\u{1b}"), "{verb}");
    }
    assert_eq!(verbs(&["key"]), ["preview"]);
    let help = ended(bare(&["--help"])).ok();
    let (before, _) = help.split_once("\nOptions:").unwrap();
    assert_eq!(before.matches("\n  list ").count(), 1, "{help}");
    assert!(!help.contains("\nOthers:"), "a verb is in no group: {help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for status in 0..=7 {
        assert!(help.contains(&format!("\n  {status}  ")), "{help}");
        assert!(page.contains(&format!("\n| {status} | ")), "docs/cli.md says nothing about {status}");
    }
    for verb in found.iter().filter(|verb| !matches!(verb.as_str(), "serve" | "demo")) {
        assert!(page.contains(&format!("oncegate {verb}")), "docs/cli.md says nothing about {verb}");
    }
}

#[tokio::test]
async fn json_is_the_gates_own() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let out = run(&gate, &["claim", "story", "k1", "--json"]).ok();
    let claimed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&claimed["decision"], &claimed["reason"]), (&json!("run"), &json!("first")));
    assert!(claimed["token"].as_str().unwrap().starts_with("ogt_"));
    let id = claimed["claim_id"].as_str().unwrap();
    for (arguments, path) in [
        (vec!["list", "--json"], "/v1/claims?limit=50".to_owned()),
        (vec!["list", "--all", "--json"], "/v1/claims".to_owned()),
        (vec!["list", "--inbox", "rejected", "--json"], "/v1/rejected".to_owned()),
        (vec!["show", "story", "k1", "--json"], format!("/v1/claims/{id}")),
        (vec!["show", id, "--json"], format!("/v1/claims/{id}")),
        (vec!["audit", "--json"], "/v1/audit".to_owned()),
    ] {
        let out = run(&gate, &arguments).ok();
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(shown, gate.api.get(&path).await.ok(), "{arguments:?}");
        assert!(out.ends_with('\n'));
    }
    let out = run(&gate, &["list", "--inbox", "--json"]).ok();
    let page: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(page["counts"], gate.api.get("/v1/inbox").await.ok());
    assert_eq!(page["error"], json!([]));
}

#[tokio::test]
async fn a_closed_pipe_ends_quietly() {
    let gate = Setup::alone("").start().await;
    for n in 0..20 {
        gate.api.claim("story", &format!("s_{n}")).await;
    }
    for arguments in
        [&["list"][..], &["list", "--json"], &["list", "--inbox", "--watch", "1"], &["completions", "bash"]]
    {
        let mut child = start(command(&gate, arguments));
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_program_is_named_after_itself() {
    assert!(PROGRAM.ends_with("oncegate"));
    let said = ended(bare(&["--version"])).ok();
    assert!(said.starts_with("oncegate "), "{said}");
}

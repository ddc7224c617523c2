//! `oncegate token`, `workspace`, `person`, `forget`: who may call, and whose everything is.

use serde_json::{Value, json};

use super::{bare, ended, run};
use crate::harness::{Gate, Setup};

async fn gate() -> Gate {
    Setup::alone("automations: { welcome: {} }").start().await
}

/// The token that `token create` printed.
fn shown(out: &str) -> String {
    let words: Vec<&str> = out.split_whitespace().filter(|word| word.starts_with("oga_")).collect();
    assert_eq!(words.len(), 1, "{out}");
    words[0].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_used_listed_and_revoked() {
    let gate = gate().await;
    let made = run(&gate, &["token", "create", "Zap", "--role", "caller", "--automation", "welcome"]).ok();
    assert!(made.starts_with("Zap (caller, automations: welcome), number 2."), "{made}");
    let as_zap = |arguments: &[&str]| {
        let mut command = bare(arguments);
        command.env("ONCEGATE_URL", gate.api.base()).env("ONCEGATE_TOKEN", shown(&made));
        ended(command)
    };
    as_zap(&["claim", "welcome", "k"]).ok();
    as_zap(&["list"]).fails(7);
    let listed = run(&gate, &["token", "list"]).ok();
    assert!(listed.contains("Zap") && listed.contains("welcome") && !listed.contains("oga_"), "{listed}");
    assert_eq!(run(&gate, &["token", "revoke", "2", "--reason", "leaked"]).ok(), "Zap: revoked.\n");
    as_zap(&["claim", "welcome", "k2"]).fails(7);
    let said = run(&gate, &["token", "revoke", "1", "--reason", "r"]).fails(5);
    assert!(said.contains("--although-last-admin"), "{said}");
    run(&gate, &["token", "revoke", "99", "--reason", "r"]).fails(4);
    run(&gate, &["token", "create", "x", "--role", "root"]).fails(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_made_worked_in_exported_and_deleted() {
    let gate = gate().await;
    assert_eq!(run(&gate, &["workspace", "create", "acme"]).ok(), "acme: made.\n");
    assert_eq!(run(&gate, &["workspace", "create", "acme"]).ok(), "acme: was there already.\n");
    run(&gate, &["claim", "welcome", "theirs", "--workspace", "acme"]).ok();
    assert_eq!(run(&gate, &["list"]).ok(), "No claim fits.\n");
    let names = run(&gate, &["workspace", "list"]).ok();
    assert!(names.contains("default") && names.contains("acme"), "{names}");
    let exported = run(&gate, &["workspace", "export", "acme"]).ok();
    let rows: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.last().unwrap()["claims"], 1);
    let delete = ["workspace", "delete", "acme", "--confirm", "acme", "--reason", "left"];
    run(&gate, &delete).fails(5);
    let deleted = run(&gate, &[&delete[..], &["--although-live"]].concat()).ok();
    assert_eq!(deleted, "acme: deleted, with 1 claims, 0 deliveries and 0 tokens.\n");
    run(&gate, &["workspace", "export", "acme"]).fails(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_handed_out_counted_and_forgotten() {
    let gate = gate().await;
    let held = gate
        .api
        .claim_with(&json!({ "automation": "welcome", "idempotency_key": "k", "payload": { "email": "ann@x.example" } }))
        .await;
    gate.api.done(&held).await.ok();
    let handed = run(&gate, &["person", "--match", "email=Ann@x.example"]).ok();
    assert!(handed.lines().count() == 2 && handed.contains("ann@x.example"), "{handed}");
    let forget = ["forget", "--match", "email=ann@x.example", "--reason", "ticket 4711"];
    let counted = run(&gate, &forget).ok();
    assert!(counted.starts_with("Would be forgotten: 1 claims, 0 deliveries."), "{counted}");
    let done = run(&gate, &[&forget[..], &["--yes"]].concat()).ok();
    assert_eq!(done, "1 claims and deliveries are forgotten.\n");
    assert_eq!(run(&gate, &["person", "--match", "email=ann@x.example"]).ok().lines().count(), 1);
    run(&gate, &["forget", "--match", "email", "--reason", "r"]).fails(2);
    run(&gate, &["forget", "--match", "email=a@x.example", "--reason", "for a@x.example", "--yes"]).fails(5);
    let csv = run(&gate, &["audit", "--export", "csv", "--action", "forget"]).ok();
    assert!(csv.lines().count() == 2 && csv.contains("ticket 4711") && !csv.contains("ann@"), "{csv}");
    assert_eq!(run(&gate, &["audit", "--actor", "nobody at all"]).ok(), "No act fits.\n");
}

//! Finishing claims and acting on them from a terminal.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use super::{Ran, command, ended, run};
use crate::harness::{Gate, Receiver, Setup, WELCOME, eventually, mins};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

/// Runs a command that reads this.
fn fed(gate: &Gate, arguments: &[&str], stdin: &str) -> Ran {
    let mut command = command(gate, arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[tokio::test]
async fn a_claim_is_finished_by_url_by_its_answer_or_by_id() {
    let gate = gate().await;
    let state = async |key: &str| gate.api.find("story", key).await.unwrap();

    let claimed = gate.api.claim("story", "k1").await;
    // Any of the three URLs will do, and no token of the API is needed.
    let mut asked = super::bare(&[
        "done",
        claimed.heartbeat_url.as_deref().unwrap(),
        "--result",
        "{\"contact\":\"crm-7\"}",
    ]);
    asked.env("ONCEGATE_URL", gate.api.base());
    assert_eq!(ended(asked).ok(), "story k1: done\n");
    assert_eq!(state("k1").await["result"], json!({ "contact": "crm-7" }));
    assert_eq!(
        run(&gate, &["done", claimed.done_url.as_deref().unwrap()]).ok(),
        "story k1: done, as it was\n"
    );

    let answer = run(&gate, &["claim", "story", "k2", "--json"]).ok();
    assert_eq!(fed(&gate, &["heartbeat", "-"], &answer).ok(), "story k2: processing\n");
    assert_eq!(
        fed(&gate, &["error", "-", "--note", "the CRM said 503", "--retryable"], &answer).ok(),
        "story k2: error\n"
    );
    let failed = state("k2").await;
    assert_eq!((&failed["note"], failed["due_at"].is_string()), (&json!("the CRM said 503"), true));
    let stopped = run(&gate, &["claim", "story", "k2", "--json"]).out;
    let said = fed(&gate, &["done", "-"], &stopped).fails(2);
    assert!(said.contains("answered with stop"), "{said}");

    let claimed = gate.api.claim("story", "k3").await;
    let said = run(&gate, &["done", &claimed.claim_id]).fails(2);
    assert!(said.contains("ONCEGATE_CLAIM_TOKEN"), "{said}");
    let mut asked = command(&gate, &["done", &claimed.claim_id]);
    asked.env("ONCEGATE_CLAIM_TOKEN", claimed.token());
    assert_eq!(ended(asked).ok(), "story k3: done\n");
}

#[tokio::test]
async fn tokens_of_claims_are_not_shown_in_messages() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "k1").await;
    gate.advance(mins(11)).await;
    gate.api.claim("story", "k1").await.is("run stale_retry");
    let said = run(&gate, &["done", claimed.done_url.as_deref().unwrap()]).fails(5);
    assert!(said.contains("lost_claim") && !said.contains("ogt_"), "{said}");
    for url in
        ["http://127.0.0.1:9/v1/claims/x/done?token=ogt_hush", "http://127.0.0.1:9/nonsense?token=ogt_hush"]
    {
        let ran = run(&gate, &["done", url]);
        assert!(ran.code != 0 && !ran.err.contains("ogt_hush"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_claim_says_what_it_takes() {
    let gate = gate().await;
    let flags = [
        "claim",
        "story",
        "--key-field",
        "form_id=f1",
        "--key-field",
        "submission_id=8812",
        "--record",
        "crm:ann",
        "--run-id",
        "run-1",
        "--run-url",
        "https://zapier.com/runs/1",
        "--payload",
        "{\"a\":1}",
        "--ttl",
        "7m",
        "--wait",
        "1",
    ];
    let out = run(&gate, &flags).ok();
    assert!(out.starts_with("run: first\n") && out.contains("done_url"), "{out}");
    let claim = gate.api.find("story", "form_id=f1:submission_id=8812").await.unwrap();
    let said = (&claim["record"], &claim["holder"], &claim["run_url"], &claim["payload"]);
    assert_eq!(
        said,
        (&json!("crm:ann"), &json!("run-1"), &json!("https://zapier.com/runs/1"), &json!({ "a": 1 }))
    );
    let other = run(&gate, &["claim", "story", "form_id=f1:submission_id=8812", "--payload", "{\"a\":2}"]);
    assert_eq!(other.code, 3);
    assert!(other.out.starts_with("stop: payload mismatch\n"), "{}", other.out);
    let said = run(&gate, &["claim", "story", "k", "--payload", "{a"]).fails(2);
    assert!(said.contains("--payload is not JSON"), "{said}");
    assert!(fed(&gate, &["claim", "story", "k", "--payload", "-"], "[1]").out.starts_with("run: first\n"));
}

#[tokio::test]
async fn people_act_by_key_with_name_and_reason() {
    let gate = gate().await;
    let failed = gate.api.claim("story", "k1").await;
    gate.api.error(&failed, &json!({ "note": "boom" })).await.ok();
    for (arguments, says) in [
        (vec!["reset", "story", "k1"], "story k1: none; replay its run where it came from\n"),
        (vec!["mark-error", "story", "k1", "--tag", "mass-duplicate"], "story k1: error\n"),
        (vec!["mark-done", "story", "k1"], "story k1: done\n"),
        (vec!["reset", "story", "k1", "--verified"], "story k1: none; replay its run where it came from\n"),
        (vec!["dismiss", &failed.claim_id], "story k1: none, dismissed\n"),
        (vec!["pause", "story"], "story: paused. Webhooks are still taken; nothing starts.\n"),
        (vec!["pause", "story"], "story: was paused already.\n"),
        (vec!["resume", "story", "--by", "Bob"], "story: resumed. What waits starts.\n"),
        (vec!["resume", "story"], "story: was not paused.\n"),
    ] {
        assert_eq!(
            run(&gate, &[&arguments[..], &["--reason", "because"]].concat()).ok(),
            says,
            "{arguments:?}"
        );
    }
    let told = run(&gate, &["audit"]).ok();
    assert_eq!(
        told.matches("ann (token:").count() + told.matches("Bob (token:").count(),
        told.matches("because").count(),
        "{told}"
    );
    assert!(told.contains("Bob (token:") && told.contains("mark error"), "{told}");
}

#[tokio::test]
async fn a_refusal_says_the_command_that_is_not_refused() {
    let gate = gate().await;
    let held = json!({ "automation": "story", "idempotency_key": "it's held", "run_id": "zap 1" });
    gate.api.claim_with(&held).await.is("run first");
    let done = gate.api.claim("story", "finished").await;
    gate.api.done(&done).await.ok();
    for (key, flag) in [("it's held", "--confirm-holder 'zap 1'"), ("finished", "--verified")] {
        let said = run(&gate, &["reset", "story", key, "--reason", "x"]).fails(5);
        let told = said.lines().find_map(|line| line.split_once(": oncegate ")).unwrap().1;
        assert!(told.ends_with(flag), "{said}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{} {told}", super::PROGRAM)]);
        shell.envs(command(&gate, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = Ran::from(shell.output().unwrap()).ok();
        assert!(out.contains(": none"), "{out}");
    }
}

#[tokio::test]
async fn oncegates_own_work_is_started_and_released() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).start().await;
    gate.api.pause("welcome").await.ok();
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    gate.api.resume("welcome").await.ok();
    let done = async |key: &str| {
        gate.api.find("welcome", key).await.filter(|claim| claim["processing_state"] == "done")
    };
    eventually("it is done", async || done("o_1").await).await;
    run(&gate, &["reset", "welcome", "o_1", "--verified", "--reason", "sent to the wrong list"]).ok();
    assert_eq!(
        run(&gate, &["run-now", "welcome", "o_1", "--reason", "x"]).ok(),
        "welcome o_1: none, starts now\n"
    );
    eventually("it is done again", async || done("o_1").await).await;
    assert_eq!(receiver.requests().len(), 2);

    gate.api.order(&json!({ "id": "o_2" })).await.ok();
    run(&gate, &["release", "2", "--reason", "too early"]).fails(5);
    gate.restart_with(|yaml| yaml.replace("key: [order]", "key: [id]")).await;
    assert_eq!(
        run(&gate, &["release", "2", "--reason", "key corrected"]).ok(),
        "delivery 2: accepted, 1 event\n"
    );
}

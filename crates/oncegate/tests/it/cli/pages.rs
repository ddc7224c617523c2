//! What people see: tables that fit, the inbox page, one claim's story.

use std::io::{BufRead, BufReader};

use serde_json::json;
use unicode_width::UnicodeWidthStr;

use super::{command, ended, run, start, without_ids};
use crate::harness::{Gate, Receiver, Reply, Setup, WELCOME, eventually, hours, mins, secs};

/// A gate on which each inbox list has something, at different ages.
async fn busy() -> (Gate, Receiver) {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let api = &gate.api;
    let payload =
        |key: &str, n: u32| json!({ "automation": "scoring", "idempotency_key": key, "payload": n });
    let late = api.claim("scoring", "late-1").await;
    let failed = api.claim("welcome-mail", "contact-form:8812").await;
    api.error(&failed, &json!({ "note": "the CRM says that there is no such contact" })).await.ok();
    api.claim_with(&payload("form:7", 1)).await;
    gate.advance(mins(16)).await;
    for key in ["late-1", "form:7"] {
        api.done(api.claim("scoring", key).await.is("run stale_retry")).await.ok();
    }
    api.done(&late).await.problem(409, "lost_claim");
    api.claim_with(&payload("form:7", 2)).await.is("stop payload_mismatch");
    api.claim("scoring", "contact-form:日本語の鍵:👩‍💻").await;
    api.pause("scoring").await.ok();
    let held = json!({ "automation": "scoring", "idempotency_key": "held", "run_url": "https://zapier.com/runs/77" });
    api.claim_with(&held).await.is("stop paused");
    gate.advance(hours(3)).await;
    let due = api.claim("welcome-mail", "contact-form:8813").await;
    let note =
        "503 from the CRM: Service Unavailable, please come back later, it is being moved to another house";
    api.error(&due, &json!({ "note": note, "retryable": true, "retry_after": "10m" })).await.ok();
    api.order(&json!({ "ordr": 1 })).await.ok();
    gate.advance(secs(90)).await;
    (gate, receiver)
}

#[tokio::test]
async fn the_inbox_page_says_how_much_how_old_and_what_to_type() {
    let (gate, _receiver) = busy().await;
    let page =
        without_ids(&run(&gate, &["list", "--inbox"]).ok()).replace(gate.api.base(), "http://127.0.0.1:7480");
    let head = page.lines().nth(1).unwrap();
    assert!(
        head.starts_with("  oncegate inbox  http://127.0.0.1:7480  ") && head.ends_with("13:17:30 UTC"),
        "{head}"
    );
    let rest: Vec<&str> = page.lines().skip(2).collect();
    let expected = "
  stuck 1    error 2    mismatch 1    parked 1    rejected 1    late 1

  STUCK  went silent past its TTL: look, then reset or dismiss
      3 h  scoring  contact-form:日本語の鍵:👩‍💻
           → oncegate show scoring 'contact-form:日本語の鍵:👩‍💻'

  ERROR  failed: what is due runs again, the rest waits for you
      3 h  welcome-mail  contact-form:8812
           the CRM says that there is no such contact
           → oncegate reset welcome-mail contact-form:8812 --reason '…'
    1 min  welcome-mail  contact-form:8813
           due in 9 min; 503 from the CRM: Service Unavailable, please come bac…
           nothing to do before that

  MISMATCH  one key came with two payloads: compare them, then dismiss
      3 h  scoring  form:7
           → oncegate show scoring form:7

  PARKED  held back: it runs only if somebody starts it
      3 h  scoring  held
           needs replay
           → replay its run: https://zapier.com/runs/77

  REJECTED  webhooks that could not run: mend the source, then release
    1 min  orders  delivery 1, rejected
           `order` is missing; check the source's `key` against a real request
           → oncegate release 1 --reason '…'

  LATE  finished after it was taken over: look for a double effect
      3 h  scoring  late-1
           → oncegate show scoring late-1";
    assert_eq!(rest.join("\n"), expected, "\n{page}");
    assert!(page.lines().all(|line| line.width() <= 80), "{page}");

    let one = run(&gate, &["list", "--inbox", "--automation", "Welcome-Mail"]).ok();
    assert!(one.contains("stuck 0    error 2    mismatch 0    parked 0    rejected 0    late 0"), "{one}");
    let cut = run(&gate, &["list", "--inbox", "--limit", "1"]).ok();
    assert!(cut.contains("1 more: oncegate list --inbox error --all"), "{cut}");
    assert!(cut.contains("8812") && !cut.contains("8813"), "the oldest comes first: {cut}");
}

#[tokio::test]
async fn the_commands_of_the_inbox_can_be_typed() {
    let (gate, _receiver) = busy().await;
    let page = run(&gate, &["list", "--inbox"]).ok();
    let told: Vec<&str> = page.lines().filter_map(|line| line.trim().strip_prefix("→ oncegate ")).collect();
    assert_eq!(told.len(), 5, "{page}");
    for line in told.iter().filter(|line| !line.starts_with("release")) {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{} {line}", super::PROGRAM)]);
        shell.envs(command(&gate, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = super::Ran::from(shell.output().unwrap()).ok();
        assert!(!out.is_empty(), "{line}");
    }
    assert_eq!(gate.api.keys_in("stuck").await.len(), 1, "to be looked at, not reset unseen");
    assert_eq!(gate.api.keys_in("error").await, ["contact-form:8813"], "the other one was reset");
}

#[tokio::test]
async fn an_empty_inbox_is_one_calm_line() {
    let gate = Setup::alone("").start().await;
    let page = run(&gate, &["list", "--inbox"]).ok();
    assert_eq!(page, format!("  Nothing needs a person. {}, 2026-01-05 10:00:00 UTC\n", gate.api.base()));
}

#[tokio::test]
async fn tables_fit_the_window_whatever_stands_in_them() {
    let (gate, _receiver) = busy().await;
    gate.api.claim("scoring-of-very-long-names-in-a-very-long-flow", &"k".repeat(300)).await;
    let list = without_ids(&run(&gate, &["list"]).ok());
    let expected = "\
\x20   AGE  STATE       AUTOMATION           KEY                 NOTE
    0 s  processing  scoring-of-very-lo…  kkkkkkkkk…kkkkkkkk
  1 min  error       welcome-mail         contact-form:8813   due in 9 min; 503…
    3 h  none        scoring              held                needs replay
    3 h  processing  scoring              contact-f…の鍵:👩‍💻
    3 h  done        scoring              form:7
    3 h  error       welcome-mail         contact-form:8812   the CRM says that…
    3 h  done        scoring              late-1
";
    assert_eq!(list, expected, "\n{list}");
    for width in [40, 60, 80, 120, 200] {
        for arguments in [
            &["list"][..],
            &["list", "--inbox"],
            &["list", "--inbox", "rejected"],
            &["list", "--group"],
            &["automations"],
            &["notices"],
            &["audit"],
        ] {
            let mut asked = command(&gate, arguments);
            asked.env("COLUMNS", width.to_string());
            let page = ended(asked).ok();
            // Below 60 columns the fixed ones alone may take more than there is.
            let wide = page.lines().filter(|line| width >= 60 && line.width() > width).count();
            assert_eq!(wide, 0, "{width}:\n{page}");
        }
    }
    let mut asked = command(&gate, &["list"]);
    let wide = ended({
        asked.env("COLUMNS", "200");
        asked
    });
    let wide = wide.ok();
    assert!(wide.lines().next().unwrap().contains("CLAIM"), "a wide window has room for ids: {wide}");
    // In a pipe nothing is cut: it is searched, not looked at.
    for arguments in [&["list"][..], &["list", "--inbox"]] {
        let mut asked = command(&gate, arguments);
        asked.env_remove("COLUMNS");
        let page = ended(asked).ok();
        // Except where a reason is still to be typed.
        assert!(!page.replace("'…'", "").contains('…'), "{page}");
        assert!(arguments.len() > 1 || page.contains(&"k".repeat(300)), "{page}");
    }
}

#[tokio::test]
async fn pages_are_followed_to_the_end() {
    let gate = Setup::alone("").start().await;
    let batch = |n: u32| json!({ "automation": "story", "idempotency_key": format!("s_{n}") });
    for n in 0..510 {
        gate.api.claim_with(&batch(n)).await;
    }
    let lines = |arguments: &[&str]| run(&gate, arguments).ok().lines().count();
    assert_eq!(lines(&["list", "--all"]), 511, "with its head");
    assert_eq!(
        lines(&["list", "--limit", "7"]),
        9,
        "with its head, and a line that says that there are more"
    );
    assert_eq!(lines(&["list", "--automation", "story", "--state", "done"]), 1);
}

#[tokio::test]
async fn a_claim_is_shown_with_its_whole_story() {
    let (gate, _receiver) = busy().await;
    let page = without_ids(&run(&gate, &["show", "welcome-mail", "contact-form:8813"]).ok());
    let expected = "
  welcome-mail  contact-form:8813
  error · since 1 min · attempt 1 · in the inbox: error

  note         503 from the CRM: Service Unavailable, please come back later, it
               is being moved to another house
  cause        failed
  due          2026-01-05 13:26:00 UTC, in 9 min
  created      2026-01-05 13:16:00 UTC, 1 min ago
  claim        ID

  TIMELINE (UTC)
  2026-01-05
    13:16:00  run first, attempt 1        token:admin
    13:16:00  error retry due, attempt 1  holder
              503 from the CRM: Service Unavailable, please come back later, it
              is being moved to another house
";
    assert_eq!(page, expected, "\n{page}");
    let sent = json!({ "order": "o_7" });
    gate.api.order(&sent).await.ok();
    let page = eventually("it is done", async || {
        let page = run(&gate, &["show", "welcome", "o_7"]).ok();
        page.contains("\n  done · ").then_some(page)
    })
    .await;
    for part in [
        "STEPS",
        "send  succeeded",
        "DELIVERIES",
        "accepted",
        "payload      {\"order\":\"o_7\"}",
        "queued first",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[tokio::test]
async fn a_watched_page_outlives_a_gate_that_is_away() {
    let mut gate = Setup::alone("").start().await;
    let mut child = start(command(&gate, &["list", "--inbox", "--watch", "1"]));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let calm = |line: &String| line.contains("Nothing needs a person");
    assert!(lines.by_ref().any(|line| calm(&line)));
    gate.stop().await;
    assert!(lines.by_ref().any(|line| line.contains("no gate answers")));
    gate.reopen().await;
    assert!(lines.by_ref().any(|line| calm(&line)), "it comes back by itself");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn what_oncegate_runs_itself_is_run_again_by_run_now_and_a_loop_says_of_which_record() {
    let receiver = Receiver::start().await;
    let yaml = "
automations:
  greet:
    record: 'mail:{{ payload.from | email }}'
    loop_limit: { runs: 1, within: 10m }
    steps: [{ name: greet, http: { url: '$RECEIVER/greet' }, repeat: by_key }]
sources:
  orders: { provider: hmac, automation: greet, secret: env:ORDERS, hmac: { header: X-Signature }, key: [id] }
";
    let gate = Setup::new(yaml, &receiver).start().await;
    receiver.always("/greet", Reply::status(400));
    for id in ["m_1", "m_2"] {
        gate.api.order(&json!({ "id": id, "from": "Ann@example.org" })).await.ok();
        let ended = eventually(id, async || {
            gate.api.find("greet", id).await.filter(|claim| !claim["inbox"].is_null())
        });
        assert_eq!(ended.await["own_steps"], true);
    }
    let page = run(&gate, &["list", "--inbox"]).ok();
    assert!(page.contains("→ oncegate run-now greet m_1 --reason '…'"), "{page}");
    assert!(page.contains("loop suspected; more runs of mail:ann@example.org than its loop_limit"), "{page}");
    let shown = run(&gate, &["show", "greet", "m_2"]).ok();
    assert!(shown.contains("used up its loop_limit, 1 in 10"), "{shown}");
}

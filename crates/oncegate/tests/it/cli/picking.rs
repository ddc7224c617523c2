//! Filters, groups, exports and the inbox page: what is asked for is what is shown.

use serde_json::{Value, json};

use super::{run, without_ids};
use crate::harness::{Gate, Setup, Signed, hours, mins};

const LIVE_ONLY: &str = "
outgoing: { allow_private: [127.0.0.1:9] }
sources:
  orders:
    provider: hmac
    secret: env:ORDERS
    hmac: { header: X-Signature }
    key: [order]
    automation: welcome
    environment: { field: livemode, is: true }
automations:
  welcome: { steps: [{ name: send, http: { method: PUT, url: 'http://127.0.0.1:9/x' } }] }
";

/// Claims that differ in everything a filter looks at.
async fn gate() -> Gate {
    let gate = Setup::alone("").start().await;
    let api = &gate.api;
    let old = json!({ "automation": "mail", "idempotency_key": "old", "record": "crm:ann", "run_id": "r-7" });
    let old = api.claim_with(&old).await;
    api.error(&old, &json!({ "note": "the CRM said 503" })).await.ok();
    let tagged = json!({ "tag": "import-17", "reason": "r" });
    api.act("tag", &old.claim_id, &tagged).await.ok();
    gate.advance(hours(30)).await;
    let done = api.claim("mail", "finished").await;
    api.done(&done).await.ok();
    let new = api.claim("story", "new").await;
    api.error(&new, &json!({ "note": "no such contact" })).await.ok();
    api.pause("story").await.ok();
    api.claim("story", "held").await.is("stop paused");
    gate
}

#[tokio::test]
async fn each_filter_picks_what_the_api_picks() {
    let gate = gate().await;
    for (flags, keys) in [
        (&["--record", "crm:ann"][..], &["old"][..]),
        (&["--run-id", "r-7"], &["old"]),
        (&["--tag", "import-17"], &["old"]),
        (&["--error-cause", "failed"], &["new", "old"]),
        (&["--parked", "needs_replay"], &["held"]),
        (&["-q", "crm SAID"], &["old"]),
        (&["--search", "nothing like it"], &[]),
        (&["--older-than", "1d"], &["old"]),
        (&["--newer-than", "1h", "--state", "error"], &["new"]),
        (&["--inbox", "error", "--order", "oldest"], &["old", "new"]),
        (&["--inbox", "error", "--order", "newest"], &["new", "old"]),
        (&["--inbox", "parked", "--automation", "story"], &["held"]),
    ] {
        let out = run(&gate, &[&["list", "--json"][..], flags].concat()).ok();
        let page: Value = serde_json::from_str(&out).unwrap();
        let rows = page["claims"].as_array().unwrap();
        let found: Vec<&str> = rows.iter().map(|row| row["idempotency_key"].as_str().unwrap()).collect();
        assert_eq!(found, keys, "{flags:?}");
    }
    let said = run(&gate, &["list", "--older-than", "soon"]).fails(5);
    assert!(said.contains("older_than"), "{said}");
    for wrong in [
        &["list", "--inbox", "--state", "error"][..],
        &["list", "--inbox", "rejected", "--tag", "x"],
        &["list", "--inbox", "--csv", "-"],
        &["list", "--group", "--inbox", "rejected"],
        &["list", "--csv", "-", "--json"],
        &["list", "--parked", "nonsense"],
    ] {
        run(&gate, wrong).fails(2);
    }
    let inbox = run(&gate, &["list", "--inbox", "--tag", "import-17"]).ok();
    assert!(inbox.contains("stuck 0    error 1    mismatch 0    parked 0"), "{inbox}");
    assert!(inbox.contains("mail  old") && !inbox.contains("new"), "{inbox}");
}

#[tokio::test]
async fn groups_are_a_table_of_automations_and_ages() {
    let gate = gate().await;
    let page = run(&gate, &["list", "--group"]).ok();
    let expected = "\
\x20 AUTOMATION  <1h  1d-7d  TOTAL  OLDEST
  mail          1      1      2    30 h
  story         2             2     0 s
  all           3      1      4    30 h
";
    assert_eq!(page, expected, "\n{page}");
    let json = run(&gate, &["list", "--group", "--inbox", "error", "--json"]).ok();
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(shown, gate.api.get("/v1/claims/groups?inbox=error").await.ok());
    assert_eq!(run(&gate, &["list", "--group", "-q", "nothing like it"]).ok(), "No claim fits.\n");
}

#[tokio::test]
async fn an_export_is_a_whole_file_or_none() {
    let gate = gate().await;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let csv = path("claims.csv");
    let said = run(&gate, &["list", "--state", "error", "--csv", &csv]).ok();
    assert!(said.starts_with(&csv), "{said}");
    let rows: Vec<String> = std::fs::read_to_string(&csv).unwrap().lines().map(str::to_owned).collect();
    assert!(rows.len() == 3 && rows[0].starts_with("claim_id,automation,"), "{rows:?}");
    let lines = run(&gate, &["list", "--inbox", "error", "--jsonl", "-"]).ok();
    let keys: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["idempotency_key"].clone())
        .collect();
    assert_eq!(keys, ["old", "new"]);
    // What was there stays if nothing whole takes its place.
    run(&gate, &["list", "--csv", &csv, "--url", "http://127.0.0.1:9"]).fails(6);
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 3);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no half of a file is left: {left:?}");
    let said = run(&gate, &["list", "--csv", &path("absent/claims.csv")]).fails(1);
    assert!(said.contains("absent/claims.csv cannot be written"), "{said}");
}

#[tokio::test]
async fn webhooks_of_another_environment_stand_with_what_is_parked() {
    let gate = Setup::alone(LIVE_ONLY).start().await;
    let test = json!({ "order": "o_1", "livemode": false });
    gate.api.deliver("orders", &Signed::order(&test)).await.ok();
    gate.advance(mins(5)).await;
    let page = run(&gate, &["list", "--inbox"]).ok();
    assert!(page.contains("parked 1"), "{page}");
    assert!(page.contains("\n    5 min  orders  delivery 1, of another environment\n"), "{page}");
    assert!(page.contains("\n           → oncegate show --delivery 1\n"), "{page}");
    let one = without_ids(&run(&gate, &["list", "--inbox", "parked"]).ok());
    assert!(
        one.contains("were set aside") && one.contains("  1  orders") && one.contains("other_environment"),
        "{one}"
    );
    let other = run(&gate, &["list", "--inbox", "parked", "--automation", "another"]).ok();
    assert_eq!(other, "No claim fits.\n");
    let json: Value = serde_json::from_str(&run(&gate, &["list", "--inbox", "--json"]).ok()).unwrap();
    assert_eq!(json["counts"]["parked"], 1);
    assert_eq!(json["parked"][0]["id"], 1);
}

#[tokio::test]
async fn what_a_guard_set_aside_says_why_and_is_released() {
    let guards = "mail: { headers: headers, from: from }, sender: { field: from, as: email, runs: 1 }";
    let yaml =
        LIVE_ONLY.replace("environment: { field: livemode, is: true }", &guards.replace("}, ", "}\n    "));
    let gate = Setup::alone(&yaml).start().await;
    for (order, headers) in [("o_1", ""), ("o_2", ""), ("o_3", "Precedence: bulk")] {
        let mail = json!({ "order": order, "from": "Ann <ann@example.org>", "headers": headers });
        gate.api.deliver("orders", &Signed::order(&mail)).await.ok();
    }
    let page = run(&gate, &["list", "--inbox"]).ok();
    assert!(page.contains("parked 2"), "{page}");
    assert!(page.contains(", one too many of its sender\n"), "{page}");
    assert!(page.contains("more than 1 event of ann@example.org within 10 min"), "{page}");
    assert!(page.contains(", a mail that no person wrote\n"), "{page}");
    let list = run(&gate, &["list", "--inbox", "parked", "--json"]).ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut words = Vec::new();
    for row in list["parked_deliveries"].as_array().unwrap() {
        let id = row["id"].to_string();
        let shown = run(&gate, &["show", "--delivery", &id]).ok();
        let (verdict, reason) = (row["verdict"].as_str().unwrap(), row["reason"].as_str().unwrap());
        assert!(
            shown.contains(verdict) && shown.contains(reason) && shown.contains("ann@example.org"),
            "{shown}"
        );
        words.push(verdict.to_owned());
        run(&gate, &["release", &id, "--reason", "a real question"]).ok();
    }
    assert_eq!(words, ["machine_mail", "sender"]);
    assert_eq!(gate.api.inbox().await["parked"], 0);
    let sources = run(&gate, &["sources"]).ok();
    assert!(sources.contains("1 accepted, 1 sender, 1 machine m"), "{sources}");
}

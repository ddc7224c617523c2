//! Tags, names of automations, notices, parents, and the start over from the beginning.

use serde_json::{Value, json};

use super::{PROGRAM, Ran, command, ended, run};
use crate::harness::{Gate, Receiver, Setup, WELCOME, eventually};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m }, mail: { ttl: 10m } }").start().await
}

#[tokio::test]
async fn a_claim_is_filed_under_a_tag_and_taken_out_again() {
    let gate = gate().await;
    gate.api.claim("story", "k").await;
    let why = ["--reason", "because"];
    for (arguments, says) in [
        (&["tag", "story", "k", "--tag", "import-17"][..], "story k: filed under import-17\n"),
        (&["tag", "story", "k", "--tag", "import-17"], "story k: filed under import-17, as before\n"),
        (&["tag", "story", "k", "--remove"], "story k: no tag\n"),
    ] {
        assert_eq!(run(&gate, &[arguments, &why].concat()).ok(), says, "{arguments:?}");
    }
    run(&gate, &["tag", "story", "k", "--reason", "r"]).fails(2);
    run(&gate, &["tag", "story", "absent", "--tag", "x", "--reason", "r"]).fails(4);
    run(&gate, &["tag", "story", "k", "--tag", "import-17", "--reason", "r"]).ok();
    let listed = run(&gate, &["list"]).ok();
    assert!(listed.contains("TAG") && listed.contains("import-17"), "{listed}");
}

#[tokio::test]
async fn automations_are_listed_and_renamed() {
    let gate = gate().await;
    let failed = gate.api.claim("welcome-mial", "k").await;
    gate.api.error(&failed, &json!({ "note": "boom" })).await.ok();
    gate.api.claim("story", "k").await;
    gate.api.pause("story").await.ok();
    let page = run(&gate, &["automations"]).ok();
    let row = |page: &str, name: &str| page.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(
        row(&page, "welcome-mial").contains("no") && row(&page, "welcome-mial").contains("error 1"),
        "{page}"
    );
    assert!(row(&page, "story").contains("yes") && row(&page, "story").contains("for 0 s"), "{page}");
    let rename = |from, to| run(&gate, &["automations", "rename", from, to, "--reason", "a typing error"]);
    assert_eq!(rename("welcome-mial", "welcome-mail").ok(), "welcome-mail: renamed, was welcome-mial\n");
    assert!(run(&gate, &["show", "welcome-mail", "k"]).ok().contains("boom"));
    assert!(rename("story", "tale").fails(5).contains("oncegate.yaml"));
    rename("unheard-of", "x").fails(4);
    run(&gate, &["automations", "rename", "welcome-mail", "x"]).fails(2);
    let json: Value = serde_json::from_str(&run(&gate, &["automations", "--json"]).ok()).unwrap();
    assert_eq!(json, gate.api.get("/v1/automations").await.ok());
}

#[tokio::test]
async fn notices_are_read_as_a_whole_and_dismissed() {
    let gate = Setup::new(WELCOME, &Receiver::start().await).start().await;
    assert_eq!(run(&gate, &["notices"]).ok(), "There is nothing to know.\n");
    gate.api.claim("wellcome", "k").await;
    let page = run(&gate, &["notices"]).ok();
    let id = gate.api.get("/v1/notices").await.ok()["notices"][0]["id"].to_string();
    assert!(page.contains("new automation wellcome  0 s ago"), "{page}");
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the nearest known name is `welcome`"), "{page}");
    let dismiss = ["notices", "dismiss", &id, "--reason", "it is meant"];
    assert_eq!(run(&gate, &dismiss).ok(), format!("notice {id}: dismissed\n"));
    run(&gate, &dismiss).fails(5);
    run(&gate, &["notices", "dismiss", "99", "--reason", "r"]).fails(4);
    assert_eq!(run(&gate, &["notices"]).ok(), "There is nothing to know.\n");
    assert!(run(&gate, &["notices", "--dismissed"]).ok().contains("dismissed by ann (token:"));
}

#[tokio::test]
async fn a_child_claims_under_its_parent_however_the_token_comes() {
    let gate = gate().await;
    let parent = json!({ "automation": "story", "idempotency_key": "p", "record": "crm:1" });
    let parent = gate.api.claim_with(&parent).await;
    let done_url = parent.done_url.clone().unwrap();
    let child = async |key: &str, flag: &str, variable: Option<(&str, &str)>| {
        let mut asked = command(&gate, &["claim", "mail", key, flag, "--json"]);
        asked.envs(variable);
        let child: Value = serde_json::from_str(&ended(asked).ok()).unwrap();
        assert_eq!(gate.api.show(child["claim_id"].as_str().unwrap()).await["parent"], parent.claim_id);
        let url = child["done_url"].as_str().unwrap();
        run(&gate, &["done", url]).ok();
    };
    child("k1", "--parent", Some(("ONCEGATE_DONE_URL", &done_url))).await;
    child("k2", "--parent", Some(("ONCEGATE_CLAIM_TOKEN", parent.token()))).await;
    child("k3", &format!("--parent={done_url}"), None).await;
    child("k4", &format!("--parent={}", parent.token()), None).await;
    run(&gate, &["claim", "mail", "k5", "--parent"]).fails(2);
    let said = run(&gate, &["claim", "mail", "k5", "--parent=ogx_hush"]).fails(2);
    assert!(!said.contains("hush"), "{said}");
    let said = run(&gate, &["claim", "mail", "k5", "--parent=ogt_hush"]).fails(5);
    assert!(said.contains("parent") && !said.contains("hush"), "{said}");
    // A command under a claim that claims by itself.
    let nested = format!("{PROGRAM} claim mail inner --parent -- true");
    run(&gate, &["claim", "story", "outer", "--record", "crm:2", "--", "sh", "-c", &nested]).ok();
    assert_eq!(gate.api.find("mail", "inner").await.unwrap()["processing_state"], "done");
}

const TWO_STEPS: &str = "
automations:
  welcome:
    steps:
      - { name: mail, http: { url: '$RECEIVER/mail' } }
      - { name: row, http: { url: '$RECEIVER/row' } }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

#[tokio::test(flavor = "multi_thread")]
async fn from_the_start_is_refused_until_all_that_was_sent_is_named() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(TWO_STEPS, &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    let done = async || {
        let done = async || gate.api.find("welcome", "o_1").await.filter(|c| c["processing_state"] == "done");
        eventually("it is done", done).await
    };
    done().await;
    let mut line = "reset welcome o_1 --reason x --run-now --from-start --new-keys".to_owned();
    // Each refusal tells the line that says one thing more.
    for flag in ["--confirm-sent mail row", "--verified"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let said = run(&gate, &arguments).fails(5);
        let told = said.lines().find_map(|line| line.split_once(": oncegate ")).unwrap().1;
        assert!(told.ends_with(flag), "{said}");
        line = told.replace("'…'", "x");
    }
    assert_eq!(receiver.requests().len(), 2, "nothing was sent");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{PROGRAM} {line}")]);
    shell.envs(command(&gate, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ran::from(shell.output().unwrap()).ok();
    receiver.got("/row", 2).await;
    let mails = receiver.to("/mail");
    assert!(mails.len() == 2 && mails[0].key() != mails[1].key(), "{mails:?}");
    run(&gate, &["reset", "welcome", "o_1", "--reason", "x", "--new-keys"]).fails(2);
}

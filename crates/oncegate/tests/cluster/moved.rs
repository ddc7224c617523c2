//! A gate with a directory becomes one of a team: killed in the midst of its work, moved by a command that is killed as
//! well, and gone on with by a node.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::harness::{Dice, Hold, Receiver, Reply};
use crate::killed::SHORT;
use crate::processes::{Team, in_state};

fn oncegate(data: &Path, url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncegate"));
    // As an argument it would be warned of: the file is what the guide names.
    let file = data.with_extension("url");
    let written = File::options().create(true).write(true).truncate(true).open(&file);
    written.unwrap().write_all(url.as_bytes()).unwrap();
    command.arg("move").arg("--from").arg(format!("sqlite:{}", data.display()));
    command.arg("--to").arg(format!("file:{}", file.display())).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn text(said: &Output) -> String {
    String::from_utf8_lossy(&[&said.stdout[..], &said.stderr[..]].concat()).into_owned()
}

#[tokio::test]
async fn a_gate_that_was_killed_is_moved_by_a_command_that_was_killed_and_loses_and_doubles_nothing() {
    const MANY: usize = 300;
    let receiver = Receiver::start().await;
    let team = Team::new(SHORT, &receiver);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let directory = format!("sqlite:{}", data.display());
    let config = format!("outgoing: {{ allow_private: ['{}'] }}\n{SHORT}", receiver.address)
        .replace("$RECEIVER", &receiver.url());
    let gate = team.start("alone", &directory, &config, &[("ONCEGATE_EPHEMERAL", "true")]).await;
    let api = gate.api();
    for n in 0..3 {
        api.order(&json!({ "order": format!("done_{n}") })).await.ok();
        in_state(&api, "welcome", &format!("done_{n}"), "done").await;
    }
    receiver.script("/send", [Reply::held(&Hold::new())]);
    api.order(&json!({ "order": "under_way" })).await.ok();
    receiver.got("/send", 4).await;
    let held = api.claim("story", "held").await;
    held.is("run first");
    for n in 0..MANY {
        api.claim("story", &format!("many_{n}")).await.is("run first");
    }
    gate.kill().await;

    // Killed here and there; whatever it had reached, the same call brings it to its end.
    let url = team.database.url();
    let dice = &mut Dice::roll();
    for _ in 0..6 {
        let mut moving = oncegate(&data, &url, &[]).spawn().unwrap();
        let wait = Duration::from_millis(dice.below(250));
        if tokio::time::timeout(wait, moving.wait()).await.is_err() {
            moving.kill().await.unwrap();
        }
    }
    let said = oncegate(&data, &url, &[]).output().await.unwrap();
    assert!(said.status.success(), "{}", text(&said));
    let page = text(&said);
    let first = page.contains("the same counts and checksums on both sides");
    assert!(first || page.contains("nothing to do"), "{page}");
    assert!(!page.contains("made-up-password") && !page.contains("secret="), "{page}");
    let rows: usize = team.database.sql("SELECT count(*) FROM oncegate.claims").parse().unwrap();
    assert_eq!(rows, MANY + 5);

    let refused = Command::new(env!("CARGO_BIN_EXE_oncegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--ephemeral", "--data"])
        .arg(&data)
        .output();
    let refused = refused.await.unwrap();
    assert!(
        !refused.status.success() && text(&refused).contains("was moved to postgres://"),
        "{}",
        text(&refused)
    );

    let a = team.node("a").await;
    let api = a.api();
    // Before the TTL: the process that had it is gone for certain.
    in_state(&api, "welcome", "under_way", "done").await;
    let sent = receiver.to("/send");
    assert_eq!(sent.len(), 5, "three before, and one twice");
    assert_eq!(sent[3].key(), sent[4].key(), "the same request, for whoever counts by its key");
    assert_eq!(receiver.by_key().len(), 8, "two steps of four orders");
    assert_eq!(api.done(&held).await.ok()["processing_state"], "done");
    for n in 0..3 {
        assert_eq!(
            api.order(&json!({ "order": format!("done_{n}") })).await.ok()["status"],
            "already accepted"
        );
    }
    for name in ["held", "many_0", "many_299"] {
        let words = api.claim("story", name).await.words();
        assert!(words.starts_with("stop "), "{name}: {words}");
    }
    let said = oncegate(&data, &url, &["--undo"]).output().await.unwrap();
    assert!(!said.status.success() && text(&said).contains("node `a` has started"), "{}", text(&said));
}

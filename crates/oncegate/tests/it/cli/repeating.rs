//! An answer that gets lost: the write is sent again under its own key, and happens once.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{Ran, command, ended};
use crate::harness::{Gate, Setup};

/// Passes calls on, but the answers of the first `lost` POSTs never arrive.
async fn forgetful(gate: &Gate, mut lost: u32) -> String {
    let gate = gate.api.base().strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut gate = TcpStream::connect(&gate).await.unwrap();
            let mut first = [0; 4];
            caller.peek(&mut first).await.unwrap();
            if lost == 0 || first != *b"POST" {
                tokio::spawn(async move { copy_bidirectional(&mut caller, &mut gate).await });
                continue;
            }
            lost -= 1;
            let (mut bytes, mut sent) = (vec![0; 65_536], 0);
            // Head and body may come apart; both are small.
            while !String::from_utf8_lossy(&bytes[..sent]).contains("\r\n\r\n{") || bytes[sent - 1] != b'}' {
                sent += caller.read(&mut bytes[sent..]).await.unwrap();
            }
            gate.write_all(&bytes[..sent]).await.unwrap();
            assert!(gate.read(&mut bytes).await.unwrap() > 0, "the gate has answered");
        }
    });
    format!("http://{address}")
}

async fn through(gate: &Gate, lost: u32, arguments: &[&str]) -> Ran {
    let url = forgetful(gate, lost).await;
    let mut command = command(gate, arguments);
    command.env("ONCEGATE_URL", url);
    tokio::task::spawn_blocking(move || ended(command)).await.unwrap()
}

async fn acts(gate: &Gate, action: &str) -> usize {
    gate.api.audit().await.iter().filter(|row| row["action"] == action).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_never_doubles_an_act() {
    let gate = Setup::alone("automations: { story: {} }").start().await;
    let failed = gate.api.claim("story", "k").await;
    gate.api.error(&failed, &json!({ "note": "boom" })).await.ok();
    let why = ["--reason", "because"];
    // Each of these would be refused, or say something else, if it were done a second time.
    for (arguments, action, says) in [
        (&["reset", &failed.claim_id][..], "reset", "story k: none"),
        (&["tag", &failed.claim_id, "--tag", "seen"], "tag", "story k: filed under seen\n"),
        (&["pause", "story"], "pause", "story: paused."),
        (&["mark-error", &failed.claim_id, "--tag", "x"], "mark_error", "story k: error"),
    ] {
        let ran = through(&gate, 1, &[arguments, &why].concat()).await;
        assert!(ran.code == 0 && ran.out.starts_with(says), "{arguments:?}: {ran:?}");
        assert_eq!(acts(&gate, action).await, 1, "{action}");
    }
    let bulk = ["bulk", "dismiss", "--inbox", "error", "--expect", "1"];
    let ran = through(&gate, 1, &[&bulk[..], &why].concat()).await;
    assert!(ran.out.starts_with("bulk 1: dismiss 1 of 1 claim\n"), "{ran:?}");
    let rows = gate.api.get("/v1/bulk").await.ok();
    assert_eq!(rows["bulk"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_got_lost_is_not_made_twice() {
    let gate = Setup::alone("").start().await;
    let before = gate.api.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().len();
    let said = through(&gate, 1, &["token", "create", "Mia", "--role", "viewer"]).await.fails(5);
    assert!(said.contains("answer_not_kept") && said.contains("oncegate token list"), "{said}");
    let after = gate.api.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().len();
    assert_eq!(after, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_sent_three_times_at_most() {
    let gate = Setup::alone("automations: { story: {} }").start().await;
    let why = ["pause", "story", "--reason", "because"];
    let said = through(&gate, 3, &why).await.fails(6);
    assert!(said.contains("got lost") && said.contains("look before you repeat it"), "{said}");
    assert_eq!(acts(&gate, "pause").await, 1);
}

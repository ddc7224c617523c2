//! `oncegate claim … -- COMMAND` while the gate is away or its answers get lost.

use std::io::{BufRead, BufReader};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::once::{Bench, COUNT};
use super::{start, wait};
use crate::harness::eventually;

#[tokio::test]
async fn without_a_gate_nothing_runs() {
    let mut bench = Bench::new().await;
    bench.gate.stop().await;
    let said = wait(start(bench.once("monday", &[], COUNT))).fails(6);
    assert!(said.contains("no gate answers") && said.contains("the command was not run"), "{said}");
    assert_eq!(bench.runs(), 0);
    bench.gate.reopen().await;
}

#[tokio::test]
async fn done_is_told_until_the_gate_is_back() {
    let mut bench = Bench::new().await;
    let script = "echo ran >> ran; until [ -e enough ]; do sleep 0.05; done";
    let mut child = start(bench.once("monday", &[], script));
    eventually("it runs", async || (bench.runs() == 1).then_some(())).await;
    bench.gate.stop().await;
    std::fs::write(bench.path("enough"), "").unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("it is told `done` again")));
    bench.gate.reopen().await;
    assert_eq!(wait(child).code, 0);
    assert_eq!(bench.claim("monday").await["processing_state"], "done");
    assert_eq!(bench.runs(), 1);
}

#[tokio::test]
async fn a_gate_that_stays_away_is_told_of() {
    let mut bench = Bench::new().await;
    let script = "echo ran >> ran; until [ -e enough ]; do sleep 0.05; done";
    let child = start(bench.once("monday", &["--tell-for", "1s"], script));
    eventually("it runs", async || (bench.runs() == 1).then_some(())).await;
    bench.gate.stop().await;
    std::fs::write(bench.path("enough"), "").unwrap();
    let said = wait(child).fails(6);
    assert!(said.contains("the command has succeeded, and the gate does not know it"), "{said}");
    let told: Vec<&str> =
        said.lines().filter_map(|line| line.split_once("when it answers: ")).map(|(_, told)| told).collect();
    bench.gate.reopen().await;
    // What is told does mend it.
    let path = std::path::Path::new(super::PROGRAM).parent().unwrap();
    for act in told[0].split(", then ") {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{}/{act}", path.display())]);
        shell.envs(
            super::command(&bench.gate, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))),
        );
        super::Ran::from(shell.output().unwrap()).ok();
    }
    assert_eq!(bench.claim("monday").await["processing_state"], "done");
}

/// Passes calls on to the gate, but the first answer gets lost.
async fn forgetful(gate: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut first = true;
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut gate = TcpStream::connect(&gate).await.unwrap();
            if std::mem::take(&mut first) {
                let mut bytes = vec![0; 65_536];
                let mut sent = 0;
                // Head and body may come apart; both are small.
                while !String::from_utf8_lossy(&bytes[..sent]).contains("\r\n\r\n{")
                    || bytes[sent - 1] != b'}'
                {
                    sent += caller.read(&mut bytes[sent..]).await.unwrap();
                }
                gate.write_all(&bytes[..sent]).await.unwrap();
                assert!(gate.read(&mut bytes).await.unwrap() > 0, "the gate has answered");
                continue;
            }
            tokio::spawn(async move { copy_bidirectional(&mut caller, &mut gate).await });
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_asked_for_again_and_the_command_runs_once() {
    let bench = Bench::new().await;
    let way = forgetful(bench.gate.api.base().strip_prefix("http://").unwrap().to_owned()).await;
    let mut command = bench.once("monday", &[], COUNT);
    command.env("ONCEGATE_URL", way);
    assert_eq!(wait(start(command)).ok(), "");
    assert_eq!(bench.runs(), 1);
    let claim = bench.claim("monday").await;
    let story: Vec<_> =
        claim["history"].as_array().unwrap().iter().map(|row| row["reason"].clone()).collect();
    assert_eq!(story[..2], [json!("first"), json!("same_run")], "{claim}");
    assert_eq!((&claim["attempt"], &claim["processing_state"]), (&json!(1), &json!("done")));
}

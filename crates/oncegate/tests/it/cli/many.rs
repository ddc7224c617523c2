//! `oncegate bulk`: counted, done, taken back. With a terminal somebody is asked; without, the count must be known.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::{Ran, command, run};
use crate::harness::{Gate, Setup, hours};

/// Errors that fit a filter, one claim that is being worked on, one of another automation.
async fn gate(errors: u32) -> Gate {
    let gate = Setup::alone("automations: { mail: {} }").start().await;
    let api = &gate.api;
    for n in 0..errors {
        let claimed = api.claim("mail", &format!("import-{n}")).await;
        api.error(&claimed, &json!({ "note": "boom" })).await.ok();
    }
    gate.advance(hours(3)).await;
    api.claim("mail", "import-live").await.is("run first");
    api.claim("other", "import-0").await.is("run first");
    gate
}

const RESET: [&str; 8] =
    ["bulk", "reset", "--automation", "mail", "-q", "import-", "--reason", "the CRM is back"];

async fn states(gate: &Gate, state: &str) -> usize {
    gate.api.list(&format!("state={state}&automation=mail&limit=500")).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_to_ask_means_that_nothing_is_done_without_the_count() {
    let gate = gate(3).await;
    for more in [&[][..], &["--yes"]] {
        let ran = run(&gate, &[&RESET[..], more].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("the same with --expect 4"), "{}", ran.err);
        assert!(
            ran.err.contains("would act     3\n") && ran.err.contains("would refuse  1: 1 live holder"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("the oldest    3 h, since 2026-01-05 10:00:00 UTC"), "{}", ran.err);
    }
    let counted =
        run(&gate, &["bulk", "reset", "--automation", "mail", "--inbox", "error", "--dry-run"]).ok();
    assert!(counted.contains("reset 3 claims  inbox error, automation mail"), "{counted}");
    let json: Value = serde_json::from_str(
        &run(&gate, &["bulk", "reset", "--automation", "mail", "--dry-run", "--json"]).ok(),
    )
    .unwrap();
    assert_eq!((&json["matched"], &json["would_act"]), (&json!(4), &json!(3)));
    let said = run(&gate, &[&RESET[..], &["--expect", "3"]].concat()).fails(5);
    assert!(said.contains("count_changed") && said.contains("--dry-run"), "{said}");
    assert_eq!(states(&gate, "error").await, 3, "nothing was changed");
    run(&gate, &["bulk", "reset", "--reason", "all of them", "--expect", "5"]).fails(5);
    run(&gate, &["bulk", "mark-error", "--inbox", "error", "--reason", "r", "--expect", "3"]).fails(2);
    run(&gate, &["bulk", "reset", "--inbox", "error"]).fails(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_on_many_is_done_shown_and_taken_back() {
    let gate = gate(30).await;
    let done = run(&gate, &[&RESET[..], &["--expect", "31"]].concat()).ok();
    assert_eq!(
        done,
        "bulk 1: reset 30 of 31 claims; refused 1: 1 live holder\n  → to take it back: oncegate bulk undo 1 --reason '…'\n"
    );
    assert_eq!((states(&gate, "error").await, states(&gate, "none").await), (0, 30));
    let claimed = gate.api.claim("mail", "import-7").await;
    gate.api.done(&claimed).await.ok();
    let shown = run(&gate, &["bulk", "show", "1"]).ok();
    for part in ["bulk 1  reset  finished", "30 of 31", "1 live holder", "the CRM is back", "ann (token:"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let fates = run(&gate, &["bulk", "show", "1", "--claims"]).ok();
    assert!(fates.lines().count() == 32 && fates.contains("refused  live holder"), "{fates}");
    let undone = run(&gate, &["bulk", "undo", "1", "--reason", "wrong list"]).ok();
    assert_eq!(undone, "bulk 2: took back 29 claims of bulk 1; kept 1: 1 changed since\n");
    assert_eq!(states(&gate, "error").await, 29);
    let listed = run(&gate, &["bulk", "list"]).ok();
    assert!(listed.contains("undo of 1") && listed.contains("undone by 2"), "{listed}");
    run(&gate, &["bulk", "undo", "2", "--reason", "r"]).fails(5);
    run(&gate, &["bulk", "show", "9"]).fails(4);
    let tag =
        ["bulk", "tag", "--as", "seen", "--inbox", "error", "--reason", "r", "--expect", "29", "--json"];
    let json: Value = serde_json::from_str(&run(&gate, &tag).ok()).unwrap();
    assert_eq!((&json["state"], &json["acted"]), (&json!("finished"), &json!(29)));
    let untag = ["bulk", "tag", "--remove", "--tag", "seen", "--reason", "r", "--expect", "29"];
    assert!(run(&gate, &untag).ok().starts_with("bulk 4: tag 29 of 29 claims\n"));
}

/// Runs a command whose stdin and stderr are a terminal, on which somebody types.
fn on_a_terminal(gate: &Gate, arguments: &[&str], typed: &str) -> (Ran, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, vec![]).unwrap().into_string().unwrap();
    let open = || std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
    let mut command = command(gate, arguments);
    command.stdin(open()).stderr(open()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    // This end's copies of the terminal, so that the master sees its end.
    drop(command);
    let mut master = std::fs::File::from(master);
    master.write_all(typed.as_bytes()).unwrap();
    let mut screen = vec![];
    let mut part = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut part) {
        screen.extend_from_slice(&part[..n]);
    }
    (child.wait_with_output().unwrap().into(), String::from_utf8_lossy(&screen).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_types_the_count_or_nothing_is_done() {
    let gate = gate(5).await;
    for wrong in ["yes\n", "5\n", "\n", "\u{4}"] {
        let (ran, screen) = on_a_terminal(&gate, &RESET, wrong);
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?} {screen}");
        assert!(screen.contains("Type 6 to do it: ") && screen.contains("Nothing was done."), "{screen}");
        assert_eq!(states(&gate, "error").await, 5, "{wrong:?}");
    }
    let (ran, _) = on_a_terminal(&gate, &RESET, "6\n");
    assert!(ran.out.starts_with("bulk 1: reset 5 of 6 claims"), "{ran:?}");
    assert_eq!(states(&gate, "error").await, 0);
    let (ran, screen) =
        on_a_terminal(&gate, &[&["bulk", "mark-error", "--as", "x"], &RESET[2..], &["--yes"]].concat(), "");
    assert!(ran.out.starts_with("bulk 2: mark-error ") && !screen.contains("Type"), "{ran:?} {screen}");
}

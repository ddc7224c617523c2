//! Text that came from anywhere never steers the terminal of who reads it.

use serde_json::json;

use super::{command, ended, run};
use crate::harness::{Receiver, Setup, WELCOME, json_body, send};

/// Clears the screen, recolours, rings, sets the title, with C0 and C1; turns the writing around; hides.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}txt\u{200b}\u{7f}";

#[track_caller]
fn is_harmless(what: &str, text: &str) {
    for c in text.chars().filter(|c| *c != '\n') {
        assert!(!c.is_control(), "{what}: {c:?} in {text:?}");
        assert!(
            !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'),
            "{what}: {text:?}"
        );
    }
}

#[tokio::test]
async fn c103_nothing_steers_the_terminal() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let api = &gate.api;
    let key = "turned-\u{202e}around";
    let claimed = api
        .claim_with(&json!({ "automation": "story", "idempotency_key": key, "payload": { "a": HOSTILE } }))
        .await;
    api.done_with(&claimed, &json!({ "result": { "b": HOSTILE } })).await.ok();
    let failed = api.claim("story", "failed").await;
    api.error(&failed, &json!({ "note": HOSTILE })).await.ok();
    api.order(&json!({ "ordr": HOSTILE })).await.ok();
    // What turns the writing around is no control character, so names and reasons may hold it.
    let turned = "t\u{202e}";
    let tag = json!({ "tag": turned, "reason": turned });
    api.act("tag", &failed.claim_id, &tag).await.ok();
    let bulk = ["bulk", "tag", "--as", "\u{202e}", "--tag", turned, "--reason", turned, "--expect", "1"];
    let why = format!("why {HOSTILE}");
    let pages = [
        run(&gate, &["list"]).ok(),
        run(&gate, &["list", "--inbox"]).ok(),
        run(&gate, &["list", "--inbox", "rejected"]).ok(),
        run(&gate, &["show", &claimed.claim_id]).ok(),
        run(&gate, &["show", &failed.claim_id]).ok(),
        run(&gate, &["show", "--delivery", "1"]).ok(),
        run(&gate, &["claim", "story", key, "--payload", &json!({ "a": HOSTILE }).to_string()]).out,
        run(&gate, &["audit"]).ok(),
        run(&gate, &bulk).ok(),
        run(&gate, &["bulk", "show", "1"]).ok(),
        run(&gate, &["bulk", "show", "1", "--claims"]).ok(),
        run(&gate, &["bulk", "list"]).ok(),
        run(&gate, &["bulk", "dismiss", "--tag", "\u{202e}", "--dry-run"]).ok(),
        run(&gate, &["tag", &failed.claim_id, "--tag", turned, "--reason", turned]).ok(),
        run(&gate, &["list", "--tag", turned]).ok(),
        run(&gate, &["list", "--inbox", "--tag", turned]).ok(),
        run(&gate, &["show", "story", HOSTILE]).fails(5),
        run(&gate, &["pause", HOSTILE, "--reason", "x"]).fails(5),
        run(&gate, &["dismiss", &failed.claim_id, "--reason", &why]).fails(5),
    ];
    for page in &pages {
        is_harmless("a page", page);
    }
    assert!(pages[0].contains(r"turned-\u{202e}around"), "what is hidden is shown: {}", pages[0]);
    assert!(pages[3].contains(r"owned"), "{}", pages[3]);
    // A script gets the bytes as they are.
    let json = run(&gate, &["show", &claimed.claim_id, "--json"]).ok();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["result"]["b"], HOSTILE);
}

/// Something that is not a gate, or a gate in the wrong hands, answers with whatever it likes.
#[test]
fn a_stranger_is_named_as_one_and_does_not_steer_either() {
    use std::io::{Read, Write};
    let problem =
        json!({ "code": HOSTILE, "title": HOSTILE, "detail": HOSTILE, "holder": HOSTILE }).to_string();
    for (status, body, code, says) in [
        ("200 OK", format!("<html>{HOSTILE}</html>"), 1, "is not a gate"),
        ("302 Found", String::new(), 1, "status 302"),
        ("500 Oops", format!("<html>{HOSTILE}</html>"), 1, "status 500"),
        ("503 Busy", String::new(), 6, "status 503"),
        ("409 Conflict", problem, 5, r"owned\u{7}"),
        ("200 OK", json!({ "claims": [{ "automation": HOSTILE, "note": HOSTILE }] }).to_string(), 0, ""),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            assert!(caller.read(&mut [0; 4096]).unwrap() > 0);
            let length = body.len();
            write!(
                caller,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        });
        let said = ended(super::bare(&["list", "--url", &url]));
        answers.join().unwrap();
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(says), "{said:?}");
        is_harmless("a stranger", &said.err);
        is_harmless("a stranger", &said.out);
    }
}

#[tokio::test]
async fn colours_are_for_terminals_only() {
    let gate = Setup::alone("").start().await;
    send(json_body(
        gate.api.request(http::Method::POST, "/v1/claims"),
        &json!({ "automation": "a", "idempotency_key": "k" }),
    ))
    .await
    .ok();
    for arguments in [&["list"][..], &["list", "--inbox"], &["show", "a", "k"]] {
        let mut asked = command(&gate, arguments);
        asked.env("TERM", "xterm-256color");
        assert!(!ended(asked).ok().contains('\u{1b}'), "{arguments:?}");
    }
}

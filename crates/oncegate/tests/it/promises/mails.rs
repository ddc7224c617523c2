//! Mails: at most once, and honest about what nobody knows.

use serde_json::{Value, json};

use crate::harness::{Gate, MailServer, Post, Setup, eventually, mins};

const STEPS: &str = "
automations:
  welcome:
    ttl: 10m
    steps:
      - name: mail
        email:
          to: '{{ payload.name }} <{{ payload.email }}>'
          reply_to: ops@example.com
          subject: 'Welcome, {{ payload.name }}'
          text: 'Hello {{ payload.name }}'
          html: '<p>Hello <b>{{ payload.name }}</b></p>'
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

async fn gate(server: &MailServer) -> Gate {
    Setup::alone(&format!("{}{STEPS}", server.yaml())).start().await
}

async fn order(gate: &Gate, order: &str, name: &str, email: &str) {
    gate.api.order(&json!({ "order": order, "name": name, "email": email })).await.ok();
}

async fn state(gate: &Gate, key: &str, state: &str) -> Value {
    eventually(&format!("{key} is {state}"), async || {
        gate.api.find("welcome", key).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

#[tokio::test]
async fn c91_a_mail_is_sent_once_and_says_that_a_machine_sent_it() {
    let server = MailServer::start().await;
    let gate = gate(&server).await;
    for _ in 0..3 {
        order(&gate, "o_1", "Ann <b>Ö</b>", "ann@example.org").await;
    }
    let claim = state(&gate, "o_1", "done").await;
    let [letter] = server.letters().try_into().unwrap();
    assert_eq!(
        (letter.from.as_str(), letter.to.as_slice()),
        ("gate@example.com", &["ann@example.org".to_owned()][..])
    );
    assert_eq!(letter.header("auto-submitted").as_deref(), Some("auto-generated"));
    assert_eq!(letter.header("reply-to").as_deref(), Some("ops@example.com"));
    let key = letter.header("idempotency-key").unwrap();
    assert_eq!(letter.header("message-id").unwrap(), format!("<{key}@example.com>"));
    assert!(letter.text.contains("multipart/alternative"), "{}", letter.text);
    let html = letter.text.split("text/html").nth(1).unwrap();
    assert!(html.contains("&lt;b&gt;") && html.contains("<b>Ann"), "what a form says is no markup: {html}");
    let shown = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
    assert_eq!(shown["calls"][0]["idempotency_key"], key, "{shown}");
    assert!(shown["calls"][0]["target"].as_str().unwrap().starts_with("SMTP 127.0.0.1:"), "{shown}");
}

#[tokio::test]
async fn what_was_surely_not_sent_is_tried_again_and_what_cannot_go_is_a_persons() {
    let server = MailServer::start().await;
    let gate = gate(&server).await;
    for (n, post) in [
        Post::Gone("MAIL"),
        Post::Refused("RCPT", "450 4.2.0 greylisted, come again"),
        Post::Refused("TEXT", "451 4.3.0 disk full"),
        Post::Gone("DATA"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("later_{n}");
        server.script([post.clone()]);
        order(&gate, &key, "Ann", "ann@example.org").await;
        let claim = state(&gate, &key, "error").await;
        assert!(!claim["due_at"].is_null(), "{post:?}: {claim}");
        gate.advance(mins(1)).await;
        state(&gate, &key, "done").await;
        assert_eq!(server.letters().len(), n + 1, "{post:?}");
    }
    for (key, email, post) in [
        ("no_such", "ann@example.org", Some(Post::Refused("RCPT", "550 5.1.1 no such user"))),
        ("spam", "ann@example.org", Some(Post::Refused("TEXT", "554 5.7.1 spam"))),
        ("two", "ann@example.org, bob@example.org", None),
        ("injected", "ann@example.org\r\nBcc: bob@example.org", None),
        ("none", "", None),
    ] {
        server.script(post);
        let before = server.connections();
        order(&gate, key, "Ann", email).await;
        let claim = state(&gate, key, "error").await;
        assert!(claim["due_at"].is_null(), "{key}: {claim}");
        assert!(server.connections() <= before + 1);
    }
    gate.advance(mins(60)).await;
    assert_eq!(server.letters().len(), 4);
    let claim = gate.api.find("welcome", "no_such").await.unwrap();
    assert!(claim["note"].as_str().unwrap().contains("answered 550 to a recipient"), "{claim}");
}

#[tokio::test]
async fn a_mail_that_was_handed_over_without_an_answer_is_not_sent_again() {
    let server = MailServer::start().await;
    let gate = gate(&server).await;
    for (key, post, sent) in [("silent", Post::TakenInSilence, 1), ("gone", Post::Gone("TEXT"), 1)] {
        server.script([post]);
        order(&gate, key, "Ann", "ann@example.org").await;
        let claim = state(&gate, key, "error").await;
        assert!(claim["note"].as_str().unwrap().contains("outcome unknown"), "{claim}");
        gate.advance(mins(60)).await;
        assert_eq!(server.letters().len(), sent, "{key}");
    }
    assert_eq!(server.connections(), 2);
    // A person looked, and it had not come: then it goes, under the same message id, so that two are seen to be one.
    let claim = gate.api.find("welcome", "silent").await.unwrap();
    gate.api.run_now(claim["claim_id"].as_str().unwrap()).await.ok();
    state(&gate, "silent", "done").await;
    let letters = server.letters();
    assert_eq!(letters[0].header("message-id"), letters[1].header("message-id"));
}

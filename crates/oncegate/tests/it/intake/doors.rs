//! The door itself, whoever knocks.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Receiver, Reply, Setup, Signed, Store, WELCOME, eventually, mins, send};

#[tokio::test]
async fn an_unknown_source_is_404_and_says_where_sources_are_declared() {
    let gate = Setup::alone("").start().await;
    let said = gate.api.order(&json!({ "order": "o_1" })).await;
    let problem = said.problem(404, "unknown_source");
    assert!(problem["detail"].as_str().unwrap().contains("`orders`"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("oncegate.yaml"), "{problem}");
}

#[tokio::test]
async fn get_and_head_of_a_source_start_nothing() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let said = send(gate.api.bare(method.clone(), "/in/orders")).await;
        assert_eq!(said.status, 405, "{method}");
        assert!(said.header("allow").unwrap().contains("POST"), "{method}");
        if method == Method::GET {
            said.problem(405, "method_not_allowed");
        }
    }
    assert_eq!(gate.api.list("").await, Vec::<Value>::new());
    assert_eq!(gate.api.inbox().await["rejected"], 0);
}

#[tokio::test]
async fn a_paused_automation_accepts_and_holds_and_runs_when_resumed() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).start().await;
    assert_eq!(gate.api.pause("welcome").await.ok()["changed"], true);
    for order in ["o_1", "o_2"] {
        assert_eq!(gate.api.order(&json!({ "order": order })).await.ok()["status"], "accepted");
        assert_eq!(gate.api.order(&json!({ "order": order })).await.ok()["status"], "already accepted");
    }
    gate.advance(mins(60)).await;
    gate.restart().await;
    gate.advance(mins(60)).await;
    assert_eq!(receiver.requests().len(), 0);
    for claim in gate.api.list("automation=welcome").await {
        assert_eq!((&claim["processing_state"], &claim["attempt"]), (&json!("none"), &json!(0)), "{claim}");
        assert!(claim["due_at"].is_string(), "it waits for the runner: {claim}");
    }
    assert_eq!(gate.api.resume("welcome").await.ok()["changed"], true);
    receiver.got("/send", 2).await;
    eventually("both are done", async || (gate.api.list("state=done").await.len() == 2).then_some(())).await;
    assert!(receiver.by_key().values().all(|count| *count == 1));
}

#[tokio::test]
async fn a_body_without_identity_or_that_is_no_json_is_kept_as_it_came() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let bodies: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"not json", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"{\"order\":null}", "is null"),
        (b"{\"order\":\"  \"}", "is blank"),
        (b"{\"order\":[1]}", "is a list"),
    ];
    for (body, why) in bodies {
        let said = gate.api.deliver("orders", &Signed::hmac("orders-secret", body)).await.ok();
        assert_eq!(said["status"], "stored, not run: no identity");
        let row = gate.api.rejected().await.remove(0);
        assert!(row["reason"].as_str().unwrap().contains(why), "{row}");
        let kept = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok();
        match std::str::from_utf8(body) {
            Ok(text) => assert_eq!(kept["body"], text),
            Err(_) => assert_eq!(kept["body_base64"], crate::harness::base64(body)),
        }
        assert_eq!(kept["verdict"], "rejected");
    }
    assert_eq!(gate.api.inbox().await["rejected"], 6);
    let newest_first: Vec<_> =
        gate.api.rejected().await.iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert!(newest_first.is_sorted_by(|a, b| a > b), "{newest_first:?}");
    assert_eq!(receiver.requests().len(), 0);
}

#[tokio::test]
async fn a_body_of_any_size_up_to_the_limit_is_taken_and_a_larger_one_refused() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let large = json!({ "order": "large", "note": "x".repeat(2_000_000) });
    assert_eq!(gate.api.order(&large).await.ok()["status"], "accepted");
    assert_eq!(receiver.got("/send", 1).await[0].json(), large);
    let huge = Signed::hmac("orders-secret", vec![b' '; 5 * 1024 * 1024 + 1]);
    gate.api.deliver("orders", &huge).await.problem(413, "body_too_large");
    // What does not verify may come from anybody and is kept only up to 1 MiB.
    let forged = Signed::hmac("wrong", vec![b'x'; 1024 * 1024 + 1]);
    gate.api.deliver("orders", &forged).await.problem(401, "invalid_signature");
    let row = gate.api.rejected().await.remove(0);
    assert!(row["reason"].as_str().unwrap().contains("1048577 bytes was not kept"), "{row}");
}

#[tokio::test]
async fn credentials_beside_a_request_are_not_stored_and_signatures_are_not_shown() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let mut forged = Signed::hmac("wrong", "{}");
    forged.headers.push(("authorization".into(), "Bearer s3cret-of-a-proxy".into()));
    forged.headers.push(("cookie".into(), "session=s3cret".into()));
    gate.api.deliver("orders", &forged).await.problem(401, "invalid_signature");
    let row = gate.api.rejected().await.remove(0);
    let shown = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok().to_string();
    assert!(!shown.contains("s3cret"), "{shown}");
    if crate::STORE != Store::Sqlite {
        return;
    }
    let db = rusqlite::Connection::open(gate.database()).unwrap();
    let headers: String = db.query_row("SELECT headers FROM deliveries", [], |r| r.get(0)).unwrap();
    assert!(!headers.contains("s3cret") && headers.contains("x-signature"), "{headers}");
}

#[tokio::test]
async fn one_bad_event_holds_up_no_other() {
    let receiver = Receiver::start().await;
    let yaml = WELCOME.replace("'$RECEIVER/send'", "'$RECEIVER/{{ payload.to }}'");
    let gate = Setup::new(&yaml, &receiver).start().await;
    receiver.always("/refused", Reply::status(422));
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    gate.api.order(&json!({ "order": "o_2", "to": "refused" })).await.ok();
    gate.api.order(&json!({ "order": "o_3", "to": "fine" })).await.ok();
    receiver.got("/fine", 1).await;
    let errors = eventually("both are in error", async || {
        Some(gate.api.list("inbox=error").await).filter(|rows| rows.len() == 2)
    })
    .await;
    let notes: Vec<_> = errors.iter().map(|row| row["note"].as_str().unwrap()).collect();
    assert!(notes[0].contains("step 1 `send`") && notes[0].contains("422"), "{notes:?}");
    assert!(notes[1].contains("`payload.to` is undefined"), "{notes:?}");
}

const FORMS: &str = "
automations:
  welcome:
    steps: [{ name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }]
sources:
  forms: { provider: zapier, automation: welcome, secrets: [env:SHOWN, env:ODD], key: [id] }
workspaces:
  acme:
    automations:
      welcome:
        steps: [{ name: send, http: { url: '$RECEIVER/acme' }, repeat: by_key }]
    sources:
      forms: { provider: zapier, automation: welcome, secret: env:SHOWN, key: [id] }
";
const SHOWN: &str = "a-secret-that-is-long";

#[tokio::test]
async fn a_known_source_is_found_however_its_address_is_written() {
    let receiver = Receiver::start().await;
    let gate =
        Setup::new(FORMS, &receiver).var("SHOWN", SHOWN).var("ODD", "an/odd+secret/of-ours").start().await;
    let mut effects = 0;
    for path in [
        format!("forms?k={SHOWN}"),
        format!("forms/?k={SHOWN}"),
        format!("forms/{SHOWN}"),
        format!("forms/{SHOWN}/"),
        format!("forms//{SHOWN}"),
        format!("/forms?secret={SHOWN}"),
        format!("Forms?k={SHOWN}"),
        format!("%66orms?k={SHOWN}"),
        "forms/an/odd+secret/of-ours".to_owned(),
        "forms?k=an/odd+secret/of-ours".to_owned(),
        "forms?k=an%2Fodd%2Bsecret%2Fof-ours".to_owned(),
        format!("acme/forms/{SHOWN}"),
        format!("ACME//forms/?k={SHOWN}"),
    ] {
        effects += 1;
        let body = json!({ "id": effects }).to_string();
        let said =
            gate.api.deliver(&path, &Signed::with(&[("content-type", "application/json")], body)).await;
        assert_eq!(said.ok()["status"], "accepted", "{path}");
    }
    for path in ["forms", "forms/", "forms/x", "forms/a/b/c", "forms?k=guess", "acme/forms/x"] {
        let body = json!({ "id": 99 }).to_string();
        let said = gate.api.deliver(path, &Signed::with(&[("content-type", "application/json")], body)).await;
        said.problem(401, "invalid_signature");
    }
    for path in ["form", "acme/form", "acme", "nobody/forms"] {
        let said = gate.api.deliver(path, &Signed::with(&[], "{}")).await;
        let problem = said.problem(404, "unknown_source");
        assert!(problem["detail"].as_str().unwrap().contains("oncegate.yaml"), "{problem}");
    }
    receiver.got("/send", effects - 2).await;
    receiver.got("/acme", 2).await;
    let stored = gate.api.get("/v1/rejected").await.ok().to_string();
    assert!(!stored.contains("guess"), "{stored}");
}

#[tokio::test]
async fn a_guess_does_not_stand_in_the_way_of_a_genuine_request_with_its_body() {
    let receiver = Receiver::start().await;
    let mut gate =
        Setup::new(FORMS, &receiver).var("SHOWN", SHOWN).var("ODD", "some-older-secret").start().await;
    let body = json!({ "id": 1 }).to_string();
    for secret in ["a-guess-of-somebody", "the-secret-of-tomorrow", "the-secret-of-tomorrow"] {
        let signed =
            Signed::with(&[("content-type", "application/json"), ("X-Shared-Secret", secret)], body.as_str());
        gate.api.deliver("forms", &signed).await.problem(401, "invalid_signature");
    }
    let rows = gate.api.rejected().await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    gate.set_var("SHOWN", "the-secret-of-tomorrow");
    gate.restart().await;
    gate.api.release(&rows[1]["id"]).await.problem(401, "invalid_signature");
    assert_eq!(gate.api.release(&rows[0]["id"]).await.ok()["status"], "accepted");
    receiver.got("/send", 1).await;
}

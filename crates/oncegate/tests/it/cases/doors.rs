//! What comes in by webhook: of another environment, the next day, under another name, where nobody can run it.

use serde_json::{Value, json};

use crate::harness::{
    Gate, Receiver, Reply, Setup, Signed, WELCOME, base64, eventually, hmac_sha256, hours, mins,
};

const PAYMENTS: &str = "
automations:
  payments:
    steps: [{ name: book, http: { url: '$RECEIVER/book' }, repeat: by_key }]
sources:
  pay:
    provider: hmac
    automation: payments
    secret: env:ORDERS
    hmac: { header: X-Signature }
    key: [form_id, submission_id]
    environment: { field: livemode, is: true }
";

#[tokio::test]
async fn c102_a_test_event_takes_no_key_and_the_live_one_runs() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(PAYMENTS, &receiver).start().await;
    let event = |live: Value| {
        let body = json!({ "livemode": live, "id": "evt_1", "form_id": "f", "submission_id": "s_1" });
        Signed::order(&body)
    };
    let other = "stored, not run: other environment";
    for _ in 0..2 {
        assert_eq!(gate.api.deliver("pay", &event(json!(false))).await.ok()["status"], other);
    }
    assert_eq!(gate.api.deliver("pay", &event(Value::Null)).await.ok()["status"], other, "it does not say");
    assert!(gate.api.list("").await.is_empty(), "no key is taken");
    assert_eq!(gate.api.deliver("pay", &event(json!(true))).await.ok()["status"], "accepted");
    receiver.got("/book", 1).await;

    let inbox = gate.api.inbox().await;
    assert_eq!((inbox["parked"], inbox["rejected"]), (2, 0), "{inbox:?}");
    assert!(gate.api.rejected().await.is_empty());
    let parked = gate.api.get("/v1/rejected?list=parked").await.ok()["rejected"].clone();
    let test = &parked[1];
    assert_eq!((&test["verdict"], &test["repeats"]), (&json!("other_environment"), &json!(1)), "{parked}");
    assert_eq!(test["reason"], "other environment: `livemode` is false, not true");
    let refused = gate.api.release(&test["id"]).await.problem(422, "invalid_field");
    assert!(refused["detail"].as_str().unwrap().contains("other environment"), "{refused}");

    // It was meant for here, and the file was wrong: mended, it runs, unless its key was done meanwhile.
    gate.restart_with(|yaml| yaml.replace("is: true", "is: false")).await;
    assert_eq!(gate.api.release(&test["id"]).await.ok()["status"], "stored, not run: payload mismatch");
    assert_eq!(receiver.to("/book").len(), 1);
    assert_eq!(gate.api.inbox().await["parked"], 1);
}

/// The sender's scheme signs the time with the body, as Standard Webhooks do.
#[tokio::test]
async fn c70_the_next_day_a_person_runs_what_is_stored_and_the_copy_from_outside_is_too_old() {
    let receiver = Receiver::start().await;
    receiver.script("/send", [Reply::status(400)]);
    let yaml = WELCOME.replace(
        "{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }",
        "{ provider: standard_webhooks, automation: welcome, secret: env:SVIX }",
    );
    let secret = b"0123456789abcdef";
    let gate = Setup::new(&yaml, &receiver).var("SVIX", &format!("whsec_{}", base64(secret))).start().await;
    let body =
        json!({ "form_id": "f_contact", "submission_id": "s_1001", "email": "ana@example.com" }).to_string();
    let ts = gate.now().as_secs() - 10;
    let signature = base64(&hmac_sha256(secret, format!("msg_1.{ts}.{body}").as_bytes()));
    let (ts, signature) = (ts.to_string(), format!("v1,{signature}"));
    let signed = Signed::with(
        &[
            ("content-type", "application/json"),
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", &ts),
            ("webhook-signature", &signature),
        ],
        body.as_str(),
    );
    gate.api.deliver("orders", &signed).await.ok();
    let failed = eventually("it fails", async || gate.api.list("inbox=error").await.into_iter().next()).await;
    gate.advance_wall(hours(24));
    let reset = json!({ "reason": "the CRM is mended", "run_now": true });
    gate.api.act("reset", failed["claim_id"].as_str().unwrap(), &reset).await.ok();
    let sent = receiver.got("/send", 2).await;
    assert_eq!(sent[1].body, body.as_bytes(), "the stored event, without another check");
    gate.api.deliver("orders", &signed).await.problem(401, "invalid_signature");
    assert_eq!(receiver.to("/send").len(), 2);
}

async fn deliver_all(gate: &Gate, status: &str) {
    for n in 0..40 {
        let said = gate.api.order(&json!({ "order": format!("o_{n}") })).await.ok();
        assert_eq!(said["status"], status, "o_{n}");
    }
}

#[tokio::test]
async fn c46_an_automation_that_is_edited_paused_and_renamed_replays_nothing() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).start().await;
    deliver_all(&gate, "accepted").await;
    receiver.got("/send", 40).await;
    eventually("all are done", async || {
        (gate.api.list("state=done&limit=100").await.len() == 40).then_some(())
    })
    .await;
    gate.api.pause("welcome").await.ok();
    gate.api.resume("welcome").await.ok();
    deliver_all(&gate, "already accepted").await;
    // Renamed, with another step before the old one, another policy, and a secret that is being replaced.
    gate.set_var("ORDERS_NEW", "orders-secret-2");
    let new = format!("      - {{ name: new, http: {{ url: '{}/new' }} }}\n", receiver.url());
    gate.restart_with(|yaml| {
        yaml.replace("  welcome:\n    ttl: 10m", "  greeting:\n    was: [welcome]\n    ttl: 20m")
            .replace("automation: welcome", "automation: greeting")
            .replace("      - { name: send", &format!("{new}      - {{ name: send"))
            .replace("secret: env:ORDERS,", "secrets: [env:ORDERS_NEW, env:ORDERS],")
    })
    .await;
    deliver_all(&gate, "already accepted").await;
    gate.advance(mins(1)).await;
    assert_eq!(receiver.requests().len(), 40, "0 runs");
}

/// C29 as far as it can be told on one node: what it does not know, it leaves as it is.
#[tokio::test]
async fn c29_what_nobody_here_can_run_stays_as_it_is_and_is_shown() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).start().await;
    gate.api.pause("welcome").await.ok();
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    gate.restart_with(|yaml| {
        let known = yaml.split("automations:").next().unwrap();
        format!("{known}\nautomations: {{ other: {{ ttl: 10m }} }}\n")
    })
    .await;
    gate.api.resume("welcome").await.ok();
    eventually("it is shown", async || {
        let notices = gate.api.get("/v1/notices").await.ok();
        let found = notices["notices"].as_array().unwrap().iter().any(|n| n["kind"] == "no_runner");
        found.then_some(())
    })
    .await;
    gate.advance(mins(20)).await;
    let claim = gate.api.find("welcome", "o_1").await.unwrap();
    assert_eq!((&claim["processing_state"], &claim["attempt"]), (&json!("none"), &json!(0)), "{claim}");
    assert!(claim["note"].as_str().unwrap().contains("no node can run `welcome`"), "{claim}");
    gate.restart_with(|yaml| {
        let known = yaml.split("automations:").next().unwrap();
        format!("{known}{}", WELCOME.replace("$RECEIVER", &receiver.url()))
    })
    .await;
    receiver.got("/send", 1).await;
}

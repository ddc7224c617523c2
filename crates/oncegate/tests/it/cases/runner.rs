//! Work that oncegate does itself: slow, failing, throttled and broken targets.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Client, Gate, Hold, Receiver, Reply, Setup, WELCOME, at, eventually, hours, mins, secs,
};

const THREE_STEPS: &str = "
automations:
  welcome:
    steps:
      - { name: one, http: { url: '$RECEIVER/one' }, repeat: by_key }
      - { name: two, http: { url: '$RECEIVER/two' }, repeat: by_key }
      - { name: three, http: { url: '$RECEIVER/three' }, repeat: by_key }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

async fn in_state(api: &Client, key: &str, state: &str) -> Value {
    eventually(&format!("{key} is {state}"), async || {
        api.find("welcome", key).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

/// Lets time pass until the claim's next try is due; how long that was.
async fn until_due(gate: &Gate, claim: &Value) -> Duration {
    let due = at(claim["due_at"].as_str().expect("it has a due time"));
    let wait = due.since(gate.now());
    gate.advance_to(due).await;
    wait
}

#[tokio::test]
async fn c05_answer_comes_before_the_work_and_resends_start_nothing() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.always("/send", Reply::held(&hold));
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let background = tokio::spawn({
        let api = gate.api.another();
        async move {
            let mut calls = tokio::task::JoinSet::new();
            let mut pulse = tokio::time::interval(Duration::from_millis(20));
            for n in 0..150 {
                pulse.tick().await;
                let api = api.clone();
                calls
                    .spawn(async move { api.claim("load", &format!("l_{n}")).await.is("run first").attempt });
            }
            calls.join_all().await.len()
        }
    });

    let order = json!({ "order": "shop1/5001/paid" });
    let deliver = async || {
        let sent = tokio::time::Instant::now();
        let said = gate.api.order(&order).await.ok();
        assert!(sent.elapsed() < secs(1), "acknowledged after {:?}", sent.elapsed());
        said["status"].clone()
    };
    assert_eq!(deliver().await, "accepted");
    // Durable, and not a word from the step yet.
    let claim = gate.api.find("welcome", "shop1/5001/paid").await.unwrap();
    assert!(["none", "processing"].contains(&claim["processing_state"].as_str().unwrap()), "{claim}");
    assert_eq!(receiver.got("/send", 1).await[0].answered, None);
    gate.advance(secs(60)).await;
    assert_eq!(deliver().await, "already accepted");
    gate.advance(secs(1)).await;
    assert_eq!(deliver().await, "already accepted");
    assert_eq!(background.await.unwrap(), 150);

    hold.let_go();
    let claim = in_state(&gate.api, "shop1/5001/paid", "done").await;
    assert_eq!((&claim["attempt"], &claim["stopped"]["count"]), (&json!(1), &json!(2)), "{claim}");
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn c41_failed_step_is_an_error_and_never_done() {
    let receiver = Receiver::start().await;
    receiver.always("/two", Reply::status(500));
    let gate = Setup::new(THREE_STEPS, &receiver).start().await;
    let order = json!({ "order": "o_1" });
    gate.api.order(&order).await.ok();
    for (retry, delay) in (1..).zip([secs(30), mins(4), mins(30)]) {
        receiver.got("/two", retry).await;
        let claim = in_state(&gate.api, "o_1", "error").await;
        let wait = until_due(&gate, &claim).await;
        assert!(wait >= delay.mul_f64(0.75) && wait <= delay.mul_f64(1.25), "retry {retry} after {wait:?}");
    }
    receiver.got("/two", 4).await;
    let claim = eventually("it is out of retries", async || {
        gate.api
            .find("welcome", "o_1")
            .await
            .filter(|c| c["attempt"] == 4 && c["processing_state"] == "error")
    })
    .await;
    let note = claim["note"].as_str().unwrap();
    assert!(note.contains("step 2 `two`") && note.contains("500"), "{note}");
    assert_eq!((&claim["due_at"], &claim["inbox"]), (&json!(null), &json!("error")), "{claim}");
    let steps: Vec<_> =
        claim["steps"].as_array().unwrap().iter().map(|s| (&s["step"], &s["outcome"])).collect();
    let expected = [("one", "succeeded"), ("two", "unknown"), ("three", "not_started")];
    let expected = expected.map(|(step, outcome)| (json!(step), json!(outcome)));
    assert_eq!(steps, expected.each_ref().map(|(step, outcome)| (step, outcome)));

    gate.advance(hours(1)).await;
    assert_eq!(gate.api.order(&order).await.ok()["status"], "already accepted");
    gate.api.claim("welcome", "o_1").await.is("stop needs_review");
    let claim = gate.api.find("welcome", "o_1").await.unwrap();
    assert!(claim["history"].as_array().unwrap().iter().all(|row| row["kind"] != "done"), "{claim}");
    let counts = ["/one", "/two", "/three"].map(|path| receiver.to(path).len());
    assert_eq!(counts, [1, 4, 0]);
    assert_eq!(
        receiver.to("/two").iter().map(|r| r.key()).collect::<std::collections::HashSet<_>>().len(),
        1
    );
}

#[tokio::test]
async fn c48_retry_after_is_waited_for_and_costs_no_retry() {
    let receiver = Receiver::start().await;
    let date = "Mon, 05 Jan 2026 10:02:30 GMT";
    receiver
        .script("/send", [Reply::retry_after(429, "60"), Reply::retry_after(429, date), Reply::status(201)]);
    let gate = Setup::new(WELCOME, &receiver).start().await;
    receiver.looks_at(&gate.clock);
    let order = json!({ "order": "o_1" });
    gate.api.order(&order).await.ok();

    for (calls, due) in [(1, "2026-01-05T10:01:00Z"), (2, "2026-01-05T10:02:30Z")] {
        receiver.got("/send", calls).await;
        let claim = eventually("it waits", async || {
            gate.api.find("welcome", "o_1").await.filter(|claim| claim["due_at"] == json!(at(due)))
        })
        .await;
        assert_eq!((&claim["processing_state"], &claim["inbox"]), (&json!("processing"), &json!(null)));
        gate.advance_to(at(due).before(secs(1))).await;
        let duplicate = gate.api.claim("welcome", "o_1").await;
        assert_eq!(duplicate.is("stop in_progress").retry_after_s, Some(1));
        assert_eq!(gate.api.order(&order).await.ok()["status"], "already accepted");
        gate.advance_to(at(due)).await;
    }
    let claim = in_state(&gate.api, "o_1", "done").await;
    let times: Vec<_> = receiver.got("/send", 3).await.iter().map(|r| r.at.unwrap()).collect();
    let expected = ["2026-01-05T10:00:00Z", "2026-01-05T10:01:00Z", "2026-01-05T10:02:30Z"];
    assert_eq!(times, expected.map(at));
    assert_eq!(claim["retries_used"], 0);
    assert_eq!(receiver.by_key().len(), 1, "the same key each time");

    receiver.script("/send", [Reply::retry_after(429, "86400")]);
    gate.api.order(&json!({ "order": "o_2" })).await.ok();
    let claim = in_state(&gate.api, "o_2", "error").await;
    assert!(claim["note"].as_str().unwrap().contains("asked to wait 24 h"), "{claim}");
    assert_eq!(claim["error_cause"], "asked_to_wait");
    assert_eq!(gate.api.keys_in("error").await, ["o_2"]);
}

#[tokio::test]
async fn c48_a_wait_longer_than_the_ttl_is_no_stale_claim() {
    let receiver = Receiver::start().await;
    receiver.script("/send", [Reply::retry_after(503, "7200")]);
    let gate = Setup::new(WELCOME, &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    let claim = eventually("it waits", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        (claim["processing_state"] == "processing" && claim["due_at"].is_string()).then_some(claim)
    })
    .await;
    gate.advance(mins(119)).await;
    assert_eq!(gate.api.inbox().await["stuck"], 0);
    assert_eq!(receiver.requests().len(), 1);
    until_due(&gate, &gate.api.show(claim["claim_id"].as_str().unwrap()).await).await;
    receiver.got("/send", 2).await;
    in_state(&gate.api, "o_1", "done").await;
}

#[tokio::test]
async fn c51_nothing_underneath_sends_a_post_again() {
    // What a repeat is declared to do → how often it is sent, and where it ends.
    for (repeat, sent, state, cause) in
        [("by_key", 3, "done", json!(null)), ("never", 1, "error", json!("outcome_unknown"))]
    {
        let receiver = Receiver::start().await;
        receiver.script("/two", [Reply::Reset, Reply::Reset]);
        let yaml = THREE_STEPS
            .replace("'$RECEIVER/two' }, repeat: by_key", &format!("'$RECEIVER/two' }}, repeat: {repeat}"));
        let gate = Setup::new(&yaml, &receiver).start().await;
        gate.api.order(&json!({ "order": "o_1" })).await.ok();
        for _ in 1..sent {
            let claim = in_state(&gate.api, "o_1", "error").await;
            let note = claim["note"].as_str().unwrap();
            assert!(note.starts_with("outcome unknown at step 2 `two`"), "{note}");
            let before = receiver.to("/two").len();
            until_due(&gate, &claim).await;
            receiver.got("/two", before + 1).await;
            // The next look must not find the error of before.
            eventually("the next attempt ends", async || {
                let now = gate.api.find("welcome", "o_1").await?;
                (now["attempt"] != claim["attempt"] && now["processing_state"] != "processing").then_some(())
            })
            .await;
        }
        let claim = in_state(&gate.api, "o_1", state).await;
        assert_eq!(claim["error_cause"], cause, "{claim}");
        let calls: Vec<_> =
            claim["calls"].as_array().unwrap().iter().filter(|call| call["step"] == "two").collect();
        let wire = receiver.to("/two");
        assert_eq!((wire.len(), calls.len()), (sent, sent), "{repeat}: {claim}");
        for (call, request) in calls.iter().zip(&wire) {
            assert_eq!(call["idempotency_key"], request.key());
            assert_eq!(request.key(), wire[0].key());
        }
        assert_eq!(calls[0]["outcome"], "unknown", "read whole, so not \"never sent\": {}", calls[0]);
        if repeat == "never" {
            assert!(claim["note"].as_str().unwrap().contains("look"), "{claim}");
            assert_eq!(gate.api.keys_in("error").await, ["o_1"]);
            gate.advance(hours(3)).await;
            assert_eq!(receiver.to("/two").len(), 1);
        }
    }
}

#[tokio::test]
async fn a_target_that_never_answers_leaves_an_outcome_that_nobody_knows() {
    for (repeat, due) in [("by_key", true), ("never", false)] {
        let receiver = Receiver::start().await;
        receiver.script("/send", [Reply::Silence]);
        let yaml = WELCOME.replace("repeat: by_key", &format!("repeat: {repeat}, timeout: 1s"));
        let gate = Setup::new(&yaml, &receiver).start().await;
        gate.api.order(&json!({ "order": "o_1" })).await.ok();
        let claim = in_state(&gate.api, "o_1", "error").await;
        let note = claim["note"].as_str().unwrap();
        assert!(note.starts_with("outcome unknown at step 1 `send`"), "{note}");
        assert_eq!(claim["calls"][0]["outcome"], "unknown");
        assert_eq!(claim["due_at"].is_string(), due, "{repeat}: {claim}");
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_has_surely_done_nothing_and_is_tried_again() {
    // A port at which nobody listens: bound, and let go of.
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let yaml = WELCOME
        .replace("$RECEIVER/send", &format!("http://{nobody}/send"))
        .replace("repeat: by_key", "repeat: never")
        + &format!("outgoing: {{ allow_private: ['{nobody}'] }}");
    let gate = Setup::alone(&yaml).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    let claim = in_state(&gate.api, "o_1", "error").await;
    assert_eq!((&claim["error_cause"], &claim["calls"][0]["outcome"]), (&json!("failed"), &json!("failed")));
    assert!(claim["due_at"].is_string(), "at most once allows another try of what was never sent: {claim}");
}

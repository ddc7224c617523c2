//! Steps that are left out, that wait, and that tell people.

use serde_json::{Value, json};

use crate::harness::{Receiver, Reply, Setup, eventually, mins, secs};

/// One automation with these steps, whose events name themselves by `order`.
pub(crate) fn yaml(steps: &str) -> String {
    format!(
        "
automations:
  welcome:
    ttl: 10m
    steps:
{steps}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
"
    )
}

pub(crate) async fn state(gate: &crate::harness::Gate, key: &str, state: &str) -> Value {
    eventually(&format!("{key} is {state}"), async || {
        gate.api.find("welcome", key).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

#[tokio::test]
async fn a_step_whose_condition_does_not_hold_is_left_out() {
    let receiver = Receiver::start().await;
    let steps = "
      - { name: put, http: { url: '$RECEIVER/put', json: { n: 1 } }, repeat: by_key }
      - { name: large, when: '{{ payload.total > 100 and steps.put.status == 200 }}', http: { url: '$RECEIVER/large' }, repeat: by_key }
      - { name: last, when: '{{ payload.tags }}', http: { url: '$RECEIVER/last' }, repeat: by_key }";
    let gate = Setup::new(&yaml(steps), &receiver).start().await;
    receiver.always("/put", Reply::json(&json!({ "id": 7 })));
    for (order, total, tags, sent) in [
        ("o_1", 50, json!([]), vec!["/put"]),
        ("o_2", 500, json!([]), vec!["/put", "/large"]),
        ("o_3", 50, json!(["a"]), vec!["/put", "/last"]),
    ] {
        let before = receiver.requests().len();
        gate.api.order(&json!({ "order": order, "total": total, "tags": tags })).await.ok();
        let claim = state(&gate, order, "done").await;
        let requests = receiver.requests();
        let paths: Vec<&str> = requests[before..].iter().map(|request| request.path.as_str()).collect();
        assert_eq!(paths, sent, "{order}");
        if order == "o_1" {
            assert_eq!(claim["result"], json!({ "id": 7 }), "the answer of the last step that ran");
            let outcomes: Vec<_> =
                claim["steps"].as_array().unwrap().iter().map(|step| &step["outcome"]).collect();
            assert_eq!(outcomes, ["succeeded", "left_out", "left_out"]);
        }
    }
    // What is not there is no reason to leave a step out.
    gate.api.order(&json!({ "order": "o_4", "tags": [] })).await.ok();
    let claim = state(&gate, "o_4", "error").await;
    assert!(claim["note"].as_str().unwrap().contains("`payload.total` is undefined"), "{claim}");
    assert_eq!(receiver.to("/large").len(), 1);
}

#[tokio::test]
async fn a_wait_is_as_long_as_it_says_over_restarts_and_kills() {
    let receiver = Receiver::start().await;
    let steps = "
      - { name: first, http: { url: '$RECEIVER/first' }, repeat: by_key }
      - { name: an hour, wait: 1h }
      - { name: second, http: { url: '$RECEIVER/second' }, repeat: by_key }";
    let mut gate = Setup::new(&yaml(steps), &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    receiver.got("/first", 1).await;
    let waits = async |gate: &crate::harness::Gate| {
        eventually("it waits", async || {
            let claim = gate.api.find("welcome", "o_1").await?;
            (claim["processing_state"] == "processing" && !claim["due_at"].is_null()).then_some(claim)
        })
        .await
    };
    let claim = waits(&gate).await;
    let outcomes: Vec<_> = claim["steps"].as_array().unwrap().iter().map(|step| &step["outcome"]).collect();
    assert_eq!(outcomes, ["succeeded", "waiting", "not_started"]);
    let until = claim["due_at"].clone();
    gate.advance(mins(20)).await;
    gate.restart().await;
    gate.advance(mins(20)).await;
    gate.crash();
    gate.reopen().await;
    gate.advance(mins(15)).await;
    assert_eq!(waits(&gate).await["due_at"], until, "neither of them begins it anew");
    assert_eq!(receiver.requests().len(), 1);
    gate.advance(mins(6)).await;
    receiver.got("/second", 1).await;
    let claim = state(&gate, "o_1", "done").await;
    assert_eq!(claim["retries_used"], 0, "{claim}");
    assert_eq!(receiver.requests().len(), 2);
    assert!(gate.api.inbox().await.values().all(|n| *n == 0), "nothing needs a person");
}

#[tokio::test]
async fn a_wait_ends_at_the_instant_that_the_payload_names() {
    let receiver = Receiver::start().await;
    let steps = "
      - { name: then, wait: { until: '{{ payload.at }}' } }
      - { name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }";
    let gate = Setup::new(&yaml(steps), &receiver).start().await;
    let at = |off: u64| gate.now().after(secs(off)).to_string();
    let (past, later) = (at(0), at(1_800));
    gate.api.order(&json!({ "order": "past", "at": past })).await.ok();
    gate.api.order(&json!({ "order": "later", "at": later })).await.ok();
    for (order, at) in
        [("noon", json!("tomorrow")), ("zoneless", json!("2026-01-05T12:00:00")), ("none", Value::Null)]
    {
        gate.api.order(&json!({ "order": order, "at": at })).await.ok();
        let claim = state(&gate, order, "error").await;
        assert!(claim["note"].as_str().unwrap().contains("wait.until"), "{claim}");
    }
    state(&gate, "past", "done").await;
    gate.advance(mins(29)).await;
    assert_eq!(receiver.requests().len(), 1);
    gate.advance(mins(2)).await;
    state(&gate, "later", "done").await;
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn people_are_told_once_and_what_a_form_says_is_no_markup() {
    let receiver = Receiver::start().await;
    let steps = "
      - { name: tell, slack: { url: '$RECEIVER/services/T/B/x', text: '*New:* {{ payload.name }}' } }
      - { name: tell others, teams: { url: '$RECEIVER/workflows/1', text: 'New: {{ payload.name }}' } }";
    let gate = Setup::new(&yaml(steps), &receiver).start().await;
    receiver.script("/services/T/B/x", [Reply::retry_after(429, "2"), Reply::status(200)]);
    receiver.script("/workflows/1", [Reply::status(500)]);
    gate.api.order(&json!({ "order": "o_1", "name": "<!channel> [x](y)" })).await.ok();
    receiver.got("/services/T/B/x", 1).await;
    eventually("it comes back later", async || {
        gate.api.find("welcome", "o_1").await.filter(|claim| !claim["due_at"].is_null())
    })
    .await;
    gate.advance(secs(3)).await;
    let told = receiver.got("/services/T/B/x", 2).await;
    assert_eq!(told[1].json(), json!({ "text": "*New:* &lt;!channel&gt; [x](y)" }));
    // Nobody can say whether that one appeared: a person looks, and it is not sent again.
    let claim = state(&gate, "o_1", "error").await;
    let card = receiver.got("/workflows/1", 1).await[0].json();
    let text = &card["attachments"][0]["content"]["body"][0]["text"];
    assert_eq!(text, r"New: \<\!channel\> \[x\]\(y\)");
    assert!(claim["note"].as_str().unwrap().contains("outcome unknown at step 2"), "{claim}");
    gate.advance(mins(60)).await;
    assert_eq!(receiver.requests().len(), 3);
    let shown = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
    assert!(!shown.to_string().contains("/services/T"), "the address is a secret: {shown}");
}

#[tokio::test]
async fn a_review_waits_for_a_person_and_goes_on_or_never_happens_by_their_word() {
    let receiver = Receiver::start().await;
    let steps = "
      - { name: look, http: { url: '$RECEIVER/look' }, repeat: by_key }
      - { name: check, when: '{{ payload.total > 100 }}', review: { ask: 'Refund {{ payload.total }} to {{ payload.who }}?' } }
      - { name: refund, http: { url: '$RECEIVER/refund', json: { by: \"{{ steps.check.json.by if payload.total > 100 else 'nobody' }}\" } }, repeat: by_key }";
    let mut gate = Setup::new(&yaml(steps), &receiver).start().await;
    for (order, total) in [("small", 50), ("large", 500), ("huge", 5_000)] {
        gate.api.order(&json!({ "order": order, "total": total, "who": "<ann>" })).await.ok();
    }
    state(&gate, "small", "done").await;
    let asks = async |gate: &crate::harness::Gate, key: &str| {
        eventually(&format!("{key} is asked about"), async || {
            gate.api.find("welcome", key).await.filter(|claim| claim["parked"] == "review")
        })
        .await
    };
    let claim = asks(&gate, "large").await;
    assert_eq!((&claim["processing_state"], &claim["inbox"]), (&json!("processing"), &json!("parked")));
    assert_eq!(claim["due_at"], Value::Null, "it comes by itself at no time");
    let outcomes: Vec<_> = claim["steps"].as_array().unwrap().iter().map(|step| &step["outcome"]).collect();
    assert_eq!(outcomes, ["succeeded", "waiting", "not_started"]);
    let asked = claim["calls"].as_array().unwrap().iter().find(|call| call["step"] == "check").unwrap();
    assert_eq!(asked["note"], "Refund 500 to <ann>?");
    asks(&gate, "huge").await;
    // However long it takes, and whatever happens to the gate and the event meanwhile.
    gate.advance(mins(60)).await;
    gate.crash();
    gate.reopen().await;
    gate.jump(mins(10 * 24 * 60));
    gate.api.order(&json!({ "order": "large", "total": 500, "who": "<ann>" })).await.ok();
    gate.advance(mins(30)).await;
    let (large, huge) = (asks(&gate, "large").await, asks(&gate, "huge").await);
    assert_eq!(receiver.to("/refund").len(), 1);
    let id = |claim: &Value| claim["claim_id"].as_str().unwrap().to_owned();
    let why = json!({ "reason": "the parcel came back", "by": "mia" });
    gate.api.act("approve", &id(&large), &why).await.ok();
    gate.api.act("approve", &id(&large), &why).await.problem(409, "nothing_to_do");
    let claim = state(&gate, "large", "done").await;
    assert_eq!(claim["retries_used"], 0);
    let refunds = receiver.to("/refund");
    assert_eq!(refunds.len(), 2);
    assert!(refunds[1].json()["by"].as_str().unwrap().contains("mia"), "{:?}", refunds[1].json());
    let declined = gate.api.act("decline", &id(&huge), &json!({ "reason": "she kept it" })).await.ok();
    assert_eq!((&declined["processing_state"], &declined["dismissed"]), (&json!("none"), &json!(true)));
    gate.api.order(&json!({ "order": "huge", "total": 5_000, "who": "<ann>" })).await.ok();
    gate.advance(mins(60)).await;
    assert_eq!((receiver.to("/refund").len(), receiver.to("/look").len()), (2, 3));
    assert!(gate.api.inbox().await.values().all(|n| *n == 0), "nothing needs a person any more");
}

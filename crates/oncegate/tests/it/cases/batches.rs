//! Many events in one request.

use serde_json::{Value, json};

use crate::harness::{Receiver, Setup, Signed, eventually};

const LIST: &str = "
automations:
  welcome:
    steps: [{ name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }]
sources:
  list:
    provider: hmac
    automation: welcome
    secret: env:ORDERS
    hmac: { header: X-Signature }
    key: [form_id, submission_id]
    batch: $BATCH
";

fn events() -> Value {
    json!([
        { "id": "ev_1", "form_id": "f", "submission_id": "s_1" },
        { "id": "ev_2", "form_id": "f" },
        { "id": "ev_3", "form_id": "f", "submission_id": "s_3" },
    ])
}

#[tokio::test]
async fn c43_one_bad_event_of_a_batch_is_kept_and_the_others_run_once() {
    for (batch, body) in
        [("true", events()), ("data.events", json!({ "data": { "events": events() }, "sent_at": 1 }))]
    {
        let receiver = Receiver::start().await;
        let mut gate = Setup::new(&LIST.replace("$BATCH", batch), &receiver).start().await;
        let first = gate.api.deliver("list", &Signed::order(&body)).await.ok();
        assert_eq!((&first["status"], &first["events"]), (&json!("mixed"), &json!(3)), "{first}");
        let sent = receiver.got("/send", 2).await;
        let got: Vec<_> = sent.iter().map(|request| request.json()).collect();
        for event in [&events()[0], &events()[2]] {
            assert!(got.contains(event), "each is sent as itself: {got:?}");
        }
        // Sent again: as a whole, in another order, and with one that is new.
        gate.api.deliver("list", &Signed::order(&body)).await.ok();
        let mut regrouped = events();
        regrouped.as_array_mut().unwrap().reverse();
        regrouped.as_array_mut().unwrap().push(json!({ "form_id": "f", "submission_id": "s_4" }));
        let regrouped = match batch {
            "true" => regrouped,
            _ => json!({ "data": { "events": regrouped }, "sent_at": 2 }),
        };
        gate.api.deliver("list", &Signed::order(&regrouped)).await.ok();
        receiver.got("/send", 3).await;

        let [row] = gate.api.rejected().await.try_into().unwrap();
        assert_eq!((&row["verdict"], &row["repeats"]), (&json!("rejected"), &json!(2)), "{row}");
        let kept = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok();
        assert_eq!(kept["body"], events()[1].to_string(), "its own part and no more");

        // Mended, that one runs, and nothing else.
        gate.restart_with(|yaml| yaml.replace("key: [form_id, submission_id]", "key: [form_id, id]")).await;
        assert_eq!(gate.api.release(&row["id"]).await.ok()["events"], 1);
        receiver.got("/send", 4).await;
        eventually("all are done", async || (gate.api.list("state=done").await.len() == 4).then_some(()))
            .await;
        assert!(receiver.by_key().values().all(|count| *count == 1));
        assert_eq!(gate.api.inbox().await["rejected"], 0);
    }
}

#[tokio::test]
async fn one_event_twice_in_one_request_is_one_effect() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&LIST.replace("$BATCH", "true"), &receiver).start().await;
    let one = json!({ "form_id": "f", "submission_id": "s_1" });
    let said = gate.api.deliver("list", &Signed::order(&json!([one, one, one]))).await.ok();
    assert_eq!((&said["status"], &said["events"]), (&json!("mixed"), &json!(3)));
    receiver.got("/send", 1).await;
    eventually("it is done", async || (gate.api.list("state=done").await.len() == 1).then_some(())).await;
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn a_list_of_nothing_or_of_too_much_is_kept_and_starts_nothing() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&LIST.replace("$BATCH", "true"), &receiver).start().await;
    let most = oncegate_core::limits::INTAKE_EVENTS_MAX;
    let many = |count: usize| {
        Value::Array((0..count).map(|n| json!({ "form_id": 1, "submission_id": n })).collect())
    };
    for (body, why) in
        [(json!([]), "there is no event in it"), (many(most + 1), "events in one request; at most")]
    {
        let said = gate.api.deliver("list", &Signed::order(&body)).await.ok();
        assert_eq!((&said["status"], &said["events"]), (&json!("stored, not run: no identity"), &json!(1)));
        let rows = gate.api.rejected().await;
        assert!(rows[0]["reason"].as_str().unwrap().contains(why), "{rows:?}");
        let kept = gate.api.get(&format!("/v1/rejected/{}", rows[0]["id"])).await.ok();
        assert_eq!(kept["body"], body.to_string(), "the whole of it");
    }
    assert!(gate.api.list("").await.is_empty());
    // Elements that are no objects have no key, each by itself.
    let said = gate.api.deliver("list", &Signed::order(&json!([1, null, "x", []]))).await.ok();
    assert_eq!((&said["status"], &said["events"]), (&json!("stored, not run: no identity"), &json!(4)));
    assert_eq!(gate.api.inbox().await["rejected"], 6);
}

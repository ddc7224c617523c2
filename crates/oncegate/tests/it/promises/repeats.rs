//! What is sent again after nobody could tell what came of it, and what is not.

use serde_json::json;

use crate::harness::{Receiver, Reply, hours, mins};
use crate::promises::{counts, in_state, reset_and_run, started, step, until_due, yaml};

#[tokio::test]
async fn an_unknown_outcome_is_sent_again_only_while_the_receiver_knows_its_key() {
    // Delays, the key's window → how often it is sent. The window counts from the first send.
    for (delays, window, sent) in
        [("2m", "10m", 2), ("30m", "10m", 1), ("6m, 6m", "8m", 2), ("6m, 6m", "24h", 3)]
    {
        let name = format!("retries after {delays}, keys known for {window}");
        let receiver = Receiver::start().await;
        receiver.script("/one", vec![Reply::Reset; delays.split(',').count()]);
        let by_key = step("one", &format!("repeat: by_key, key_window: {window}"));
        let gate = started(&yaml(&format!("retries: [{delays}]"), &[by_key]), &receiver).await;
        let retries = 1 + u32::try_from(delays.split(',').count()).unwrap();
        for attempt in 1..retries {
            let claim = in_state(&gate, attempt, "error").await;
            until_due(&gate, &claim).await;
        }
        let known = sent == usize::try_from(retries).unwrap();
        let claim = in_state(&gate, retries, if known { "done" } else { "error" }).await;
        if !known {
            assert_eq!(
                (&claim["error_cause"], &claim["due_at"]),
                (&json!("outcome_unknown"), &json!(null)),
                "{name}: {claim}"
            );
            let note = claim["note"].as_str().unwrap();
            assert!(note.contains("step 1 `one`") && note.contains("forgotten its key"), "{note}");
            gate.advance(hours(2)).await;
        }
        assert_eq!(receiver.got("/one", sent).await.len(), sent, "{name}");
        assert_eq!(receiver.by_key().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_pause_that_outlasts_the_keys_window_leaves_an_unknown_outcome_to_a_person() {
    let receiver = Receiver::start().await;
    receiver.script("/one", [Reply::Reset]);
    let by_key = step("one", "repeat: by_key, key_window: 10m");
    let gate = started(&yaml("retries: [2m]", &[by_key]), &receiver).await;
    in_state(&gate, 1, "error").await;
    gate.api.pause("welcome").await.ok();
    gate.advance(mins(15)).await;
    gate.api.resume("welcome").await.ok();
    let claim = in_state(&gate, 2, "error").await;
    assert_eq!((&claim["error_cause"], &claim["due_at"]), (&json!("outcome_unknown"), &json!(null)));
    assert_eq!(gate.api.keys_in("error").await, ["o_1"]);
    assert_eq!(receiver.requests().len(), 1);

    // Somebody looked: it is sent again, under its key.
    reset_and_run(&gate, &claim).await;
    in_state(&gate, 3, "done").await;
    let requests = receiver.got("/one", 2).await;
    assert_eq!(requests[0].key(), requests[1].key());
}

#[tokio::test]
async fn a_step_that_surely_failed_may_be_sent_after_its_keys_window() {
    let receiver = Receiver::start().await;
    receiver.script("/one", [Reply::status(503)]);
    let by_key = step("one", "repeat: by_key, key_window: 10m");
    let gate = started(&yaml("retries: [30m]", &[by_key]), &receiver).await;
    until_due(&gate, &in_state(&gate, 1, "error").await).await;
    in_state(&gate, 2, "done").await;
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn a_persons_reset_frees_an_unknown_step_that_may_not_repeat_itself() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::Reset, Reply::Reset]);
    let steps = [step("one", "repeat: never"), step("two", "repeat: never"), step("three", "repeat: never")];
    let gate = started(&yaml("", &steps), &receiver).await;
    for attempt in [1, 2] {
        let claim = in_state(&gate, attempt, "error").await;
        assert_eq!((&claim["error_cause"], &claim["due_at"]), (&json!("outcome_unknown"), &json!(null)));
        gate.advance(hours(1)).await;
        assert_eq!(
            counts(&receiver, ["/one", "/two", "/three"]),
            [1, usize::try_from(attempt).unwrap(), 0],
            "one word of a person's, one send"
        );
        reset_and_run(&gate, &claim).await;
    }
    in_state(&gate, 3, "done").await;
    gate.advance(hours(1)).await;
    assert_eq!(counts(&receiver, ["/one", "/two", "/three"]), [1, 3, 1], "what is done stays done");
    assert_eq!(receiver.by_key().len(), 3, "a plain reset changes no key");
}

#[tokio::test]
async fn a_redirect_tells_that_nothing_happened_unless_it_is_one_that_comes_after_the_act() {
    for (status, cause, outcome) in [
        (301, "failed", "failed"),
        (302, "outcome_unknown", "unknown"),
        (303, "outcome_unknown", "unknown"),
        (307, "failed", "failed"),
        (308, "failed", "failed"),
    ] {
        let receiver = Receiver::start().await;
        let location = ("location", format!("{}/elsewhere", receiver.url()));
        receiver.script("/one", [Reply::Status(status, vec![location], String::new())]);
        let gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
        let claim = in_state(&gate, 1, "error").await;
        assert_eq!(
            (&claim["error_cause"], &claim["due_at"]),
            (&json!(cause), &json!(null)),
            "{status}: {claim}"
        );
        assert_eq!(
            (&claim["calls"][0]["outcome"], &claim["calls"][0]["status"]),
            (&json!(outcome), &json!(status))
        );
        gate.advance(hours(1)).await;
        assert_eq!(receiver.requests().len(), 1, "{status} is not followed, and not sent again");
    }
}

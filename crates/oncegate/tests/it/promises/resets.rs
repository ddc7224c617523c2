//! Effects that are to happen anew, and flows that are declared anew while work is under way.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::{Receiver, Reply, hours, mins};
use crate::promises::{counts, id, in_state, order, reset_and_run, started, step, until_due, yaml};

#[tokio::test]
async fn a_verified_reset_sends_every_step_again_under_keys_that_receivers_do_not_know() {
    let receiver = Receiver::start().await;
    let steps = [step("one", "repeat: by_key"), step("two", "repeat: never")];
    let gate = started(&yaml("", &steps), &receiver).await;
    let claim = in_state(&gate, 1, "done").await;
    receiver.script("/one", [Reply::Reset]);
    let verified = json!({ "reason": "it was undone by hand", "run_now": true, "verified": true });
    gate.api.act("reset", id(&claim), &verified).await.ok();
    let claim = in_state(&gate, 2, "error").await;
    until_due(&gate, &claim).await;
    in_state(&gate, 3, "done").await;
    gate.advance(hours(1)).await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [3, 2]);
    let (one, two) = (receiver.to("/one"), receiver.to("/two"));
    assert_ne!(one[0].key(), one[1].key(), "a receiver that knows keys acts again");
    assert_eq!(one[1].key(), one[2].key(), "a retry of the second effect is no third one");
    assert_ne!(two[0].key(), two[1].key());
    assert_eq!(receiver.by_key().len(), 4, "no key is another step's");

    // And once more, which is a third effect.
    let claim = in_state(&gate, 3, "done").await;
    gate.api.act("reset", id(&claim), &verified).await.ok();
    in_state(&gate, 4, "done").await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [4, 3]);
    assert_eq!(receiver.by_key().len(), 6);
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_verified_second_effect_keeps_what_that_one_has_done() {
    let receiver = Receiver::start().await;
    let steps = [step("one", "repeat: never"), step("two", "repeat: never")];
    let gate = started(&yaml("", &steps), &receiver).await;
    let claim = in_state(&gate, 1, "done").await;
    receiver.script("/two", [Reply::status(422)]);
    let verified = json!({ "reason": "it was undone by hand", "run_now": true, "verified": true });
    gate.api.act("reset", id(&claim), &verified).await.ok();
    let claim = in_state(&gate, 2, "error").await;
    reset_and_run(&gate, &claim).await;
    in_state(&gate, 3, "done").await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [2, 3]);
    let two: BTreeSet<_> = receiver.to("/two").iter().map(|r| r.key().to_owned()).collect();
    assert_eq!(two.len(), 2, "the plain reset changed no key");
}

#[tokio::test]
async fn a_renamed_step_is_not_sent_again_by_itself() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: by_key"), step("two", "repeat: by_key")];
    let mut gate = started(&yaml("", &steps), &receiver).await;
    in_state(&gate, 1, "error").await;
    gate.restart_with(|yaml| yaml.replace("name: one", "name: greet")).await;
    until_due(&gate, &in_state(&gate, 1, "error").await).await;
    let claim = in_state(&gate, 2, "error").await;
    assert_eq!((&claim["error_cause"], &claim["due_at"]), (&json!("outcome_unknown"), &json!(null)));
    let note = claim["note"].as_str().unwrap();
    assert!(note.contains("`one`") && note.contains("`greet`"), "{note}");
    gate.advance(hours(1)).await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [1, 1]);

    reset_and_run(&gate, &claim).await;
    in_state(&gate, 3, "done").await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [2, 2], "a person said that it is another step");
}

#[tokio::test]
async fn a_renamed_step_that_gets_its_old_name_back_is_remembered() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: by_key"), step("two", "repeat: by_key")];
    let mut gate = started(&yaml("", &steps), &receiver).await;
    in_state(&gate, 1, "error").await;
    gate.restart_with(|yaml| yaml.replace("name: one", "name: greet")).await;
    until_due(&gate, &in_state(&gate, 1, "error").await).await;
    let claim = in_state(&gate, 2, "error").await;
    gate.restart_with(|yaml| yaml.replace("name: greet", "name: one")).await;
    reset_and_run(&gate, &claim).await;
    in_state(&gate, 3, "done").await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [1, 2]);
}

#[tokio::test]
async fn a_step_that_is_merely_removed_holds_nothing_up() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: never"), step("two", "repeat: never")];
    let mut gate = started(&yaml("", &steps), &receiver).await;
    in_state(&gate, 1, "error").await;
    let one = format!("      - {}\n", step("one", "repeat: never")).replace("$RECEIVER", &receiver.url());
    gate.restart_with(|yaml| {
        assert!(yaml.contains(&one), "{yaml}");
        yaml.replace(&one, "")
    })
    .await;
    until_due(&gate, &in_state(&gate, 1, "error").await).await;
    in_state(&gate, 2, "done").await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [1, 2]);
}

#[tokio::test]
async fn a_step_added_behind_finished_ones_is_sent_once() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: never"), step("two", "repeat: never")];
    let mut gate = started(&yaml("", &steps), &receiver).await;
    in_state(&gate, 1, "error").await;
    let three = format!("      - {}\n\nsources:", step("three", "repeat: never"));
    let three = three.replace("$RECEIVER", &receiver.url());
    gate.restart_with(|yaml| yaml.replace("\nsources:", &three)).await;
    until_due(&gate, &in_state(&gate, 1, "error").await).await;
    in_state(&gate, 2, "done").await;
    gate.advance(hours(1)).await;
    assert_eq!(counts(&receiver, ["/one", "/two", "/three"]), [1, 2, 1]);
    // What was done before it was declared is not done again for its sake.
    order(&gate, "o_2").await;
    receiver.got("/three", 2).await;
    assert_eq!(counts(&receiver, ["/one", "/two", "/three"]), [2, 3, 2]);
}

#[tokio::test]
async fn a_reset_without_run_now_is_shown_as_parked_until_somebody_starts_it() {
    for by_event in [false, true] {
        let receiver = Receiver::start().await;
        receiver.script("/one", [Reply::status(422)]);
        let gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
        let claim = in_state(&gate, 1, "error").await;
        assert_eq!(gate.api.reset(id(&claim)).await.ok()["processing_state"], "none");
        let claim = gate.api.show(id(&claim)).await;
        assert_eq!(
            (&claim["parked"], &claim["inbox"], &claim["due_at"]),
            (&json!("reset"), &json!("parked"), &json!(null))
        );
        gate.advance(mins(30)).await;
        assert_eq!(gate.api.keys_in("parked").await, ["o_1"]);
        assert_eq!(receiver.requests().len(), 1, "nobody started it");

        match by_event {
            true => order(&gate, "o_1").await,
            false => drop(gate.api.run_now(id(&claim)).await.ok()),
        }
        let claim = in_state(&gate, 2, "done").await;
        assert_eq!((&claim["parked"], &claim["inbox"]), (&json!(null), &json!(null)));
        assert_eq!(gate.api.order(&json!({ "order": "o_1" })).await.ok()["status"], "already accepted");
        gate.advance(mins(30)).await;
        assert_eq!(receiver.requests().len(), 2);
    }
}

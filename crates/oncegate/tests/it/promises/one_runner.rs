//! What can only be shown where one runner alone works, on one thing at a time.

use crate::harness::{Hold, Receiver, Reply, at, eventually};
use crate::promises::{counts, in_state, order, started, step, yaml};

#[tokio::test]
async fn a_caller_cannot_take_over_a_flow_that_has_begun() {
    let receiver = Receiver::start().await;
    receiver.script("/two", [Reply::status(503)]);
    let steps = [step("one", "repeat: never"), step("two", "repeat: never")];
    // One at a time, so that work that is due can be met before the runner comes to it.
    let yaml = yaml("", &steps) + "runner: { concurrency: 1 }\n";
    let gate = started(&yaml, &receiver).await;
    let claim = in_state(&gate, 1, "error").await;
    let hold = Hold::new();
    receiver.script("/one", [Reply::held(&hold)]);
    order(&gate, "o_2").await;
    receiver.got("/one", 2).await;
    gate.advance_to(at(claim["due_at"].as_str().unwrap())).await;
    let caller = gate.api.claim("welcome", "o_1").await;
    let note = caller.is("stop in_progress").note.clone().unwrap();
    assert!(note.contains("steps have begun"), "{note}");
    assert_eq!(gate.api.find("welcome", "o_1").await.unwrap()["attempt"], 1, "nothing was taken");

    hold.let_go();
    in_state(&gate, 2, "done").await;
    eventually("the other one is done too", async || {
        gate.api.find("welcome", "o_2").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
    assert_eq!(counts(&receiver, ["/one", "/two"]), [2, 3]);
    let acted: Vec<_> = receiver.requests().into_iter().filter(|r| r.answered == Some(200)).collect();
    let keys: std::collections::BTreeSet<_> = acted.iter().map(|r| r.key()).collect();
    assert_eq!((acted.len(), keys.len()), (4, 4), "each step of each order acted once");
}

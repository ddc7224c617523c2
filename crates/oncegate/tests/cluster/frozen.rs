//! A node that stands still beyond the TTL, is taken over, and wakes.

use serde_json::json;

use crate::harness::{Hold, Receiver, Reply, eventually, json_body, secs};
use crate::killed::{SHORT, time};
use crate::processes::{Team, in_state, lines};

/// Frozen while the receiver holds its request, and with somebody's call on its way to it.
#[tokio::test]
async fn a_frozen_node_is_taken_over_and_when_it_wakes_it_sends_nothing_more_and_its_answer_is_late() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.script("/send", [Reply::held(&hold)]);
    let team = Team::new(SHORT, &receiver);
    let [a, b] = team.two().await;
    let (far, near) = (a.api(), b.api());
    b.freeze();
    far.order(&json!({ "order": "o_1" })).await.ok();
    receiver.got("/send", 1).await;
    let held = far.claim("story", "k_1").await;
    b.wake();
    a.freeze();
    // It reaches the frozen node, and is read when that wakes.
    let late = tokio::spawn({
        let (far, held) = (far.another(), held.clone());
        // The database may have hung up on the node meanwhile; callers come again then.
        async move {
            loop {
                let said = far.done_with(&held, &json!({ "result": "of the first" })).await;
                if said.status != 503 {
                    return said;
                }
            }
        }
    });

    let done = in_state(&near, "welcome", "o_1", "done").await;
    let runs = lines(&done, "run");
    assert_eq!((runs.len(), &runs[1]["reason"]), (2, &json!("stale_retry")), "{done}");
    let waited = time(&runs[1]["at"]).since(time(&runs[0]["at"]));
    assert!(waited >= secs(8), "taken over after {waited:?}");
    assert_eq!((receiver.to("/send").len(), receiver.to("/tell").len()), (2, 1));
    let taken = eventually("the caller's claim is given to another", async || {
        Some(near.claim("story", "k_1").await).filter(|claimed| claimed.decision == "run")
    })
    .await;
    taken.is("run stale_retry");

    // What the first attempt sent is answered, and then the node wakes and finds the answer.
    hold.let_go();
    eventually("the answer is on its way", async || receiver.to("/send")[0].answered).await;
    a.wake();
    late.await.unwrap().problem(409, "lost_claim");
    near.done_with(&taken, &json!({ "result": "of the second" })).await.ok();
    for (automation, key) in [("welcome", "o_1"), ("story", "k_1")] {
        eventually(&format!("{key} is late"), async || {
            near.keys_in("late").await.contains(&key.to_owned()).then_some(())
        })
        .await;
        let shown = near.find(automation, key).await.unwrap();
        assert_eq!((&shown["processing_state"], &shown["attempt"]), (&json!("done"), &json!(2)), "{shown}");
        assert!(lines(&shown, "late").iter().all(|line| line["attempt"] == 1), "{shown}");
    }
    let shown = near.find("story", "k_1").await.unwrap();
    assert_eq!(shown["result"], "of the second", "{shown}");
    // It is one of the team again; what it does next comes behind whatever the first attempt still did.
    b.freeze();
    far.order(&json!({ "order": "o_2" })).await.ok();
    in_state(&far, "welcome", "o_2", "done").await;
    let after = far.find("welcome", "o_1").await.unwrap();
    assert_eq!((&after["result"], after["calls"].as_array().unwrap().len()), (&done["result"], 3), "{after}");
    assert_eq!((receiver.to("/send").len(), receiver.to("/tell").len()), (3, 2), "one effect by its key");
    assert_eq!(receiver.by_key().len(), 4, "two steps of two orders");
}

/// What may not be repeated is not sent by whoever takes over: a person is asked. The one that wakes sends nothing
/// either.
#[tokio::test]
async fn what_a_frozen_node_sent_and_may_not_be_repeated_goes_to_a_person() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.script("/send", [Reply::held(&hold)]);
    let yaml = SHORT.replace("8s", "3s").replace("repeat: by_key", "repeat: never");
    let team = Team::new(&yaml, &receiver);
    let [a, b] = team.two().await;
    let (far, near) = (a.api(), b.api());
    b.freeze();
    far.order(&json!({ "order": "o_1" })).await.ok();
    receiver.got("/send", 1).await;
    b.wake();
    a.freeze();
    let asked = in_state(&near, "welcome", "o_1", "error").await;
    assert_eq!(
        (&asked["error_cause"], &asked["inbox"]),
        (&json!("outcome_unknown"), &json!("error")),
        "{asked}"
    );
    hold.let_go();
    a.wake();
    // A person looks at it already, and is told there.
    eventually("it is late", async || {
        let shown = near.find("welcome", "o_1").await.unwrap();
        lines(&shown, "late").iter().any(|line| line["attempt"] == 1).then_some(())
    })
    .await;
    let after = near.find("welcome", "o_1").await.unwrap();
    assert_eq!((&after["processing_state"], &after["attempt"]), (&json!("error"), &json!(2)), "{after}");
    // A claim by the woken node, behind whatever it still had to do.
    far.claim("story", "k").await.is("run first");
    assert_eq!((receiver.to("/send").len(), receiver.to("/tell").len()), (1, 0));
}

/// It froze while what it had taken in was not committed: no other node waits for it for ever, and whoever was not told
/// asks again.
#[tokio::test]
async fn c02_a_claim_asked_of_a_frozen_node_is_given_by_the_other_and_only_once() {
    let receiver = Receiver::start().await;
    let team = Team::new(SHORT, &receiver);
    let [a, b] = team.two().await;
    let (far, near) = (a.api(), b.api());
    let mut asked = tokio::task::JoinSet::new();
    a.freeze();
    for n in 0..20 {
        let json = json!({ "automation": "story", "idempotency_key": format!("s_{n}") });
        let asks = json_body(far.request(reqwest::Method::POST, "/v1/claims"), &json);
        asked.spawn(async move { crate::harness::send(asks).await.ok() });
        near.claim("story", &format!("s_{n}")).await.is("run first");
    }
    a.wake();
    for answer in asked.join_all().await {
        assert_eq!(
            (&answer["decision"], &answer["reason"]),
            (&json!("stop"), &json!("in_progress")),
            "{answer}"
        );
    }
}

/// It had written down what it was about to send, and found it still its own.
#[tokio::test]
async fn a_node_that_stood_still_between_writing_down_and_sending_does_not_send() {
    let receiver = Receiver::start().await;
    let team = Team::new(SHORT, &receiver);
    let [a, b] = [
        team.start("a", &team.database.url(), team.yaml(), &[("ONCEGATE_FAILPOINT", "step.sending@1:stop")])
            .await,
        team.node("b").await,
    ];
    let near = b.api();
    b.freeze();
    // Whether it answers before it stands still is a race that does not matter here.
    let far = a.api();
    let order = tokio::spawn(async move { far.order(&json!({ "order": "o_1" })).await });
    let calls = "SELECT count(*) FROM oncegate.step_calls WHERE outcome = 'in_flight'";
    eventually("it is written down", async || (team.database.sql(calls) == "1").then_some(())).await;
    b.wake();
    let done = in_state(&near, "welcome", "o_1", "done").await;
    assert_eq!(lines(&done, "run")[1]["reason"], json!("stale_retry"), "{done}");
    assert_eq!(receiver.to("/send").len(), 1, "sent by the one that took it over");
    a.wake();
    let _ = order.await.unwrap();
    // What it does next comes behind what it would have sent.
    b.freeze();
    let far = a.api();
    far.order(&json!({ "order": "o_2" })).await.ok();
    in_state(&far, "welcome", "o_2", "done").await;
    assert_eq!((receiver.to("/send").len(), receiver.to("/tell").len()), (2, 2), "nothing was sent twice");
}

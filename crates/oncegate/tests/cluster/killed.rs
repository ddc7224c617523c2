//! kill -9 of one node of two.

use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Dice, Hold, Receiver, Reply, eventually, json_body, secs, send};
use crate::processes::{Team, balanced, in_state, lines};

/// Two steps, so that what was done is told from what was not; and callers that do the work themselves.
pub(crate) const SHORT: &str = "
automations:
  welcome:
    ttl: 8s
    ttl_override: true
    steps:
      - { name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }
      - { name: tell, http: { url: '$RECEIVER/tell' }, repeat: by_key }
  story: { ttl: 8s, ttl_override: true }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

pub(crate) fn time(value: &Value) -> Timestamp {
    Timestamp::parse_rfc3339(value.as_str().unwrap()).unwrap()
}

/// The whole story: taken over after the TTL and no earlier, sent again under its key, one effect; and nothing of it
/// comes back with the node.
#[tokio::test]
async fn a_killed_node_is_taken_over_after_the_ttl_and_what_is_done_stays_done_when_it_comes_back() {
    let receiver = Receiver::start().await;
    receiver.script("/send", [Reply::held(&Hold::new())]);
    let team = Team::new(SHORT, &receiver);
    let [a, b] = team.two().await;
    let (far, near) = (a.api(), b.api());
    let order = json!({ "order": "o_1" });
    // The node that took it in may not be the one that works on it: let it be the one that is killed.
    b.freeze();
    far.order(&order).await.ok();
    receiver.got("/send", 1).await;
    let held = far.claim("story", "k_1").await;
    held.is("run first");
    let finished = far.claim("story", "k_2").await;
    far.done_with(&finished, &json!({ "result": { "contact": 7 } })).await.ok();
    b.wake();
    a.kill().await;

    let claim = near.find("welcome", "o_1").await.unwrap();
    assert_eq!((&claim["processing_state"], &claim["attempt"]), (&json!("processing"), &json!(1)), "{claim}");
    assert_eq!(near.order(&order).await.ok()["status"], "already accepted");
    near.claim("welcome", "o_1").await.is("stop in_progress");
    // Whoever holds a claim tells whichever node is there.
    assert_eq!(near.done(&held).await.ok()["processing_state"], "done");
    let again = near.claim("story", "k_2").await;
    assert_eq!(again.is("stop duplicate").result, json!({ "contact": 7 }), "acknowledged before the kill");

    let done = in_state(&near, "welcome", "o_1", "done").await;
    let runs = lines(&done, "run");
    let reasons: Vec<_> = runs.iter().map(|run| &run["reason"]).collect();
    assert_eq!(
        (reasons, &done["attempt"]),
        (vec![&json!("first"), &json!("stale_retry")], &json!(2)),
        "{done}"
    );
    let waited = time(&runs[1]["at"]).since(time(&runs[0]["at"]));
    assert!(waited >= secs(8), "taken over after {waited:?}");
    let sent = receiver.got("/send", 2).await;
    assert_eq!(sent[0].key(), sent[1].key(), "the same request, for whoever counts by its key");
    assert_eq!(sent[0].body, sent[1].body);

    // As soon as it is sure to be gone, it may come back.
    let a = team.node("a").await;
    let far = a.api();
    assert_eq!(far.order(&order).await.ok()["status"], "already accepted");
    for (automation, key) in [("welcome", "o_1"), ("story", "k_1"), ("story", "k_2")] {
        far.claim(automation, key).await.is("stop duplicate");
    }
    b.kill().await;
    // It looks at all that is due before it comes to this one.
    far.order(&json!({ "order": "o_2" })).await.ok();
    in_state(&far, "welcome", "o_2", "done").await;
    assert_eq!((receiver.to("/send").len(), receiver.to("/tell").len()), (3, 2), "nothing was sent anew");
    let after = far.find("welcome", "o_1").await.unwrap();
    assert_eq!((&after["attempt"], &after["calls"]), (&done["attempt"], &done["calls"]), "{after}");
}

/// One node knows `wf_a` and the other does not, and it is the other that lives.
#[tokio::test]
async fn c29_a_node_leaves_alone_what_it_does_not_know_and_the_one_that_does_takes_it_over_once() {
    const A: &str = "
automations:
  wf_a:
    ttl: 2s
    ttl_override: true
    steps: [{ name: send, http: { url: '$RECEIVER/a' }, repeat: by_key }]
sources:
  orders: { provider: hmac, automation: wf_a, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";
    let receiver = Receiver::start().await;
    receiver.script("/a", [Reply::held(&Hold::new())]);
    let team = Team::new(A, &receiver);
    let a = team.node("a").await;
    a.api().order(&json!({ "order": "o_1" })).await.ok();
    receiver.got("/a", 1).await;
    a.kill().await;
    let known = A.replace("wf_a", "wf_b").replace("$RECEIVER", &receiver.url());
    let only_b = format!("outgoing: {{ allow_private: ['{}'] }}\n{known}", receiver.address);
    let b = team.start("b", &team.database.url(), &only_b, &[]).await;
    let near = b.api();
    eventually("it is stuck", async || near.keys_in("stuck").await.contains(&"o_1".to_owned()).then_some(()))
        .await;
    let said = eventually("it is told", async || {
        let notices = near.get("/v1/notices").await.ok();
        notices["notices"].as_array().unwrap().iter().find(|n| n["kind"] == "no_runner").cloned()
    })
    .await;
    assert!(said.to_string().contains("no node can run `wf_a`"), "{said}");
    let shown = near.find("wf_a", "o_1").await.unwrap();
    assert_eq!((&shown["processing_state"], &shown["attempt"]), (&json!("processing"), &json!(1)), "{shown}");
    assert_eq!(lines(&shown, "run").len() + lines(&shown, "error").len(), 1, "left as it was: {shown}");

    let a = team.node("a").await;
    let done = in_state(&a.api(), "wf_a", "o_1", "done").await;
    assert_eq!((&done["attempt"], lines(&done, "run").len()), (&json!(2), 2), "{done}");
    assert_eq!((receiver.requests().len(), receiver.by_key().len()), (2, 1), "one effect by its key");
}

/// Four claim by a node that dies before any of them is committed; a fifth, by the other node, waits behind them.
#[tokio::test]
async fn c44_claims_that_died_with_their_node_before_they_were_committed_stop_nobody() {
    let receiver = Receiver::start().await;
    let team = Team::new(SHORT, &receiver);
    let living = team.node("near").await;
    let near = living.api();
    // New to the nodes, and known to them: a claim is written in two ways.
    for known in [false, true] {
        let node = team.node(if known { "far-known" } else { "far-new" }).await;
        let far = node.api();
        if known {
            far.claim("story", "another").await.is("run first");
            near.claim("story", "one more").await.is("run first");
        }
        let key = format!("known: {known}");
        let ask = |n: u32| json!({ "automation": "story", "idempotency_key": key, "run_id": format!("{key}, run {n}") });
        // Written behind everything else: the claim's row is there, and its transaction cannot end.
        let slow = team.database.hold("LOCK TABLE oncegate.history IN SHARE MODE");
        let mut four = tokio::task::JoinSet::new();
        for n in 1..=4 {
            let asked = json_body(far.request(reqwest::Method::POST, "/v1/claims"), &ask(n));
            four.spawn(async move { asked.send().await.map(|answer| answer.status()) });
        }
        eventually("they wait", async || (team.database.waiting() >= 1).then_some(())).await;
        let fifth = tokio::spawn({
            let (near, ask) = (near.clone(), ask(5));
            async move { near.claim_with(&ask).await }
        });
        eventually("the fifth waits behind them", async || (team.database.waiting() >= 2).then_some(()))
            .await;
        node.kill().await;
        while let Some(told) = four.join_next().await {
            let told = told.unwrap();
            assert!(told.is_err(), "{key}: nothing is committed, and they were told {told:?}");
        }
        assert!(!fifth.is_finished(), "{key}: nothing is committed yet");
        drop(slow);
        let mut told = vec![fifth.await.unwrap().words()];
        // Whoever was told nothing asks again, where somebody answers.
        for n in 1..=4 {
            told.push(near.claim_with(&ask(n)).await.words());
        }
        let ran = told.iter().filter(|words| words.starts_with("run ")).count();
        assert_eq!(ran, 1, "{key}: {told:?}");
        assert!(told.iter().all(|t| t.starts_with("run ") || t == "stop in_progress"), "{key}: {told:?}");
        let shown = near.find("story", &key).await.unwrap();
        let first = lines(&shown, "run").iter().filter(|line| line["reason"] == "first").count();
        assert_eq!((&shown["attempt"], first), (&json!(1), 1), "{shown}");
    }
}

/// One schedule on two nodes; the run takes long, and one node dies meanwhile.
#[tokio::test]
async fn c57_a_scheduled_import_runs_once_at_a_time_whichever_node_dies_and_catches_up_once() {
    let receiver = Receiver::start().await;
    let team = Team::new("automations: { imports: { ttl: 20s, ttl_override: true } }", &receiver);
    let [a, b] = team.two().await;
    let nodes = [a.api(), b.api()];
    let tick = |slot: &str| json!({ "automation": "imports", "idempotency_key": format!("crm:{slot}"), "record": "import:crm" });
    let both = async |slot: &str| {
        let (one, two) = (tick(slot), tick(slot));
        let (one, two) = tokio::join!(nodes[0].claim_with(&one), nodes[1].claim_with(&two));
        let mut answers = [one, two];
        answers.sort_by_key(|answer| answer.decision.clone());
        answers
    };
    let [running, other] = both("10:00").await;
    running.is("run first");
    other.is("stop in_progress");
    assert_eq!(running.processing_started_at, other.processing_started_at, "both are told since when");
    for late in both("10:15").await {
        late.is("stop record_busy");
    }
    let holder =
        json!({ "automation": "imports", "idempotency_key": "crm:10:20 by mia", "record": "import:crm" });
    nodes[1].claim_with(&holder).await.is("stop record_busy");
    a.kill().await;
    let near = &nodes[1];
    near.claim_with(&tick("10:30")).await.is("stop record_busy");
    near.claim_with(&tick("10:00")).await.is("stop in_progress");
    assert_eq!(near.heartbeat(&running).await.ok()["answer"], "accepted", "it lives, whoever took its claim");
    near.done(&running).await.ok();
    // Another node stands in for the one that died, and goes by the same schedule.
    let c = team.node("c").await;
    let stand_in = c.api();
    let (one, two) = (tick("10:30"), tick("10:30"));
    let (one, two) = tokio::join!(near.claim_with(&one), stand_in.claim_with(&two));
    let mut answers = [one.words(), two.words()];
    answers.sort();
    assert_eq!(answers, ["run first", "stop in_progress"], "one catches up, wherever it is asked for");
    stand_in.claim_with(&tick("10:00")).await.is("stop duplicate");
}

/// A caller by each of two nodes, for each key, at almost one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_one_post_starts_two_executions_on_two_processes_and_one_of_them_runs() {
    let mail = Receiver::start().await;
    let team = Team::new("automations: { wf_closure: { ttl: 10m } }", &mail);
    let nodes = team.two().await;
    let callers = [nodes[0].api(), nodes[1].api()];
    let mut dice = Dice::roll();
    let mut executions = tokio::task::JoinSet::new();
    for n in 2_001..=2_200 {
        let together = std::sync::Arc::new(tokio::sync::Barrier::new(2));
        for (caller, gap) in callers.iter().cloned().zip([0, dice.below(156)]) {
            let (together, mail) = (std::sync::Arc::clone(&together), mail.url());
            executions.spawn(async move {
                together.wait().await;
                tokio::time::sleep(std::time::Duration::from_millis(gap)).await;
                let claimed = caller.claim("wf_closure", &format!("f_close:s_{n}")).await;
                if claimed.decision == "run" {
                    let sent = caller.bare(reqwest::Method::POST, &format!("{mail}/mail"));
                    let sent = sent.header("idempotency-key", &claimed.idempotency_key).body("Dear …");
                    assert_eq!(send(sent).await.status, 200);
                }
                claimed
            });
        }
    }
    let answers = executions.join_all().await;
    let either = balanced(&nodes);
    for n in 2_001..=2_200 {
        let key = format!("f_close:s_{n}");
        let mut words: Vec<_> =
            answers.iter().filter(|a| a.idempotency_key == key).map(|a| a.words()).collect();
        words.sort();
        assert_eq!(words, ["run first", "stop in_progress"], "{key}");
        let shown = either.find("wf_closure", &key).await.unwrap();
        assert_eq!((lines(&shown, "stop").len(), &shown["stopped"]["count"]), (1, &json!(1)), "{shown}");
    }
    assert_eq!(mail.to("/mail").len(), 200);
    assert!(mail.by_key().values().all(|count| *count == 1));
}

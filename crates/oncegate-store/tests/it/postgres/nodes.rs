//! What two nodes, or two processes that both take themselves for one, may not do to the same effect.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::identity::Likeness;
use oncegate_store::clock::ManualClock;
use oncegate_store::{Store, StoreError};
use oncegate_testing::Postgres;

use super::{Cluster, two};
use crate::conformance::{Asking, MORNING, caller, runner, words};

/// It stood still for so long that another one was started in its place; then it wakes, and looks for work.
#[tokio::test]
async fn a_process_that_was_replaced_while_it_stood_still_takes_no_work() {
    let (cluster, clock, [asleep, other]) = two().await;
    let id = other.claim(caller("k").queued()).await.unwrap().unwrap().id;
    assert_eq!(asleep.due(9).await.unwrap().len(), 1, "it has seen it before");
    let again = cluster.node("a", &clock).await;
    let refused = asleep.claim(runner(id, asleep.boot())).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let taken = again.claim(runner(id, again.boot())).await.unwrap().unwrap();
    assert_eq!(words(&taken.decision), "run first");
    asleep.tick().await.unwrap();
    assert!(asleep.due(9).await.unwrap().is_empty());
}

/// C15 on two nodes: other keys, so no row and no index tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_of_two_that_are_alike_at_two_nodes_at_once_one_runs() {
    let (cluster, _clock, [a, b]) = two().await;
    a.claim(caller("known")).await.unwrap();
    b.claim(caller("known")).await.unwrap();
    for round in 0..10_u8 {
        let like = |name: &str| {
            let mut call = caller(&format!("{name} {round}"));
            call.request.likeness = Some(Likeness { hash: [round; 16], within: Duration::from_secs(1_800) });
            call
        };
        // Neither can end before both have begun.
        let hold = cluster.database.hold("LOCK TABLE oncegate.history IN SHARE MODE");
        let both = async { tokio::join!(a.claim(like("a")), b.claim(like("b"))) };
        let waits = async {
            while cluster.database.waiting() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(hold);
        };
        let ((of_a, of_b), ()) = tokio::join!(both, waits);
        let mut answers = [of_a, of_b].map(|claimed| words(&claimed.unwrap().unwrap().decision));
        answers.sort();
        assert_eq!(answers, ["run first", "stop repeat"], "round {round}");
    }
}

/// Claims of one record that are done at once hold nobody up; its limit counts them all the same, however many come in
/// one moment.
#[tokio::test]
async fn too_many_of_one_record_at_one_moment_look_like_a_loop() {
    let (_cluster, _clock, [a, _]) = two().await;
    let a = Arc::new(a);
    a.claim(caller("known").of("at_claim")).await.unwrap();
    let mut all = tokio::task::JoinSet::new();
    for n in 0..30 {
        let a = Arc::clone(&a);
        let call = caller(&format!("k{n}")).of("at_claim").on("crm:1");
        all.spawn(async move { words(&a.claim(call).await.unwrap().unwrap().decision) });
    }
    let answers = all.join_all().await;
    assert_eq!(answers.iter().filter(|words| *words == "run first").count(), 5, "{answers:?}");
}

/// What the documentation says a new claim costs, by the server's own log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_claim_is_one_statement_and_those_of_a_moment_share_it() {
    let server = Postgres::own(&[("log_statement", "all")]);
    let cluster = Cluster::of(&server);
    let clock = Arc::new(ManualClock::at(MORNING));
    let node = Arc::new(cluster.node("a", &clock).await);
    let ran = || server.log().lines().filter(|l| l.contains("execute ") || l.contains("statement: ")).count();
    for key in ["makes the automation known", "prepares the statement"] {
        node.claim(caller(key)).await.unwrap();
    }
    let before = ran();
    let claimed = node.claim(caller("k").under_run("run-1")).await.unwrap().unwrap();
    assert_eq!(words(&claimed.decision), "run first");
    assert_eq!(ran() - before, 1, "{}", server.log());

    let before = ran();
    let mut all = tokio::task::JoinSet::new();
    for n in 0..64 {
        let node = Arc::clone(&node);
        all.spawn(
            async move { words(&node.claim(caller(&format!("k{n}"))).await.unwrap().unwrap().decision) },
        );
    }
    assert!(all.join_all().await.iter().all(|words| words == "run first"));
    assert!(ran() - before <= 16, "{} statements for 64 claims", ran() - before);
}

//! New claims that come in one moment are written together, and are what each would be alone.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::key::Workspace;
use oncegate_core::policy::Ttl;
use oncegate_store::Store;
use oncegate_store::access::Access;
use oncegate_store::api::{ClaimCall, Claimed};
use oncegate_store::clock::ManualClock;
use oncegate_store::postgres::PgStore;
use oncegate_testing::Postgres;
use tokio::task::JoinSet;

use super::Cluster;
use crate::conformance::{Asking, MINUTE, MORNING, WS, caller, words, workspace_name};

/// What new claims may differ in, by kind.
fn kinds(name: &str) -> [ClaimCall; 9] {
    let mut short = caller(name);
    short.request.ttl = Some(Ttl::new(5 * MINUTE).unwrap());
    let mut linked = caller(name).under_run(name);
    linked.run_url = Some(format!("https://zap.example.com/runs/{name}"));
    let mut other = caller(name);
    other.actor = "token:shop".into();
    [
        caller(name),
        caller(name).with("a form"),
        caller(name).on(name),
        caller(name).queued(),
        caller(name).of("at_claim").under_run(name),
        caller(name).of("hooked").with("a form").on(name),
        short,
        linked,
        other,
    ]
}

/// All that is known of a claim, but what makes it another one than its like.
async fn known(node: &PgStore, claimed: &Claimed, name: &str) -> String {
    let (mut view, work) =
        (node.show(claimed.id).await.unwrap().unwrap(), node.work(claimed.id).await.unwrap());
    let payload = work.unwrap().payload.map(|payload| payload.json);
    let answer = claimed.view.as_ref().unwrap();
    assert_eq!((&answer.claim, answer.row), (&view.claim, view.row), "{name} is told what stands there");
    let zero = [0; 16];
    (view.claim.id.0, view.row, view.workspace) = (zero, 0, WS);
    let history = node.history(claimed.id).await.unwrap();
    let decision = words(&claimed.decision);
    format!("{decision} {view:?} {payload:?} {history:?}").replace(name, "NAME")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_of_a_moment_are_what_each_would_be_alone_however_they_differ() {
    let server = Postgres::own(&[]);
    let cluster = Cluster::of(&server);
    let node = Arc::new(cluster.node("a", &Arc::new(ManualClock::at(MORNING))).await);
    // An automation that the node has not met in a workspace: its first claim is looked at, and written alone.
    let mut alone = Vec::new();
    for (n, call) in kinds("alone").into_iter().enumerate() {
        let client = workspace_name(&format!("client-{n}"));
        let (workspace, _) = node.add_workspace(client, "mia".into()).await.unwrap();
        assert_ne!(workspace, Workspace::DEFAULT);
        let claimed = node.claim(call.within(workspace)).await.unwrap().unwrap();
        alone.push(known(&node, &claimed, "alone").await);
    }
    for automation in ["welcome", "at_claim", "hooked"] {
        node.claim(caller("makes it known").of(automation)).await.unwrap();
    }
    let mut all = JoinSet::new();
    for round in 0..6 {
        for n in 0..alone.len() {
            // Kinds share an automation, so each has keys of its own.
            let name = format!("together{round}kind{n}");
            let (node, call) = (Arc::clone(&node), kinds(&name).into_iter().nth(n).unwrap());
            all.spawn(async move { (n, name, node.claim(call).await.unwrap().unwrap()) });
        }
    }
    for (n, name, claimed) in all.join_all().await {
        assert_eq!(known(&node, &claimed, &name).await, alone[n], "{name}");
    }
    // A statement that the database refuses is made good one by one, and costs more than it was to save.
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

/// While one statement is under way others gather, and enough of them need not wait for it.
#[tokio::test]
async fn what_comes_while_a_statement_is_under_way_shares_the_next_one() {
    let server = Postgres::own(&[("log_statement", "all")]);
    let cluster = Cluster::of(&server);
    let node = Arc::new(cluster.node("a", &Arc::new(ManualClock::at(MORNING))).await);
    let ran = || server.log().lines().filter(|l| l.contains("execute ") && l.contains("WITH t AS")).count();
    for key in ["makes the automation known", "prepares the statement"] {
        node.claim(caller(key)).await.unwrap();
    }
    let under_way = async |n: u32| {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while cluster.database.waiting() < n {
            assert!(tokio::time::Instant::now() < deadline, "no {n} statements under way");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Twice so many come while one is under way: how many are under way after the first half, and how many it takes.
    for (half, then, statements) in [(4, 1, 2), (30, 2, 3)] {
        let (before, mut all) = (ran(), JoinSet::new());
        let hold = cluster.database.hold("LOCK TABLE oncegate.history IN SHARE MODE");
        let mut claim = |key: String| {
            let node = Arc::clone(&node);
            all.spawn(async move { words(&node.claim(caller(&key)).await.unwrap().unwrap().decision) });
        };
        claim(format!("{half} first"));
        under_way(1).await;
        for part in ["a", "b"] {
            (0..half).for_each(|n| claim(format!("{half} {part} {n}")));
            // On this one thread everybody has had their turn by then.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            under_way(then).await;
        }
        drop(hold);
        assert!(all.join_all().await.iter().all(|words| words == "run first"));
        assert_eq!(ran() - before, statements, "twice {half} after one: {}", server.log());
    }
}

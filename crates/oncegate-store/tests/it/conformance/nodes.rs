//! What a node says that it can run, and what it is given.

use std::collections::HashSet;

use oncegate_core::key::AutomationName;
use oncegate_core::reset::Act;
use oncegate_store::api::Workspace;
use oncegate_store::nodes::{Abilities, Names};

use super::*;

pub(crate) fn names(of: &[&str]) -> Names {
    of.iter().map(|name| (WS, automation(name))).collect()
}

/// It declares all of them, and has steps for some.
pub(crate) fn can(declares: &[&str], runs: &[&str]) -> Abilities {
    Abilities { declares: names(declares), runs: names(runs), calls_back: Names::new() }
}

async fn stranded(bench: &Bench, runnable: &[&str]) -> Vec<(Workspace, AutomationName)> {
    bench.stranded(names(runnable)).await.unwrap()
}

#[tokio::test]
async fn c29_work_that_a_node_cannot_run_does_not_stand_before_what_it_can() {
    for bench in benches().await {
        for n in 0..30 {
            bench.ask(caller(&format!("k{n}")).of("elsewhere").queued()).await;
        }
        let ours = bench.ask(caller("k").queued()).await.id;
        let held = bench.ask(caller("held").of("elsewhere").queued()).await.id;
        bench.ask(runner(held, bench.boot())).await;
        assert_eq!(bench.due(10).await.unwrap().len(), 10, "before a word, everything");
        bench.hello(can(&["welcome", "other"], &["welcome"])).await.unwrap();
        assert_eq!(bench.due(10).await.unwrap().iter().map(|d| d.id).collect::<Vec<_>>(), [ours]);
        assert_eq!(stranded(&bench, &["welcome"]).await, [(WS, automation("elsewhere"))]);
        assert_eq!(stranded(&bench, &["welcome", "elsewhere"]).await, []);
        assert_eq!(stranded(&bench, &[]).await.len(), 2);
        // What went stale is due as well, and stays as it is.
        bench.live(TTL).await;
        assert_eq!(bench.due_ids().await, [ours]);
        assert_eq!(bench.seen(held).await.claim.attempt, 1);
        bench.set_paused(WS, automation("elsewhere"), true, "r".into(), "mia".into()).await.unwrap();
        assert_eq!(stranded(&bench, &["welcome"]).await, [], "what is paused waits for a person anyway");
        bench.set_paused(WS, automation("elsewhere"), false, "r".into(), "mia".into()).await.unwrap();
        bench.hello(can(&[], &[])).await.unwrap();
        assert_eq!(bench.due_ids().await, []);
        bench.hello(can(&["elsewhere"], &["elsewhere"])).await.unwrap();
        let due: HashSet<_> = bench.due_ids().await.into_iter().collect();
        assert!(due.len() == 31 && due.contains(&held) && !due.contains(&ours));
    }
}

#[tokio::test]
async fn an_automation_is_known_by_its_workspace_too() {
    for bench in benches().await {
        let theirs = Workspace(2);
        bench.add_workspace(theirs).await;
        let id = bench.ask(caller("k").within(theirs).queued()).await.id;
        bench.hello(can(&["welcome"], &["welcome"])).await.unwrap();
        assert_eq!(bench.due_ids().await, [], "the name is the other workspace's");
        assert_eq!(stranded(&bench, &["welcome"]).await, [(theirs, automation("welcome"))]);
        let runs: Names = [(theirs, automation("welcome"))].into();
        bench.hello(Abilities { declares: runs.clone(), runs, ..Abilities::default() }).await.unwrap();
        assert_eq!(bench.due_ids().await, [id]);
        bench.person(id, Act::Dismiss).await;
        assert_eq!(stranded(&bench, &["welcome"]).await, []);
    }
}

#[tokio::test]
async fn a_node_that_is_alone_is_the_only_one() {
    for mut bench in reopened_benches().await {
        bench.hello(can(&["welcome"], &[])).await.unwrap();
        bench.reopen().await;
        let [me] = &bench.nodes().await.unwrap()[..] else { panic!("one") };
        assert!(me.is_me && me.alive && me.version == env!("CARGO_PKG_VERSION"), "{me:?}");
        assert_eq!((me.start, me.seen_at), (bench.boot().start, bench.now().wall));
        assert_eq!(bench.elsewhere().await.unwrap(), Abilities::default());
    }
}

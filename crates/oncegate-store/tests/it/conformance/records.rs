//! Records: one live holder over all automations; a stale one loses it together with its token.

use oncegate_core::inbox::InboxList;
use oncegate_core::policy::LoopLimit;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_has_one_live_holder_over_all_automations() {
    for bench in benches().await {
        for round in 0..20 {
            let record = format!("crm:{round}");
            let tasks: Vec<_> = (0..16)
                .map(|n| {
                    let store = Arc::clone(&bench);
                    let call = caller(&format!("k{round}:{n}")).of(&format!("flow{}", n % 4)).on(&record);
                    tokio::spawn(async move { store.claim(call).await.unwrap().unwrap() })
                })
                .collect();
            let mut running = Vec::new();
            for task in tasks {
                let claimed = task.await.unwrap();
                match words(&claimed.decision).as_str() {
                    "run first" => running.push(claimed),
                    other => assert_eq!(other, "stop record_busy"),
                }
            }
            assert_eq!(running.len(), 1, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_record_is_free_again_once_its_holder_ends() {
    let ends =
        [("done", Call::Done), ("error", failed_for_good()), ("retry", failed()), ("back", Call::HandBack)];
    for bench in benches().await {
        for (name, end) in ends.clone() {
            let record = format!("crm:{name}");
            let token = bench.ask(caller(name).on(&record)).await.token.unwrap();
            let next = || caller(&format!("{name} next")).of("other").on(&record);
            assert_eq!(bench.answer(next()).await, "stop record_busy", "{name}");
            bench.say(&token, end).await;
            assert_eq!(bench.answer(next()).await, "run first", "{name}");
        }
        let held = bench.ask(caller("reset").on("crm:reset")).await;
        let act = Act::Reset { run_now: false, confirm_holder: Some("attempt-1".into()), verified: false };
        bench.person(held.id, act).await;
        assert_eq!(bench.answer(caller("after reset").on("crm:reset")).await, "run first");
    }
}

#[tokio::test]
async fn a_record_taken_from_a_stale_holder_voids_its_token_and_leaves_it_stuck() {
    for bench in benches().await {
        let stale = bench.ask(caller("a").on("crm:1")).await;
        bench.live(TTL - SECOND).await;
        assert_eq!(bench.answer(caller("b").of("other").on("crm:1")).await, "stop record_busy");
        bench.live(SECOND).await;
        let taker = bench.ask(caller("b").of("other").on("crm:1")).await;
        assert_eq!(words(&taker.decision), "run first");
        let view = bench.seen(stale.id).await;
        assert_eq!(view.inbox, Some(InboxList::Stuck));
        let note = bench.history(stale.id).await.unwrap().pop().unwrap();
        assert_eq!(note.kind, "record_taken");
        assert!(note.note.unwrap().starts_with("record taken by b of other at 2026-01-05T10:15:00"));
        assert_eq!(bench.say(&stale.token.unwrap(), Call::Heartbeat).await, Answer::LostClaim);
        // The loser may go on only when the taker has ended.
        assert_eq!(bench.answer(caller("a").on("crm:1")).await, "stop record_busy");
        bench.say(&taker.token.unwrap(), Call::Done).await;
        assert_eq!(bench.answer(caller("a").on("crm:1")).await, "run stale_retry");
    }
}

#[tokio::test]
async fn a_heartbeat_past_the_ttl_keeps_a_record_that_nobody_took() {
    for bench in benches().await {
        let held = bench.ask(caller("a").on("crm:1")).await;
        bench.live(TTL + MINUTE).await;
        assert_eq!(bench.seen(held.id).await.inbox, Some(InboxList::Stuck));
        assert_eq!(bench.say(&held.token.unwrap(), Call::Heartbeat).await, Answer::Accepted);
        assert_eq!(bench.seen(held.id).await.inbox, None);
        assert_eq!(bench.answer(caller("b").on("crm:1")).await, "stop record_busy");
    }
}

#[tokio::test]
async fn too_many_first_runs_of_one_record_look_like_a_loop() {
    let LoopLimit { runs, within } = LoopLimit::default();
    for bench in benches().await {
        let run = async |n: u32, of: &str| {
            let claimed = bench.ask(caller(&format!("k{n}")).of(of).on("crm:1")).await;
            if let Some(token) = &claimed.token {
                bench.say(token, Call::Done).await;
            }
            words(&claimed.decision)
        };
        for n in 0..runs {
            assert_eq!(run(n, "welcome").await, "run first");
        }
        assert_eq!(run(100, "welcome").await, "stop loop_suspected");
        assert_eq!(run(101, "other").await, "run first", "the limit is per automation");
        let parked =
            bench.all(Filter { inbox: Some(InboxList::Parked), limit: 10, ..Filter::default() }).await;
        assert_eq!(parked.len(), 1);
        bench.live(within).await;
        assert_eq!(run(102, "welcome").await, "run first");
    }
}

/// The record is only looked at, never kept, by a call that does not run.
#[tokio::test]
async fn a_stopped_claim_holds_no_record() {
    for bench in benches().await {
        bench.ask(caller("held").on("crm:1")).await;
        let stopped = bench.ask(caller("k").on("crm:1")).await;
        assert_eq!(words(&stopped.decision), "stop record_busy");
        assert_eq!(
            stopped.view.unwrap().inbox,
            Some(InboxList::Parked),
            "its caller does not come back by itself"
        );
        bench.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(caller("k2").on("crm:2")).await, "stop paused");
        assert_eq!(bench.answer(caller("k3").of("other").on("crm:2")).await, "run first");
    }
}

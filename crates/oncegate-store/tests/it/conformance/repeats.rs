//! The second-level rule as a store has to load and keep it (C15), and what records say about themselves (C82).

use std::time::Duration;

use oncegate_core::claim::Parked;
use oncegate_core::decide::Decision;
use oncegate_core::identity::{IdentityPrint, Likeness};
use oncegate_core::inbox::InboxList;
use oncegate_store::api::{ClaimCall, Target, Workspace};

use super::{Bench, MINUTE, SECOND, WS, automation, benches, caller, key, reopened_benches, runner};

const WITHIN: Duration = Duration::from_secs(1800);

fn like(text: &str, of: u8) -> ClaimCall {
    let mut call = caller(text);
    call.request.likeness = Some(Likeness { hash: [of; 16], within: WITHIN });
    call
}

fn at(mut call: ClaimCall, workspace: Workspace, of: &str) -> ClaimCall {
    let Target::Key { key: text, .. } = call.target else { panic!("not by key") };
    call.target = Target::Key { workspace, automation: automation(of), key: text };
    call
}

#[tokio::test]
async fn a_repeat_is_one_within_the_window_of_the_first_and_opens_none_itself() {
    for bench in benches().await {
        assert_eq!(bench.answer(like("a", 1)).await, "run first");
        bench.live(Duration::from_millis(800)).await;
        let stopped = bench.ask(like("b", 1)).await;
        assert_eq!(super::words(&stopped.decision), "stop repeat");
        let view = stopped.view.unwrap();
        assert_eq!((view.claim.parked, view.inbox), (Some(Parked::Repeat), Some(InboxList::Parked)));
        assert_eq!(view.repeat_of, Some(key("a")));
        assert_eq!(bench.answer(like("c", 2)).await, "run first", "unlike");
        assert_eq!(bench.answer(caller("d")).await, "run first", "without a rule, or a field");
        bench.live(WITHIN - SECOND).await;
        assert_eq!(bench.answer(like("e", 1)).await, "stop repeat", "just within");
        bench.live(SECOND).await;
        assert_eq!(
            bench.answer(like("f", 1)).await,
            "run first",
            "the window began with `a`, not with `b` or `e`"
        );
        assert_eq!(bench.answer(like("g", 1)).await, "stop repeat");
        assert_eq!(bench.seen(bench.ask(like("g", 1)).await.id).await.repeat_of, Some(key("f")));
        // Whose window is over is itself no repeat of what came later.
        assert_eq!(bench.answer(like("a", 1)).await, "run stale_retry");
    }
}

#[tokio::test]
async fn a_repeat_is_one_of_its_own_automation_and_workspace_alone() {
    for bench in benches().await {
        let second = Workspace(2);
        bench.add_workspace(second).await;
        assert_eq!(bench.answer(like("a", 1)).await, "run first");
        assert_eq!(bench.answer(at(like("b", 1), WS, "other")).await, "run first");
        assert_eq!(bench.answer(at(like("b", 1), second, "welcome")).await, "run first");
        assert_eq!(bench.answer(like("b", 1)).await, "stop repeat");
    }
}

#[tokio::test]
async fn a_repeat_survives_a_restart_and_is_no_work_for_the_runner() {
    for mut bench in reopened_benches().await {
        let mut first = like("a", 1);
        first.request.start = oncegate_core::decide::Start::Queue;
        let mut second = like("b", 1);
        second.request.start = oncegate_core::decide::Start::Queue;
        let a = bench.ask(first).await.id;
        let b = bench.ask(second.clone()).await.id;
        assert_eq!(bench.due_ids().await, [a]);
        bench.reopen().await;
        bench.live(WITHIN * 2).await;
        assert_eq!(bench.due_ids().await, [a]);
        let boot = bench.boot();
        assert_eq!(bench.answer(runner(b, boot)).await, "stop repeat");
        let again = bench.ask(second).await;
        assert!(!again.changed, "the same event again is a duplicate of a repeat");
        assert_eq!(bench.story(b).await[0], "parked repeat");
        released(&bench, b).await;
    }
}

async fn released(bench: &Bench, id: oncegate_store::api::ClaimRef) {
    let act = oncegate_core::reset::Act::Reset { run_now: true, confirm_holder: None, verified: false };
    bench.person(id, act).await;
    assert!(bench.due_ids().await.contains(&id));
    assert_eq!(bench.answer(runner(id, bench.boot())).await, "run first");
    let view = bench.seen(id).await;
    assert_eq!((view.claim.parked, view.repeat_of), (None, Some(key("a"))), "what it was is still known");
}

#[tokio::test]
async fn a_repeat_whose_first_one_was_forgotten_waits_all_the_same() {
    for bench in benches().await {
        let a = bench.ask(like("a", 1)).await.id;
        let b = bench.ask(like("b", 1)).await.id;
        bench.say(&bench.ask(caller("x")).await.token.unwrap(), oncegate_core::finish::Call::Done).await;
        let act = oncegate_core::reset::Act::MarkError { note: "wrong".into() };
        bench.person(a, act).await;
        bench.live(MINUTE).await;
        assert_eq!(bench.answer(like("b", 1)).await, "stop repeat", "that the first failed starts nothing");
        assert_eq!(bench.seen(b).await.claim.parked, Some(Parked::Repeat));
    }
}

#[tokio::test]
async fn what_a_record_said_about_itself_is_kept_with_its_claim() {
    for mut bench in reopened_benches().await {
        let of = |text: &str, n: u8| {
            let mut call = caller(text);
            call.request.identity = Some(IdentityPrint([[0; 8], [n; 8]].concat().try_into().unwrap()));
            call
        };
        let token = bench.ask(of("a", 1)).await.token.unwrap();
        bench.say(&token, oncegate_core::finish::Call::Done).await;
        bench.reopen().await;
        assert!(!bench.ask(of("a", 1)).await.changed);
        assert!(!bench.ask(caller("a")).await.changed, "who says nothing is believed");
        let other = bench.ask(of("a", 2)).await;
        assert_eq!(super::words(&other.decision), "stop duplicate");
        let view = other.view.unwrap();
        assert_eq!((view.inbox, view.stops), (Some(InboxList::Mismatch), 3));
        assert_eq!(view.claim.identity, of("a", 1).request.identity);
        // The next ones change nothing about the claim; each is told, and stands with its reason, all the same.
        for _ in 0..2 {
            let again = bench.ask(of("a", 2)).await;
            assert!(matches!(&again.decision, Decision::Stop { note: Some(_), .. }), "{:?}", again.decision);
        }
        let told = bench.history(other.id).await.unwrap();
        let noted = told.iter().filter(|row| row.kind == "stop" && row.note.is_some()).count();
        assert_eq!((noted, told.iter().filter(|row| row.kind == "stop").count()), (3, 5), "{told:?}");
    }
}

//! Tools that are called back: written before they are called, after a restart too; and claims that are done at once,
//! whose answer may get lost.

use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_store::nudges::{Nudge, Nudged};

use super::*;

impl Bench {
    async fn nudges(&self) -> Vec<ClaimRef> {
        self.due_nudges(100).await.unwrap().iter().map(|due| due.id).collect()
    }

    async fn sent(&self, id: ClaimRef) -> Nudged {
        match self.nudge(id).await.unwrap() {
            Nudge::Send(nudged) => *nudged,
            other => panic!("{other:?}"),
        }
    }

    async fn pause(&self, paused: bool) {
        self.set_paused(WS, automation("hooked"), paused, "maintenance".into(), "mia".into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopped_tool_is_called_back_when_its_automation_is_resumed_and_not_before() {
    for mut bench in reopened_benches().await {
        bench.pause(true).await;
        let mut call = caller("k").of("hooked").on("crm:1").with("ann");
        call.run_url = Some("https://zapier.com/runs/1".into());
        let stopped = bench.ask(call).await;
        assert_eq!(words(&stopped.decision), "stop paused");
        let id = stopped.id;
        let view = bench.seen(id).await;
        assert_eq!((view.inbox, view.claim.parked), (None, None), "deferred: nobody has to replay it");
        bench.live(HOUR).await;
        assert!(bench.nudges().await.is_empty());
        bench.reopen().await;
        bench.pause(false).await;
        assert_eq!(bench.nudges().await, [id], "after a restart too");
        let nudged = bench.sent(id).await;
        assert_eq!((nudged.key, nudged.record), (key("k"), Some(record("crm:1"))));
        assert_eq!(nudged.payload.as_deref(), Some("\"ann\""));
        assert_eq!(nudged.run_url.as_deref(), Some("https://zapier.com/runs/1"));
        assert!(bench.nudges().await.is_empty(), "one call at a time");
        assert_eq!(bench.story(id).await, ["stop paused", "retriggered first"]);
        // The tool answers: it claims.
        assert_eq!(bench.answer(caller("k").of("hooked").on("crm:1").with("ann")).await, "run first");
        bench.live(HOUR).await;
        assert!(bench.nudges().await.is_empty(), "a run is over with it");
    }
}

#[tokio::test]
async fn a_tool_that_does_not_come_is_called_three_times_and_then_a_person_is() {
    for bench in benches().await {
        bench.pause(true).await;
        let id = bench.ask(caller("k").of("hooked")).await.id;
        bench.pause(false).await;
        bench.clock.advance(MINUTE);
        for wait in limits::NUDGE_AGAIN_AFTER {
            assert_eq!(bench.nudges().await, [id]);
            bench.sent(id).await;
            bench.nudge_failed(id, "hooks.example.com answered 500".into()).await.unwrap();
            bench.clock.advance(wait - SECOND);
            assert!(bench.nudges().await.is_empty());
            bench.clock.advance(SECOND);
        }
        assert!(matches!(bench.nudge(id).await.unwrap(), Nudge::Over));
        assert!(bench.nudges().await.is_empty());
        assert_eq!(bench.seen(id).await.inbox, Some(InboxList::Parked));
        assert_eq!(bench.story(id).await.last().unwrap(), "retrigger_given_up -");
        let act = Act::Reset { run_now: true, confirm_holder: None, verified: false };
        assert!(matches!(bench.person(id, act).await, Acted::Written(_)));
        assert_eq!(bench.nudges().await, [id], "run now begins anew");
    }
}

#[tokio::test]
async fn a_busy_record_is_waited_for_and_a_failed_run_is_called_back_when_it_is_due() {
    for bench in benches().await {
        let holder = bench.ask(caller("holder").on("crm:1")).await;
        let stopped = bench.ask(caller("k").of("hooked").on("crm:1")).await;
        assert_eq!(words(&stopped.decision), "stop record_busy");
        bench.clock.advance(MINUTE);
        assert_eq!(bench.nudges().await, [stopped.id]);
        assert!(matches!(bench.nudge(stopped.id).await.unwrap(), Nudge::Wait), "it would be stopped again");
        bench.say(&holder.token.unwrap(), Call::Done).await;
        bench.sent(stopped.id).await;
        let run = bench.ask(caller("k").of("hooked").on("crm:1")).await;
        bench.say(&run.token.unwrap(), failed()).await;
        let due = bench.seen(run.id).await.claim.nudge.unwrap().due;
        assert!(due > bench.clock.read().wall, "not before the retry is due");
        assert!(bench.nudges().await.is_empty());
        bench.clock.set_wall(due);
        assert_eq!(bench.nudges().await, [run.id]);
        let nudged = bench.sent(run.id).await;
        assert_eq!((nudged.reason.as_str(), nudged.attempt), ("retry", 1));
    }
}

/// A run that never arrived would be lost for good: nobody says that it did not happen.
#[tokio::test]
async fn what_is_done_at_its_claim_may_be_asked_for_again_by_its_own_run_while_the_answer_may_be_lost() {
    for mut bench in reopened_benches().await {
        let call = |run: &str| caller("k").of("at_claim").under_run(run);
        let first = bench.ask(call("exec-1:0")).await;
        assert_eq!(words(&first.decision), "run first");
        assert_eq!(bench.answer(call("exec-2:0")).await, "stop duplicate");
        bench.reopen().await;
        for n in 0..limits::SAME_RUN_MAX {
            let again = bench.ask(call("exec-1:0")).await;
            assert_eq!(
                (words(&again.decision).as_str(), &again.token),
                ("run same_run", &first.token),
                "{n}"
            );
            assert_eq!(again.view.unwrap().claim.attempt, 1);
        }
        assert_eq!(bench.answer(call("exec-1:0")).await, "stop duplicate", "at most twice");

        // Not once its lease would be over, nor once it is known that the answer arrived.
        bench.ask(call("exec-3:0").named("late")).await;
        bench.live(TTL).await;
        assert_eq!(bench.answer(call("exec-3:0").named("late")).await, "stop duplicate");
        for said in [Call::Done, Call::Heartbeat, failed()] {
            let name = format!("{said:?}");
            let heard = bench.ask(call("exec-4:0").named(&name)).await;
            bench.say(&heard.token.unwrap(), said).await;
            assert_eq!(bench.answer(call("exec-4:0").named(&name)).await, "stop duplicate", "{name}");
        }
        // Without a name there is nothing to tell its own run by.
        bench.ask(caller("anonymous").of("at_claim")).await;
        assert_eq!(bench.answer(caller("anonymous").of("at_claim")).await, "stop duplicate");
    }
}

trait Named {
    fn named(self, name: &str) -> Self;
}

impl Named for ClaimCall {
    fn named(mut self, name: &str) -> Self {
        if let Target::Key { key: place, .. } = &mut self.target {
            *place = key(name);
        }
        self
    }
}

#[tokio::test]
async fn a_clock_set_back_does_not_put_off_the_call() {
    for bench in benches().await {
        bench.pause(true).await;
        let id = bench.ask(caller("k").of("hooked")).await.id;
        bench.pause(false).await;
        bench.clock.set_wall(MORNING.before(HOUR * 2));
        bench.live(MINUTE).await;
        assert_eq!(bench.nudges().await, [id]);
    }
}

#[tokio::test]
async fn a_late_done_of_a_failed_run_counts_though_its_tool_was_to_be_called() {
    for bench in benches().await {
        let run = bench.ask(caller("k").of("hooked")).await;
        let token = run.token.unwrap();
        bench.say(&token, failed()).await;
        assert!(bench.seen(run.id).await.claim.nudge.is_some());
        assert_eq!(bench.say(&token, Call::Done).await, Answer::Accepted);
        bench.clock.advance(HOUR);
        assert!(bench.nudges().await.is_empty());
    }
}

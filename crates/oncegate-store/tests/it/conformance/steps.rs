//! Step memory: written before it is sent, kept whoever holds the claim by now.

use oncegate_core::claim::Progress;
use oncegate_core::inbox::InboxList;
use oncegate_store::api::{Claimed, StepBegin, StepCall, StepEnd, StepOutcome};

use super::*;

struct Attempt<'a> {
    bench: &'a Bench,
    claimed: Claimed,
}

impl<'a> Attempt<'a> {
    async fn of(bench: &'a Bench, call: ClaimCall) -> Self {
        let claimed = bench.ask(call).await;
        assert!(claimed.token.is_some(), "{:?}", claimed.decision);
        Self { bench, claimed }
    }

    fn fence(&self) -> oncegate_core::token::Fence {
        self.claimed.view.as_ref().unwrap().claim.fence()
    }

    async fn begin(&self, step: &str) -> Option<i64> {
        let (id, step, target) =
            (self.claimed.id, step.to_owned(), "POST https://crm.test/contacts".to_owned());
        let idempotency_key = self.bench.secret().step_key(id.id, &step, 0);
        let begin = StepBegin { id, fence: self.fence(), step, idempotency_key, target };
        self.bench.begin_step(begin).await.unwrap()
    }

    async fn end(&self, call: i64, outcome: StepOutcome) -> bool {
        let (status, answer) = (Some(201), Some(b"{\"id\":7}".to_vec()));
        let (id, fence) = (self.claimed.id, self.fence());
        let end = StepEnd { id, fence, call, outcome, status, answer, note: None };
        self.bench.end_step(end).await.unwrap()
    }

    async fn calls(&self) -> Vec<StepCall> {
        self.bench.work(self.claimed.id).await.unwrap().unwrap().steps
    }

    async fn outcomes(&self) -> Vec<StepOutcome> {
        self.calls().await.iter().map(|c| c.outcome).collect()
    }

    async fn progress(&self) -> Progress {
        self.bench.seen(self.claimed.id).await.claim.progress
    }
}

#[tokio::test]
async fn a_step_is_remembered_with_its_answer() {
    for bench in benches().await {
        let attempt = Attempt::of(&bench, caller("k")).await;
        let call = attempt.begin("upsert").await.unwrap();
        assert_eq!(attempt.outcomes().await, [StepOutcome::InFlight]);
        bench.live(SECOND).await;
        assert!(attempt.end(call, StepOutcome::Succeeded).await);
        let known = attempt.calls().await.pop().unwrap();
        assert_eq!((known.step.as_str(), known.attempt, known.status), ("upsert", 1, Some(201)));
        assert_eq!(known.answer.as_deref(), Some(&b"{\"id\":7}"[..]));
        assert_eq!((known.sent_at, known.finished_at), (MORNING, Some(MORNING.after(SECOND))));
        assert_eq!(attempt.progress().await, Progress { succeeded: true, unknown: false });
    }
}

/// However little is left of the lease: whoever is about to send has a whole TTL before another is let in.
#[tokio::test]
async fn the_beginning_of_a_step_renews_the_lease() {
    for bench in benches().await {
        let attempt = Attempt::of(&bench, caller("k")).await;
        bench.live(TTL - SECOND).await;
        attempt.begin("upsert").await.unwrap();
        bench.live(TTL - SECOND).await;
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress");
        bench.live(SECOND).await;
        assert_eq!(bench.answer(caller("k")).await, "run stale_retry");
        assert_eq!(attempt.begin("upsert").await, None, "the lost one does not get it back");
    }
}

#[tokio::test]
async fn the_end_of_a_step_renews_the_lease() {
    for bench in benches().await {
        let attempt = Attempt::of(&bench, caller("k")).await;
        let call = attempt.begin("upsert").await.unwrap();
        bench.live(TTL - SECOND).await;
        assert!(attempt.end(call, StepOutcome::Failed).await);
        bench.live(TTL - SECOND).await;
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress");
    }
}

#[tokio::test]
async fn a_lost_attempt_begins_no_step() {
    for bench in benches().await {
        let lost = Attempt::of(&bench, caller("k")).await;
        bench.live(TTL).await;
        assert_eq!(bench.answer(caller("k")).await, "run stale_retry");
        assert_eq!(lost.begin("upsert").await, None);
        let ended = Attempt::of(&bench, caller("ended")).await;
        bench.say(ended.claimed.token.as_ref().unwrap(), Call::Done).await;
        assert_eq!(ended.begin("upsert").await, None, "nothing is sent once the claim is done");
        assert!(lost.calls().await.is_empty() && ended.calls().await.is_empty());
    }
}

#[tokio::test]
async fn what_was_in_flight_is_unknown_to_the_next_attempt_until_a_late_answer_says_what_happened() {
    let table = [
        (StepOutcome::Succeeded, Progress { succeeded: true, unknown: false }, Some(InboxList::Late)),
        (StepOutcome::Failed, Progress { succeeded: false, unknown: false }, None),
        (StepOutcome::Unknown, Progress { succeeded: false, unknown: true }, Some(InboxList::Late)),
    ];
    for bench in benches().await {
        for (outcome, progress, list) in table {
            let name = format!("{outcome:?}");
            let first = Attempt::of(&bench, caller(&name)).await;
            let call = first.begin("mail").await.unwrap();
            bench.live(TTL).await;
            assert_eq!(bench.answer(caller(&name)).await, "run stale_retry");
            assert_eq!(first.outcomes().await, [StepOutcome::Unknown]);
            assert_eq!(first.progress().await, Progress { succeeded: false, unknown: true }, "{name}");
            assert!(!first.end(call, outcome).await, "{name}: the attempt no longer holds");
            assert_eq!(first.outcomes().await, [outcome], "{name}: what is known is kept all the same");
            assert_eq!(first.progress().await, progress, "{name}");
            assert_eq!(bench.seen(first.claimed.id).await.inbox, list, "{name}");
        }
    }
}

#[tokio::test]
async fn a_late_answer_to_one_step_leaves_the_other_unknown() {
    for bench in benches().await {
        let first = Attempt::of(&bench, caller("k")).await;
        let (mail, _slack) = (first.begin("mail").await.unwrap(), first.begin("slack").await.unwrap());
        bench.live(TTL).await;
        bench.answer(caller("k")).await;
        first.end(mail, StepOutcome::Failed).await;
        assert!(first.progress().await.unknown);
    }
}

#[tokio::test]
async fn a_call_that_ended_does_not_change_any_more() {
    for bench in benches().await {
        let attempt = Attempt::of(&bench, caller("k")).await;
        let call = attempt.begin("mail").await.unwrap();
        attempt.end(call, StepOutcome::Failed).await;
        for outcome in [StepOutcome::Unknown, StepOutcome::Succeeded] {
            assert!(attempt.end(call, outcome).await);
            assert_eq!(attempt.outcomes().await, [StepOutcome::Failed]);
            assert!(attempt.progress().await.is_clean(), "{outcome:?}");
        }
        let other = Attempt::of(&bench, caller("other")).await;
        let theirs = other.begin("mail").await.unwrap();
        attempt.end(theirs, StepOutcome::Succeeded).await;
        assert_eq!(other.outcomes().await, [StepOutcome::InFlight], "a claim ends its own calls only");
    }
}

/// The drain hands the claim back while the answer is on its way; nobody took it over.
#[tokio::test]
async fn an_answer_after_a_hand_back_is_not_late() {
    for bench in benches().await {
        let attempt = Attempt::of(&bench, caller("k")).await;
        let call = attempt.begin("mail").await.unwrap();
        bench.say(attempt.claimed.token.as_ref().unwrap(), Call::HandBack).await;
        assert!(!attempt.end(call, StepOutcome::Succeeded).await);
        let view = bench.seen(attempt.claimed.id).await;
        assert_eq!(view.claim.late_at, None);
        assert!(view.claim.progress.succeeded);
        assert_eq!(bench.answer(caller("k")).await, "run resumed");
        assert_eq!(attempt.outcomes().await, [StepOutcome::Succeeded]);
    }
}

#[tokio::test]
async fn steps_tell_which_reset_they_belong_to() {
    for bench in benches().await {
        let first = Attempt::of(&bench, caller("k")).await;
        let call = first.begin("mail").await.unwrap();
        first.end(call, StepOutcome::Succeeded).await;
        bench.say(first.claimed.token.as_ref().unwrap(), failed_for_good()).await;
        bench.person(first.claimed.id, reset()).await;
        let second = Attempt::of(&bench, caller("k")).await;
        second.begin("mail").await.unwrap();
        let told: Vec<_> = second.calls().await.iter().map(|c| (c.attempt, c.resets)).collect();
        assert_eq!(told, [(1, 0), (2, 1)]);
    }
}

#[tokio::test]
async fn three_restarts_without_a_finished_step_need_a_person_and_a_finished_step_starts_the_count_anew() {
    for mut bench in reopened_benches().await {
        let id = bench.ask(caller("k").queued()).await.id;
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "run first");
        for restart in 0..2 {
            bench.reopen().await;
            assert_eq!(bench.answer(runner(id, bench.boot())).await, "run resumed", "{restart}");
        }
        bench.reopen().await;
        {
            let attempt = Attempt::of(&bench, runner(id, bench.boot())).await;
            let call = attempt.begin("mail").await.unwrap();
            attempt.end(call, StepOutcome::Succeeded).await;
        }
        for restart in 0..3 {
            bench.reopen().await;
            assert_eq!(bench.answer(runner(id, bench.boot())).await, "run resumed", "{restart}");
        }
        bench.reopen().await;
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "stop needs_review");
        assert_eq!(bench.seen(id).await.inbox, Some(InboxList::Error));
    }
}

//! A step that asks a person: its claim waits however long that takes, and only an answer ends it.

use oncegate_core::claim::Parked;
use oncegate_core::inbox::InboxList;
use oncegate_core::reset::Refusal;
use oncegate_store::api::{REVIEW, StepBegin, StepEnd, StepOutcome, WAIT};

use super::*;

/// Writes down that a step asks, as the runner does.
async fn ask(bench: &Bench, key: &str) -> (ClaimRef, Token) {
    let id = bench.ask(caller(key).queued().on(&format!("crm:{key}"))).await.id;
    let token = bench.ask(runner(id, bench.boot())).await.token.unwrap();
    let (_, fence) = bench.secret().read_token(token.expose()).unwrap();
    for (step, target) in [("pause", WAIT), ("check", REVIEW)] {
        let (step, target) = (step.to_owned(), target.to_owned());
        let begin = StepBegin { id, fence, step, idempotency_key: String::new(), target };
        let call = bench.begin_step(begin).await.unwrap().unwrap();
        let note = Some("may it go out?".to_owned());
        let (outcome, status, answer) = (StepOutcome::Succeeded, None, None);
        assert!(bench.end_step(StepEnd { id, fence, call, outcome, status, answer, note }).await.unwrap());
    }
    let review = Call::Review { note: "may it go out?".into() };
    assert_eq!(bench.say(&token, review).await, Answer::Accepted);
    (id, token)
}

async fn answers(bench: &Bench, id: ClaimRef) -> Vec<serde_json::Value> {
    let work = bench.work(id).await.unwrap().unwrap();
    let of_step = work.steps.iter().filter(|call| call.step == "check" && call.target == REVIEW);
    of_step.filter_map(|call| serde_json::from_slice(call.answer.as_ref()?).ok()).collect()
}

#[tokio::test]
async fn what_is_asked_waits_for_months_and_over_restarts_and_goes_on_when_it_is_approved() {
    for mut bench in reopened_benches().await {
        let (id, _) = ask(&bench, "a").await;
        for _ in 0..3 {
            bench.live(HOUR).await;
            bench.clock.advance(DAY * 30);
            bench.reopen().await;
            let view = bench.seen(id).await;
            assert_eq!((view.claim.parked, view.inbox), (Some(Parked::Review), Some(InboxList::Parked)));
            assert_eq!(bench.due_ids().await, []);
            assert_eq!(bench.answer(runner(id, bench.boot())).await, "stop in_progress");
            assert_eq!(bench.answer(caller("a")).await, "stop in_progress");
        }
        assert_eq!(bench.answer(caller("b").on("crm:a")).await, "stop record_busy", "it is half way");
        let Acted::Written(view) = bench.person(id, Act::Approve).await else { panic!("it asks") };
        assert_eq!((view.claim.parked, view.inbox), (None, None));
        assert!(matches!(bench.person(id, Act::Approve).await, Acted::Refused(Refusal::NotInReview)), "once");
        assert_eq!(bench.due_ids().await, [id]);
        let [answer] = &answers(&bench, id).await[..] else { panic!("one answer") };
        assert_eq!((&answer["approved"], &answer["by"]), (&true.into(), &"mia".into()));
        assert_eq!(answer["reason"], "looked into it");
        let resumed = bench.ask(runner(id, bench.boot())).await;
        assert_eq!(words(&resumed.decision), "run resumed");
        assert_eq!(bench.seen(id).await.claim.retries_used, 0);
        bench.say(&resumed.token.unwrap(), Call::Done).await;
        let story = bench.story(id).await;
        assert!(story.iter().any(|line| line.starts_with("review ")), "{story:?}");
        assert!(story.iter().any(|line| line == "approve processing"), "{story:?}");
    }
}

#[tokio::test]
async fn what_is_declined_shall_not_happen_and_its_token_is_void() {
    for bench in benches().await {
        let (id, token) = ask(&bench, "a").await;
        assert!(matches!(bench.person(id, Act::Decline).await, Acted::Written(_)));
        assert_eq!(bench.say(&token, Call::Done).await, Answer::LostClaim);
        assert_eq!(bench.answer(caller("a")).await, "stop dismissed");
        assert_eq!(bench.due_ids().await, []);
        assert_eq!(answers(&bench, id).await, [] as [serde_json::Value; 0]);
        let audit = bench.audit(WS, None, 1).await.unwrap().rows;
        assert_eq!(audit[0].action, "decline");
    }
}

#[tokio::test]
async fn only_a_question_is_answered_and_nobody_need_be_named_to_reset_one() {
    for bench in benches().await {
        let at_work = bench.ask(caller("w")).await.id;
        let queued = bench.ask(caller("q").queued()).await.id;
        let (asked, _) = ask(&bench, "a").await;
        for id in [at_work, queued] {
            for act in [Act::Approve, Act::Decline] {
                assert!(matches!(bench.person(id, act).await, Acted::Refused(Refusal::NotInReview)));
            }
        }
        let reset = Act::Reset { run_now: true, confirm_holder: None, verified: false };
        assert!(matches!(bench.person(asked, reset).await, Acted::Written(_)), "nobody is at work on it");
        // From the start nothing but what was really sent has to be named.
        let (asked, _) = ask(&bench, "b").await;
        let again = Act::FromStart {
            run_now: true,
            confirm_holder: None,
            verified: false,
            confirm_sent: vec![],
            new_keys: false,
        };
        assert!(matches!(bench.person(asked, again).await, Acted::Written(_)));
    }
}

#[tokio::test]
async fn a_heartbeat_does_not_end_a_question_and_an_answer_is_for_the_step_that_asks() {
    for bench in benches().await {
        let (id, token) = ask(&bench, "a").await;
        assert_eq!(bench.say(&token, Call::Heartbeat).await, Answer::Accepted);
        assert_eq!(
            bench.seen(id).await.inbox,
            Some(InboxList::Parked),
            "whoever was handed the token may show it"
        );
        assert!(matches!(bench.person(id, Act::Approve).await, Acted::Written(_)));
        // A second question, asked after the first was answered; then, by a reset, the first is asked no more.
        let token = bench.ask(runner(id, bench.boot())).await.token.unwrap();
        let (_, fence) = bench.secret().read_token(token.expose()).unwrap();
        let begin = |step: &str| StepBegin {
            id,
            fence,
            step: step.to_owned(),
            idempotency_key: String::new(),
            target: REVIEW.to_owned(),
        };
        let call = bench.begin_step(begin("second")).await.unwrap().unwrap();
        let (outcome, status, answer, note) =
            (StepOutcome::Succeeded, None, None, Some("and now?".to_owned()));
        bench.end_step(StepEnd { id, fence, call, outcome, status, answer, note }).await.unwrap();
        // The process dies between a row and its end: nothing was sent, so nothing is unknown.
        bench.begin_step(begin("third")).await.unwrap().unwrap();
        bench.say(&token, Call::HandBack).await;
        let token = bench.ask(runner(id, bench.boot())).await.token.unwrap();
        assert!(
            bench.seen(id).await.claim.progress.is_clean() || !bench.seen(id).await.claim.progress.unknown
        );
        bench.say(&token, Call::Review { note: "and now?".into() }).await;
        bench.clock.advance(DAY);
        bench.person(id, Act::Approve).await;
        let work = bench.work(id).await.unwrap().unwrap();
        let answered: Vec<&str> =
            work.steps.iter().filter(|c| c.answer.is_some()).map(|c| c.step.as_str()).collect();
        assert_eq!(answered[0], "check");
        assert!(["second", "third"].contains(&answered[1]) && answered.len() == 2, "{answered:?}");
        assert_eq!(
            bench.seen(id).await.claim.open_since,
            bench.now().wall,
            "machines have their whole time now"
        );
    }
}

//! An attempt that is taken together with what it does first, and what is not given out while there is no room for it.

use oncegate_core::token::Fence;
use oncegate_store::api::{First, Opened, Opening, StepBegin, StepOutcome, Work};

use super::nodes::names;
use super::*;

fn sends(id: ClaimRef, work: &Work) -> First {
    let fence = Fence { attempt: work.claim.attempt + 1, generation: work.claim.generation };
    let (step, idempotency_key, target) = ("write".into(), "og-1".into(), "POST https://crm.test".into());
    let begin = StepBegin { id, fence, step, idempotency_key, target };
    First { version: work.version, opening: Opening::Step(begin) }
}

async fn queued(bench: &Bench, key: &str) -> (ClaimRef, Work) {
    let id = bench.ask(caller(key).with("{}").queued()).await.id;
    (id, bench.work(id).await.unwrap().unwrap())
}

async fn sent(bench: &Bench, id: ClaimRef) -> Vec<(StepOutcome, u32)> {
    let work = bench.work(id).await.unwrap().unwrap();
    work.steps.iter().map(|call| (call.outcome, call.attempt)).collect()
}

#[tokio::test]
async fn an_attempt_begins_with_its_first_call_or_without_it() {
    for bench in benches().await {
        let (id, work) = queued(&bench, "k").await;
        let begun = bench.begin_run(runner(id, bench.boot()), sends(id, &work)).await.unwrap().unwrap();
        assert_eq!(words(&begun.claimed.decision), "run first");
        assert_eq!(bench.story(id).await, ["queued first", "run first"]);
        // A store that others use too may take the attempt alone.
        match (bench.is_shared(), begun.opened) {
            (false, Some(Opened::Step(_))) => {
                assert_eq!(sent(&bench, id).await, [(StepOutcome::InFlight, 1)])
            }
            (true, None) => assert_eq!(sent(&bench, id).await, []),
            (_, opened) => panic!("{opened:?}"),
        }
        let again = bench.begin_run(runner(id, bench.boot()), sends(id, &work)).await.unwrap().unwrap();
        assert_eq!(words(&again.claimed.decision), "stop in_progress");
        assert!(again.opened.is_none());
        assert!(sent(&bench, id).await.len() < 2, "somebody else sends it");
    }
}

#[tokio::test]
async fn what_was_made_of_a_claim_that_has_changed_since_is_not_sent() {
    type Change = fn(&mut First);
    let table: [(&str, bool, Change); 3] = [
        ("another payload came", true, |_| {}),
        ("another attempt", false, |first| match &mut first.opening {
            Opening::Step(begin) => begin.fence.attempt += 1,
            Opening::Word(_) => {}
        }),
        ("another reset", false, |first| match &mut first.opening {
            Opening::Step(begin) => begin.fence.generation += 1,
            Opening::Word(_) => {}
        }),
    ];
    for bench in benches().await {
        for (what, meddles, change) in &table {
            let (id, work) = queued(&bench, what).await;
            if *meddles {
                bench.ask(caller(what).with("[]").queued()).await;
            }
            let mut first = sends(id, &work);
            change(&mut first);
            let begun = bench.begin_run(runner(id, bench.boot()), first).await.unwrap().unwrap();
            assert_eq!(words(&begun.claimed.decision), "run first", "{what}");
            assert!(begun.opened.is_none(), "{what}: {:?}", begun.opened);
            assert_eq!(sent(&bench, id).await, [], "{what}");
        }
        let nobody = ClaimRef { workspace: WS, id: oncegate_core::key::ClaimId([9; 16]) };
        let (_, work) = queued(&bench, "of another").await;
        let none = bench.begin_run(runner(nobody, bench.boot()), sends(nobody, &work)).await.unwrap();
        assert!(none.is_none());
    }
}

#[tokio::test]
async fn an_attempt_that_has_to_wait_for_its_target_is_told_so_as_it_is_taken() {
    for bench in benches().await {
        let (id, work) = queued(&bench, "k").await;
        let fence = Fence { attempt: 1, generation: work.claim.generation };
        let until = MORNING.after(HOUR);
        let word = FinishCall {
            id,
            fence,
            call: Call::Defer { until, note: "waits for crm.test".into() },
            jitter: Jitter::NONE,
            result: None,
            actor: RUNNER.into(),
        };
        let first = First { version: work.version, opening: Opening::Word(word) };
        let begun = bench.begin_run(runner(id, bench.boot()), first).await.unwrap().unwrap();
        match (bench.is_shared(), begun.opened) {
            (false, Some(Opened::Word(Answer::Accepted, view))) => {
                assert_eq!(view.claim.attempt, 1);
                let said = bench.history(id).await.unwrap().pop().unwrap();
                assert_eq!(said.note.as_deref(), Some("waits for crm.test"));
                assert_eq!(bench.story(id).await, ["queued first", "run first", "defer -"]);
                assert_eq!(bench.due_ids().await, []);
                bench.live(HOUR).await;
                assert_eq!(bench.due_ids().await, [id]);
            }
            (true, None) => assert_eq!(bench.story(id).await, ["queued first", "run first"]),
            (_, opened) => panic!("{opened:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_new_of_a_full_target_is_left_out_until_it_has_been_due_for_long() {
    for bench in benches().await {
        let full = names(&["full"]);
        let told = async || -> Vec<ClaimRef> {
            let due = bench.due_but_new(9, full.clone()).await.unwrap();
            due.iter().map(|due| due.id).collect()
        };
        let tried = bench.ask(caller("tried").of("full").queued()).await.id;
        let token = bench.ask(runner(tried, bench.boot())).await.token.unwrap();
        bench.say(&token, Call::HandBack).await;
        for n in 0..20 {
            bench.ask(caller(&format!("k{n}")).of("full").queued()).await;
        }
        let paused = bench.ask(caller("p").of("paused").queued()).await.id;
        bench.set_paused(WS, automation("paused"), true, "r".into(), "mia".into()).await.unwrap();
        let other = bench.ask(caller("other").queued()).await.id;
        assert_eq!(bench.due_ids().await.len(), 22);
        assert!(!bench.due_ids().await.contains(&paused));
        if bench.is_shared() {
            continue;
        }
        let mut due = told().await;
        due.sort_by_key(|id| *id != tried);
        assert_eq!(due, [tried, other], "what was tried has its turn");
        let new = bench.due(100).await.unwrap().iter().filter(|due| due.is_new).count();
        assert_eq!(new, 21);
        bench.live(oncegate_core::limits::WAITS_UNSEEN_MAX).await;
        assert_eq!(told().await.len(), 9, "it comes to light");
        assert!(bench.due(100).await.unwrap().iter().all(|due| !due.is_new));
    }
}

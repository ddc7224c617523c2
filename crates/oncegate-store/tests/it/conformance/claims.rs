//! Claims: run once, stops, payloads, run ids, callers that hang up.

use std::collections::HashMap;
use std::task::Poll;

use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_store::StoreError;
use oncegate_store::api::{ClaimCall, Claimed, Renamed};

use super::*;

#[tokio::test]
async fn an_effect_runs_once_and_every_duplicate_gets_the_first_result() {
    for bench in benches().await {
        let first = bench.ask(caller("k")).await;
        assert_eq!(words(&first.decision), "run first");
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress");
        let token = first.token.unwrap();
        assert_eq!(bench.say_with(&token, Call::Done, Some(r#"{"contact":900}"#)).await, Answer::Accepted);
        assert_eq!(bench.say_with(&token, Call::Done, Some(r#"{"contact":901}"#)).await, Answer::Unchanged);
        let again = bench.ask(caller("k")).await;
        assert_eq!(words(&again.decision), "stop duplicate");
        assert_eq!(again.view.unwrap().result.as_deref(), Some(r#"{"contact":900}"#));
        assert!(again.token.is_none(), "a stop proves nothing");
    }
}

#[tokio::test]
async fn a_first_done_without_a_result_leaves_none_whatever_is_said_later() {
    for bench in benches().await {
        let first = bench.ask(caller("k")).await;
        bench.live(TTL).await;
        let second = bench.ask(caller("k")).await;
        assert_eq!(words(&second.decision), "run stale_retry");
        bench.say(&second.token.unwrap(), Call::Done).await;
        let late = bench.say_with(&first.token.unwrap(), Call::Done, Some("\"too late\"")).await;
        assert_eq!(late, Answer::LostClaim);
        assert_eq!(bench.seen(first.id).await.result, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_claims_of_one_key_at_once_exactly_one_runs() {
    for bench in benches().await {
        for round in 0..20 {
            let tasks: Vec<_> = (0..32)
                .map(|_| {
                    let store = Arc::clone(&bench);
                    tokio::spawn(
                        async move { store.claim(caller(&format!("k{round}"))).await.unwrap().unwrap() },
                    )
                })
                .collect();
            let mut tally: HashMap<String, u32> = HashMap::new();
            for task in tasks {
                *tally.entry(words(&task.await.unwrap().decision)).or_default() += 1;
            }
            let expected = [("run first".to_owned(), 1), ("stop in_progress".to_owned(), 31)];
            assert_eq!(tally, HashMap::from(expected), "round {round}");
        }
    }
}

/// C44: four of five claimers hang up; whatever the timing, the effect has one holder, never none, never two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_hang_up_leave_exactly_one_run() {
    for bench in benches().await {
        for round in 0..50 {
            let name = format!("k{round}");
            for _ in 0..4 {
                poll_once_and_drop(&**bench, caller(&name)).await;
            }
            let fifth = bench.ask(caller(&name)).await;
            let story = bench.story(fifth.id).await;
            let runs = story.iter().filter(|line| line.starts_with("run")).count();
            assert_eq!(runs, 1, "round {round}: {story:?}");
            // A stop is only ever told on the strength of something committed.
            assert!(fifth.view.unwrap().claim.started_at().is_some());
        }
    }
}

/// The caller's connection closes right after the call was handed over.
pub(crate) async fn poll_once_and_drop(store: &dyn Store, call: ClaimCall) {
    let mut claim = Box::pin(store.claim(call));
    std::future::poll_fn(|cx| {
        let _ = claim.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn every_stop_is_counted_and_only_the_first_ones_have_a_row() {
    for bench in benches().await {
        let id = bench.ask(caller("k")).await.id;
        let first_stop = bench.clock.read().wall;
        let stops = limits::STOP_HISTORY_ROWS_MAX + 7;
        for _ in 0..stops {
            bench.answer(caller("k")).await;
            bench.clock.advance(SECOND);
        }
        let view = bench.seen(id).await;
        assert_eq!(view.stops, u64::from(stops));
        assert_eq!(view.first_stop_at, Some(first_stop));
        assert_eq!(view.last_stop_at, Some(first_stop.after(SECOND * (stops - 1))));
        let story = bench.story(id).await;
        let rows = story.iter().filter(|line| *line == "stop in_progress").count();
        assert_eq!(rows, limits::STOP_HISTORY_ROWS_MAX as usize);
    }
}

#[tokio::test]
async fn the_runner_asking_after_its_own_work_is_no_stop() {
    for bench in benches().await {
        let id = bench.ask(caller("k").queued()).await.id;
        bench.set_paused(WS, automation("welcome"), true, "incident".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "stop paused");
        assert_eq!(bench.seen(id).await.stops, 0);
        assert_eq!(bench.story(id).await, ["queued first"]);
    }
}

#[tokio::test]
async fn the_payload_is_kept_byte_for_byte_from_the_first_call_that_brings_one() {
    let bodies: [&[u8]; 4] = [b"", b"{\"a\": 1 }\r\n", b"\xff\xfe\x00binary", "né\u{301}e".as_bytes()];
    for bench in benches().await {
        for (i, body) in bodies.iter().enumerate() {
            let name = format!("k{i}");
            let payload = Payload { body: body.to_vec(), json: format!("{{\"n\":{i}}}") };
            let call = ClaimCall { payload: Some(payload.clone()), ..caller(&name) };
            let id = bench.ask(call).await.id;
            let other = Payload { body: b"other".to_vec(), json: "{}".into() };
            bench.ask(ClaimCall { payload: Some(other), ..caller(&name) }).await;
            assert_eq!(bench.work(id).await.unwrap().unwrap().payload, Some(payload));
        }
    }
}

#[tokio::test]
async fn another_payload_or_record_under_one_key_stops_and_marks_the_claim() {
    let table = [
        ("payload", caller("p").with("phone 100"), caller("p").with("phone 200")),
        ("record", caller("r").on("crm:1"), caller("r").on("crm:2").with("brought by the wrong call")),
    ];
    for bench in benches().await {
        for (what, first, second) in table.clone() {
            let claimed = bench.ask(first.clone()).await;
            bench.say_with(&claimed.token.unwrap(), Call::Done, Some("\"secret\"")).await;
            let stopped = bench.ask(second).await;
            assert_eq!(words(&stopped.decision), "stop payload_mismatch", "{what}");
            let view = bench.seen(claimed.id).await;
            assert_eq!(view.inbox, Some(InboxList::Mismatch), "{what}");
            assert_eq!(view.claim.mismatch_at, Some(MORNING), "{what}");
            let kept = bench.work(claimed.id).await.unwrap().unwrap().payload;
            assert_eq!(kept, first.payload, "{what}: the stopped call's payload is not the one meant");
        }
    }
}

#[tokio::test]
async fn a_correction_by_a_person_replaces_the_payload() {
    for bench in benches().await {
        let first = bench.ask(caller("k").with("wrong")).await;
        bench.say(&first.token.unwrap(), failed_for_good()).await;
        let mut call = caller("k").with("right");
        call.request.correction = true;
        assert_eq!(bench.answer(call).await, "run first");
        let kept = bench.work(first.id).await.unwrap().unwrap().payload;
        assert_eq!(kept, caller("k").with("right").payload);
        assert_eq!(
            bench.story(first.id).await,
            ["run first", "error failed", "reset correction", "run first"]
        );
    }
}

/// Running it again needs the same care as with done; a file with another payload for it is no such care.
#[tokio::test]
async fn a_correction_does_not_run_what_was_marked_after_it_was_done() {
    for bench in benches().await {
        let first = bench.ask(caller("k").with("a")).await;
        bench.say(&first.token.unwrap(), Call::Done).await;
        bench.person(first.id, Act::MarkError { note: "mass duplicate".into() }).await;
        let mut call = caller("k").with("b");
        call.request.correction = true;
        assert_eq!(bench.answer(call).await, "stop payload_mismatch");
        assert_eq!(bench.seen(first.id).await.inbox, Some(InboxList::Error));
    }
}

#[tokio::test]
async fn a_caller_may_repeat_its_own_claim_twice_and_gets_the_same_token() {
    for bench in benches().await {
        let first = bench.ask(caller("k").under_run("exec-1:0")).await;
        for n in 0..2 {
            let again = bench.ask(caller("k").under_run("exec-1:0")).await;
            assert_eq!(words(&again.decision), "run same_run", "{n}");
            assert_eq!(again.token, first.token);
        }
        assert_eq!(bench.answer(caller("k").under_run("exec-1:0")).await, "stop in_progress");
        assert_eq!(bench.answer(caller("k").under_run("exec-2:0")).await, "stop in_progress");
    }
}

/// Otherwise run A, whose attempt is over, would be handed the token of whoever works now.
#[tokio::test]
async fn the_run_id_of_an_earlier_attempt_opens_no_later_one() {
    for bench in benches().await {
        let a = bench.ask(caller("k").under_run("exec-a")).await;
        bench.say(&a.token.unwrap(), failed()).await;
        bench.live(MINUTE).await;
        assert_eq!(bench.answer(caller("k")).await, "run retry");
        assert_eq!(bench.answer(caller("k").under_run("exec-a")).await, "stop in_progress");
        assert_eq!(bench.seen(a.id).await.claim.holder_name().as_deref(), Some("attempt-2"));
    }
}

#[tokio::test]
async fn a_run_id_seen_on_work_long_finished_names_no_run() {
    for bench in benches().await {
        let old = bench.ask(caller("old").under_run("constant")).await;
        bench.say(&old.token.unwrap(), Call::Done).await;
        bench.live(HOUR).await;
        bench.ask(caller("a").under_run("constant")).await;
        assert_eq!(
            bench.answer(caller("a").under_run("constant")).await,
            "run same_run",
            "an hour is not over"
        );
        bench.live(SECOND).await;
        assert_eq!(bench.answer(caller("a").under_run("constant")).await, "stop in_progress");
    }
}

#[tokio::test]
async fn a_flow_that_cannot_call_back_is_done_at_its_claim() {
    for bench in benches().await {
        let first = bench.ask(caller("k").of("at_claim")).await;
        assert_eq!(words(&first.decision), "run first");
        assert_eq!(bench.answer(caller("k").of("at_claim")).await, "stop duplicate");
    }
}

#[tokio::test]
async fn answers_for_claims_that_do_not_exist_are_none() {
    for bench in benches().await {
        let id = ours(ClaimId([9; 16]));
        let call = FinishCall {
            id,
            fence: oncegate_core::token::Fence { attempt: 1, generation: 0 },
            call: Call::Done,
            jitter: Jitter::NONE,
            result: None,
            actor: "x".into(),
        };
        assert!(bench.finish(call).await.unwrap().is_none());
        assert!(bench.claim(runner(id, bench.boot())).await.unwrap().is_none());
        assert!(matches!(bench.person(id, Act::Dismiss).await, Acted::NotFound));
        assert!(bench.show(id).await.unwrap().is_none());
        assert!(bench.work(id).await.unwrap().is_none());
        assert!(bench.history(id).await.unwrap().is_empty());
        assert!(bench.find(WS, automation("welcome"), key("k")).await.unwrap().is_none());
        assert!(
            bench.audit(WS, None, 10).await.unwrap().rows.is_empty(),
            "what did not happen is not audited"
        );
    }
}

#[tokio::test]
async fn a_key_is_found_under_every_spelling_of_its_automation_and_only_byte_for_byte() {
    for bench in benches().await {
        let id = bench.ask(caller("K")).await.id;
        for (spelling, text, found) in [
            ("welcome", "K", Some(id)),
            (" WELCOME ", "K", Some(id)),
            ("welcome", "k", None),
            ("other", "K", None),
        ] {
            let answer = bench.find(WS, automation(spelling), key(text)).await.unwrap();
            // An automation that is known has an id for every key.
            let answer = match answer {
                Some(id) => bench.show(id).await.unwrap().map(|v| v.at()),
                None => None,
            };
            assert_eq!(answer, found, "{spelling} {text}");
        }
    }
}

#[tokio::test]
async fn a_closed_store_refuses_every_call_and_keeps_what_it_answered() {
    for mut bench in reopened_benches().await {
        let store = Arc::clone(&bench);
        let waiting: Vec<_> = (0..200)
            .map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.claim(caller(&format!("k{n}"))).await })
            })
            .collect();
        tokio::task::yield_now().await;
        store.close().await;
        let mut held: Vec<Claimed> = Vec::new();
        for task in waiting {
            match task.await.unwrap() {
                Ok(claimed) => held.push(claimed.unwrap()),
                Err(error) => assert!(matches!(error, StoreError::Closed), "{error}"),
            }
        }
        assert!(matches!(store.claim(caller("late")).await, Err(StoreError::Closed)));
        assert!(matches!(store.show(ours(ClaimId([0; 16]))).await, Err(StoreError::Closed)));
        assert!(matches!(store.tick().await, Err(StoreError::Closed)));
        store.close().await;
        drop(store);
        bench.reopen().await;
        for claimed in &held {
            assert_eq!(bench.seen(claimed.id).await.claim.attempt, 1);
        }
        assert_eq!(bench.all(Filter { limit: 500, ..Filter::default() }).await.len(), held.len());
    }
}

#[tokio::test]
async fn a_renamed_automation_knows_what_it_did() {
    for bench in benches().await {
        let first = bench.ask(caller("k").of("old")).await;
        bench.say(&first.token.unwrap(), Call::Done).await;
        let rename =
            async |from, to| bench.rename_automation(WS, automation(from), automation(to)).await.unwrap();
        assert_eq!(rename("old", "new").await, Renamed::Written);
        assert_eq!(bench.answer(caller("k").of("new")).await, "stop duplicate");
        assert_eq!(rename("old", "new").await, Renamed::Nothing, "as at every later start");
        assert_eq!(bench.answer(caller("k").of("old")).await, "run first", "the old name is free");
        assert_eq!(rename("old", "new").await, Renamed::BothKnown);
        assert_eq!(bench.answer(caller("k").of("new")).await, "stop duplicate");
    }
}

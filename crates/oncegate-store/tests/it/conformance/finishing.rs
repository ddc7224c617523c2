//! Finish calls with tokens, people's acts, and what both leave in history and audit.

use oncegate_core::claim::{Claim, ErrorCause, State};
use oncegate_core::inbox::InboxList;

use super::*;

#[tokio::test]
async fn what_a_holder_says_is_answered_the_same_end_to_end() {
    let final_error = failed_for_good;
    let table: Vec<(&str, Vec<(Call, Answer)>)> = vec![
        ("done twice", vec![(Call::Done, Answer::Accepted), (Call::Done, Answer::Unchanged)]),
        ("error after done", vec![(Call::Done, Answer::Accepted), (final_error(), Answer::AlreadyDone)]),
        (
            "heartbeat after done",
            vec![(Call::Done, Answer::Accepted), (Call::Heartbeat, Answer::AlreadyDone)],
        ),
        ("error twice", vec![(final_error(), Answer::Accepted), (failed(), Answer::Unchanged)]),
        ("done after error", vec![(final_error(), Answer::Accepted), (Call::Done, Answer::Accepted)]),
        (
            "heartbeat after error",
            vec![(failed(), Answer::Accepted), (Call::Heartbeat, Answer::NotProcessing)],
        ),
        ("heartbeat, done", vec![(Call::Heartbeat, Answer::Accepted), (Call::Done, Answer::Accepted)]),
        ("hand back, done", vec![(Call::HandBack, Answer::Accepted), (Call::Done, Answer::Accepted)]),
    ];
    for bench in benches().await {
        // Finishing works the same while paused.
        for paused in [false, true] {
            for (name, calls) in &table {
                let token = bench.ask(caller(&format!("{name} {paused}"))).await.token.unwrap();
                bench.set_paused(WS, automation("welcome"), paused, "r".into(), "mia".into()).await.unwrap();
                for (call, answer) in calls {
                    assert_eq!(bench.say(&token, call.clone()).await, *answer, "{name}, paused: {paused}");
                }
                bench.set_paused(WS, automation("welcome"), false, "r".into(), "mia".into()).await.unwrap();
            }
        }
    }
}

/// Each of these voids the token; whoever shows it afterwards is refused, changes nothing, and is listed.
#[tokio::test]
async fn an_old_token_is_refused_and_its_use_is_listed_as_late() {
    let acts = [
        ("reset", Act::Reset { run_now: false, confirm_holder: Some("attempt-1".into()), verified: false }),
        ("mark error", Act::MarkError { note: "mass duplicates".into() }),
    ];
    for bench in benches().await {
        let mut voided = Vec::new();
        for (name, act) in acts.clone() {
            let claimed = bench.ask(caller(name)).await;
            assert!(matches!(bench.person(claimed.id, act).await, Acted::Written(_)), "{name}");
            voided.push((name, claimed));
        }
        let taken_over = bench.ask(caller("taken over")).await;
        let record_lost = bench.ask(caller("record lost").on("crm:1")).await;
        let stale_reset = bench.ask(caller("stale reset")).await;
        let stale_dismissed = bench.ask(caller("stale dismissed")).await;
        bench.live(TTL).await;
        assert_eq!(bench.answer(caller("taken over")).await, "run stale_retry");
        assert_eq!(bench.answer(caller("other").on("crm:1")).await, "run first");
        assert!(matches!(bench.person(stale_reset.id, reset()).await, Acted::Written(_)));
        assert!(matches!(bench.person(stale_dismissed.id, Act::Dismiss).await, Acted::Written(_)));
        voided.extend([
            ("taken over", taken_over),
            ("record lost", record_lost),
            ("stale reset", stale_reset),
            ("stale dismissed", stale_dismissed),
        ]);
        for (name, claimed) in voided {
            let before = bench.seen(claimed.id).await.claim;
            let token = claimed.token.unwrap();
            for call in [Call::Done, failed(), Call::Heartbeat, Call::HandBack] {
                assert_eq!(bench.say_with(&token, call, Some("\"x\"")).await, Answer::LostClaim, "{name}");
            }
            let after = bench.seen(claimed.id).await;
            assert_eq!(after.claim.late_at, Some(bench.clock.read().wall), "{name}");
            assert_eq!(
                Claim { late_at: None, ..after.claim.clone() },
                before,
                "{name}: nothing else changed"
            );
            assert_eq!(after.result, None, "{name}");
            assert!(bench.story(claimed.id).await.contains(&"late done".to_owned()), "{name}");
            let list = match name {
                "record lost" => Some(InboxList::Stuck),
                "mark error" => Some(InboxList::Error),
                "stale dismissed" | "taken over" => Some(InboxList::Late),
                // Its caller has to replay it, which matters more.
                _ => Some(InboxList::Parked),
            };
            assert_eq!(after.inbox, list, "{name}");
        }
    }
}

#[tokio::test]
async fn a_retry_comes_due_three_times_and_then_a_person_looks() {
    for bench in benches().await {
        let mut claimed = bench.ask(caller("k")).await;
        for (attempt, wait) in [(2, 30), (3, 240), (4, 1_800)] {
            bench.say(&claimed.token.unwrap(), failed()).await;
            assert_eq!(bench.answer(caller("k")).await, "stop backing_off");
            bench.live(Duration::from_secs(wait) - SECOND).await;
            assert_eq!(bench.answer(caller("k")).await, "stop backing_off", "attempt {attempt}");
            bench.live(SECOND).await;
            claimed = bench.ask(caller("k")).await;
            assert_eq!(words(&claimed.decision), "run retry");
            assert_eq!(claimed.view.unwrap().claim.attempt, attempt);
        }
        bench.say(&claimed.token.unwrap(), failed()).await;
        assert_eq!(bench.answer(caller("k")).await, "stop needs_review");
        assert_eq!(bench.seen(claimed.id).await.inbox, Some(InboxList::Error));
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_never_retried_by_itself() {
    for bench in benches().await {
        let claimed = bench.ask(caller("k")).await;
        let call =
            Call::Error { failure: Failed::Unknown, note: "timed out after the request went out".into() };
        bench.say(&claimed.token.unwrap(), call).await;
        bench.live(HOUR).await;
        assert_eq!(bench.answer(caller("k")).await, "stop needs_review");
        let state = bench.seen(claimed.id).await.claim.state;
        assert!(
            matches!(state, State::Error { due: None, cause: ErrorCause::OutcomeUnknown, .. }),
            "{state:?}"
        );
    }
}

#[tokio::test]
async fn every_change_has_a_history_row_and_every_act_of_a_person_an_audit_row() {
    for bench in benches().await {
        let one = bench.ask(caller("k")).await;
        bench.say(&one.token.unwrap(), Call::Heartbeat).await;
        bench.answer(caller("k")).await;
        let refused = bench.person(one.id, reset()).await;
        assert!(matches!(refused, Acted::Refused(_)), "a live holder has to be named");
        let confirmed =
            Act::Reset { run_now: false, confirm_holder: Some("attempt-1".into()), verified: false };
        bench.person(one.id, confirmed).await;
        let two = bench.ask(caller("k")).await;
        bench.say(&two.token.unwrap(), failed_for_good()).await;
        bench.person(one.id, Act::MarkDone).await;
        bench.person(one.id, Act::MarkError { note: "duplicates".into() }).await;
        bench.person(one.id, Act::Dismiss).await;
        assert_eq!(bench.answer(caller("k")).await, "stop dismissed");
        let expected = [
            "run first",
            "stop in_progress",
            "reset processing",
            "run first",
            "error failed",
            "mark_done error",
            "mark_error done",
            "dismiss error",
            "stop dismissed",
        ];
        assert_eq!(bench.story(one.id).await, expected);
        let audit = bench.audit(WS, None, 100).await.unwrap().rows;
        let said: Vec<_> = audit.iter().rev().map(|r| (r.action.as_str(), r.actor.as_str())).collect();
        assert_eq!(said, [("reset", "mia"), ("mark_done", "mia"), ("mark_error", "mia"), ("dismiss", "mia")]);
        for row in audit {
            assert_eq!(row.subject, one.id.to_string());
            assert_eq!(row.reason.as_deref(), Some("looked into it"));
        }
    }
}

#[tokio::test]
async fn done_is_reset_only_when_verified() {
    for bench in benches().await {
        let claimed = bench.ask(caller("k")).await;
        bench.say_with(&claimed.token.unwrap(), Call::Done, Some("1")).await;
        assert!(matches!(bench.person(claimed.id, reset()).await, Acted::Refused(_)));
        assert_eq!(bench.answer(caller("k")).await, "stop duplicate");
        let verified = Act::Reset { run_now: false, confirm_holder: None, verified: true };
        assert!(matches!(bench.person(claimed.id, verified).await, Acted::Written(_)));
        let view = bench.seen(claimed.id).await;
        assert_eq!(view.result, None, "the old result is not the new one's");
        let again = bench.ask(caller("k")).await;
        assert_eq!(words(&again.decision), "run first");
        assert_eq!(again.view.unwrap().claim.attempt, 2, "attempts never fall");
    }
}

#[tokio::test]
async fn run_now_makes_due_only_what_the_gate_itself_runs() {
    for bench in benches().await {
        for (name, call, due) in
            [("ours", caller("ours").queued(), true), ("theirs", caller("theirs"), false)]
        {
            let id = bench.ask(call).await.id;
            bench.person(id, Act::MarkError { note: "n".into() }).await;
            assert!(bench.due_ids().await.is_empty(), "{name}");
            let act = Act::Reset { run_now: true, confirm_holder: None, verified: false };
            assert!(matches!(bench.person(id, act).await, Acted::Written(_)));
            assert_eq!(bench.due_ids().await, if due { vec![id] } else { vec![] }, "{name}");
            bench.person(id, Act::Dismiss).await;
        }
    }
}

/// Whoever was stopped while the holder seemed gone need not come back: the holder is at work again.
#[tokio::test]
async fn a_heartbeat_takes_its_claim_out_of_the_parked_list() {
    for bench in benches().await {
        let held = bench.ask(caller("k")).await;
        bench.live(TTL).await;
        bench.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(caller("k")).await, "stop paused");
        assert_eq!(bench.seen(held.id).await.inbox, Some(InboxList::Stuck));
        assert_eq!(bench.say(&held.token.unwrap(), Call::Heartbeat).await, Answer::Accepted);
        assert_eq!(bench.seen(held.id).await.inbox, None);
    }
}

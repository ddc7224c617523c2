//! Time: live time only ages leases, set clocks hold nothing up, restarts, retention.

use oncegate_core::inbox::InboxList;
use oncegate_core::limits;

use super::*;

/// C34: a clock that was wrong by hours holds nobody up for longer than the TTL of live time.
#[tokio::test]
async fn a_set_clock_neither_ages_a_lease_nor_holds_it_up() {
    let hours: [i64; 5] = [-72, -3, 0, 3, 72];
    for bench in benches().await {
        for hours in hours {
            let name = format!("{hours} h");
            let started = bench.clock.read().wall;
            let id = bench.ask(caller(&name)).await.id;
            let wall = Timestamp::from_millis(started.as_millis() + hours * 3_600_000);
            bench.clock.set_wall(wall);
            assert_eq!(bench.answer(caller(&name)).await, "stop in_progress", "{name}");
            let list = (hours < 0).then_some(InboxList::Stuck);
            assert_eq!(bench.seen(id).await.inbox, list, "{name}: a start in the future is shown at once");
            bench.live(TTL - SECOND).await;
            assert_eq!(bench.answer(caller(&name)).await, "stop in_progress", "{name}");
            bench.live(SECOND).await;
            assert_eq!(bench.answer(caller(&name)).await, "run stale_retry", "{name}");
            bench.clock.set_wall(started);
        }
    }
}

#[tokio::test]
async fn time_without_ticks_does_not_age_leases() {
    for bench in benches().await {
        bench.ask(caller("k")).await;
        bench.clock.advance(HOUR * 10);
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress", "a suspended machine");
        bench.tick().await.unwrap();
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress");
        bench.live(TTL).await;
        assert_eq!(bench.answer(caller("k")).await, "run stale_retry");
    }
}

#[tokio::test]
async fn downtime_of_the_gate_does_not_age_a_callers_lease_and_live_time_before_it_counts() {
    for mut bench in reopened_benches().await {
        bench.ask(caller("k")).await;
        bench.live(TTL - Duration::from_secs(3)).await;
        // Not ticked: what passes between the last tick and an orderly end still counts.
        bench.clock.advance(SECOND * 2);
        let before = bench.now().lease;
        let store = bench.store.take().unwrap();
        store.close().await;
        drop(store);
        bench.clock.advance(DAY);
        bench.reopen().await;
        assert_eq!(bench.now().lease, before);
        assert_eq!(bench.answer(caller("k")).await, "stop in_progress");
        bench.clock.advance(SECOND);
        assert_eq!(bench.answer(caller("k")).await, "run stale_retry");
    }
}

#[tokio::test]
async fn a_restart_raises_the_boot_and_makes_the_runners_orphan_due_at_once() {
    for mut bench in reopened_benches().await {
        let id = bench.ask(caller("ours").queued().on("crm:1")).await.id;
        let held = bench.ask(runner(id, bench.boot())).await;
        let theirs = bench.ask(caller("theirs")).await.id;
        assert!(bench.due_ids().await.is_empty());
        let boot = bench.boot();
        bench.reopen().await;
        assert!(!bench.boot().is_over(boot));
        assert_eq!(bench.due_ids().await, [id], "a caller may still be alive");
        assert_eq!(bench.seen(theirs).await.inbox, None);
        assert_eq!(
            bench.answer(caller("other").on("crm:1")).await,
            "stop record_busy",
            "the orphan keeps its record"
        );
        let resumed = bench.ask(runner(id, bench.boot())).await;
        assert_eq!(words(&resumed.decision), "run resumed");
        let claim = resumed.view.unwrap().claim;
        assert_eq!((claim.attempt, claim.stale_retries_used, claim.retries_used), (2, 0, 0));
        assert_eq!(bench.say(&held.token.unwrap(), Call::Done).await, Answer::LostClaim);
    }
}

#[tokio::test]
async fn secrets_and_ids_outlive_a_restart() {
    for mut bench in reopened_benches().await {
        let claimed = bench.ask(caller("k")).await;
        bench.reopen().await;
        assert_eq!(bench.find(WS, automation("welcome"), key("k")).await.unwrap(), Some(claimed.id));
        assert_eq!(bench.say(&claimed.token.unwrap(), Call::Done).await, Answer::Accepted);
    }
}

#[tokio::test]
async fn work_is_due_in_the_order_in_which_it_came_due() {
    for bench in benches().await {
        let mut ids = Vec::new();
        for n in 0..5 {
            ids.push(bench.ask(caller(&format!("k{n}")).queued()).await.id);
            bench.live(SECOND).await;
        }
        assert_eq!(bench.due_ids().await, ids);
        assert_eq!(bench.due(2).await.unwrap().iter().map(|d| d.id).collect::<Vec<_>>(), ids[..2]);
        assert_eq!(bench.next_due(Timestamp::from_millis(0)).await.unwrap(), Some(MORNING));
        // The first is deferred: it waits by itself until its time has come.
        let claimed = bench.ask(runner(ids[0], bench.boot())).await;
        let until = bench.clock.read().wall.after(MINUTE);
        bench.say(&claimed.token.unwrap(), Call::Defer { until, note: "429".into() }).await;
        assert_eq!(bench.due_ids().await, ids[1..]);
        bench.live(MINUTE).await;
        assert_eq!(bench.due_ids().await, [&ids[1..], &ids[..1]].concat());
        assert_eq!(bench.answer(runner(ids[0], bench.boot())).await, "run resumed");
    }
}

#[tokio::test]
async fn the_runners_stale_work_is_due_and_a_callers_is_not() {
    for bench in benches().await {
        let ours = bench.ask(caller("ours").queued()).await.id;
        bench.ask(runner(ours, bench.boot())).await;
        let theirs = bench.ask(caller("theirs")).await.id;
        bench.live(TTL).await;
        assert_eq!(bench.due_ids().await, [ours]);
        assert_eq!(bench.seen(theirs).await.inbox, Some(InboxList::Stuck));
        bench.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
        assert!(bench.due_ids().await.is_empty(), "not of a paused automation");
    }
}

/// C07: the times of the case, and one hour before the retention of 90 days ends.
#[tokio::test]
async fn done_is_remembered_until_its_retention_ends_whatever_the_reaper_does() {
    for reaping in [true, false] {
        for bench in benches().await {
            let first = bench.ask(caller("s_1001").with("old")).await;
            bench.say_with(&first.token.unwrap(), Call::Done, Some("\"old\"")).await;
            let done = bench.clock.read().wall;
            for after in [MINUTE * 11, HOUR * 26, HOUR * 72, DAY * 90 - HOUR] {
                bench.clock.advance(done.after(after).since(bench.clock.read().wall));
                if reaping {
                    // The payload goes 30 days after done; what was done stays known.
                    assert_eq!(bench.reap(100).await.unwrap(), u64::from(after > DAY * 30), "{after:?}");
                }
                assert_eq!(bench.answer(caller("s_1001").with("old")).await, "stop duplicate", "{after:?}");
            }
            bench.clock.advance(done.after(DAY * 90).since(bench.clock.read().wall));
            if reaping {
                assert_eq!(bench.reap(100).await.unwrap(), 1);
                assert!(bench.show(first.id).await.unwrap().is_none());
                assert!(bench.work(first.id).await.unwrap().is_none(), "the payload goes too");
                assert!(bench.history(first.id).await.unwrap().is_empty());
            }
            let again = bench.ask(caller("s_1001").with("new")).await;
            assert_eq!(words(&again.decision), "run first_after_retention", "reaping: {reaping}");
            let payload = bench.work(first.id).await.unwrap().unwrap().payload;
            assert_eq!(payload, caller("s_1001").with("new").payload);
            bench.say(&again.token.unwrap(), Call::Done).await;
            assert_eq!(bench.seen(first.id).await.result, None, "the old result is not handed out");
            assert_eq!(bench.answer(caller("s_1001").with("new")).await, "stop duplicate");
        }
    }
}

#[tokio::test]
async fn a_flow_done_at_its_claim_forgets_its_old_result_with_its_retention() {
    for bench in benches().await {
        let first = bench.ask(caller("k").of("at_claim")).await;
        bench.say_with(&first.token.unwrap(), Call::Done, Some("\"old\"")).await;
        bench.clock.advance(DAY * 91);
        assert_eq!(bench.answer(caller("k").of("at_claim")).await, "run first_after_retention");
        assert_eq!(bench.seen(first.id).await.result, None);
    }
}

/// A clock that runs months ahead for some minutes must not wipe the memory of what is done.
#[tokio::test]
async fn nothing_is_forgotten_on_the_word_of_a_clock_that_leapt() {
    for bench in benches().await {
        let first = bench.ask(caller("k")).await;
        bench.say(&first.token.unwrap(), Call::Done).await;
        let right = bench.clock.read().wall;
        bench.clock.set_wall(right.after(DAY * 91));
        assert_eq!(bench.answer(caller("k")).await, "stop duplicate", "before the first tick");
        bench.live(MINUTE * 11).await;
        assert_eq!(bench.reap(100).await.unwrap(), 0);
        assert_eq!(bench.answer(caller("k")).await, "stop duplicate");
        bench.clock.set_wall(right.after(MINUTE * 11));
        bench.live(MINUTE).await;
        assert_eq!(bench.answer(caller("k")).await, "stop duplicate");
        // Nor is it said to have been forgotten, when a person wants it anew.
        let verified = Act::Reset { run_now: false, confirm_holder: None, verified: true };
        bench.person(first.id, verified).await;
        let again = bench.ask(caller("k")).await;
        assert_eq!(words(&again.decision), "run first");
        bench.say(&again.token.unwrap(), Call::Done).await;
        // A clock that keeps its word is believed in the end.
        bench.clock.set_wall(right.after(DAY * 91));
        bench.tick().await.unwrap();
        bench.clock.advance(HOUR * 6);
        assert_eq!(bench.answer(caller("k")).await, "run first_after_retention");
    }
}

/// A late look at a claim's old token, or another payload under its key, waits for a person however old it is.
#[tokio::test]
async fn what_is_marked_for_a_person_outlives_retention() {
    for bench in benches().await {
        let first = bench.ask(caller("k").with("a")).await;
        bench.say(&first.token.unwrap(), Call::Done).await;
        assert_eq!(bench.answer(caller("k").with("b")).await, "stop payload_mismatch");
        bench.clock.advance(DAY * 400);
        assert_eq!(bench.reap(100).await.unwrap(), 0);
        assert_eq!(bench.seen(first.id).await.inbox, Some(InboxList::Mismatch));
    }
}

#[tokio::test]
async fn a_pruned_key_is_known_for_two_years() {
    let known = limits::PRUNED_KEPT_FOR;
    for (after, answer) in [(known, "run first_after_retention"), (known + SECOND, "run first")] {
        for bench in benches().await {
            let first = bench.ask(caller("k")).await;
            bench.say(&first.token.unwrap(), Call::Done).await;
            let done = bench.clock.read().wall;
            bench.clock.advance(done.after(DAY * 90).since(bench.clock.read().wall));
            assert_eq!(bench.reap(100).await.unwrap(), 1);
            // From when it was pruned, however long it was remembered before.
            bench.clock.advance(after);
            bench.reap(100).await.unwrap();
            assert_eq!(bench.answer(caller("k")).await, answer, "{after:?}");
        }
    }
}

/// C07: a key past its retention is never run silently, however long it is held back before it starts.
#[tokio::test]
async fn a_key_held_back_after_its_retention_is_still_told_when_it_starts() {
    for reaped in [true, false] {
        for bench in benches().await {
            let first = bench.ask(caller("k")).await;
            bench.say(&first.token.unwrap(), Call::Done).await;
            bench.clock.advance(DAY * 91);
            if reaped {
                bench.reap(100).await.unwrap();
            }
            bench.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
            assert_eq!(bench.answer(caller("k")).await, "stop paused");
            assert_eq!(bench.answer(caller("k")).await, "stop paused");
            bench.set_paused(WS, automation("welcome"), false, "r".into(), "mia".into()).await.unwrap();
            assert_eq!(bench.answer(caller("k")).await, "run first_after_retention", "reaped: {reaped}");
        }
    }
}

/// An event that came in while the clock was three hours ahead does not wait three hours for the clock to catch up.
#[tokio::test]
async fn due_work_moves_with_a_clock_that_is_set_back() {
    for restarted in [false, true] {
        for mut bench in reopened_benches().await {
            let right = bench.clock.read().wall;
            bench.clock.set_wall(right.after(HOUR * 3));
            bench.tick().await.unwrap();
            let waiting = bench.ask(caller("queued").queued()).await.id;
            let failed_one = bench.ask(caller("failed").queued()).await.id;
            let boot = bench.boot();
            let run = bench.ask(runner(failed_one, boot)).await;
            bench.say(&run.token.unwrap(), failed()).await;
            bench.clock.set_wall(right);
            assert_eq!(bench.due_ids().await, [], "three hours ahead of the clock");
            if restarted {
                bench.reopen().await;
            }
            bench.tick().await.unwrap();
            assert_eq!(bench.due_ids().await, [waiting], "restarted: {restarted}");
            bench.live(SECOND * 60).await;
            assert_eq!(bench.due_ids().await, [waiting, failed_one], "its retry keeps its distance");
        }
    }
}

#[tokio::test]
async fn only_what_is_done_is_reaped_a_bounded_number_at_a_time() {
    for bench in benches().await {
        let open = [
            bench.ask(caller("processing")).await.id,
            bench.ask(caller("none").queued()).await.id,
            bench.ask(caller("error")).await.id,
        ];
        bench.person(open[2], Act::MarkError { note: "n".into() }).await;
        for n in 0..5 {
            let token = bench.ask(caller(&format!("done{n}"))).await.token.unwrap();
            bench.say(&token, Call::Done).await;
        }
        bench.clock.advance(DAY * 500);
        for reaped in [2, 2, 1, 0] {
            assert_eq!(bench.reap(2).await.unwrap(), reaped);
        }
        for id in open {
            assert!(bench.show(id).await.unwrap().is_some());
        }
    }
}

/// Callers that never call done are told so, instead of being run twice each; one done starts the count anew.
#[tokio::test]
async fn after_five_stale_claims_without_a_done_no_more_stale_retry_is_given() {
    let streak = limits::STALE_STREAK_MAX;
    for bench in benches().await {
        for n in 0..=streak {
            bench.ask(caller(&format!("k{n}"))).await;
        }
        let finishing = bench.ask(caller("finishes")).await;
        bench.ask(caller("elsewhere").of("other")).await;
        bench.live(TTL).await;
        for n in 0..streak {
            assert_eq!(bench.answer(caller(&format!("k{n}"))).await, "run stale_retry", "{n}");
        }
        assert_eq!(bench.answer(caller(&format!("k{streak}"))).await, "stop needs_review");
        assert_eq!(bench.answer(caller("elsewhere").of("other")).await, "run stale_retry", "per automation");
        bench.ask(caller("next")).await;
        bench.live(TTL).await;
        assert_eq!(bench.say(&finishing.token.unwrap(), Call::Done).await, Answer::Accepted);
        assert_eq!(bench.answer(caller("next")).await, "run stale_retry");
    }
}

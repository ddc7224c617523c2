//! Events of one record run one after another, in order of arrival.

use oncegate_store::api::Neighbours;

use super::*;

fn event(key: &str) -> ClaimCall {
    caller(key).queued().on("crm:1")
}

/// Queues events of one record, a second apart.
async fn queued<const N: usize>(bench: &Bench, keys: [&str; N]) -> [ClaimRef; N] {
    let mut ids = Vec::new();
    for key in keys {
        ids.push(bench.ask(event(key)).await.id);
        bench.live(SECOND).await;
    }
    ids.try_into().unwrap()
}

fn keys(neighbours: &Neighbours) -> [Option<&str>; 2] {
    [&neighbours.waits_for, &neighbours.overtaken_by].map(|n| n.as_ref().map(|n| n.idempotency_key.as_str()))
}

#[tokio::test]
async fn a_later_event_of_a_record_waits_until_the_earlier_is_done_or_a_persons() {
    let fails = [
        // What becomes of the first, and which may run after it.
        ("done", Call::Done, true),
        ("final", failed_for_good(), true),
        ("retry", failed(), false),
        ("hand back", Call::HandBack, false),
    ];
    for bench in benches().await {
        for (name, end, goes_on) in fails.clone() {
            let [key_a, key_b] = [format!("{name} a"), format!("{name} b")];
            let record = format!("crm:{name}");
            let a = bench.ask(caller(&key_a).queued().on(&record)).await.id;
            let b = bench.ask(caller(&key_b).of("other").queued().on(&record)).await.id;
            let free =
                bench.ask(caller(&format!("{name} free")).queued().on(&format!("{record}:2"))).await.id;
            assert_eq!(bench.due_ids().await, [a, free], "{name}: b is not in the way of others");
            assert_eq!(
                bench.answer(runner(b, bench.boot())).await,
                "stop record_busy",
                "{name}: a is queued"
            );
            assert_eq!(keys(&bench.neighbours(b).await.unwrap()), [Some(&*key_a), None], "{name}");
            let token = bench.ask(runner(a, bench.boot())).await.token.unwrap();
            assert_eq!(bench.due_ids().await, [free], "{name}: a is at work");
            bench.say(&token, end).await;
            bench.live(SECOND * 6).await;
            let expected = if goes_on { "run first" } else { "stop record_busy" };
            assert_eq!(bench.due_ids().await.contains(&b), goes_on, "{name}");
            assert_eq!(bench.answer(runner(b, bench.boot())).await, expected, "{name}");
            bench.say(&bench.ask(runner(free, bench.boot())).await.token.unwrap(), Call::Done).await;
            if !goes_on {
                bench.live(MINUTE).await;
                let token = bench.ask(runner(a, bench.boot())).await.token.unwrap();
                bench.say(&token, Call::Done).await;
                assert_eq!(bench.answer(runner(b, bench.boot())).await, "run first", "{name}");
            }
        }
    }
}

#[tokio::test]
async fn nobody_waits_longer_than_for_its_own_sla() {
    for bench in benches().await {
        let [a, b] = queued(&bench, ["a", "b"]).await;
        let token = bench.ask(runner(a, bench.boot())).await.token.unwrap();
        let failure = Failed::Retryable { retry_after: Some(HOUR * 3) };
        bench.say(&token, Call::Error { failure, note: "503".into() }).await;
        bench.live(HOUR).await;
        assert_eq!(bench.due_ids().await, [b], "whether it must wait is looked at from time to time");
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "stop record_busy");
        assert_eq!(bench.due_ids().await, []);
        // Nobody takes the first up again, e.g. because its node is gone.
        bench.live(HOUR * 3 - MINUTE).await;
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "stop record_busy");
        bench.live(MINUTE).await;
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "run first", "4 hours after it came");
        assert_eq!(bench.answer(runner(a, bench.boot())).await, "stop record_busy", "its record is held now");
    }
}

#[tokio::test]
async fn what_is_parked_paused_dismissed_or_a_callers_is_waited_for_by_nobody() {
    for bench in benches().await {
        let [a, b] = queued(&bench, ["a", "b"]).await;
        bench.person(a, Act::Dismiss).await;
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "run first");

        let waiting = bench.ask(caller("c").of("paused").queued().on("crm:2")).await.id;
        bench.set_paused(WS, automation("paused"), true, "crm is down".into(), "mia".into()).await.unwrap();
        let other = bench.ask(caller("d").queued().on("crm:2")).await.id;
        assert!(bench.due_ids().await.contains(&other));
        let token = bench.ask(runner(other, bench.boot())).await.token.unwrap();
        bench.set_paused(WS, automation("paused"), false, "it is up".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(runner(waiting, bench.boot())).await, "stop record_busy");
        // What has begun is not made to wait by an earlier one that may go on: they would wait for each other.
        let until = bench.now().wall.after(MINUTE);
        bench.say(&token, Call::Defer { until, note: "429".into() }).await;
        bench.live(MINUTE).await;
        assert_eq!(bench.answer(runner(other, bench.boot())).await, "run resumed");

        // One that holds the record of a paused automation, and that nobody will take up, is believed for its TTL.
        let dead = bench.ask(caller("g").of("paused").queued().on("crm:4")).await.id;
        let behind = bench.ask(caller("h").queued().on("crm:4")).await.id;
        bench.ask(runner(dead, bench.boot())).await;
        bench.set_paused(WS, automation("paused"), true, "crm is down".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(runner(behind, bench.boot())).await, "stop record_busy");
        bench.live(TTL + SECOND).await;
        assert_eq!(bench.answer(runner(behind, bench.boot())).await, "run first");

        // A caller comes when it comes: a stop would need a person to replay it.
        let _first = bench.ask(caller("e").queued().on("crm:3")).await;
        assert_eq!(bench.answer(caller("f").on("crm:3")).await, "run first");
    }
}

#[tokio::test]
async fn a_stale_holder_has_its_own_retry_before_the_next_event() {
    for bench in benches().await {
        let [a, b] = queued(&bench, ["a", "b"]).await;
        bench.ask(runner(a, bench.boot())).await;
        bench.live(TTL + MINUTE * 2).await;
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "stop record_busy");
        assert_eq!(bench.answer(runner(a, bench.boot())).await, "run stale_retry");
        bench.live(TTL).await;
        assert_eq!(bench.answer(runner(a, bench.boot())).await, "stop needs_review");
        assert_eq!(bench.answer(runner(b, bench.boot())).await, "run first");
    }
}

#[tokio::test]
async fn whoever_looks_at_what_failed_is_told_what_has_written_the_record_since() {
    for bench in benches().await {
        let [a, b, c] = queued(&bench, ["a", "b", "c"]).await;
        let none = Neighbours::default();
        assert_eq!(keys(&bench.neighbours(c).await.unwrap()), [Some("a"), None], "the first of them");
        for (id, end) in [(a, failed_for_good()), (b, Call::Done), (c, Call::Done)] {
            let token = bench.ask(runner(id, bench.boot())).await.token.unwrap();
            bench.say(&token, end).await;
        }
        assert_eq!(keys(&bench.neighbours(a).await.unwrap()), [None, Some("c")], "the newest of them");
        assert_eq!(bench.neighbours(b).await.unwrap(), none, "it is done");
        bench.person(a, Act::Reset { run_now: true, confirm_holder: None, verified: false }).await;
        assert_eq!(keys(&bench.neighbours(a).await.unwrap()), [None, Some("c")]);
        // Another workspace's record of the same name is another record.
        let other = Workspace(2);
        bench.add_workspace(other).await;
        let elsewhere = bench.ask(event("x").within(other)).await.id;
        assert_eq!(bench.neighbours(elsewhere).await.unwrap(), none);
        assert!(bench.due_ids().await.contains(&elsewhere));
    }
}

#[tokio::test]
async fn a_long_queue_of_one_workspace_does_not_stand_before_the_others() {
    for bench in benches().await {
        let others = [Workspace(2), Workspace(3)];
        for other in others {
            bench.add_workspace(other).await;
        }
        let mut long = Vec::new();
        for n in 0..40 {
            long.push(bench.ask(caller(&format!("k{n}")).queued()).await.id);
        }
        bench.live(SECOND).await;
        let mut late = Vec::new();
        for other in others {
            for n in 0..2 {
                late.push(bench.ask(caller(&format!("k{n}")).within(other).queued()).await.id);
            }
        }
        let due: Vec<_> = bench.due(5).await.unwrap().iter().map(|due| due.id).collect();
        assert_eq!(due[..3], [long[0], late[0], late[2]], "the first of each");
        assert_eq!(due[3..6], [long[1], late[1], late[3]], "the second of each");
        assert_eq!(due[6..], long[2..5], "no more than asked for of each");
        assert_eq!(bench.next_due(MORNING.before(SECOND)).await.unwrap(), Some(MORNING));
    }
}

//! Webhook intake: stored before it is acknowledged, each event judged alone, what cannot be judged kept.

use oncegate_core::decide::StopReason;
use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted, DeliveryRow, Release, UnverifiedCall};

use super::*;

fn event(name: &str, payload: &str) -> AdmitEvent {
    let identity = if name.is_empty() { Err("submission_id is missing".to_owned()) } else { Ok(key(name)) };
    let (json, fingerprint) = (format!("\"{payload}\""), fingerprint(payload));
    plain_event(identity, fingerprint, &json)
}

fn request(events: Vec<AdmitEvent>) -> AdmitCall {
    AdmitCall {
        workspace: WS,
        source: "typeform".into(),
        automation: automation("welcome"),
        headers: r#"{"content-type":"application/json"}"#.into(),
        body: b"[\xf0\x9f\x92\xa9, raw]".to_vec(),
        events,
        releases: None,
        actor: "webhook:typeform".into(),
    }
}

fn forged(n: u32) -> UnverifiedCall {
    UnverifiedCall {
        workspace: WS,
        source: "typeform".into(),
        automation: automation("welcome"),
        headers: r#"{"typeform-signature":"sha256=AAAA"}"#.into(),
        body: n.to_string().into_bytes(),
        reason: "the signature does not match".into(),
    }
}

/// Every delivery that waits, newest first.
async fn waiting(bench: &Bench) -> Vec<DeliveryRow> {
    let (mut rows, mut before) = (Vec::new(), None);
    loop {
        let page = bench.rejected(WS, None, before, 300).await.unwrap();
        rows.extend(page.rows);
        before = page.next;
        if before.is_none() {
            return rows;
        }
    }
}

/// Deliveries with this verdict among the numbers up to `beyond`, oldest first.
async fn kept(bench: &Bench, verdict: &str, beyond: i64) -> Vec<DeliveryRow> {
    let mut rows = Vec::new();
    for id in 1..=beyond {
        rows.extend(bench.delivery(WS, id).await.unwrap().filter(|row| row.verdict == verdict));
    }
    rows
}

async fn rejected_id(bench: &Bench, call: AdmitCall) -> i64 {
    let answers = bench.admit(call).await.unwrap();
    let [Admitted::Rejected { delivery }] = answers[..] else { panic!("{answers:?}") };
    delivery
}

fn releasing(delivery: i64, name: &str) -> AdmitCall {
    let releases = Some(Release { delivery, reason: "mended".into() });
    AdmitCall { releases, ..request(vec![event(name, "a")]) }
}

/// C43: one bad event in a batch, delivered twice.
#[tokio::test]
async fn each_event_of_a_batch_is_judged_alone_and_answered_in_order() {
    for bench in benches().await {
        let batch = || request(vec![event("ev_1", "a"), event("", "b"), event("ev_3", "c")]);
        let first = bench.admit(batch()).await.unwrap();
        let [
            Admitted::Accepted { id: one },
            Admitted::Rejected { delivery },
            Admitted::Accepted { id: three },
        ] = first[..]
        else {
            panic!("{first:?}")
        };
        assert_eq!(bench.due_ids().await, [one, three]);
        let again = bench.admit(batch()).await.unwrap();
        let stopped = |id| Admitted::Stopped { id, reason: StopReason::InProgress };
        assert_eq!([&again[0], &again[2]], [&stopped(one), &stopped(three)]);
        for id in [one, three] {
            let claimed = bench.ask(runner(id, bench.boot())).await;
            assert_eq!(words(&claimed.decision), "run first");
            bench.say(&claimed.token.unwrap(), Call::Done).await;
        }
        assert!(bench.due_ids().await.is_empty(), "nothing runs a second time");
        let after = bench.admit(batch()).await.unwrap();
        assert_eq!(after[0], Admitted::Stopped { id: one, reason: StopReason::Duplicate });
        let kept = bench.delivery(WS, delivery).await.unwrap().unwrap();
        assert_eq!(kept.verdict, "rejected");
        assert_eq!(kept.body, Some(batch().body), "byte for byte");
        assert_eq!(kept.headers, Some(batch().headers));
        assert_eq!(kept.reason.as_deref(), Some("submission_id is missing"));
    }
}

#[tokio::test]
async fn one_key_twice_in_one_request_runs_once() {
    for bench in benches().await {
        let answers =
            bench.admit(request(vec![event("k", "a"), event("k", "a"), event("k", "b")])).await.unwrap();
        let [Admitted::Accepted { id }, ..] = answers[..] else { panic!("{answers:?}") };
        assert_eq!(answers[1], Admitted::Stopped { id, reason: StopReason::InProgress });
        assert_eq!(answers[2], Admitted::Stopped { id, reason: StopReason::PayloadMismatch });
        assert_eq!(bench.due_ids().await, [id]);
        assert_eq!(bench.seen(id).await.inbox, Some(InboxList::Mismatch));
    }
}

/// A release that settles nothing writes nothing, and an unknown workspace undoes what came before it.
#[tokio::test]
async fn a_request_is_stored_whole_or_not_at_all() {
    for bench in benches().await {
        let nowhere =
            AdmitCall { workspace: Workspace(77), ..request(vec![event("", "a"), event("k", "b")]) };
        assert!(bench.admit(nowhere).await.is_err());
        assert!(
            bench.rejected(Workspace(77), None, None, 10).await.unwrap().rows.is_empty(),
            "the first event neither"
        );
        let unknown = AdmitCall {
            releases: Some(Release { delivery: 12_345, reason: "mended".into() }),
            ..request(vec![event("k", "a")])
        };
        assert!(bench.admit(unknown).await.unwrap().is_empty());
        assert_eq!(bench.find(WS, automation("welcome"), key("k")).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_event_is_released_once_even_if_pressed_by_many_at_once() {
    for bench in benches().await {
        let delivery = rejected_id(&bench, request(vec![event("", "a")])).await;
        let presses: Vec<_> = (0..8)
            .map(|n| {
                let store = Arc::clone(&bench);
                // Each press meant another key: two of them would be two effects.
                let call = releasing(delivery, &format!("rekeyed{n}"));
                tokio::spawn(async move { store.admit(call).await.unwrap() })
            })
            .collect();
        let mut accepted = 0;
        for press in presses {
            accepted += press.await.unwrap().len();
        }
        assert_eq!(accepted, 1);
        assert_eq!(bench.due_ids().await.len(), 1);
        let row = bench.delivery(WS, delivery).await.unwrap().unwrap();
        assert_eq!((row.verdict.as_str(), row.settled_at), ("released", Some(MORNING)));
        let audit = bench.audit(WS, None, 10).await.unwrap().rows;
        assert_eq!(audit.iter().filter(|r| r.action == "release").count(), 1);
        assert!(bench.rejected(WS, None, None, 10).await.unwrap().rows.is_empty());
    }
}

#[tokio::test]
async fn a_bad_signature_is_kept_apart_and_can_be_released() {
    for bench in benches().await {
        let id = bench.keep_unverified(forged(1)).await.unwrap();
        let page = bench.rejected(WS, None, None, 10).await.unwrap();
        assert_eq!(page.rows.len(), 1);
        assert_eq!((page.rows[0].id, page.rows[0].body.as_ref()), (id, None), "lists carry no bodies");
        let row = bench.delivery(WS, id).await.unwrap().unwrap();
        assert_eq!((row.verdict.as_str(), row.received_at), ("unverified", MORNING));
        assert_eq!((row.body, row.headers), (Some(b"1".to_vec()), Some(forged(1).headers)));
        let counts = bench.counts(WS, None).await.unwrap();
        assert!(counts.contains(&(InboxList::Rejected, 1)), "{counts:?}");
        assert!(matches!(bench.admit(releasing(id, "k")).await.unwrap()[..], [Admitted::Accepted { .. }]));
    }
}

/// One captured request, sent again and again: its signature is good each time.
#[tokio::test]
async fn a_rejected_request_that_comes_again_is_counted_on_its_row() {
    for bench in benches().await {
        let captured = || request(vec![event("", "a")]);
        let first = rejected_id(&bench, captured()).await;
        let row = bench.delivery(WS, first).await.unwrap().unwrap();
        assert_eq!((row.repeats, row.received_at, row.last_at), (0, MORNING, MORNING));
        for n in 1..=200 {
            bench.clock.advance(MINUTE);
            assert_eq!(rejected_id(&bench, captured()).await, first, "the answer stays the same");
            let row = bench.delivery(WS, first).await.unwrap().unwrap();
            assert_eq!((row.repeats, row.received_at), (n, MORNING));
            assert_eq!(row.last_at, MORNING.after(MINUTE * u32::try_from(n).unwrap()));
        }
        let rows = waiting(&bench).await;
        assert_eq!(rows.iter().map(|r| (r.id, r.repeats)).collect::<Vec<_>>(), [(first, 200)]);
        assert_eq!(bench.delivery(WS, first).await.unwrap().unwrap().body, Some(captured().body));
    }
}

#[tokio::test]
async fn rejected_requests_that_differ_in_anything_wait_each_for_itself() {
    for bench in benches().await {
        bench.add_workspace(Workspace(2)).await;
        let plain = || request(vec![event("", "a")]);
        let mut why = event("", "a");
        why.identity = Err("submission_id is blank".into());
        let calls = [
            plain(),
            AdmitCall { workspace: Workspace(2), ..plain() },
            AdmitCall { source: "tally".into(), ..plain() },
            AdmitCall { body: b"[]".to_vec(), ..plain() },
            AdmitCall { events: vec![why], ..plain() },
        ];
        let mut ids = Vec::new();
        for call in &calls {
            ids.push(rejected_id(&bench, call.clone()).await);
        }
        for (call, id) in calls.iter().zip(&ids) {
            assert_eq!(rejected_id(&bench, call.clone()).await, *id);
            let row = bench.delivery(call.workspace, *id).await.unwrap().unwrap();
            assert_eq!((row.repeats, row.body.as_ref()), (1, Some(&call.body)));
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), calls.len(), "{ids:?}");
    }
}

/// What was settled is settled: the same request, rejected anew, waits anew.
#[tokio::test]
async fn a_rejected_request_that_comes_after_its_release_waits_again() {
    for bench in benches().await {
        let first = rejected_id(&bench, request(vec![event("", "a")])).await;
        bench.admit(releasing(first, "k")).await.unwrap();
        let second = rejected_id(&bench, request(vec![event("", "a")])).await;
        assert_ne!(first, second);
        assert_eq!(bench.delivery(WS, first).await.unwrap().unwrap().repeats, 0);
        assert_eq!(waiting(&bench).await.iter().map(|r| r.id).collect::<Vec<_>>(), [second]);
    }
}

#[tokio::test]
async fn each_body_that_a_claim_was_stopped_for_is_kept_once() {
    for bench in benches().await {
        let with = |name: &str, payload: &str| AdmitCall {
            body: payload.as_bytes().to_vec(),
            ..request(vec![event(name, payload)])
        };
        for name in ["k", "other"] {
            bench.admit(with(name, "a")).await.unwrap();
        }
        for n in 0..5 {
            bench.clock.set_wall(MORNING.after(MINUTE * n));
            for (name, payload) in [("k", "b"), ("k", "c"), ("other", "b")] {
                let answers = bench.admit(with(name, payload)).await.unwrap();
                let mismatch = StopReason::PayloadMismatch;
                assert!(matches!(answers[..], [Admitted::Stopped { reason, .. }] if reason == mismatch));
            }
        }
        let rows = kept(&bench, "mismatch", 100).await;
        let bodies: Vec<_> = rows.iter().map(|r| r.body.as_deref().unwrap()).collect();
        assert_eq!(bodies, [b"b", b"c", b"b"], "once per claim and body");
        for row in rows {
            assert_eq!((row.repeats, row.last_at), (4, MORNING.after(MINUTE * 4)));
        }
        let id = bench.find(WS, automation("welcome"), key("k")).await.unwrap().unwrap();
        assert_eq!(bench.seen(id).await.stops, 10, "each was stopped");
    }
}

#[tokio::test]
async fn of_a_claims_duplicates_the_first_fifty_have_a_row_and_all_are_counted() {
    for bench in benches().await {
        let max = u64::from(limits::STOP_HISTORY_ROWS_MAX);
        let mut ids = Vec::new();
        for name in ["k", "other"] {
            for n in 0..=max + 30 {
                match bench.admit(request(vec![event(name, "a")])).await.unwrap()[..] {
                    [Admitted::Accepted { id }] if n == 0 => ids.push(id),
                    [Admitted::Stopped { reason: StopReason::InProgress, .. }] if n > 0 => {}
                    ref other => panic!("{n}: {other:?}"),
                }
            }
        }
        // Done by now; the rest are duplicates of another kind.
        let claimed = bench.ask(runner(ids[0], bench.boot())).await;
        bench.say(&claimed.token.unwrap(), Call::Done).await;
        bench.admit(request(vec![event("k", "a")])).await.unwrap();
        assert_eq!(kept(&bench, "accepted", 300).await.len(), 2);
        assert_eq!(kept(&bench, "duplicate", 300).await.len() as u64, 2 * max);
        assert_eq!(bench.seen(ids[0]).await.stops, max + 31);
        assert_eq!(bench.seen(ids[1]).await.stops, max + 30);
    }
}

#[tokio::test]
async fn a_flood_of_bad_signatures_pushes_out_the_oldest_of_its_source_and_nothing_else() {
    for bench in benches().await {
        let rejected = rejected_id(&bench, request(vec![event("", "a")])).await;
        let elsewhere = UnverifiedCall { source: "tally".into(), ..forged(0) };
        let elsewhere = bench.keep_unverified(elsewhere).await.unwrap();
        let mut ids = vec![rejected, elsewhere];
        let extra = 5;
        for n in 0..limits::UNVERIFIED_KEPT_MAX + extra {
            ids.push(bench.keep_unverified(forged(n)).await.unwrap());
        }
        ids.drain(2..2 + extra as usize);
        ids.reverse();
        assert_eq!(waiting(&bench).await.iter().map(|r| r.id).collect::<Vec<_>>(), ids);
    }
}

#[tokio::test]
async fn large_bodies_with_bad_signatures_push_out_the_oldest_of_their_source_by_size() {
    const MIB: usize = 1024 * 1024;
    for bench in benches().await {
        let large = |n: u8, source: &str, bytes: usize| UnverifiedCall {
            source: source.into(),
            headers: "[]".into(),
            body: vec![n; bytes],
            ..forged(0)
        };
        let elsewhere = bench.keep_unverified(large(0, "tally", MIB)).await.unwrap();
        let mut ids = Vec::new();
        // Four of them, with their headers, are the quota to the byte.
        for n in 0..4 {
            ids.push(bench.keep_unverified(large(n, "typeform", 16 * MIB - 2)).await.unwrap());
        }
        let left = async || waiting(&bench).await.iter().map(|r| r.id).collect::<Vec<_>>();
        assert_eq!(left().await, [ids[3], ids[2], ids[1], ids[0], elsewhere]);
        let small = bench.keep_unverified(large(0, "typeform", 1)).await.unwrap();
        assert_eq!(left().await, [small, ids[3], ids[2], ids[1], elsewhere]);
        let largest = bench.keep_unverified(large(9, "typeform", 25 * MIB)).await.unwrap();
        assert_eq!(left().await, [largest, small, ids[3], ids[2], elsewhere]);
    }
}

#[tokio::test]
async fn a_body_with_a_bad_signature_that_comes_again_is_counted_on_its_row() {
    for bench in benches().await {
        let id = bench.keep_unverified(forged(1)).await.unwrap();
        bench.clock.advance(MINUTE);
        let again =
            UnverifiedCall { headers: "[]".into(), reason: "it is 90 minutes old".into(), ..forged(1) };
        assert_eq!(bench.keep_unverified(again).await.unwrap(), id);
        let row = bench.delivery(WS, id).await.unwrap().unwrap();
        assert_eq!((row.repeats, row.received_at, row.last_at), (1, MORNING, MORNING.after(MINUTE)));
        // A signature is judged as of its arrival: they stay together.
        assert_eq!((row.headers, row.reason), (Some(forged(1).headers), Some(forged(1).reason)));
        let elsewhere = UnverifiedCall { source: "tally".into(), ..forged(1) };
        assert_ne!(bench.keep_unverified(elsewhere).await.unwrap(), id);
        bench.admit(releasing(id, "k")).await.unwrap();
        assert_ne!(bench.keep_unverified(forged(1)).await.unwrap(), id, "that one is settled");
    }
}

#[tokio::test]
async fn of_the_headers_beside_a_bad_signature_32_kib_are_kept_and_the_reason_says_so() {
    const MAX: usize = 32 * 1024;
    for bench in benches().await {
        let keep = async |body: u32, headers: String| {
            let id = bench.keep_unverified(UnverifiedCall { headers, ..forged(body) }).await.unwrap();
            let row = bench.delivery(WS, id).await.unwrap().unwrap();
            (row.headers.unwrap(), row.reason.unwrap())
        };
        let list = |pairs: &[(&str, String)]| serde_json::to_string(pairs).unwrap();
        let (large, signature) = (("x-junk", "é".repeat(MAX / 4)), ("x-signature", "sha256=AAAA".to_owned()));
        let huge = ("x-huge", "x".repeat(2 * MAX));
        // To the byte.
        let whole = list(&[("x-junk", "x".repeat(MAX - list(&[("x-junk", String::new())]).len()))]);
        assert_eq!(whole.len(), MAX);
        assert_eq!(keep(1, whole.clone()).await, (whole, forged(1).reason));
        let (kept, reason) =
            keep(2, list(&[huge.clone(), large.clone(), large.clone(), signature.clone()])).await;
        assert_eq!(kept, list(&[large.clone(), signature.clone()]), "whole ones, in their order");
        assert_eq!(reason, "the signature does not match (headers beyond 32 KiB were not kept: 2)");
        let (kept, _) = keep(3, list(&vec![signature; 5_000])).await;
        assert!((MAX - 64..=MAX).contains(&kept.len()), "{}", kept.len());
        assert_eq!(serde_json::from_str::<Vec<(String, String)>>(&kept).unwrap()[0].0, "x-signature");
        let object = serde_json::json!({ huge.0: huge.1, "a": "b" }).to_string();
        assert_eq!(keep(4, object).await.0, r#"{"a":"b"}"#);
        let (kept, reason) = keep(5, "x".repeat(2 * MAX)).await;
        assert_eq!(kept, "[]");
        assert!(reason.ends_with("not kept: all)"), "{reason}");
    }
}

#[tokio::test]
async fn a_released_request_loses_its_body_after_thirty_days_and_stays_on_record() {
    for bench in benches().await {
        let rejected = rejected_id(&bench, request(vec![event("", "a")])).await;
        let unverified = bench.keep_unverified(forged(1)).await.unwrap();
        // However long they waited: the days count from the release.
        bench.clock.advance(DAY * 6);
        let settled = bench.clock.read().wall;
        for (id, name) in [(rejected, "k1"), (unverified, "k2")] {
            bench.admit(releasing(id, name)).await.unwrap();
        }
        let still_waiting = rejected_id(&bench, request(vec![event("", "a")])).await;
        for (after, left) in [(DAY * 30, true), (SECOND, false), (DAY * 400, false)] {
            bench.clock.advance(after);
            bench.reap(100).await.unwrap();
            for id in [rejected, unverified] {
                let row = bench.delivery(WS, id).await.unwrap().unwrap();
                assert_eq!((row.verdict.as_str(), row.settled_at), ("released", Some(settled)));
                assert_eq!((row.body.is_some(), row.headers.is_some()), (left, left), "{after:?}");
            }
            let row = bench.delivery(WS, still_waiting).await.unwrap().unwrap();
            assert_eq!(row.body, Some(request(vec![]).body), "what waits keeps its body");
        }
    }
}

/// A store that was down for a year must not stand still while it forgets.
#[tokio::test]
async fn what_follows_a_reaped_claim_goes_a_bounded_number_at_a_time_too() {
    for bench in benches().await {
        let [Admitted::Accepted { id }] = bench.admit(request(vec![event("k", "a")])).await.unwrap()[..]
        else {
            panic!("it is new")
        };
        for n in 0..9 {
            let call = AdmitCall { body: vec![n], ..request(vec![event("k", &n.to_string())]) };
            bench.admit(call).await.unwrap();
        }
        let claimed = bench.ask(runner(id, bench.boot())).await;
        bench.say(&claimed.token.unwrap(), Call::Done).await;
        // Looked at: until then the mark and its bodies outlive retention.
        let act = ActCall { id, act: Act::Dismiss, reason: "seen".into(), actor: "mia".into() };
        bench.act(act).await.unwrap();
        for n in 0..7 {
            bench.keep_unverified(forged(n)).await.unwrap();
        }
        let mut released = Vec::new();
        for n in 0..5 {
            let call = AdmitCall { body: vec![n], ..request(vec![event("", "a")]) };
            let row = rejected_id(&bench, call).await;
            bench.admit(releasing(row, "released")).await.unwrap();
            released.push(row);
        }
        bench.clock.advance(DAY * 500);
        let left = async || {
            let mut bodies = 0;
            for id in &released {
                let row = bench.delivery(WS, *id).await.unwrap().unwrap();
                bodies += usize::from(row.body.is_some());
            }
            let claim = bench.show(id).await.unwrap().is_some();
            (claim, kept(&bench, "mismatch", 100).await.len(), waiting(&bench).await.len(), bodies)
        };
        assert_eq!(left().await, (true, 9, 7, 5));
        // Of the claim the row `accepted` goes first. A full number says: come again.
        for (reaped, after) in
            [(4, (true, 6, 3, 1)), (4, (true, 2, 0, 0)), (2, (false, 0, 0, 0)), (0, (false, 0, 0, 0))]
        {
            assert_eq!(bench.reap(4).await.unwrap(), reaped);
            assert_eq!(left().await, after);
        }
    }
}

#[tokio::test]
async fn a_bad_signature_is_forgotten_after_seven_days_and_a_rejected_event_is_not() {
    for bench in benches().await {
        bench.admit(request(vec![event("", "a")])).await.unwrap();
        bench.keep_unverified(forged(1)).await.unwrap();
        for (after, left) in [(limits::UNVERIFIED_KEPT_FOR, 2), (SECOND, 1), (DAY * 400, 1)] {
            bench.clock.advance(after);
            bench.reap(100).await.unwrap();
            assert_eq!(bench.rejected(WS, None, None, 10).await.unwrap().rows.len(), left, "{after:?}");
        }
    }
}

#[tokio::test]
async fn a_paused_automation_takes_events_in_and_runs_none() {
    for bench in benches().await {
        let pause = async |on: bool| {
            bench.set_paused(WS, automation("welcome"), on, "crm is down".into(), "mia".into()).await.unwrap()
        };
        assert!(pause(true).await);
        assert!(!pause(true).await, "it was paused already");
        let [Admitted::Accepted { id }] = bench.admit(request(vec![event("k", "a")])).await.unwrap()[..]
        else {
            panic!("intake goes on")
        };
        assert!(bench.due_ids().await.is_empty());
        assert_eq!(bench.next_due(Timestamp::from_millis(0)).await.unwrap(), None);
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "stop paused");
        bench.live(MINUTE).await;
        assert!(pause(false).await);
        assert_eq!(bench.due_ids().await, [id]);
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "run first");
        let audit = bench.audit(WS, None, 10).await.unwrap().rows;
        assert_eq!(audit.iter().map(|r| r.action.as_str()).collect::<Vec<_>>(), ["resume", "pause"]);
    }
}

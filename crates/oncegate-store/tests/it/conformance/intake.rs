//! Webhook intake: stored before it is acknowledged, each event judged alone, what cannot be judged kept.

use oncegate_core::decide::StopReason;
use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted, Release, UnverifiedCall};

use super::*;

fn event(name: &str, payload: &str) -> AdmitEvent {
    let identity = if name.is_empty() { Err("submission_id is missing".to_owned()) } else { Ok(key(name)) };
    AdmitEvent { identity, fingerprint: fingerprint(payload), json: format!("\"{payload}\""), record: None }
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

/// C43: one bad event in a batch, delivered twice.
#[tokio::test]
async fn each_event_of_a_batch_is_judged_alone_and_answered_in_order() {
    for bench in benches() {
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
    for bench in benches() {
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
    for bench in benches() {
        let nowhere =
            AdmitCall { workspace: Workspace(77), ..request(vec![event("", "a"), event("k", "b")]) };
        assert!(bench.admit(nowhere).await.is_err());
        assert!(
            bench.rejected(Workspace(77), None, 10).await.unwrap().rows.is_empty(),
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
    for bench in benches() {
        let [Admitted::Rejected { delivery }] = bench.admit(request(vec![event("", "a")])).await.unwrap()[..]
        else {
            panic!("it has no identity")
        };
        let presses: Vec<_> = (0..8)
            .map(|n| {
                let store = Arc::clone(&bench);
                // Each press meant another key: two of them would be two effects.
                let call = AdmitCall {
                    releases: Some(Release { delivery, reason: "mended".into() }),
                    ..request(vec![event(&format!("rekeyed{n}"), "a")])
                };
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
        assert!(bench.rejected(WS, None, 10).await.unwrap().rows.is_empty());
    }
}

#[tokio::test]
async fn a_bad_signature_is_kept_apart_and_can_be_released() {
    for bench in benches() {
        let id = bench.keep_unverified(forged(1)).await.unwrap();
        let page = bench.rejected(WS, None, 10).await.unwrap();
        assert_eq!(page.rows.len(), 1);
        assert_eq!((page.rows[0].id, page.rows[0].body.as_ref()), (id, None), "lists carry no bodies");
        let row = bench.delivery(WS, id).await.unwrap().unwrap();
        assert_eq!((row.verdict.as_str(), row.received_at), ("unverified", MORNING));
        assert_eq!((row.body, row.headers), (Some(b"1".to_vec()), Some(forged(1).headers)));
        let counts = bench.counts(WS).await.unwrap();
        assert!(counts.contains(&(InboxList::Rejected, 1)), "{counts:?}");
        let released = AdmitCall {
            releases: Some(Release { delivery: id, reason: "mended".into() }),
            ..request(vec![event("k", "a")])
        };
        assert!(matches!(bench.admit(released).await.unwrap()[..], [Admitted::Accepted { .. }]));
    }
}

#[tokio::test]
async fn a_flood_of_bad_signatures_pushes_out_its_oldest_and_nothing_else() {
    for bench in benches() {
        bench.admit(request(vec![event("", "a")])).await.unwrap();
        let extra = 5;
        let mut ids = Vec::new();
        for n in 0..limits::UNVERIFIED_KEPT_MAX + extra {
            ids.push(bench.keep_unverified(forged(n)).await.unwrap());
        }
        let (mut kept, mut before) = (Vec::new(), None);
        loop {
            let page = bench.rejected(WS, before, 300).await.unwrap();
            kept.extend(page.rows.iter().map(|r| (r.verdict.clone(), r.id)));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let (rejected, unverified): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(v, _)| v == "rejected");
        assert_eq!(rejected.len(), 1, "only its own kind is pushed out");
        let newest: Vec<_> = ids.iter().rev().take(limits::UNVERIFIED_KEPT_MAX as usize).copied().collect();
        assert_eq!(unverified.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), newest);
    }
}

#[tokio::test]
async fn a_bad_signature_is_forgotten_after_seven_days_and_a_rejected_event_is_not() {
    for bench in benches() {
        bench.admit(request(vec![event("", "a")])).await.unwrap();
        bench.keep_unverified(forged(1)).await.unwrap();
        for (after, left) in [(limits::UNVERIFIED_KEPT_FOR, 2), (SECOND, 1), (DAY * 400, 1)] {
            bench.clock.advance(after);
            bench.reap(100).await.unwrap();
            assert_eq!(bench.rejected(WS, None, 10).await.unwrap().rows.len(), left, "{after:?}");
        }
    }
}

#[tokio::test]
async fn a_paused_automation_takes_events_in_and_runs_none() {
    for bench in benches() {
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
        assert_eq!(bench.next_due().await.unwrap(), None);
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "stop paused");
        bench.live(MINUTE).await;
        assert!(pause(false).await);
        assert_eq!(bench.due_ids().await, [id]);
        assert_eq!(bench.answer(runner(id, bench.boot())).await, "run first");
        let audit = bench.audit(WS, None, 10).await.unwrap().rows;
        assert_eq!(audit.iter().map(|r| r.action.as_str()).collect::<Vec<_>>(), ["resume", "pause"]);
    }
}

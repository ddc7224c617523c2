//! The same webhook, the same release, the same call back and the same forgetting, at two nodes at the same moment.

use oncegate_core::decide::StopReason;
use oncegate_core::reset::Act;
use oncegate_store::Store;
use oncegate_store::api::{ActCall, AdmitCall, AdmitEvent, Admitted, Release, UnverifiedCall};
use oncegate_store::nudges::{Nudge, Nudges};
use oncegate_store::person::{Forget, Forgotten, Privacy};

use super::two;
use crate::conformance::{
    Asking, HOUR, WS, automation, caller, failed_for_good, fingerprint, key, plain_event, runner,
};

/// How often each race is run: whoever wins differs from one to the next.
const ROUNDS: u32 = 10;

fn event(name: Option<&str>, payload: &str) -> AdmitEvent {
    let identity = name.map(key).ok_or_else(|| "submission_id is missing".to_owned());
    plain_event(identity, fingerprint(payload), &format!("\"{payload}\""))
}

fn request(round: u32, events: Vec<AdmitEvent>) -> AdmitCall {
    AdmitCall {
        workspace: WS,
        source: "typeform".into(),
        automation: automation("welcome"),
        headers: "{}".into(),
        body: format!("body {round}").into_bytes(),
        events,
        releases: None,
        actor: "webhook:typeform".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_at_two_nodes_is_one_claim_and_one_row_that_is_counted() {
    let (cluster, _clock, [a, b]) = two().await;
    for round in 0..ROUNDS {
        let name = format!("ev {round}");
        let call = || request(round, vec![event(None, "x"), event(Some(&name), "a")]);
        let (of_a, of_b) = tokio::join!(a.admit(call()), b.admit(call()));
        let (of_a, of_b) = (of_a.unwrap(), of_b.unwrap());
        assert_eq!(of_a[0], of_b[0], "one row, whichever node is asked");
        let accepted = |answers: &[Admitted]| matches!(answers[1], Admitted::Accepted { .. });
        assert_eq!([&of_a, &of_b].iter().filter(|of| accepted(of)).count(), 1, "{of_a:?} {of_b:?}");
        let Admitted::Rejected { delivery } = of_a[0] else { panic!("{of_a:?}") };
        assert_eq!(a.delivery(WS, delivery).await.unwrap().unwrap().repeats, 1);
        // Another payload under the same key.
        let other = || request(round + 1_000, vec![event(Some(&name), "b")]);
        let (of_a, of_b) = tokio::join!(a.admit(other()), b.admit(other()));
        for of in [of_a.unwrap(), of_b.unwrap()] {
            assert!(matches!(of[..], [Admitted::Stopped { reason: StopReason::PayloadMismatch, .. }]));
        }
        let forged = || UnverifiedCall {
            workspace: WS,
            source: "typeform".into(),
            automation: automation("welcome"),
            headers: "{}".into(),
            body: format!("forged {round}").into_bytes(),
            reason: "the signature does not match".into(),
        };
        let (of_a, of_b) = tokio::join!(a.keep_unverified(forged()), b.keep_unverified(forged()));
        assert_eq!(of_a.unwrap(), of_b.unwrap());
    }
    let counted = "SELECT verdict, count(*), sum(repeats) FROM oncegate.deliveries \
        WHERE verdict IN ('mismatch', 'rejected', 'unverified') GROUP BY verdict ORDER BY verdict";
    assert_eq!(cluster.sql(counted), "mismatch|10|10\nrejected|10|10\nunverified|10|10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_people_at_two_nodes_release_a_delivery_once() {
    let (_cluster, _clock, [a, b]) = two().await;
    for round in 0..ROUNDS {
        let kept = a.admit(request(round, vec![event(None, "x")])).await.unwrap();
        let [Admitted::Rejected { delivery }] = kept[..] else { panic!("{kept:?}") };
        // Each means another key: two of them would be two effects.
        let release = |who: &str| AdmitCall {
            releases: Some(Release { delivery, reason: "mended".into() }),
            ..request(round, vec![event(Some(&format!("{who} {round}")), "x")])
        };
        let (of_a, of_b) = tokio::join!(a.admit(release("mia")), b.admit(release("tom")));
        assert_eq!(of_a.unwrap().len() + of_b.unwrap().len(), 1);
        assert_eq!(a.due(1_000).await.unwrap().len(), round as usize + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_nudge_a_claim_at_once_send_once() {
    let (_cluster, clock, [a, b]) = two().await;
    let pause = |paused| a.set_paused(WS, automation("hooked"), paused, "r".into(), "mia".into());
    for round in 0..ROUNDS {
        pause(true).await.unwrap();
        let id = a.claim(caller(&format!("k{round}")).of("hooked")).await.unwrap().unwrap().id;
        pause(false).await.unwrap();
        clock.advance(HOUR);
        let (of_a, of_b) = tokio::join!(a.nudge(id), b.nudge(id));
        let both = [of_a.unwrap(), of_b.unwrap()];
        assert_eq!(both.iter().filter(|n| matches!(n, Nudge::Send(_))).count(), 1, "{both:?}");
        let story = a.history(id).await.unwrap();
        assert_eq!(story.iter().filter(|line| line.kind == "retriggered").count(), 1);
    }
}

/// Either it is forgotten, and nothing runs; or it runs, with all that it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_while_it_is_run_again_is_forgotten_whole_or_runs_whole() {
    let (_cluster, _clock, [a, b]) = two().await;
    for round in 0..ROUNDS {
        let id = a.claim(caller(&format!("k{round}")).with("ann").queued()).await.unwrap().unwrap().id;
        let run = a.claim(runner(id, a.boot())).await.unwrap().unwrap();
        super::say(&a, &run, failed_for_good()).await;
        let act = Act::Reset { run_now: true, confirm_holder: None, verified: false };
        let act = ActCall { id, act, reason: "looked".into(), actor: "mia".into() };
        let (forgotten, _) = tokio::join!(a.forget(WS, vec![Forget::Claim(id)]), b.act(act));
        let due = a.due(1_000).await.unwrap().iter().any(|due| due.id == id);
        let has_payload = a.work(id).await.unwrap().unwrap().payload.is_some();
        match forgotten.unwrap()[..] {
            [Forgotten::Yes] => assert_eq!((due, has_payload), (false, false), "{round}"),
            [Forgotten::Live] => assert_eq!((due, has_payload), (true, true), "{round}"),
            ref other => panic!("{other:?}"),
        }
    }
}

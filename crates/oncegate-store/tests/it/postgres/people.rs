//! What people and their scripts ask of several nodes at the same moment.

use std::sync::Arc;

use oncegate_core::finish::Call;
use oncegate_core::key::ClaimRef;
use oncegate_core::policy::Jitter;
use oncegate_store::api::{ActCall, Acted, Claimed, Filter, FinishCall};
use oncegate_store::bulk::{BulkAct, BulkCall, Bulked, Undone};
use oncegate_store::people::{Answering, Kept, Known, Once, People, Request, Write, Written, Wrote};
use oncegate_store::postgres::PgStore;
use oncegate_store::{Store, StoreError};

use super::two;
use crate::conformance::{Asking, WS, caller, failed_for_good, key, reset, words};

async fn say(store: &PgStore, claimed: &Claimed, call: Call) {
    let (id, fence) = (claimed.id, claimed.view.as_ref().unwrap().claim.fence());
    let call = FinishCall { id, fence, call, jitter: Jitter::NONE, result: None, actor: "t".into() };
    store.finish(call).await.unwrap().unwrap();
}

/// Claims of the automation `many` that failed.
async fn failures(store: &PgStore, count: usize) -> Vec<ClaimRef> {
    let mut ids = Vec::new();
    for n in 0..count {
        let claimed = store.claim(caller(&format!("k{n}")).of("many")).await.unwrap().unwrap();
        say(store, &claimed, failed_for_good()).await;
        ids.push(claimed.id);
    }
    ids
}

async fn resets(store: &PgStore, id: ClaimRef) -> usize {
    store.history(id).await.unwrap().iter().filter(|row| row.kind == "reset").count()
}

/// A client that got no answer asks the next node, while the first is still at it.
#[tokio::test]
async fn a_request_that_two_nodes_get_at_once_acts_once_and_both_give_its_answer() {
    let (_cluster, _clock, [a, b]) = two().await;
    let answering: Answering = Arc::new(|written, _| match written {
        Written::Act(Acted::Written(view)) => {
            Some(Kept { status: 200, body: Some(format!("reset {}", view.claim.resets)) })
        }
        _ => None,
    });
    for (n, id) in failures(&a, 20).await.into_iter().enumerate() {
        let ask = async |store: &PgStore| {
            let call = ActCall { id, act: reset(), reason: "r".into(), actor: "mia".into() };
            let request = Request { workspace: WS, key: key(&format!("w{n}")), fingerprint: [1; 32] };
            let once = Once { request, answering: Arc::clone(&answering) };
            store.write(Write::Act { call, tag: None }, Some(once)).await.unwrap()
        };
        let mut said = <[Wrote; 2]>::from(tokio::join!(ask(&a), ask(&b)));
        said.sort_by_key(|wrote| matches!(wrote, Wrote::Before(_)));
        let kept = Kept { status: 200, body: Some("reset 1".into()) };
        assert!(matches!(&said[0], Wrote::Now(Written::Act(Acted::Written(_)), _)), "{said:?}");
        assert!(matches!(&said[1], Wrote::Before(Known::Answered(k)) if *k == kept), "{said:?}");
        assert_eq!(resets(&a, id).await, 1);
    }
}

async fn begin(store: &PgStore, expect: u64) -> Bulked {
    let call = BulkCall {
        workspace: WS,
        act: BulkAct::Reset { verified: false },
        filter: Filter { text: Some("k".into()), ..Filter::default() },
        told: "{}".into(),
        expect,
        reason: "the CRM was down".into(),
        actor: "mia".into(),
        token_id: 1,
    };
    match store.write(Write::Bulk(call), None).await.unwrap() {
        Wrote::Now(Written::Bulk(bulked), _) => bulked,
        other => panic!("{other:?}"),
    }
}

/// Every node goes on with whatever is not finished.
#[tokio::test]
async fn an_act_on_many_that_two_nodes_go_on_with_touches_each_once_and_is_undone_once() {
    let (cluster, _clock, [a, b]) = two().await;
    let ids = failures(&a, 60).await;
    let Bulked::Begun(bulk) = begin(&a, 60).await else { panic!() };
    let go_on = async |store: &PgStore| {
        let mut changed = 0;
        while let Some(step) = store.step_bulk(4).await.unwrap() {
            changed += step.changed.len();
        }
        changed
    };
    let (by_a, by_b) = tokio::join!(go_on(&a), go_on(&b));
    assert_eq!(by_a + by_b, 60);
    assert!(by_a > 0 && by_b > 0, "both were at it: {by_a}, {by_b}");
    let row = b.bulk(WS, bulk.id).await.unwrap().unwrap();
    assert_eq!((row.count("acted"), row.matched, row.finished_at.is_some()), (60, 60, true));
    for id in &ids {
        assert_eq!(resets(&b, *id).await, 1);
    }

    let undo = async |store: &PgStore| {
        let (reason, actor) = ("wrong list".into(), "mia".into());
        let write = Write::UndoBulk { workspace: WS, id: bulk.id, reason, actor, token_id: 1 };
        match store.write(write, None).await.unwrap() {
            Wrote::Now(Written::UndoBulk(undone), _) => undone,
            other => panic!("{other:?}"),
        }
    };
    let both = tokio::join!(undo(&a), undo(&b));
    match &both {
        (Undone::Begun(one), Undone::Before(same)) | (Undone::Before(same), Undone::Begun(one)) => {
            assert_eq!(one.id, same.id);
        }
        _ => panic!("{both:?}"),
    }
    tokio::join!(go_on(&a), go_on(&b));
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.claims WHERE processing_state = 'error'"), "60");
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.history WHERE kind = 'undo'"), "60");
}

/// What another node does while an act begins is in what it settles on, or was not there yet.
#[tokio::test]
async fn an_act_on_many_begins_on_as_many_as_were_counted_or_on_none() {
    let (cluster, _clock, [a, b]) = two().await;
    failures(&a, 10).await;
    let more = async {
        for n in 0..10 {
            b.claim(caller(&format!("k more {n}")).of("many")).await.unwrap();
        }
    };
    let begun = async {
        let mut begun = Vec::new();
        for _ in 0..10 {
            begun.push(begin(&a, 15).await);
        }
        begun
    };
    let ((), begun) = tokio::join!(more, begun);
    for bulked in &begun {
        match bulked {
            Bulked::Begun(row) => {
                let of = format!("SELECT count(*) FROM oncegate.bulk_rows WHERE bulk_id = {}", row.id);
                assert_eq!((row.matched, cluster.sql(&of).as_str()), (15, "15"));
            }
            Bulked::CountChanged(n) => assert!(*n != 15 && (10..=20).contains(n), "{n}"),
            Bulked::TooMany => panic!("too many"),
        }
    }
    // What was refused left nothing behind.
    let acts = cluster.sql("SELECT count(*) FROM oncegate.bulk_acts");
    let settled = begun.iter().filter(|bulked| matches!(bulked, Bulked::Begun(_))).count();
    assert_eq!(acts, settled.to_string());
}

/// Each waits for what the other holds: the database ends one of them, and it is tried again from the start.
#[tokio::test]
async fn two_batches_in_opposite_order_run_each_key_once() {
    let (_cluster, _clock, [a, b]) = two().await;
    let calls = || (0..30).map(|n| caller(&format!("k{n}"))).collect::<Vec<_>>();
    // Keys that are there are locked, those that are not are made: both orders meet both.
    for call in calls().into_iter().step_by(2) {
        let claimed = a.claim(call).await.unwrap().unwrap();
        say(&a, &claimed, failed_for_good()).await;
        let call = ActCall { id: claimed.id, act: reset(), reason: "r".into(), actor: "mia".into() };
        assert!(matches!(a.act(call).await.unwrap(), Acted::Written(_)));
    }
    let backwards = calls().into_iter().rev().collect();
    let (of_a, of_b) = tokio::join!(a.claim_batch(calls()), b.claim_batch(backwards));
    let ran = |answers: Vec<Result<Option<Claimed>, StoreError>>| -> Vec<bool> {
        let words = answers.into_iter().map(|answer| words(&answer.unwrap().unwrap().decision));
        words.map(|words| words != "stop in_progress").collect()
    };
    let (of_a, mut of_b) = (ran(of_a.unwrap()), ran(of_b.unwrap()));
    of_b.reverse();
    for (n, (a, b)) in of_a.iter().zip(&of_b).enumerate() {
        assert!(a ^ b, "k{n} ran {} times", usize::from(*a) + usize::from(*b));
    }
}

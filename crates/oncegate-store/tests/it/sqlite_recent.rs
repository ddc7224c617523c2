//! A claim that is done and asked for often is not read each time, and no caller can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use oncegate_core::reset::Act;
use oncegate_store::Store;
use oncegate_store::access::{Access, DeleteWorkspace};
use oncegate_store::api::{ActCall, Acted, Claimed};
use oncegate_store::bulk::{BulkAct, BulkCall};
use oncegate_store::clock::ManualClock;
use oncegate_store::people::{People, Write};
use oncegate_store::person::{Forget, Privacy};
use oncegate_store::search::Filter;
use oncegate_store::sqlite::{Options, SqliteStore};

use crate::conformance::{Asking, DAY, MORNING, WS, automation, caller, scratch, words};
use crate::sqlite::{options, raw};
use crate::sqlite_full::done;

async fn claim(store: &SqliteStore, key: &str) -> Claimed {
    store.claim(caller(key)).await.unwrap().unwrap()
}

async fn answer(store: &SqliteStore, key: &str) -> String {
    words(&claim(store, key).await.decision)
}

/// Duplicates with a look in between: that commits their count, so that the row of `k` may be kept from then on.
async fn asked_often(store: &SqliteStore) {
    for _ in 0..8 {
        let claimed = claim(store, "k").await;
        assert_eq!(words(&claimed.decision), "stop duplicate");
        store.show(claimed.id).await.unwrap();
    }
}

fn reset() -> Act {
    Act::Reset { verified: true, confirm_holder: None, run_now: false }
}

async fn act(store: &SqliteStore, claimed: &Claimed, act: Act) {
    let call = ActCall { id: claimed.id, act, reason: "looked at".into(), actor: "mia".into() };
    assert!(matches!(store.act(call).await.unwrap(), Acted::Written(_)));
}

async fn bulk(store: &SqliteStore, act: BulkAct) {
    let (told, reason, actor) = ("{}".into(), "looked at".into(), "mia".into());
    let filter = Filter::default();
    let call = BulkCall { workspace: WS, act, filter, told, expect: 1, reason, actor, token_id: 1 };
    store.write(Write::Bulk(call), None).await.unwrap();
    while store.step_bulk(9).await.unwrap().is_some() {}
}

#[tokio::test]
async fn whatever_is_done_to_a_claim_is_seen_by_the_next_call() {
    let table = [
        ("nothing", "stop duplicate"),
        ("reset", "run first"),
        ("marked", "stop needs_review"),
        ("marked and undone", "stop duplicate"),
        ("bulk reset", "run first"),
        ("renamed", "run first"),
        ("paused", "stop duplicate"),
        ("forgotten", "stop duplicate"),
        ("remembered for long enough", "run first_after_retention"),
        ("reaped", "run first_after_retention"),
        ("counted", "stop duplicate"),
    ];
    for (what, expected) in table {
        let dir = scratch();
        let clock = Arc::new(ManualClock::at(MORNING));
        let options = Options { clock: Arc::clone(&clock) as _, ..options() };
        let store = SqliteStore::open(dir.path(), &options).unwrap();
        let first = claim(&store, "k").await;
        store.finish(done(&store, first.token.as_ref().unwrap())).await.unwrap();
        asked_often(&store).await;
        match what {
            "reset" => act(&store, &first, reset()).await,
            "marked" => act(&store, &first, Act::MarkError { note: "twice".into() }).await,
            "marked and undone" => {
                act(&store, &first, Act::MarkError { note: "twice".into() }).await;
                assert_eq!(answer(&store, "k").await, "stop needs_review");
                act(&store, &first, Act::MarkDone).await;
            }
            "bulk reset" => bulk(&store, BulkAct::Reset { verified: true }).await,
            "renamed" => {
                let to = automation("hello");
                store.rename_automation(WS, automation("welcome"), to).await.unwrap();
                let renamed = store.claim(caller("k").of("hello")).await.unwrap().unwrap();
                assert_eq!(words(&renamed.decision), "stop duplicate", "it is remembered under its new name");
            }
            "paused" => {
                let (reason, actor) = ("looked at".into(), "mia".into());
                store.set_paused(WS, automation("welcome"), true, reason, actor).await.unwrap();
            }
            "forgotten" => {
                store.forget(WS, vec![Forget::Claim(first.id)]).await.unwrap();
            }
            "remembered for long enough" => clock.advance(91 * DAY),
            "reaped" => {
                clock.advance(91 * DAY);
                store.tick().await.unwrap();
                clock.advance(DAY);
                store.reap(9).await.unwrap();
            }
            "counted" => assert_eq!(store.show(first.id).await.unwrap().unwrap().stops, 8),
            _ => {}
        }
        let after = claim(&store, "k").await;
        assert_eq!(words(&after.decision), expected, "{what}");
        if expected == "stop duplicate" {
            let view = after.view.unwrap();
            let read = store.show(first.id).await.unwrap().unwrap();
            assert_eq!(format!("{view:?}"), format!("{read:?}"), "{what}");
        }
    }
}

#[tokio::test]
async fn a_deleted_workspace_has_no_claims_to_be_stopped_by() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let (theirs, _) = store.add_workspace("theirs".try_into().unwrap(), "mia".into()).await.unwrap();
    let call = || caller("k").within(theirs);
    let first = store.claim(call()).await.unwrap().unwrap();
    store.finish(done(&store, &first.token.unwrap())).await.unwrap();
    for _ in 0..4 {
        assert_eq!(words(&store.claim(call()).await.unwrap().unwrap().decision), "stop duplicate");
        store.show(first.id).await.unwrap();
    }
    let (reason, actor) = ("the client left".into(), "mia".into());
    let delete = DeleteWorkspace { workspace: theirs, although_live: false, reason, actor };
    store.delete_workspace(delete).await.unwrap();
    assert!(store.claim(call()).await.is_err(), "nobody can be told anything of it");
}

#[tokio::test]
async fn what_somebody_does_with_a_sqlite_shell_is_seen_a_moment_later() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let first = claim(&store, "k").await;
    store.finish(done(&store, first.token.as_ref().unwrap())).await.unwrap();
    asked_often(&store).await;
    raw(dir.path()).execute("DELETE FROM claims WHERE idempotency_key = 'k'", []).unwrap();
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        while answer(&store, "k").await == "stop duplicate" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    seen.await.expect("it is never looked at again");
}

/// An effect that somebody resets runs again, at whatever moment of whose reading the reset is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reset_among_many_duplicates_is_followed_by_exactly_one_run() {
    const CALLERS: usize = 4;
    const RESETS: usize = 60;
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path(), &options()).unwrap());
    let first = claim(&store, "k").await;
    store.finish(done(&store, first.token.as_ref().unwrap())).await.unwrap();
    let (runs, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, runs, over) = (Arc::clone(&store), Arc::clone(&runs), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let claimed = claim(&store, "k").await;
                    if let Some(token) = &claimed.token {
                        store.finish(done(&store, token)).await.unwrap();
                        runs.fetch_add(1, Ordering::SeqCst);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let resets = tokio::time::timeout(Duration::from_secs(60), async {
        for reset_no in 1..=RESETS {
            act(&store, &first, reset()).await;
            while runs.load(Ordering::SeqCst) < reset_no {
                tokio::task::yield_now().await;
            }
        }
    });
    resets.await.expect("a reset was followed by no run: the effect is lost");
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), RESETS);
}

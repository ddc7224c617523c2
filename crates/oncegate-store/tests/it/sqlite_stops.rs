//! Stops of what is done: answered without the writer, and counted all the same.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::key::ClaimRef;
use oncegate_core::limits;
use oncegate_core::reset::Act;
use oncegate_store::api::{ActCall, Acted};
use oncegate_store::clock::ManualClock;
use oncegate_store::sqlite::{Options, SqliteStore};
use oncegate_store::{Store, StoreError};

use crate::conformance::{MORNING, caller, scratch, words};
use crate::sqlite::{options, raw};
use crate::sqlite_full::{done, fill};

/// A claim that is done, and that was stopped once, so that the next stop is looked for.
async fn stopped_once(store: &SqliteStore, key: &str) -> ClaimRef {
    let claimed = store.claim(caller(key)).await.unwrap().unwrap();
    let call = done(store, &claimed.token.unwrap());
    store.finish(call).await.unwrap().unwrap();
    assert_eq!(answer(store, key).await, "stop duplicate");
    claimed.id
}

async fn answer(store: &SqliteStore, key: &str) -> String {
    words(&store.claim(caller(key)).await.unwrap().unwrap().decision)
}

/// How many stops the store counts, and how many rows of its history say so.
async fn counted(store: &SqliteStore, id: ClaimRef) -> (u64, usize) {
    let stops = store.show(id).await.unwrap().unwrap().stops;
    let rows = store.history(id).await.unwrap();
    (
        stops,
        rows.iter().filter(|row| row.kind == "stop" && row.reason.as_deref() == Some("duplicate")).count(),
    )
}

#[tokio::test]
async fn a_duplicate_does_not_wait_for_the_writer_and_whoever_reads_finds_it_counted() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let id = stopped_once(&store, "k").await;
    let other = raw(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The writer gets no transaction now, for as long as this one is open.
    let claimed = tokio::time::timeout(Duration::from_secs(3), store.claim(caller("k"))).await;
    let claimed = claimed.expect("it waited for the writer").unwrap().unwrap();
    assert_eq!(words(&claimed.decision), "stop duplicate");
    assert_eq!(claimed.view.unwrap().stops, 2);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(counted(&store, id).await, (2, 2));
}

#[tokio::test]
async fn a_reset_is_seen_by_the_next_call_and_what_was_stopped_before_stays_counted() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let id = stopped_once(&store, "k").await;
    assert_eq!(answer(&store, "k").await, "stop duplicate");
    let act = Act::Reset { verified: true, confirm_holder: None, run_now: false };
    let call = ActCall { id, act, reason: "it did not happen".into(), actor: "mia".into() };
    assert!(matches!(store.act(call).await.unwrap(), Acted::Written(_)));
    assert_eq!(answer(&store, "k").await, "run first");
    assert_eq!(answer(&store, "k").await, "stop in_progress");
    let story: Vec<String> = store.history(id).await.unwrap().into_iter().map(|row| row.kind).collect();
    assert_eq!(
        story,
        ["run", "done", "stop", "stop", "reset", "run", "stop"],
        "in the order in which it happened"
    );
}

#[tokio::test]
async fn what_was_answered_is_counted_by_the_time_that_the_store_is_closed() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let id = stopped_once(&store, "k").await;
    for _ in 0..9 {
        assert_eq!(answer(&store, "k").await, "stop duplicate");
    }
    store.close().await;
    drop(store);
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert_eq!(counted(&store, id).await, (10, 10));
}

#[tokio::test]
async fn a_full_store_still_says_what_is_done() {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(MORNING));
    let small = Options { max_bytes: Some(1 << 20), clock: Arc::clone(&clock) as _, ..options() };
    let store = SqliteStore::open(dir.path(), &small).unwrap();
    stopped_once(&store, "k").await;
    fill(&store).await;
    assert!(matches!(store.claim(caller("new")).await, Err(StoreError::Full(_))));
    for _ in 0..3 {
        assert_eq!(answer(&store, "k").await, "stop duplicate");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stop_of_many_callers_is_counted_once_whoever_reads_in_between() {
    const CALLERS: u64 = 8;
    const EACH: u64 = 60;
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path(), &options()).unwrap());
    let ids = [stopped_once(&store, "k0").await, stopped_once(&store, "k1").await];
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..EACH {
                    let key = format!("k{}", (caller + n) % 2);
                    assert_eq!(answer(&store, &key).await, "stop duplicate");
                    if n % 7 == caller % 7 {
                        let id = ids[usize::try_from((caller + n) % 2).unwrap()];
                        assert!(
                            store.show(id).await.unwrap().unwrap().stops > n / 2,
                            "what was answered is there"
                        );
                    }
                    if n % 11 == caller {
                        assert_eq!(answer(&store, &format!("new {caller} {n}")).await, "run first");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let rows = limits::STOP_HISTORY_ROWS_MAX as usize;
    for id in ids {
        assert_eq!(counted(&store, id).await, (1 + CALLERS * EACH / 2, rows));
    }
}

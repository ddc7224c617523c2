//! The embedded store under load, and when there is no room left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncegate_core::decide::Decision;
use oncegate_core::finish::{Answer, Call};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::ClaimRef;
use oncegate_core::policy::Jitter;
use oncegate_core::token::Token;
use oncegate_store::api::{ClaimCall, Filter, FinishCall, Payload};
use oncegate_store::clock::ManualClock;
use oncegate_store::sqlite::{Options, SqliteStore};
use oncegate_store::{Store, StoreError};

use crate::conformance::{DAY, MORNING, WS, automation, caller, key, scratch, words};
use crate::sqlite::options;

pub(crate) fn done(store: &SqliteStore, token: &Token) -> FinishCall {
    let (id, fence) = store.secret().read_token(token.expose()).unwrap();
    FinishCall { id, fence, call: Call::Done, jitter: Jitter::NONE, result: None, actor: "token:crm".into() }
}

pub(crate) fn heavy(n: usize) -> ClaimCall {
    let payload = Payload { body: vec![b'x'; 2_000], json: format!("\"{}\"", "x".repeat(2_000)) };
    ClaimCall { payload: Some(payload), ..caller(&format!("k{n}")) }
}

/// Claims until the store is full; the ids that ran.
pub(crate) async fn fill(store: &SqliteStore) -> (Vec<(ClaimRef, Token)>, usize) {
    let mut held = Vec::new();
    for n in 0..10_000 {
        match store.claim(heavy(n)).await {
            Ok(claimed) => {
                let claimed = claimed.unwrap();
                let token = claimed.token.unwrap();
                store.finish(done(store, &token)).await.ok();
                held.push((claimed.id, token));
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Full(_)), "{error}");
                return (held, n);
            }
        }
    }
    panic!("the limit does not hold");
}

/// C42 (a), the store's part.
#[tokio::test]
async fn a_full_store_claims_nothing_answers_reads_and_goes_on_once_there_is_room() {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(MORNING));
    let small = Options { max_bytes: Some(1 << 20), clock: Arc::clone(&clock) as _, ..options() };
    let store = SqliteStore::open(dir.path(), &small).unwrap();
    let (held, refused) = fill(&store).await;
    assert!(held.len() > 50, "{}", held.len());

    let id = store.find(WS, automation("welcome"), key(&format!("k{refused}"))).await.unwrap().unwrap();
    assert!(store.show(id).await.unwrap().is_none(), "nothing was claimed");
    for (id, _) in &held {
        assert_eq!(store.show(*id).await.unwrap().unwrap().claim.attempt, 1);
    }
    let page = store.list(WS, Filter { limit: 500, ..Filter::default() }).await.unwrap();
    assert_eq!(page.rows.len(), held.len());
    assert_eq!(store.counts(WS, None).await.unwrap().len(), InboxList::ALL.len());
    assert!(store.due(10).await.unwrap().is_empty());

    // What has been remembered for long enough makes room.
    clock.advance(DAY * 91);
    assert!(store.reap(100).await.unwrap() > 0);
    assert_eq!(words(&store.claim(heavy(refused)).await.unwrap().unwrap().decision), "run first");

    // So does a larger disk.
    fill_again(&store).await;
    store.close().await;
    drop(store);
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert_eq!(words(&store.claim(heavy(77_777)).await.unwrap().unwrap().decision), "run first");
}

async fn fill_again(store: &SqliteStore) {
    for n in 20_000..30_000 {
        if let Err(error) = store.claim(heavy(n)).await {
            return assert!(matches!(error, StoreError::Full(_)), "{error}");
        }
    }
    panic!("the limit does not hold");
}

/// C18, the store's part: sweeper and inbox are polled all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_keys_offered_twice_by_fifty_clients_run_once_each() {
    const KEYS: usize = 2_000;
    const CLIENTS: usize = 50;
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path(), &options()).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let polling = tokio::spawn({
        let (store, over) = (Arc::clone(&store), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Relaxed) {
                store.due(50).await.unwrap();
                store
                    .list(WS, Filter { inbox: Some(InboxList::Stuck), limit: 50, ..Filter::default() })
                    .await
                    .unwrap();
                store.counts(WS, None).await.unwrap();
                store.reap(50).await.unwrap();
                store.tick().await.unwrap();
            }
        }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (mut runs, mut stops) = (0, 0);
                // Two clients share each key: this one and the one half the round away.
                for n in
                    (0..KEYS).filter(|n| [client, (client + CLIENTS / 2) % CLIENTS].contains(&(n % CLIENTS)))
                {
                    let claimed = store.claim(caller(&format!("k{n}"))).await.unwrap().unwrap();
                    match claimed.decision {
                        Decision::Run(_) => {
                            runs += 1;
                            let call = done(&store, &claimed.token.unwrap());
                            assert_eq!(store.finish(call).await.unwrap().unwrap().0, Answer::Accepted);
                        }
                        Decision::Stop { .. } => stops += 1,
                        Decision::Queued(_) => panic!("a caller is never queued"),
                    }
                }
                (runs, stops)
            })
        })
        .collect();
    let (mut runs, mut stops) = (0, 0);
    for client in clients {
        let (r, s) = client.await.unwrap();
        (runs, stops) = (runs + r, stops + s);
    }
    over.store(true, Ordering::Relaxed);
    polling.await.unwrap();
    assert_eq!((runs, stops), (KEYS, KEYS));
    let finished =
        Filter { state: Some(oncegate_core::claim::ProcessingState::Done), limit: 500, ..Filter::default() };
    let (mut count, mut before) = (0, None);
    loop {
        let page = store.list(WS, Filter { before, ..finished.clone() }).await.unwrap();
        count += page.rows.len();
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(count, KEYS, "all done");
}

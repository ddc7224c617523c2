//! The log beside the database: written back while the store is open, and used again.

use std::path::Path;
use std::time::Duration;

use oncegate_store::Store;
use oncegate_store::api::{ClaimCall, Payload};
use oncegate_store::sqlite::SqliteStore;

use crate::conformance::{caller, scratch};
use crate::sqlite::options;

const PAGE: u64 = 4_096;

fn pages(dir: &Path, name: &str) -> u64 {
    std::fs::metadata(dir.join(name)).map_or(0, |file| file.len() / PAGE)
}

/// Some thirty pages of the log.
fn heavy(n: usize) -> ClaimCall {
    let payload = Payload { body: vec![b'x'; 60_000], json: format!("\"{}\"", "x".repeat(60_000)) };
    ClaimCall { payload: Some(payload), ..caller(&format!("k{n}")) }
}

#[tokio::test]
async fn the_log_is_written_back_while_the_store_is_open_and_begins_anew() {
    let dir = scratch();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let mut ids = vec![];
    let mut claim = async |n| {
        let claimed = store.claim(heavy(n)).await.unwrap().unwrap();
        ids.push(claimed.id);
    };
    let mut made = 0;
    while pages(dir.path(), "oncegate.db-wal") < 6_000 {
        claim(made).await;
        made += 1;
    }
    // Long before the writer itself would.
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while pages(dir.path(), "oncegate.db") < 2_000 {
        assert!(tokio::time::Instant::now() < until, "nobody wrote the log back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for n in made..1_400 {
        claim(n).await;
    }
    assert!(pages(dir.path(), "oncegate.db") > 30_000, "so much was written that the log began anew");
    let log = pages(dir.path(), "oncegate.db-wal");
    assert!(log < 26_000, "the log has {log} pages: it did not begin anew");
    store.close().await;
    drop(store);
    assert!(!dir.path().join("oncegate.db-wal").exists(), "one file is left behind");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    for id in ids {
        assert!(store.show(id).await.unwrap().is_some(), "{id}");
    }
}

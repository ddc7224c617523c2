//! Copies made while others write: whole, of one moment, and only ever of our own making removed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncegate_core::time::Timestamp;
use oncegate_store::Store;
use oncegate_store::sqlite::{BackupDir, Made, Source, SqliteStore, back_up, newest};
use rusqlite::Connection;

use super::copy;
use crate::conformance::{DAY, MORNING, caller, scratch, words};
use crate::sqlite::options;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_made_while_claims_are_written_is_whole_and_of_one_moment() {
    let (dir, out) = (scratch(), scratch());
    let store = Arc::new(SqliteStore::open(dir.path(), &options()).unwrap());
    for n in 0..200 {
        store.claim(caller(&format!("before{n}"))).await.unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (store, over) = (Arc::clone(&store), Arc::clone(&over));
        async move {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                store.claim(caller(&format!("during{n}"))).await.unwrap();
                n += 1;
            }
            n
        }
    });
    let target = out.path().join("sub").join("copy.db");
    let made = tokio::task::spawn_blocking({
        let (data, target) = (dir.path().to_owned(), target.clone());
        move || copy(&data, &target)
    });
    let made = made.await.unwrap();
    over.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    assert!(made.claims >= 200 && made.claims <= 200 + written, "{made:?} of {written}");
    assert_eq!(names(target.parent().unwrap()), ["copy.db"], "nothing unfinished is left beside it");
    let mode = std::fs::metadata(&target).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "it holds payloads and the secret");

    // Every claim has its history, and the secret from which tokens and keys derive is in it.
    let copy = Connection::open(&target).unwrap();
    let claims: i64 = copy.query_row("SELECT count(*) FROM claims", [], |r| r.get(0)).unwrap();
    let told: i64 =
        copy.query_row("SELECT count(DISTINCT claim_row) FROM history", [], |r| r.get(0)).unwrap();
    assert_eq!((claims, told), (made.claims as i64, made.claims as i64));
    let secret: Vec<u8> =
        copy.query_row("SELECT value FROM meta WHERE name = 'secret'", [], |r| r.get(0)).unwrap();
    assert_eq!(secret, [7; 32]);
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_leaves_nothing_and_replaces_nothing() {
    let (dir, out) = (scratch(), scratch());
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    for n in 0..400 {
        store.claim(caller(&format!("k{n}"))).await.unwrap();
    }
    let target = out.path().join("copy.db");
    copy(dir.path(), &target);
    let first = std::fs::read(&target).unwrap();
    let error = back_up(Source::of_data(dir.path()), &target, MORNING).unwrap_err().to_string();
    assert!(error.contains("never replaces a file"), "{error}");
    assert_eq!(std::fs::read(&target).unwrap(), first);
    let error = back_up(Source::of_data(out.path()), &out.path().join("x.db"), MORNING).unwrap_err();
    assert!(error.to_string().contains("there is no database"), "{error}");

    // A page in the middle that a disk has lost.
    store.close().await;
    drop(store);
    let path = dir.path().join("oncegate.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xab);
    std::fs::write(&path, bytes).unwrap();
    let error = back_up(Source::of_data(dir.path()), &out.path().join("bad.db"), MORNING).unwrap_err();
    assert!(error.to_string().contains("damaged") || error.to_string().contains("malformed"), "{error}");
    assert_eq!(names(out.path()), ["copy.db"]);
}

#[tokio::test]
async fn only_old_backups_of_our_own_go_and_never_the_newest() {
    let (dir, out) = (scratch(), scratch());
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    store.claim(caller("k")).await.unwrap();
    let backups = BackupDir::new(out.path().to_owned());
    assert_eq!(newest(&backups), None);
    let make =
        |at: Timestamp| -> Made { back_up(Source::of_data(dir.path()), &backups.next(at), at).unwrap() };
    let others = [
        "oncegate-mine.db",
        "oncegate-20260101T030000Z.db.bak",
        "oncegate-20260101T030000Z-x.db",
        "notes.txt",
        "before-upgrade-1-20260104T100000Z.db",
        "before-upgrade-1-20251215T100000Z.db",
    ];
    for name in others {
        std::fs::write(out.path().join(name), "keep").unwrap();
    }
    std::fs::create_dir(out.path().join("oncegate-20260101T030000Z.db")).unwrap();
    let (first, same_second) = (make(MORNING), make(MORNING));
    assert_ne!(first.path, same_second.path);
    let second = make(MORNING.after(DAY));
    assert_eq!(backups.rotate(3, &second), Vec::<std::path::PathBuf>::new());
    let third = make(MORNING.after(DAY * 2));
    assert_eq!(backups.rotate(2, &third), [first.path, same_second.path]);
    assert_eq!(newest(&backups), Some(MORNING.after(DAY * 2)));
    // The clock was set back: what was just made counts, however old it seems.
    let back = make(MORNING.before(DAY));
    backups.rotate(1, &back);
    assert!(back.path.exists() && !second.path.exists(), "{:?}", names(out.path()));
    for name in others {
        assert!(out.path().join(name).exists(), "{name}");
    }

    // Copies made before an upgrade go when they are 30 days old, and the newest never.
    let late = make(MORNING.after(DAY * 40));
    for name in ["oncegate-20260201T030000Z.db.unfinished", "oncegate-20260214T093000Z.db.unfinished"] {
        std::fs::write(out.path().join(name), "").unwrap();
    }
    let gone = backups.rotate(9, &late);
    let expected = ["before-upgrade-1-20251215T100000Z.db", "oncegate-20260201T030000Z.db.unfinished"];
    assert_eq!(gone, expected.map(|name| out.path().join(name)), "one may still be in the making");
}

#[tokio::test]
async fn a_copy_opens_as_a_store_with_the_same_answers() {
    let (dir, out) = (scratch(), scratch());
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let held = store.claim(caller("k")).await.unwrap().unwrap();
    copy(dir.path(), &out.path().join("oncegate.db"));
    drop(store);
    let store = SqliteStore::open(out.path(), &options()).unwrap();
    let again = store.claim(caller("k")).await.unwrap().unwrap();
    assert_eq!((words(&again.decision).as_str(), again.id), ("stop in_progress", held.id));
    // A second reader never waited for.
    assert!(tokio::time::timeout(Duration::from_secs(30), store.claim(caller("other"))).await.is_ok());
}

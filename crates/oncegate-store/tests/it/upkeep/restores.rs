//! Restoring a backup: what is refused, what is set aside, and what becomes of each claim.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncegate_core::claim::{ErrorCause, Parked, State};
use oncegate_core::finish::Call;
use oncegate_core::inbox::InboxList;
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_store::api::{ActCall, Acted, Filter, FinishCall, UnverifiedCall};
use oncegate_store::clock::ManualClock;
use oncegate_store::sqlite::{Options, SqliteStore, restore};
use oncegate_store::{Store, StoreError};
use rusqlite::Connection;

use super::copy;
use super::upgrades::{LIVES, previous_release};
use crate::conformance::{Asking, DAY, HOUR, MORNING, WS, automation, caller, key, scratch, words};
use crate::sqlite::{options, raw};

fn bytes_of(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("oncegate.db")).unwrap()
}

#[tokio::test]
async fn a_directory_with_a_store_is_refused_or_set_aside_and_never_deleted() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    store.claim(caller("k")).await.unwrap();
    copy(dir.path(), &backup);
    store.claim(caller("after")).await.unwrap();
    let now = MORNING.after(HOUR);
    let error = restore(&backup, dir.path(), true, true, now).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    store.close().await;
    drop(store);
    let before = bytes_of(dir.path());
    let error = restore(&backup, dir.path(), false, true, now).unwrap_err().to_string();
    assert!(error.contains("holds a store already") && error.contains("--replace"), "{error}");
    assert_eq!(bytes_of(dir.path()), before);

    let restored = restore(&backup, dir.path(), true, true, now).unwrap();
    let aside = restored.set_aside.unwrap();
    assert_eq!(bytes_of(&aside), before);
    let mode = std::fs::metadata(dir.path().join("oncegate.db")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert!(store.recovery().await.unwrap().is_some());
    assert!(store.find(WS, automation("welcome"), key("after")).await.unwrap().is_some_and(|_| true));
    drop(store);
    // The old one opens where it lies.
    let store = SqliteStore::open(&aside, &options()).unwrap();
    assert_eq!(store.list(WS, Filter { limit: 9, ..Filter::default() }).await.unwrap().rows.len(), 2);
}

#[tokio::test]
async fn what_is_damaged_newer_or_no_backup_is_refused_before_anything_is_touched() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    for n in 0..400 {
        store.claim(caller(&format!("k{n}"))).await.unwrap();
    }
    copy(dir.path(), &backup);
    let refused = |name: &str, change: &dyn Fn(&Path), why: &str| {
        let (file, data) = (out.path().join(name), out.path().join(format!("{name}-data")));
        std::fs::copy(&backup, &file).unwrap();
        change(&file);
        let before = std::fs::read(&file).unwrap();
        let error = restore(&file, &data, false, true, MORNING).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{name}");
        assert!(!data.join("oncegate.db").exists(), "{name}");
    };
    refused(
        "damaged",
        &|file| {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2 / 4096 * 4096;
            bytes[middle..middle + 4096].fill(0xab);
            std::fs::write(file, bytes).unwrap();
        },
        "damaged",
    );
    refused(
        "newer",
        &|file| {
            Connection::open(file)
                .unwrap()
                .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA user_version = 99")
                .unwrap();
        },
        "newer oncegate",
    );
    refused(
        "text",
        &|file| std::fs::write(file, "not a database, but long enough to look like a file").unwrap(),
        "no backup",
    );
    refused("empty", &|file| std::fs::write(file, "").unwrap(), "no backup");
    refused(
        "logged",
        &|file| {
            std::fs::write(format!("{}-wal", file.display()), "frames").unwrap();
        },
        "has a log beside it",
    );
    let error = restore(&out.path().join("none"), &out.path().join("d"), false, true, MORNING).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
}

/// A backup by the previous release, too: every state there is.
#[tokio::test]
async fn what_was_open_is_an_error_for_a_person_and_the_rest_stays() {
    let (out, dir) = (scratch(), scratch());
    previous_release(&out.path().join("old.db"));
    let restored = restore(&out.path().join("old.db"), dir.path(), false, true, MORNING.after(HOUR)).unwrap();
    let open = LIVES.iter().filter(|life| life.is_open).count() as u64;
    assert_eq!((restored.recovery.open_claims, restored.set_aside), (open, None));
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert!(store.due(100).await.unwrap().is_empty());
    for life in LIVES {
        let id = store.find(WS, automation("welcome"), key(life.key)).await.unwrap().unwrap();
        let view = store.show(id).await.unwrap().unwrap();
        match life.is_open {
            true => {
                let State::Error { due, cause, note, .. } = &view.claim.state else {
                    panic!("{}: {:?}", life.key, view.claim.state)
                };
                assert_eq!((*due, *cause), (None, ErrorCause::Restored), "{}", life.key);
                assert!(note.contains("outcome unknown"), "{note}");
                assert_eq!(view.inbox, Some(InboxList::Error));
                assert!(view.claim.progress.unknown, "no correction takes it for untouched");
            }
            false => assert_eq!(view.claim.processing_state().as_str(), life.state, "{}", life.key),
        }
        assert!(store.history(id).await.unwrap().iter().any(|row| row.kind == "run"), "{}", life.key);
    }
    // The end of the recovery starts nothing.
    store.end_recovery("looked".into(), "mara".into()).await.unwrap();
    assert!(!store.end_recovery("again".into(), "mara".into()).await.unwrap());
    assert!(store.due(100).await.unwrap().is_empty());
    assert_eq!(store.next_due(store.now().wall).await.unwrap(), None);
    for life in LIVES.iter().filter(|life| life.is_open) {
        let answer = store.claim(caller(life.key)).await.unwrap().unwrap();
        assert_eq!(words(&answer.decision), "stop needs_review", "{}", life.key);
    }
}

#[tokio::test]
async fn a_key_that_came_in_recovery_waits_for_a_person_and_then_for_its_caller() {
    let (out, dir) = (scratch(), scratch());
    previous_release(&out.path().join("old.db"));
    restore(&out.path().join("old.db"), dir.path(), false, true, MORNING).unwrap();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let held = store.claim(caller("new")).await.unwrap().unwrap();
    assert_eq!(words(&held.decision), "stop paused");
    let claim = held.view.unwrap().claim;
    assert_eq!((claim.parked, claim.attempt), (Some(Parked::Restored), 0));
    store.end_recovery("looked".into(), "mara".into()).await.unwrap();
    assert_eq!(words(&store.claim(caller("new")).await.unwrap().unwrap().decision), "stop needs_review");
    let act = Act::Reset { run_now: false, confirm_holder: None, verified: false };
    let call = ActCall { id: held.id, act, reason: "it never happened".into(), actor: "mara".into() };
    assert!(matches!(store.act(call).await.unwrap(), Acted::Written(_)));
    assert_eq!(words(&store.claim(caller("new")).await.unwrap().unwrap().decision), "run first");
    assert_eq!(words(&store.claim(caller("another")).await.unwrap().unwrap().decision), "run first");
}

/// The lease clock stood still between backup and restore, so "just now" may be yesterday: its run may long be over.
/// What cannot be read cannot run; that it is damaged must not cost all the others.
#[tokio::test]
async fn one_unreadable_claim_does_not_stop_the_restore_of_the_others() {
    let (dir, out) = (scratch(), scratch());
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let mut ids = vec![];
    for name in ["broken", "sound"] {
        ids.push(store.claim(caller(name)).await.unwrap().unwrap().id);
    }
    store.close().await;
    drop(store);
    raw(dir.path()).execute("UPDATE claims SET lease_ttl = 0 WHERE idempotency_key = 'broken'", []).unwrap();
    let backup = out.path().join("old.db");
    copy(dir.path(), &backup);
    let restored = restore(&backup, &out.path().join("new"), false, true, MORNING.after(HOUR)).unwrap();
    assert_eq!(restored.recovery.open_claims, 1);
    let store = SqliteStore::open(&out.path().join("new"), &options()).unwrap();
    let sound = store.show(ids[1]).await.unwrap().unwrap();
    assert_eq!(sound.inbox, Some(InboxList::Error));
    assert!(store.show(ids[0]).await.is_err());
}

#[tokio::test]
async fn what_was_done_at_its_claim_before_the_backup_does_not_run_again() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let call = |key: &str| caller(key).of("at_claim").under_run("exec-1:0");
    assert_eq!(words(&store.claim(call("k")).await.unwrap().unwrap().decision), "run first");
    copy(dir.path(), &backup);
    store.close().await;
    drop(store);
    restore(&backup, dir.path(), true, true, MORNING.after(HOUR)).unwrap();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert_eq!(
        words(&store.claim(call("k")).await.unwrap().unwrap().decision),
        "stop duplicate",
        "in recovery"
    );
    store.end_recovery("looked at".into(), "mia".into()).await.unwrap();
    assert_eq!(words(&store.claim(call("k")).await.unwrap().unwrap().decision), "stop duplicate");
    // What is claimed since the restore may lose its answer as ever.
    assert_eq!(words(&store.claim(call("new")).await.unwrap().unwrap().decision), "run first");
    assert_eq!(words(&store.claim(call("new")).await.unwrap().unwrap().decision), "run same_run");
}

/// What the backup remembers may be all that is known; and numbers that were given after it are not given again.
#[tokio::test]
async fn in_recovery_nothing_is_forgotten_and_no_number_comes_twice() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let claimed = store.claim(caller("k")).await.unwrap().unwrap();
    let (id, fence) = (claimed.id, claimed.view.unwrap().claim.fence());
    let (call, jitter, actor) = (Call::Done, Jitter::NONE, "token:crm".into());
    store.finish(FinishCall { id, fence, call, jitter, result: None, actor }).await.unwrap();
    let bad = || UnverifiedCall {
        workspace: WS,
        source: "forms".into(),
        automation: automation("welcome"),
        headers: "{}".into(),
        body: b"a body".to_vec(),
        reason: "no signature".into(),
    };
    copy(dir.path(), &backup);
    let after = store.keep_unverified(bad()).await.unwrap();
    store.close().await;
    drop(store);
    let late = MORNING.after(DAY * 100);
    restore(&backup, dir.path(), true, true, late).unwrap();
    let at_late = Options { clock: std::sync::Arc::new(ManualClock::at(late)), ..options() };
    // A start after the backup had the next number.
    let store = SqliteStore::open(dir.path(), &at_late).unwrap();
    assert!(store.boot().start > 1_000, "{:?}", store.boot());
    assert!(store.keep_unverified(bad()).await.unwrap() > after + 1_000);
    assert_eq!(store.reap(100).await.unwrap(), 0);
    assert!(store.show(id).await.unwrap().is_some(), "its retention ended in the gap");
    store.end_recovery("looked".into(), "mara".into()).await.unwrap();
    assert!(store.reap(100).await.unwrap() > 0);
    assert!(store.show(id).await.unwrap().is_none());
}

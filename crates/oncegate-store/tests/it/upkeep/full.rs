//! Before there is no room left nothing new is taken, and what was taken is still finished.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::limits;
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_store::api::{ActCall, Acted, Claimed, FinishCall};
use oncegate_store::sqlite::{Options, SqliteStore};
use oncegate_store::{Store, StoreError};

use crate::conformance::{caller, scratch, words};
use crate::sqlite::options;

fn finish(store: &SqliteStore, claimed: &Claimed, call: Call, result: Option<String>) -> FinishCall {
    let (id, fence) = store.secret().read_token(claimed.token.as_ref().unwrap().expose()).unwrap();
    FinishCall { id, fence, call, jitter: Jitter::NONE, result, actor: "token:crm".into() }
}

/// Claims until that is refused, by the guard and not by the last byte.
async fn until_refused(store: &SqliteStore, from: usize) -> Vec<Claimed> {
    let mut held = vec![];
    for n in from..from + 100_000 {
        match store.claim(crate::sqlite_full::heavy(n)).await {
            Ok(claimed) => held.push(claimed.unwrap()),
            Err(StoreError::Full(why)) => {
                assert!(why.contains("are kept for what runs already"), "{why}");
                return held;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never was full");
}

#[tokio::test]
async fn a_bounded_database_refuses_new_claims_while_done_error_and_reset_still_commit() {
    let dir = scratch();
    let small = Options { max_bytes: Some(4 << 20), ..options() };
    let store = SqliteStore::open(dir.path(), &small).unwrap();
    let held = until_refused(&store, 0).await;
    assert!(held.len() > 100, "{}", held.len());
    for (number, claimed) in held.iter().enumerate() {
        let call = match number % 3 {
            0 => Call::Done,
            1 => Call::Error { failure: Failed::Final, note: "no such contact".into() },
            _ => Call::Heartbeat,
        };
        let finished = store.finish(finish(&store, claimed, call, None)).await.unwrap().unwrap();
        assert_eq!(finished.0, Answer::Accepted);
        if number % 3 == 1 {
            let act = Act::Reset { run_now: false, confirm_holder: None, verified: false };
            let call = ActCall { id: claimed.id, act, reason: "looked".into(), actor: "mara".into() };
            assert!(matches!(store.act(call).await.unwrap(), Acted::Written(_)));
        }
        store.tick().await.unwrap();
    }
    assert!(matches!(store.claim(caller("another")).await, Err(StoreError::Full(_))), "still");
}

/// A small disk of its own, which needs the right to mount; where that is missing, as in most containers, this says so.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .output();
        match mounted {
            Ok(ended) if ended.status.success() => Some(Self(at)),
            other => {
                #[expect(clippy::print_stdout, reason = "a test that did not run must not look as if it had")]
                {
                    println!(
                        "NOT TESTED on a real full disk: this machine does not let us mount one ({other:?})"
                    );
                }
                None
            }
        }
    }

    /// Takes what is left of it.
    fn fill(&self, name: &str, leave: u64) {
        let mut ballast = std::fs::File::create(self.0.join(name)).unwrap();
        let stat = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.0).output().unwrap();
        let text = String::from_utf8(stat.stdout).unwrap();
        let (blocks, size) = text.trim().split_once(' ').unwrap();
        let free = blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
        let mut left = free.saturating_sub(leave);
        let block = vec![1u8; 64 * 1024];
        while left > 0 {
            let some = usize::try_from(left.min(block.len() as u64)).unwrap();
            if ballast.write_all(&block[..some]).is_err() {
                return;
            }
            left -= some as u64;
        }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[tokio::test]
async fn on_a_full_disk_what_runs_is_finished_from_the_reserve_which_comes_back_with_the_room() {
    let dir = scratch();
    let Some(disk) = Disk::mount(dir.path(), "120m") else { return };
    let data = dir.path().join("data");
    let store = SqliteStore::open(&data, &options()).unwrap();
    let reserve = data.join("oncegate.reserve");
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), limits::RESERVE_BYTES);
    let mut held = vec![];
    for n in 0..300 {
        held.push(store.claim(crate::sqlite_full::heavy(n)).await.unwrap().unwrap());
    }
    disk.fill("ballast", 12 << 20);
    held.extend(until_refused(&store, 1_000).await);
    assert!(reserve.exists(), "not needed yet");
    let last = held.pop().unwrap();
    assert_eq!(
        store.finish(finish(&store, &last, Call::Done, None)).await.unwrap().unwrap().0,
        Answer::Accepted
    );

    // Somebody else takes the rest, to the last byte.
    disk.fill("others", 0);
    let result = format!("\"{}\"", "x".repeat(limits::RESULT_BYTES_MAX - 2));
    let mut done = 0;
    for claimed in &held {
        // A log that was written back just before has some room of its own, which is used first.
        if done >= 100 && !reserve.exists() {
            break;
        }
        let call = finish(&store, claimed, Call::Done, Some(result.clone()));
        assert_eq!(store.finish(call).await.unwrap().unwrap().0, Answer::Accepted);
        done += 1;
    }
    assert!(!reserve.exists(), "{done} results went into the room that it held");
    let Err(StoreError::Full(why)) = store.claim(caller("new")).await else {
        panic!("claimed on a full disk")
    };
    assert!(why.contains("free"), "{why}");

    for name in ["ballast", "others"] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert_eq!(words(&store.claim(caller("new")).await.unwrap().unwrap().decision), "run first");
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), limits::RESERVE_BYTES);
    store.close().await;
    drop(store);
    let store = SqliteStore::open(&data, &options()).unwrap();
    for claimed in held.iter().take(done) {
        assert_eq!(store.show(claimed.id).await.unwrap().unwrap().claim.processing_state().as_str(), "done");
    }
}

//! An act on many claims that a backup caught in its middle.

use oncegate_core::finish::{Call, Failed};
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_store::Store;
use oncegate_store::api::{ActCall, Filter, FinishCall};
use oncegate_store::bulk::{BulkAct, BulkCall, Bulked, Undone};
use oncegate_store::clock::ManualClock;
use oncegate_store::people::{People, Write, Written, Wrote};
use oncegate_store::sqlite::{Options, SqliteStore, restore};

use super::copy;
use crate::conformance::{HOUR, MORNING, WS, automation, caller, runner, scratch};
use crate::sqlite::options;

/// Whether it went on after the backup, nobody can tell: going on with it could do every effect twice.
#[tokio::test]
async fn an_act_that_was_going_on_does_not_go_on_after_a_restore() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    for n in 0..6 {
        let mut call = caller(&format!("k{n}"));
        call.request.start = oncegate_core::decide::Start::Queue;
        let id = store.claim(call).await.unwrap().unwrap().id;
        let run = store.claim(runner(id, store.boot())).await.unwrap().unwrap();
        let fence = run.view.unwrap().claim.fence();
        let failed = Call::Error { failure: Failed::Final, note: "400".into() };
        let (jitter, result, actor) = (Jitter::NONE, None, "runner".to_owned());
        store.finish(FinishCall { id, fence, call: failed, jitter, result, actor }).await.unwrap();
    }
    let call = BulkCall {
        workspace: WS,
        act: BulkAct::RunNow,
        filter: Filter { automation: Some(automation("welcome")), ..Filter::default() },
        told: "{}".into(),
        expect: 6,
        reason: "mended".into(),
        actor: "mia".into(),
        token_id: 1,
    };
    let wrote = store.write(Write::Bulk(call), None).await.unwrap();
    let Wrote::Now(Written::Bulk(Bulked::Begun(bulk)), _) = wrote else { panic!("{wrote:?}") };
    assert_eq!(store.step_bulk(2).await.unwrap().unwrap().changed.len(), 2);
    copy(dir.path(), &backup);
    store.close().await;
    drop(store);

    restore(&backup, dir.path(), true, true, MORNING.after(HOUR)).unwrap();
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    assert!(store.step_bulk(100).await.unwrap().is_none(), "nothing goes on");
    let bulk = store.bulk(WS, bulk.id).await.unwrap().unwrap();
    assert_eq!((bulk.count("acted"), bulk.count("changed")), (2, 4));
    assert!(bulk.fates.contains_key(&("changed".into(), "restored".into())), "{:?}", bulk.fates);
    store.end_recovery("looked at".into(), "mia".into()).await.unwrap();
    assert_eq!(store.due(100).await.unwrap().len(), 0, "nothing is queued by it");
}

/// Somebody may have undone it after the backup, and it ran: undone here it would run again.
#[tokio::test]
async fn an_act_from_before_the_backup_is_not_undone_after_a_restore() {
    let (dir, out) = (scratch(), scratch());
    let backup = out.path().join("b.db");
    let store = SqliteStore::open(dir.path(), &options()).unwrap();
    let mut call = caller("k");
    call.request.start = oncegate_core::decide::Start::Queue;
    let id = store.claim(call).await.unwrap().unwrap().id;
    let act = async |store: &SqliteStore| {
        let call = BulkCall {
            workspace: WS,
            act: BulkAct::Dismiss,
            filter: Filter { automation: Some(automation("welcome")), ..Filter::default() },
            told: "{}".into(),
            expect: 1,
            reason: "a test".into(),
            actor: "mia".into(),
            token_id: 1,
        };
        let wrote = store.write(Write::Bulk(call), None).await.unwrap();
        let Wrote::Now(Written::Bulk(Bulked::Begun(bulk)), _) = wrote else { panic!("{wrote:?}") };
        bulk.id
    };
    let bulk = act(&store).await;
    while store.step_bulk(9).await.unwrap().is_some() {}
    copy(dir.path(), &backup);
    store.close().await;
    drop(store);

    restore(&backup, dir.path(), true, true, MORNING.after(HOUR)).unwrap();
    let clock = std::sync::Arc::new(ManualClock::at(MORNING.after(HOUR * 2)));
    let store = SqliteStore::open(dir.path(), &Options { clock, ..options() }).unwrap();
    store.end_recovery("looked at".into(), "mia".into()).await.unwrap();
    let (reason, actor) = ("wrong list".to_owned(), "mia".to_owned());
    let write =
        |id| Write::UndoBulk { workspace: WS, id, reason: reason.clone(), actor: actor.clone(), token_id: 1 };
    let wrote = store.write(write(bulk), None).await.unwrap();
    assert!(matches!(&wrote, Wrote::Now(Written::UndoBulk(Undone::Restored), _)), "{wrote:?}");
    assert!(store.due(9).await.unwrap().is_empty());
    // One that was done since is.
    let reset = Act::Reset { run_now: false, confirm_holder: None, verified: false };
    store.act(ActCall { id, act: reset, reason: "looked".into(), actor: "mia".into() }).await.unwrap();
    let bulk = act(&store).await;
    while store.step_bulk(9).await.unwrap().is_some() {}
    let wrote = store.write(write(bulk), None).await.unwrap();
    assert!(matches!(&wrote, Wrote::Now(Written::UndoBulk(Undone::Begun(_)), _)), "{wrote:?}");
}

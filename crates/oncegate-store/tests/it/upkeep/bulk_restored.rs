//! An act on many claims that a backup caught in its middle.

use oncegate_core::finish::{Call, Failed};
use oncegate_core::policy::Jitter;
use oncegate_store::Store;
use oncegate_store::api::{Filter, FinishCall};
use oncegate_store::bulk::{BulkAct, BulkCall, Bulked};
use oncegate_store::people::{People, Write, Written, Wrote};
use oncegate_store::sqlite::{SqliteStore, restore};

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

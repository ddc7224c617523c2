//! Payloads go some time after done, and only then; what tells duplicates apart stays.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::claim::{Parked, ProcessingState};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::Call;
use oncegate_core::key::AutomationName;
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::reset::{Act, Refusal};
use oncegate_store::Store;
use oncegate_store::api::{
    ActCall, Acted, ClaimCall, Claimed, Filter, FinishCall, Payload, PolicyBook, Target, Workspace,
};
use oncegate_store::bulk::{BulkAct, BulkCall, Bulked, Undone};
use oncegate_store::clock::ManualClock;
use oncegate_store::people::{People, Write, Written, Wrote};
use oncegate_store::sqlite::{Options, SqliteStore};

use crate::conformance::{DAY, MORNING, WS, automation, caller, key, scratch, words};
use crate::sqlite::options;

/// `week` keeps payloads for a week, `none` and `hooked` not at all, everybody else for 30 days.
struct Kept;

impl PolicyBook for Kept {
    fn policy(&self, _: Workspace, automation: &AutomationName) -> Arc<Policy> {
        let days = match automation.as_str() {
            "week" => 7,
            "none" | "hooked" => 0,
            _ => return Arc::default(),
        };
        let mut policy =
            Policy::default().with_payload_retention(Duration::from_secs(days * 86_400)).unwrap();
        policy.retrigger = automation.as_str() == "hooked";
        Arc::new(policy)
    }
}

fn call(of: &str, name: &str, body: &str) -> ClaimCall {
    let mut call = ClaimCall {
        target: Target::Key { workspace: WS, automation: automation(of), key: key(name) },
        payload: Some(Payload { body: body.into(), json: format!("\"{body}\"") }),
        ..caller(name)
    };
    call.request.fingerprint = Some(Fingerprint::of(&body.into(), &[]));
    call
}

async fn done(store: &SqliteStore, claimed: &Claimed) {
    let (id, fence) = store.secret().read_token(claimed.token.as_ref().unwrap().expose()).unwrap();
    let call =
        FinishCall { id, fence, call: Call::Done, jitter: Jitter::NONE, result: None, actor: "t".into() };
    store.finish(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_payload_goes_when_its_automation_says_and_duplicates_are_still_told_apart() {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(MORNING));
    let options = Options { clock: Arc::clone(&clock) as _, policies: Arc::new(Kept), ..options() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut claims = vec![];
    for of in ["none", "week", "month"] {
        let claimed = store.claim(call(of, "k", "body")).await.unwrap().unwrap();
        done(&store, &claimed).await;
        claims.push(claimed.id);
    }
    let open = store.claim(call("none", "open", "body")).await.unwrap().unwrap();
    let has = async |id| {
        let (work, view) = (store.work(id).await.unwrap().unwrap(), store.show(id).await.unwrap().unwrap());
        assert_eq!(work.payload.is_none(), view.payload_removed_at.is_some());
        work.payload.is_some()
    };
    for (days, kept) in [
        (0, [false, true, true]),
        (6, [false, true, true]),
        (1, [false, false, true]),
        (22, [false, false, true]),
        (1, [false; 3]),
    ] {
        clock.advance(DAY * days);
        store.reap(100).await.unwrap();
        for (id, kept) in claims.iter().zip(kept) {
            assert_eq!(has(*id).await, kept, "after {days} more days");
        }
        assert!(has(open.id).await, "never while it is open");
    }
    assert_eq!(store.reap(100).await.unwrap(), 0, "once is enough");
    let shown = store.show(claims[2]).await.unwrap().unwrap();
    assert_eq!(shown.payload_removed_at, Some(MORNING.after(DAY * 30)));
    let again = store.claim(call("month", "k", "body")).await.unwrap().unwrap();
    assert_eq!(words(&again.decision), "stop duplicate");
    let other = store.claim(call("month", "k", "another body")).await.unwrap().unwrap();
    assert_eq!(words(&other.decision), "stop payload_mismatch");

    // A caller may run it again after a verified reset, and brings the payload with it, which goes again in its time.
    let act = Act::Reset { run_now: false, confirm_holder: None, verified: true };
    let reset = |id| ActCall { id, act: act.clone(), reason: "again".into(), actor: "mara".into() };
    assert!(matches!(store.act(reset(claims[1])).await.unwrap(), Acted::Written(_)));
    let rerun = store.claim(call("week", "k", "body")).await.unwrap().unwrap();
    assert!(has(claims[1]).await);
    done(&store, &rerun).await;
    clock.advance(DAY * 7);
    store.reap(100).await.unwrap();
    assert!(!has(claims[1]).await);
}

#[tokio::test]
async fn our_runner_is_not_sent_to_work_without_a_payload() {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(MORNING));
    let options = Options { clock: Arc::clone(&clock) as _, policies: Arc::new(Kept), ..options() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut queued = call("none", "k", "body");
    queued.request.start = oncegate_core::decide::Start::Queue;
    let id = store.claim(queued.clone()).await.unwrap().unwrap().id;
    let mut run = queued.clone();
    run.target = Target::Id(id);
    run.request.start =
        oncegate_core::decide::Start::Now(oncegate_core::claim::Holder::Runner { boot: store.boot() });
    let claimed = store.claim(run).await.unwrap().unwrap();
    done(&store, &claimed).await;
    store.reap(100).await.unwrap();
    for run_now in [true, false] {
        let act = Act::Reset { run_now, confirm_holder: None, verified: true };
        let call = ActCall { id, act, reason: "again".into(), actor: "mara".into() };
        let Acted::Refused(refusal) = store.act(call).await.unwrap() else { panic!("it was reset") };
        assert_eq!(refusal, Refusal::PayloadRemoved);
    }
    // After its retention the next event brings one, and runs.
    clock.advance(DAY * 91);
    let again = store.claim(queued).await.unwrap().unwrap();
    assert!(again.changed, "{:?}", again.decision);
    assert!(store.work(id).await.unwrap().unwrap().payload.is_some());
    assert_eq!(store.show(id).await.unwrap().unwrap().payload_removed_at, None);
}

#[tokio::test]
async fn a_tool_is_not_called_back_without_what_it_sent() {
    let dir = scratch();
    let options = Options { policies: Arc::new(Kept), ..options() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let claimed = store.claim(call("hooked", "k", "body")).await.unwrap().unwrap();
    done(&store, &claimed).await;
    store.reap(100).await.unwrap();
    let act = |run_now| {
        let act = Act::Reset { run_now, confirm_holder: None, verified: true };
        ActCall { id: claimed.id, act, reason: "again".into(), actor: "mara".into() }
    };
    let acted = store.act(act(true)).await.unwrap();
    assert!(matches!(acted, Acted::Refused(Refusal::PayloadRemoved)), "{acted:?}");
    // A person may replay it where it came from.
    assert!(matches!(store.act(act(false)).await.unwrap(), Acted::Written(_)));
    let view = store.show(claimed.id).await.unwrap().unwrap();
    assert_eq!((view.claim.parked, view.claim.nudge), (Some(Parked::NeedsReplay), None));
}

#[tokio::test]
async fn a_payload_that_a_person_still_has_to_compare_stays() {
    let dir = scratch();
    let options = Options { policies: Arc::new(Kept), ..options() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let claimed = store.claim(call("none", "k", "body")).await.unwrap().unwrap();
    done(&store, &claimed).await;
    let other = store.claim(call("none", "k", "another body")).await.unwrap().unwrap();
    assert_eq!(words(&other.decision), "stop payload_mismatch");
    store.reap(100).await.unwrap();
    assert!(store.work(claimed.id).await.unwrap().unwrap().payload.is_some());
    let act = ActCall { id: claimed.id, act: Act::Dismiss, reason: "same".into(), actor: "mara".into() };
    store.act(act).await.unwrap();
    store.reap(100).await.unwrap();
    assert!(store.work(claimed.id).await.unwrap().unwrap().payload.is_none());
}

/// `mark_done` in bulk, then the payload goes, then the act is undone: it would be retried with nothing in its hands.
#[tokio::test]
async fn an_undo_starts_nothing_whose_payload_is_gone() {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(MORNING));
    let options = Options { clock: Arc::clone(&clock) as _, policies: Arc::new(Kept), ..options() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut queued = call("none", "k", "body");
    queued.request.start = oncegate_core::decide::Start::Queue;
    let id = store.claim(queued).await.unwrap().unwrap().id;
    let run = store.claim(crate::conformance::runner(id, store.boot())).await.unwrap().unwrap();
    let (fence, failed) = (run.view.unwrap().claim.fence(), crate::conformance::failed());
    let call =
        FinishCall { id, fence, call: failed, jitter: Jitter::NONE, result: None, actor: "runner".into() };
    store.finish(call).await.unwrap().unwrap();
    let bulk = BulkCall {
        workspace: WS,
        act: BulkAct::MarkDone,
        filter: Filter { automation: Some(automation("none")), ..Filter::default() },
        told: "{}".into(),
        expect: 1,
        reason: "seen in the CRM".into(),
        actor: "mara".into(),
        token_id: 1,
    };
    let Wrote::Now(Written::Bulk(Bulked::Begun(bulk)), _) =
        store.write(Write::Bulk(bulk), None).await.unwrap()
    else {
        panic!("not begun")
    };
    while store.step_bulk(9).await.unwrap().is_some() {}
    store.reap(100).await.unwrap();
    let (reason, actor) = ("wrong list".into(), "mara".into());
    let write = Write::UndoBulk { workspace: WS, id: bulk.id, reason, actor, token_id: 1 };
    let Wrote::Now(Written::UndoBulk(Undone::Begun(undone)), _) = store.write(write, None).await.unwrap()
    else {
        panic!("not undone")
    };
    while store.step_bulk(9).await.unwrap().is_some() {}
    let undone = store.bulk(WS, undone.id).await.unwrap().unwrap();
    assert!(undone.fates.contains_key(&("refused".into(), "payload_removed".into())), "{:?}", undone.fates);
    clock.advance(DAY);
    assert!(store.due(9).await.unwrap().is_empty(), "nothing is started");
    assert_eq!(store.show(id).await.unwrap().unwrap().claim.processing_state(), ProcessingState::Done);
}

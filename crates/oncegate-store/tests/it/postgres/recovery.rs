//! A database that was brought back by its own means: nothing runs on it until a person has said so.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::claim::{ErrorCause, State};
use oncegate_core::finish::{Answer, Call};
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_store::access::Access;
use oncegate_store::api::{ActCall, Claimed, FinishCall, Workspace};
use oncegate_store::clock::ManualClock;
use oncegate_store::postgres::{Limits, Options, PgStore, recover};
use oncegate_store::{Store, StoreError};

use super::Cluster;
use crate::conformance::{Asking, HOUR, MORNING, SECOND, caller, runner, words, workspace_name};

const ACME: Workspace = Workspace(2);

fn options(cluster: &Cluster<'_>, clock: &Arc<ManualClock>) -> Options {
    Options { clock: Arc::clone(clock) as _, ..cluster.options("restore") }
}

async fn say_done(store: &PgStore, claimed: &Claimed) -> Answer {
    let (id, fence) = store.secret().read_token(claimed.token.as_ref().unwrap().expose()).unwrap();
    let call =
        FinishCall { id, fence, call: Call::Done, jitter: Jitter::NONE, result: None, actor: "t".into() };
    store.finish(call).await.unwrap().unwrap().0
}

#[tokio::test]
async fn what_was_open_is_an_error_for_a_person_and_nothing_runs_until_the_recovery_is_ended() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let a = cluster.node("a", &clock).await;
    a.add_workspace(workspace_name("acme"), "mia".into()).await.unwrap();
    let ask = async |call| a.claim(call).await.unwrap().unwrap();
    let waiting = ask(caller("waiting").queued()).await;
    let held = ask(caller("held").on("crm:1").within(ACME)).await;
    let ours = ask(caller("ours").queued().of("hooked")).await;
    ask(runner(ours.id, a.boot())).await;
    let finished = ask(caller("finished")).await;
    assert_eq!(say_done(&a, &finished).await, Answer::Accepted);
    let (boot, highest) = (a.boot(), cluster.sql("SELECT max(position) FROM oncegate.claims"));
    a.close().await;
    let backup_at = clock_of(&cluster);

    clock.advance(HOUR);
    let recovery = recover(&options(&cluster, &clock), "pg_restore", false).await.unwrap();
    assert_eq!(recovery.open_claims, 3);
    assert_eq!(recovery.gap.backup_at.as_millis(), backup_at);
    assert_eq!(recovery.gap.restored_at, MORNING.after(HOUR));

    let a = cluster.node("a", &clock).await;
    assert!(a.boot().start > boot.start + 1_000, "starts after the backup had boots of their own");
    assert_eq!(a.recovery().await.unwrap(), Some(recovery));
    for claimed in [&waiting, &held, &ours] {
        let view = a.show(claimed.id).await.unwrap().unwrap();
        let State::Error { due, cause, note, .. } = &view.claim.state else {
            panic!("{:?}", view.claim.state)
        };
        assert_eq!((*due, *cause), (None, ErrorCause::Restored));
        assert!(note.contains("outcome unknown"), "{note}");
        let story = a.history(claimed.id).await.unwrap();
        assert_eq!(story.iter().filter(|row| row.kind == "restored").count(), 1);
    }
    let done = a.show(finished.id).await.unwrap().unwrap();
    assert!(matches!(done.claim.state, State::Done { .. }));
    assert!(a.due(9).await.unwrap().is_empty());
    let ask = async |call| a.claim(call).await.unwrap().unwrap();
    assert!(words(&ask(caller("new")).await.decision).starts_with("stop"), "nothing runs");
    assert!(words(&ask(caller("held").on("crm:1").within(ACME)).await.decision).starts_with("stop"));
    assert_eq!(words(&ask(caller("finished")).await.decision), "stop duplicate");
    let newest: i64 = cluster.sql("SELECT max(position) FROM oncegate.claims").parse().unwrap();
    assert!(newest > highest.parse::<i64>().unwrap() + 100_000, "numbers are not given twice");
    // The word of who held it before the backup is believed.
    assert_eq!(say_done(&a, &held).await, Answer::Accepted);

    assert!(a.end_recovery("looked".into(), "mia".into()).await.unwrap());
    assert!(!a.end_recovery("looked".into(), "mia".into()).await.unwrap(), "once");
    let act = Act::Reset { run_now: false, confirm_holder: None, verified: true };
    a.act(ActCall { id: waiting.id, act, reason: "r".into(), actor: "mia".into() }).await.unwrap();
    let again = ask(caller("waiting")).await;
    assert!(words(&again.decision).starts_with("run"), "{:?}", again.decision);
    let generation = again.view.unwrap().claim.generation;
    assert!(u64::from(generation) >= MORNING.after(HOUR).as_secs().unsigned_abs(), "{generation}");
    assert_eq!(
        cluster.sql(
            "SELECT action, actor FROM oncegate.audit WHERE action LIKE '%re%o%e%y%' OR action = 'restore'"
        ),
        "restore|command line\nend_recovery|mia"
    );
}

fn clock_of(cluster: &Cluster<'_>) -> i64 {
    cluster.sql("SELECT wall FROM oncegate.clock").parse().unwrap()
}

#[tokio::test]
async fn it_is_refused_where_a_node_lives_where_there_is_no_store_and_where_it_has_been_done() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let options = options(&cluster, &clock);
    let error = recover(&options, "t", false).await.err().unwrap();
    assert!(error.to_string().contains("no store"), "{error}");
    assert_eq!(cluster.sql("SELECT to_regclass('oncegate.meta') IS NULL"), "t", "nothing was made");

    let a = cluster.node("a", &clock).await;
    a.claim(caller("k")).await.unwrap();
    let ticking = async {
        loop {
            clock.advance(SECOND);
            a.tick().await.unwrap();
        }
    };
    let error = tokio::select! {
        done = recover(&options, "t", false) => done.err().unwrap(),
        () = ticking => unreachable!(),
    };
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("node `a` runs")), "{error}");
    assert_eq!(a.recovery().await.unwrap(), None);
    // One that is gone without a word is waited for.
    drop(a);
    let silent = async {
        loop {
            clock.advance(SECOND);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let recovery = tokio::select! {
        done = recover(&options, "t", false) => done.unwrap(),
        () = silent => unreachable!(),
    };
    assert_eq!(recovery.open_claims, 1);
    let error = recover(&options, "t", false).await.err().unwrap();
    assert!(error.to_string().contains("in recovery already"), "{error}");
    let again = recover(&options, "t", true).await.unwrap();
    assert!(again.gap.restored_at >= recovery.gap.restored_at);
}

/// It stops in the middle: the second workspace cannot be written to. Meanwhile nothing runs, and nobody ends it.
#[tokio::test]
async fn what_is_interrupted_goes_on_where_it_stood() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let a = cluster.node("a", &clock).await;
    a.add_workspace(workspace_name("acme"), "mia".into()).await.unwrap();
    for n in 0..250 {
        a.claim(caller(&format!("k{n}"))).await.unwrap();
    }
    let last = a.claim(caller("last").within(ACME).queued()).await.unwrap().unwrap().id;
    a.close().await;
    clock.advance(HOUR);
    cluster.sql(
        "ALTER TABLE oncegate.claims ADD CONSTRAINT broken CHECK (workspace_id = 1 OR error_cause IS NULL)",
    );
    let limits = Limits { lock: Duration::from_millis(100), ..Limits::default() };
    let options = Options { limits, ..options(&cluster, &clock) };
    assert!(recover(&options, "t", false).await.is_err());

    let a = cluster.node("a", &clock).await;
    assert!(a.due(9).await.unwrap().is_empty(), "what is not gone through yet does not run either");
    let answer = a.claim(runner(last, a.boot())).await.unwrap().unwrap();
    assert!(words(&answer.decision).starts_with("stop"), "{:?}", answer.decision);
    let error = a.end_recovery("looked".into(), "mia".into()).await.err().unwrap();
    assert!(error.to_string().contains("begin the recovery again"), "{error}");
    cluster.sql("ALTER TABLE oncegate.claims DROP CONSTRAINT broken");

    // A node that runs by now does no harm: it knows that it may run nothing.
    clock.advance(HOUR);
    let recovery = recover(&options, "t", false).await.unwrap();
    assert_eq!((recovery.open_claims, recovery.gap.restored_at), (251, MORNING.after(HOUR)));
    let twice = "SELECT count(*) FROM oncegate.history WHERE kind = 'restored' GROUP BY claim_id HAVING count(*) <> 1";
    assert_eq!(cluster.sql(twice), "", "each once");
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.claims WHERE error_cause = 'restored'"), "251");
    assert!(a.end_recovery("looked".into(), "mia".into()).await.unwrap());
}

//! Reaching the database: away, refused, encrypted; and what PostgreSQL cannot hold.

use std::net::TcpListener;
use std::time::Duration;

use oncegate_core::finish::{Call, Failed};
use oncegate_core::notice::NoticeKind;
use oncegate_core::policy::Jitter;
use oncegate_core::reset::Act;
use oncegate_core::secret::Secret;
use oncegate_store::access::{Access, AuditFilter, Deed};
use oncegate_store::api::{ActCall, Filter, FinishCall, StepBegin, StepEnd, StepOutcome};
use oncegate_store::notices::Notices;
use oncegate_store::postgres::{Limits, Options, PgStore};
use oncegate_store::{Store, StoreError};
use oncegate_testing::Postgres;

use super::Cluster;
use crate::conformance::{Asking, WS, automation, caller, runner, words};

/// What opening says with another URL.
async fn refusal(cluster: &Cluster<'_>, url: &str) -> StoreError {
    let limits = Limits { wait: Duration::from_secs(2), ..Limits::default() };
    let options = Options { url: Secret::new(url.as_bytes().to_vec()), limits, ..cluster.options("a") };
    PgStore::open(&options).await.err().unwrap()
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_away_and_one_that_turns_us_away_is_not() {
    let cluster = Cluster::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refusal(&cluster, &cluster.database.url_through(port)).await;
    assert!(matches!(error, StoreError::Away(_)), "{error}");
    // One that takes the connection and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = refusal(&cluster, &cluster.database.url_through(mute.local_addr().unwrap().port())).await;
    assert!(matches!(error, StoreError::Away(_)), "{error}");

    let url = cluster.database.url();
    for (wrong, why) in [
        (url.replace("made-up-password", "hunter2"), "password authentication failed"),
        (url.replace(cluster.database.name(), "nowhere"), "does not exist"),
        (url.replace("made-up-password", "hunter2") + "?sslmode=prefer", "sslmode=prefer"),
    ] {
        let error = refusal(&cluster, &wrong).await;
        let said = format!("{error} {error:?}");
        assert!(matches!(error, StoreError::Refused(_)) && said.contains(why), "{said}");
        assert!(!said.contains("hunter2") && !said.contains("made-up-password"), "{said}");
    }
}

#[tokio::test]
async fn a_server_is_believed_by_its_certificate_alone() {
    let server = Postgres::own(&[("ssl", "on")]);
    let cluster = Cluster::of(&server);
    let url = cluster.database.url();
    let roots = server.certificate();
    let roots = roots.to_str().unwrap();
    let trusted = format!("{url}?sslmode=verify-full&sslrootcert={roots}");
    let options = Options { url: Secret::new(trusted.into_bytes()), ..cluster.options("a") };
    let store = PgStore::open(&options).await.unwrap();
    let encrypted = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid \
        WHERE a.application_name = 'oncegate/a'";
    assert_eq!(cluster.sql(encrypted), "t");
    drop(store);

    // Nobody vouches for it; another authority does not either; there is none to ask.
    let stranger = Postgres::own(&[("ssl", "on")]);
    let theirs = stranger.certificate();
    for (wrong, why) in [
        (format!("{url}?sslmode=verify-full"), "certificate"),
        (format!("{url}?sslmode=require&sslrootcert={}", theirs.to_str().unwrap()), "certificate"),
        (format!("{}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem", url), "/nowhere/ca.pem"),
    ] {
        let error = refusal(&cluster, &wrong).await;
        assert!(matches!(error, StoreError::Refused(_)), "it does not mend by waiting: {error:?}");
        assert!(error.to_string().contains(why), "{wrong}: {error}");
    }
    // A server without encryption gets no plain text from whoever asked for encryption.
    let plain = Cluster::new();
    let error = refusal(&plain, &(plain.database.url() + "?sslmode=require")).await;
    assert!(matches!(error, StoreError::Refused(_)) && error.to_string().contains("TLS"), "{error:?}");
}

/// PostgreSQL has no null byte in text. One from outside must fail neither its own call nor those of others.
#[tokio::test]
async fn c103_a_null_byte_in_text_from_outside_is_no_fault_of_the_database() {
    const NULL: &str = "a\0b";
    let cluster = Cluster::new();
    let store = PgStore::open(&cluster.options("a")).await.unwrap();
    let mut call = caller("k").queued().with("payload");
    (call.run_url, call.actor) = (Some(NULL.into()), NULL.into());
    if let Some(payload) = &mut call.payload {
        payload.body = NULL.as_bytes().to_vec();
    }
    let id = store.claim(call).await.unwrap().unwrap().id;
    assert_eq!(
        store.work(id).await.unwrap().unwrap().payload.unwrap().body,
        NULL.as_bytes(),
        "byte for byte"
    );
    let run = store.claim(runner(id, store.boot())).await.unwrap().unwrap();
    let fence = run.view.unwrap().claim.fence();
    let begin =
        StepBegin { id, fence, step: "step".into(), idempotency_key: "key".into(), target: NULL.into() };
    let call = store.begin_step(begin).await.unwrap().unwrap();
    let end = StepEnd {
        id,
        fence,
        call,
        outcome: StepOutcome::Failed,
        status: Some(400),
        answer: Some(NULL.as_bytes().to_vec()),
        note: Some(NULL.into()),
    };
    store.end_step(end).await.unwrap();
    let call = Call::Error { failure: Failed::Final, note: NULL.into() };
    let call = FinishCall { id, fence, call, jitter: Jitter::NONE, result: None, actor: NULL.into() };
    store.finish(call).await.unwrap().unwrap();
    let act = Act::MarkError { note: NULL.into() };
    store.act(ActCall { id, act, reason: NULL.into(), actor: NULL.into() }).await.unwrap();
    store.act(ActCall { id, act: Act::MarkDone, reason: NULL.into(), actor: NULL.into() }).await.unwrap();
    let other = store.claim(caller("k2")).await.unwrap().unwrap();
    let (result, fence) = (Some(NULL.into()), other.view.unwrap().claim.fence());
    let call = FinishCall {
        id: other.id,
        fence,
        call: Call::Done,
        jitter: Jitter::NONE,
        result,
        actor: NULL.into(),
    };
    store.finish(call).await.unwrap().unwrap();
    store.set_paused(WS, automation("welcome"), true, NULL.into(), NULL.into()).await.unwrap();
    store.notice(WS, NoticeKind::ClockSetBack, NULL.into(), NULL.into()).await.unwrap();
    store.note_declared(WS, [(NULL.into(), NULL.into())].into()).await.unwrap();
    let deed = Deed { actor: NULL.into(), action: "look".into(), subject: NULL.into(), ..Deed::default() };
    store
        .note_deeds(WS, vec![Deed { reason: NULL.into(), detail: Some(NULL.into()), ..deed }])
        .await
        .unwrap();
    let filter = AuditFilter { subject: Some(NULL.into()), limit: 9, ..AuditFilter::default() };
    assert_eq!(store.audit_of(WS, filter).await.unwrap().rows.len(), 1);
}

/// Its connections stay open, its machine takes what is sent, and nothing answers.
#[tokio::test]
async fn a_server_that_stands_still_keeps_nobody_waiting_for_ever_and_is_there_when_it_goes_on() {
    let server = Postgres::own(&[]);
    let cluster = Cluster::of(&server);
    let second = Duration::from_secs(1);
    let limits = Limits { statement: second, wait: second, ..Limits::default() };
    let store = PgStore::open(&Options { limits, ..cluster.options("a") }).await.unwrap();
    let held = store.claim(caller("held")).await.unwrap().unwrap();
    let fence = held.view.unwrap().claim.fence();
    let done = FinishCall {
        id: held.id,
        fence,
        call: Call::Done,
        jitter: Jitter::NONE,
        result: None,
        actor: "token:crm".into(),
    };
    server.pause();
    let asked = async {
        tokio::join!(
            async { store.claim(caller("new")).await.err() },
            async { store.finish(done.clone()).await.err() },
            async { store.show(held.id).await.err() },
            async { store.counts(WS, None).await.err() },
            async { store.list(WS, Filter::default()).await.err() },
            async { store.probe().await.err() },
            async { store.tick().await.err() },
        )
    };
    let told = tokio::time::timeout(20 * second, asked).await.expect("an answer to each");
    for error in [told.0, told.1, told.2, told.3, told.4, told.5, told.6] {
        let away = matches!(error, Some(StoreError::Away(_) | StoreError::Unsure(_) | StoreError::Busy));
        assert!(away, "{error:?}");
    }
    server.resume();
    let mut tries = 0;
    while let Err(error) = store.probe().await {
        tries += 1;
        assert!(tries < 30, "{error}");
    }
    // Whether it was written or not: it is done once, and the new one is given at most once.
    assert_eq!(store.finish(done).await.unwrap().unwrap().1.claim.fence(), fence);
    let decided = words(&store.claim(caller("new")).await.unwrap().unwrap().decision);
    assert!(["run first", "stop in_progress"].contains(&decided.as_str()), "{decided}");
}

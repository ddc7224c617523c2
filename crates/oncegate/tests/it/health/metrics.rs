//! `/metrics`: what is counted is what the outside saw.

use std::collections::{BTreeMap, BTreeSet};

use oncegate::metrics::NAMES;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Gate, Receiver, Reply, Setup, Signed, WELCOME, eventually, mins, send};

/// Every sample by its name and labels.
type Samples = BTreeMap<String, f64>;

async fn scrape(gate: &Gate) -> (String, Samples) {
    // The gauges are believed for some seconds.
    gate.advance(std::time::Duration::from_secs(6)).await;
    let said = gate.api.get("/metrics").await;
    let served = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((said.status, said.header("content-type")), (200, Some(served)));
    let text = said.body.as_str().unwrap().to_owned();
    assert!(text.ends_with("# EOF\n"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    let samples = samples.collect();
    (text, samples)
}

fn of(samples: &Samples, name: &str) -> f64 {
    samples.get(name).copied().unwrap_or_else(|| panic!("no {name} in {samples:#?}"))
}

/// The samples of one counter, by their labels.
fn family<'a>(samples: &'a Samples, name: &str) -> BTreeMap<&'a str, u64> {
    let of = |(key, value): (&'a String, &f64)| {
        let labels = key.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
        Some((labels, *value as u64)).filter(|(_, n)| *n > 0)
    };
    samples.iter().filter_map(of).collect()
}

#[tokio::test]
async fn every_counter_is_what_the_outside_saw() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let api = &gate.api;
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut saw = |claimed: &crate::harness::Claimed| {
        let labels =
            format!(r#"decision="{}",reason="{}",asked_by="caller""#, claimed.decision, claimed.reason);
        *seen.entry(labels).or_default() += 1;
    };
    // Callers: run, in progress, done, duplicate; run, final error, needs review; a mismatch.
    let first = api.claim("by hand", "k1").await;
    saw(&first);
    saw(&api.claim("by hand", "k1").await);
    api.heartbeat(&first).await.ok();
    api.done(&first).await.ok();
    api.done(&first).await.ok();
    for _ in 0..3 {
        saw(&api.claim("by hand", "k1").await);
    }
    let second =
        api.claim_with(&json!({ "automation": "by hand", "idempotency_key": "k2", "payload": 1 })).await;
    saw(&second);
    api.error(&second, &json!({ "note": "no such contact" })).await.ok();
    saw(&api.claim("by hand", "k2").await);
    saw(&api.claim_with(&json!({ "automation": "by hand", "idempotency_key": "k2", "payload": 2 })).await);
    api.reset(&second.claim_id).await.ok();
    api.done(&second).await.problem(409, "lost_claim");
    // A call that waits in vain is one stop, not one for every look.
    let held = api.claim("by hand", "k3").await;
    saw(&held);
    let waits = json!({ "automation": "by hand", "idempotency_key": "k3", "wait": 20 });
    let (waited, ()) = tokio::join!(api.claim_with(&waits), async {
        eventually("it waits", async || {
            let stops = api.show(&held.claim_id).await["stopped"]["count"].as_u64();
            (stops == Some(1)).then_some(())
        })
        .await;
        gate.advance_wall(std::time::Duration::from_secs(21));
    });
    saw(&waited);

    // Webhooks: accepted and run, again, without identity, a wrong signature; one refused, one unknown.
    receiver.script("/send", [Reply::status(200), Reply::status(400), Reply::status(500)]);
    for order in ["o1", "o2", "o3"] {
        api.order(&json!({ "order": order })).await.ok();
        eventually("its call ended", async || {
            let ended = receiver.requests().last()?.answered?;
            let claims = api.list("automation=welcome&limit=10").await;
            let live = claims
                .iter()
                .any(|c| c["processing_state"] == "processing" || c["processing_state"] == "none");
            (ended > 0 && !live).then_some(())
        })
        .await;
    }
    api.order(&json!({ "order": "o1" })).await.ok();
    api.order(&json!({ "no": "identity" })).await.ok();
    let mut forged = Signed::order(&json!({ "order": "o9" }));
    forged.body.push(b' ');
    api.deliver("orders", &forged).await.problem(401, "invalid_signature");
    send(api.bare(Method::GET, "/v1/inbox")).await.problem(401, "missing_credentials");
    send(api.bare(Method::GET, "/ann@example.com")).await.problem(404, "not_found");

    let (text, samples) = scrape(&gate).await;
    let decisions = family(&samples, "oncegate_decisions_total");
    let by_callers: BTreeMap<_, _> =
        decisions.iter().filter(|(l, _)| l.contains("caller")).map(|(l, n)| ((*l).to_owned(), *n)).collect();
    assert_eq!(by_callers, seen);
    let runs = decisions.iter().filter(|(l, _)| l.contains("runner")).map(|(_, n)| n).sum::<u64>();
    assert_eq!(runs, receiver.requests().len() as u64, "one step each");
    assert_eq!(
        family(&samples, "oncegate_finish_calls_total")
            .into_iter()
            .filter(|(l, _)| !l.contains("defer"))
            .collect::<Vec<_>>(),
        [
            (r#"call="done",answer="accepted""#, 2),
            (r#"call="done",answer="lost_claim""#, 1),
            (r#"call="done",answer="unchanged""#, 1),
            (r#"call="error",answer="accepted""#, 3),
            (r#"call="heartbeat",answer="accepted""#, 1),
        ]
    );
    assert_eq!(family(&samples, "oncegate_acts_total"), [(r#"act="reset""#, 1)].into());
    assert_eq!(
        family(&samples, "oncegate_deliveries_total").into_iter().collect::<Vec<_>>(),
        [
            (r#"verdict="accepted""#, 3),
            (r#"verdict="duplicate""#, 1),
            (r#"verdict="rejected""#, 1),
            (r#"verdict="unverified""#, 1)
        ]
    );
    let calls = family(&samples, "oncegate_step_calls_total");
    assert_eq!(calls.values().sum::<u64>(), receiver.requests().len() as u64, "{calls:?}");
    assert_eq!((calls[r#"outcome="succeeded""#], calls[r#"outcome="failed""#]), (1, 1), "{calls:?}");

    // The gauges are the inbox's own numbers.
    for (list, count) in api.inbox().await {
        assert_eq!(
            of(&samples, &format!(r#"oncegate_inbox_claims{{list="{list}"}}"#)),
            count as f64,
            "{list}"
        );
    }
    assert!(of(&samples, r#"oncegate_inbox_oldest_age_seconds{list="error"}"#) >= 6.0);
    assert_eq!(of(&samples, "oncegate_store_up"), 1.0);
    assert_eq!(
        of(&samples, "oncegate_store_database_bytes") as u64,
        gate.database().metadata().unwrap().len()
    );
    assert_eq!(of(&samples, r#"oncegate_http_refused_total{code="missing_credentials"}"#), 1.0);
    assert_eq!(
        of(&samples, r#"oncegate_http_requests_total{route="other",method="GET",status="4xx"}"#),
        1.0,
        "an address that somebody made up is no label"
    );
    for private in ["ann@example.com", "k1", "by hand", "welcome", "orders", "o1"] {
        assert!(!text.contains(private), "{private} is served:\n{text}");
    }
    let served: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => NAMES.iter().find(|n| **n == format!("{name}_total")).copied().unwrap_or(name),
            "info" => NAMES.iter().find(|n| **n == format!("{name}_info")).copied().unwrap_or(name),
            _ => name,
        })
        .collect();
    let mut named: BTreeSet<&str> = NAMES.iter().copied().collect();
    // Nothing was old enough to be forgotten.
    named.remove("oncegate_reaped_rows_total");
    let served: BTreeSet<&str> = served.into_iter().filter(|n| *n != "oncegate_reaped_rows_total").collect();
    assert_eq!(served, named);
}

#[tokio::test]
async fn what_is_undone_is_not_counted_but_as_an_error() {
    let gate = Setup::alone("").start().await;
    let db = rusqlite::Connection::open(gate.database()).unwrap();
    // Everything is written and judged; only its commit fails.
    db.execute_batch(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY);
         CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER broken AFTER INSERT ON history BEGIN INSERT INTO children VALUES (7); END",
    )
    .unwrap();
    gate.api
        .post("/v1/claims", &json!({ "automation": "a", "idempotency_key": "k" }))
        .await
        .problem(500, "internal");
    db.execute_batch("DROP TRIGGER broken").unwrap();
    gate.api.claim("a", "k").await.is("run first");
    let (_, samples) = scrape(&gate).await;
    let decisions: Vec<_> = family(&samples, "oncegate_decisions_total").into_iter().collect();
    assert_eq!(decisions, [(r#"decision="run",reason="first",asked_by="caller""#, 1)]);
    assert_eq!(family(&samples, "oncegate_store_errors_total"), [(r#"kind="inconsistent""#, 1)].into());
}

#[tokio::test]
async fn a_clock_that_is_set_back_and_work_that_waits_are_shown() {
    let receiver = Receiver::start().await;
    let hold = crate::harness::Hold::new();
    receiver.script("/send", [Reply::held(&hold)]);
    let gate = Setup::new(WELCOME, &receiver).start().await;
    gate.api.order(&json!({ "order": "o1" })).await.ok();
    receiver.got("/send", 1).await;
    gate.api.pause("welcome").await.ok();
    let (_, samples) = scrape(&gate).await;
    assert_eq!(of(&samples, "oncegate_runner_at_work_claims"), 1.0);
    let behind = gate.now().before(mins(30));
    gate.clock.set_wall(behind);
    let (_, samples) = scrape(&gate).await;
    let back = of(&samples, "oncegate_clock_set_back_seconds_total");
    assert!((1_790.0..=1_800.0).contains(&back), "{back}");
    hold.let_go();
}

#[tokio::test]
async fn the_numbers_are_for_those_who_have_a_token_unless_somebody_says_otherwise() {
    let gate = Setup::alone("").start().await;
    send(gate.api.bare(Method::GET, "/metrics")).await.problem(401, "missing_credentials");
    let gate = Setup::alone("metrics: { public: true }").start().await;
    assert_eq!(send(gate.api.bare(Method::GET, "/metrics")).await.status, 200);
}

#[test]
fn every_metric_is_explained_and_no_other() {
    let page = include_str!("../../../../../docs/metrics.md");
    let row = |line: &'static str| line.strip_prefix("| `")?.split('`').next();
    let told: BTreeSet<&str> =
        page.lines().filter_map(row).filter(|name| name.starts_with("oncegate_")).collect();
    assert_eq!(told, NAMES.iter().copied().collect());
}

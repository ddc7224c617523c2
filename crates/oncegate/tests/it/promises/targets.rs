//! Targets that are slow, down, or say that it is too much: what is for them waits by itself, and nobody else does.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Gate, MailServer, Post, Receiver, Reply, Setup, Signed, eventually, hours, mins, secs};

/// One step to `$RECEIVER/send`; what stands before it in the file, and in the automation.
fn yaml(top: &str, automation: &str, repeat: &str) -> String {
    format!(
        "
{top}
automations:
  welcome:
    ttl: 10m
{automation}
    steps:
      - {{ name: send, http: {{ url: '$RECEIVER/send' }}, repeat: {repeat} }}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
"
    )
}

async fn orders(gate: &Gate, names: &[String]) {
    for name in names {
        gate.api.order(&json!({ "order": name })).await.ok();
    }
}

fn named(letter: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{letter}_{n}")).collect()
}

async fn all(gate: &Gate, names: &[String], what: &str, holds: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut claims = vec![];
    for name in names {
        let what = format!("{name} {what}");
        let look = async || gate.api.find("welcome", name).await.filter(|claim| holds(claim));
        claims.push(eventually(&what, look).await);
    }
    claims
}

async fn all_done(gate: &Gate, names: &[String]) -> Vec<Value> {
    all(gate, names, "is done", |claim| claim["processing_state"] == "done").await
}

async fn all_wait(gate: &Gate, names: &[String]) -> Vec<Value> {
    let waits = |claim: &Value| claim["processing_state"] == "processing" && claim["due_at"].is_string();
    all(gate, names, "waits", waits).await
}

async fn metric(gate: &Gate, name: &str) -> String {
    let said = gate.api.request(reqwest::Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}

/// Waits until the runner has nothing to do at this moment.
async fn idle(gate: &Gate) {
    eventually("nobody is at work", async || {
        (metric(gate, "oncegate_runner_at_work_claims ").await == "0").then_some(())
    })
    .await;
}

/// Five events meet a target that is down; it is known as such when this returns.
async fn meet(gate: &Gate) -> Vec<String> {
    let met = named("met", 5);
    orders(gate, &met).await;
    eventually("the breaker is open", async || {
        (metric(gate, "oncegate_targets_down ").await == "1").then_some(())
    })
    .await;
    idle(gate).await;
    met
}

/// How many lines a claim's life takes.
fn lines(claim: &Value) -> usize {
    claim["history"].as_array().map_or(0, Vec::len)
}

/// How often each key was answered with a success.
fn effects(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for request in receiver.requests().iter().filter(|request| request.answered == Some(200)) {
        *effects.entry(request.key().to_owned()).or_default() += 1;
    }
    effects
}

#[tokio::test]
async fn c48_two_hours_without_its_target_cost_no_retries_and_no_person() {
    let receiver = Receiver::start().await;
    receiver.always("/send", Reply::status(503));
    let gate = Setup::new(&yaml("", "", "by_key"), &receiver).start().await;
    let met = meet(&gate).await;
    receiver.got("/send", 5).await;
    let came = named("came", 20);
    orders(&gate, &came).await;
    for claim in all_wait(&gate, &came).await {
        let note = claim["note"].as_str().unwrap();
        let says = format!("waits for {}: its breaker is open since 2026-01-05T10:00:00", receiver.address);
        assert!(note.contains(&says) && note.contains("next try at 2026-01-05T10:00:3"), "{note}");
        assert_eq!(claim["calls"], json!([]), "nothing is written as sent");
    }
    assert_eq!(receiver.requests().len(), 5, "nothing is sent to it");

    let (mut away, mut pause, mut tries) = (secs(0), secs(30), 0);
    while away < hours(2) {
        gate.advance(pause + secs(1)).await;
        tries += 1;
        receiver.got("/send", 5 + tries).await;
        idle(&gate).await;
        away += pause + secs(1);
        pause = (pause * 2).min(mins(5));
    }
    assert!((20..40).contains(&tries), "{tries} calls were tried in two hours");
    assert_eq!(gate.api.inbox().await["stuck"], 0);

    receiver.always("/send", Reply::status(200));
    gate.advance(pause + secs(1)).await;
    eventually("it is back", async || (effects(&receiver).len() > 1).then_some(())).await;
    idle(&gate).await;
    // Some were told to wait a moment while the first was tried.
    gate.advance(secs(5)).await;
    let done = all_done(&gate, &came).await;
    assert!(done.iter().all(|claim| claim["retries_used"] == 0), "{done:?}");
    let most = done.iter().map(lines).max().unwrap();
    assert!(most < 50, "{most} lines of history for one that waited two hours");
    let done = all_done(&gate, &met).await;
    assert!(done.iter().all(|claim| claim["retries_used"] == 1), "{done:?}");
    let effects = effects(&receiver);
    assert!(effects.len() == 25 && effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(gate.api.inbox().await.values().all(|n| *n == 0), "nobody is needed");
    assert_eq!(metric(&gate, "oncegate_targets_down ").await, "0");
    assert_ne!(metric(&gate, "oncegate_calls_held_back_total{why=\"breaker\"}").await, "0");
}

#[tokio::test]
async fn a_restart_forgets_that_a_target_is_down_and_loses_nothing() {
    let receiver = Receiver::start().await;
    receiver.always("/send", Reply::status(503));
    let mut gate = Setup::new(&yaml("", "", "by_key"), &receiver).start().await;
    let met = meet(&gate).await;
    let came = named("came", 5);
    orders(&gate, &came).await;
    all_wait(&gate, &came).await;
    gate.restart().await;
    all_wait(&gate, &came).await;
    gate.crash();
    gate.reopen().await;
    assert_eq!(metric(&gate, "oncegate_targets_down ").await, "0");
    assert_eq!(receiver.requests().len(), 5, "they wait as they did");
    receiver.always("/send", Reply::status(200));
    gate.advance(mins(1)).await;
    let done = all_done(&gate, &came).await;
    assert!(done.iter().all(|claim| claim["retries_used"] == 0), "{done:?}");
    all_done(&gate, &met).await;
    assert!(effects(&receiver).values().all(|count| *count == 1));
}

#[tokio::test]
async fn beyond_its_sla_what_waits_for_a_target_is_a_persons_business() {
    let receiver = Receiver::start().await;
    receiver.always("/send", Reply::status(503));
    let gate = Setup::new(&yaml("", "    sla: 1h", "by_key"), &receiver).start().await;
    meet(&gate).await;
    let came = named("came", 3);
    orders(&gate, &came).await;
    all_wait(&gate, &came).await;
    for _ in 0..4 {
        let tried = receiver.requests().len();
        gate.advance(mins(11)).await;
        eventually("one is tried", async || (receiver.requests().len() > tried).then_some(())).await;
    }
    all_wait(&gate, &came).await;
    gate.advance(mins(40)).await;
    let claims = all(&gate, &came, "is an error", |claim| claim["processing_state"] == "error").await;
    for claim in claims {
        let note = claim["note"].as_str().unwrap();
        assert!(note.contains("beyond the SLA of 60 min") && note.contains("its breaker is open"), "{note}");
        assert_eq!((&claim["error_cause"], &claim["retries_used"]), (&json!("asked_to_wait"), &json!(0)));
    }
}

#[tokio::test]
async fn a_breaker_makes_no_outcome_known_that_is_not() {
    let receiver = Receiver::start().await;
    receiver.always("/send", Reply::status(500));
    let gate = Setup::new(&yaml("", "", "never"), &receiver).start().await;
    let met = meet(&gate).await;
    all(&gate, &met, "is unknown", |claim| claim["error_cause"] == "outcome_unknown").await;
    let came = named("came", 3);
    orders(&gate, &came).await;
    all_wait(&gate, &came).await;
    gate.advance(secs(31)).await;
    receiver.got("/send", 6).await;
    // The one that was tried is at most once as ever; the others still wait.
    eventually("six need a person", async || (gate.api.keys_in("error").await.len() == 6).then_some(()))
        .await;
    receiver.always("/send", Reply::status(200));
    gate.advance(mins(2)).await;
    eventually("two are done", async || {
        let done = gate.api.list("state=done").await;
        (done.len() == 2).then_some(())
    })
    .await;
    assert!(receiver.by_key().values().all(|count| *count == 1), "none was sent twice");
}

#[tokio::test]
async fn a_slow_target_keeps_nobody_else_waiting() {
    let (slow, fast) = (Receiver::start().await, Receiver::start().await);
    let yaml = format!(
        "
outgoing: {{ allow_private: ['{}', '{}'] }}
runner: {{ concurrency: 16 }}
targets: {{ '{}': {{ concurrency: 2 }} }}
automations:
  welcome:
    ttl: 10m
    steps:
      - {{ name: slow, when: \"{{{{ payload.to == 'slow' }}}}\", http: {{ url: '{}/send' }}, repeat: by_key }}
      - {{ name: fast, when: \"{{{{ payload.to == 'fast' }}}}\", http: {{ url: '{}/send' }}, repeat: by_key }}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
",
        slow.address,
        fast.address,
        slow.address,
        slow.url(),
        fast.url()
    );
    let gate = Setup::alone(&yaml).start().await;
    let hold = crate::harness::Hold::new();
    slow.always("/send", Reply::held(&hold));
    let (slows, fasts) = (named("slow", 120), named("fast", 20));
    for (names, to) in [(&slows, "slow"), (&fasts, "fast")] {
        for name in names {
            gate.api.order(&json!({ "order": name, "to": to })).await.ok();
        }
    }
    // No time passes: they need not wait for anything.
    all_done(&gate, &fasts).await;
    assert_eq!(slow.requests().len(), 2, "so many at a time");
    assert_eq!(fast.requests().len(), 20);
    gate.advance(secs(40)).await;
    assert_eq!(slow.requests().len(), 2);
    assert_ne!(metric(&gate, "oncegate_calls_held_back_total{why=\"concurrency\"}").await, "0");
    hold.let_go();
    for _ in 0..40 {
        gate.advance(secs(30)).await;
    }
    let done = all_done(&gate, &slows).await;
    assert!(done.iter().all(|claim| claim["retries_used"] == 0));
    let most = done.iter().map(lines).max().unwrap();
    assert!(most < 50, "{most} lines of history");
    assert!(slow.by_key().len() == 120 && slow.by_key().values().all(|count| *count == 1));
}

#[tokio::test]
async fn no_window_of_a_rate_has_more_calls_than_it_says() {
    let receiver = Receiver::start().await;
    let top = format!("targets: {{ '{}': {{ rate: 5/10s }} }}", receiver.address);
    let gate = Setup::new(&yaml(&top, "", "never"), &receiver).start().await;
    receiver.looks_at(&gate.clock);
    let names = named("o", 32);
    orders(&gate, &names).await;
    receiver.got("/send", 5).await;
    all(&gate, &names, "waits or is done", |claim| {
        claim["processing_state"] == "done" || claim["due_at"].is_string()
    })
    .await;
    for round in 2..=7 {
        gate.advance(secs(5)).await;
        gate.advance(secs(5)).await;
        receiver.got("/send", 32.min(5 * round)).await;
    }
    let done = all_done(&gate, &names).await;
    for claim in &done {
        assert_eq!(claim["retries_used"], 0);
        assert!(claim["attempt"].as_u64().unwrap() <= 2, "each waits once, for its own turn: {claim}");
    }
    let times: Vec<_> = receiver.requests().iter().map(|request| request.at.unwrap()).collect();
    for (at, time) in times.iter().enumerate() {
        let within = times[..=at].iter().filter(|before| time.since(**before) < secs(10)).count();
        assert!(within <= 5, "{within} in 10 s at {time}");
    }
    let said = done.last().unwrap()["history"].to_string();
    assert!(said.contains("as many calls were sent to it as may be, next at "), "{said}");
}

#[tokio::test]
async fn c48_what_one_call_was_told_to_wait_the_others_wait_too() {
    for (status, wait) in [(429, "60"), (503, "60")] {
        let receiver = Receiver::start().await;
        receiver.script("/send", [Reply::retry_after(status, wait)]);
        let gate = Setup::new(&yaml("", "", "never"), &receiver).start().await;
        let first = named("first", 1);
        orders(&gate, &first).await;
        all_wait(&gate, &first).await;
        let others = named("other", 8);
        orders(&gate, &others).await;
        for claim in all_wait(&gate, &others).await {
            let note = claim["note"].as_str().unwrap();
            assert!(note.contains("it asked to wait, until 2026-01-05T10:01:00"), "{note}");
        }
        gate.advance(secs(59)).await;
        assert_eq!(receiver.requests().len(), 1, "{status}");
        gate.advance(secs(2)).await;
        let done = [all_done(&gate, &first).await, all_done(&gate, &others).await].concat();
        assert!(done.iter().all(|claim| claim["retries_used"] == 0));
        assert_eq!(receiver.requests().len(), 10);
    }
}

#[tokio::test]
async fn clients_at_one_target_are_limited_together_or_each_on_its_own() {
    let receiver = Receiver::start().await;
    let client = |name: &str, own: &str| {
        format!(
            "  {name}:
{own}
    automations: {{ welcome: {{ steps: [{{ name: send, http: {{ url: '$RECEIVER/{name}' }} }}] }} }}
    sources:
      orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
"
        )
    };
    let target = |rate: &str| format!("targets: {{ '{}': {{ rate: {rate} }} }}", receiver.address);
    let own = format!("    {}", target("3/1h"));
    let yaml = format!(
        "{}\nworkspaces:\n{}{}{}",
        target("2/1h"),
        client("acme", ""),
        client("birch", ""),
        client("cedar", &own)
    );
    let gate = Setup::new(&yaml, &receiver).start().await;
    for name in named("o", 4) {
        for client in ["acme", "birch", "cedar"] {
            let said = gate
                .api
                .deliver(&format!("{client}/orders"), &Signed::order(&json!({ "order": name })))
                .await;
            assert_eq!(said.status, 200);
        }
    }
    receiver.got("/cedar", 3).await;
    let together = async || {
        let count = receiver.to("/acme").len() + receiver.to("/birch").len();
        (count >= 2).then_some(count)
    };
    assert_eq!(eventually("two of the others", together).await, 2);
    eventually("all of them were looked at", async || {
        (metric(&gate, "oncegate_calls_held_back_total{why=\"rate\"}").await == "7").then_some(())
    })
    .await;
    assert_eq!(receiver.requests().len(), 5);
}

#[tokio::test]
async fn a_mail_server_that_is_away_is_left_alone() {
    let server = MailServer::start().await;
    server.script(vec![Post::Gone("EHLO"); 6]);
    let yaml = format!(
        "{}
automations:
  welcome:
    steps:
      - name: mail
        email: {{ to: ann@example.org, subject: 'Welcome', text: 'Hello' }}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
",
        server.yaml()
    );
    let gate = Setup::alone(&yaml).start().await;
    let met = meet(&gate).await;
    let came = named("came", 5);
    orders(&gate, &came).await;
    for claim in all_wait(&gate, &came).await {
        assert!(claim["history"].to_string().contains("waits for smtp: its breaker is open"), "{claim}");
    }
    assert_eq!(server.connections(), 5);
    gate.advance(secs(31)).await;
    eventually("one is tried in vain", async || (server.connections() == 6).then_some(())).await;
    idle(&gate).await;
    gate.advance(secs(61)).await;
    eventually("it is back", async || (!server.letters().is_empty()).then_some(())).await;
    idle(&gate).await;
    gate.advance(secs(5)).await;
    let done = [all_done(&gate, &met).await, all_done(&gate, &came).await].concat();
    assert_eq!((server.letters().len(), done.len()), (10, 10));
    assert!(done.iter().all(|claim| claim["retries_used"].as_u64().unwrap() <= 1));
}

#[tokio::test]
async fn a_wait_that_is_over_is_not_what_is_waited_for() {
    let receiver = Receiver::start().await;
    receiver.script("/send", [Reply::retry_after(429, "600")]);
    let wait = "steps:\n      - { name: a while, wait: 5s }";
    let gate = Setup::new(&yaml("", "", "by_key").replace("steps:", wait), &receiver).start().await;
    let outcomes = |claim: &Value| {
        let steps = claim["steps"].as_array().unwrap();
        steps.iter().map(|step| step["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (name, at_last) in [("first", ["succeeded", "failed"]), ("second", ["succeeded", "not_started"])] {
        let names = [name.to_owned()];
        orders(&gate, &names).await;
        let claim = all_wait(&gate, &names).await.remove(0);
        assert_eq!(outcomes(&claim), ["waiting", "not_started"], "{claim}");
        gate.advance(secs(6)).await;
        let claim = all(&gate, &names, "waits for its target", |claim| claim["attempt"] == 2).await.remove(0);
        assert_ne!(claim["processing_state"], "done");
        let claim = all_wait(&gate, &[name.to_owned()]).await.remove(0);
        assert_eq!(outcomes(&claim), at_last, "{claim}");
    }
    gate.advance(mins(11)).await;
    all_done(&gate, &["first".to_owned(), "second".to_owned()]).await;
}

#[tokio::test]
async fn a_turn_beyond_the_sla_is_a_persons_business_and_no_turn_any_more() {
    let receiver = Receiver::start().await;
    let top = format!("targets: {{ '{}': {{ rate: 1/1h }} }}", receiver.address);
    let gate = Setup::new(&yaml(&top, "    sla: 90m", "by_key"), &receiver).start().await;
    for (name, ends) in [("o_1", "done"), ("o_2", "waits"), ("o_3", "error"), ("o_4", "error")] {
        let names = [name.to_owned()];
        orders(&gate, &names).await;
        match ends {
            "waits" => drop(all_wait(&gate, &names).await),
            state => {
                let claim =
                    all(&gate, &names, state, |claim| claim["processing_state"] == state).await.remove(0);
                let note = claim["note"].as_str().unwrap_or("asked to wait 2 h, beyond the SLA");
                assert!(note.contains("asked to wait 2 h, beyond the SLA"), "{name}: {note}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_is_taken_away_leaves_its_place_to_others() {
    let receiver = Receiver::start().await;
    receiver.script("/send", [Reply::Silence]);
    let top = format!("targets: {{ '{}': {{ concurrency: 1 }} }}", receiver.address);
    let gate = Setup::new(&yaml(&top, "", "by_key"), &receiver).start().await;
    let names = named("o", 2);
    orders(&gate, &names[..1]).await;
    receiver.got("/send", 1).await;
    orders(&gate, &names[1..]).await;
    let waiting = all_wait(&gate, &names[1..]).await.remove(0);
    assert!(
        waiting["note"].as_str().unwrap().contains("as many calls to it are in flight as may be"),
        "{waiting}"
    );
    let held = gate.api.find("welcome", &names[0]).await.unwrap();
    let mark = json!({ "reason": "it hangs", "tag": "hangs" });
    gate.api.act("mark-error", held["claim_id"].as_str().unwrap(), &mark).await.ok();
    gate.advance(mins(6)).await;
    all_done(&gate, &names[1..]).await;
}

#[tokio::test]
async fn who_may_not_run_has_no_turn_at_a_target_that_others_want() {
    let receiver = Receiver::start().await;
    let top = format!("targets: {{ '{}': {{ rate: 1/10m }} }}", receiver.address);
    let record = "    record: 'crm:{{ payload.order }}'";
    let gate = Setup::new(&yaml(&top, record, "by_key"), &receiver).start().await;
    orders(&gate, &named("first", 1)).await;
    all_done(&gate, &named("first", 1)).await;
    gate.advance(mins(5)).await;
    let held = json!({ "automation": "story", "idempotency_key": "k", "record": "crm:busy_0" });
    gate.api.claim_with(&held).await.is("run first");
    orders(&gate, &named("busy", 1)).await;
    eventually("it has asked for its turn", async || {
        (metric(&gate, "oncegate_calls_held_back_total{why=\"rate\"}").await == "1").then_some(())
    })
    .await;
    idle(&gate).await;
    orders(&gate, &named("next", 1)).await;
    all_wait(&gate, &named("next", 1)).await;
    gate.advance(mins(6)).await;
    all_done(&gate, &named("next", 1)).await;
    assert_eq!(receiver.requests().len(), 2);
}

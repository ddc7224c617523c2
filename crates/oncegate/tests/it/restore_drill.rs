//! The restore drill: a gate is backed up, goes on working, is lost, and comes back from its backup. What was done after
//! the backup is not in it, and must not be done again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

use crate::harness::{
    Gate, Hold, Receiver, Reply, Setup, Signed, base64, eventually, hmac_sha256, hours, mins,
};

const SECRET: &str = "tally-signing-secret";
const YAML: &str = "
automations:
  welcome:
    ttl: 10m
    steps:
      - { name: send, http: { url: '$RECEIVER/{{ payload.data.submissionId }}' }, repeat: by_key }
  later:
    ttl: 10m
    steps:
      - { name: send, http: { url: '$RECEIVER/{{ payload.data.submissionId }}' }, repeat: by_key }
sources:
  forms: { provider: tally, automation: welcome, secret: env:TALLY }
  forms-later: { provider: tally, automation: later, secret: env:TALLY }
";

/// A form that was sent in at `at`; redelivered, it is the same bytes.
fn form(id: &str, at: Timestamp) -> Signed {
    let body = json!({
        "eventType": "FORM_RESPONSE",
        "createdAt": at,
        "data": { "formId": "f1", "submissionId": id, "createdAt": at },
    })
    .to_string();
    let signature = base64(&hmac_sha256(SECRET.as_bytes(), body.as_bytes()));
    Signed::with(&[("content-type", "application/json"), ("tally-signature", &signature)], body)
}

fn key(id: &str) -> String {
    format!("tally:FORM_RESPONSE:f1:{id}")
}

/// Everything that was ever sent to the gate, to be sent again.
#[derive(Default)]
struct Sent(Vec<(&'static str, Signed)>);

impl Sent {
    async fn deliver(&mut self, gate: &Gate, source: &'static str, id: &str) {
        let signed = form(id, gate.now());
        gate.api.deliver(source, &signed).await.ok();
        self.0.push((source, signed));
    }

    async fn redeliver(&self, gate: &Gate) {
        for (source, signed) in &self.0 {
            gate.api.deliver(source, signed).await.ok();
        }
    }
}

/// How often each effect happened.
fn effects(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in receiver.requests().iter().filter(|r| r.answered == Some(200)) {
        *counts.entry(request.path.clone()).or_default() += 1;
    }
    counts
}

async fn is(gate: &Gate, automation: &str, id: &str, state: &str) -> Value {
    eventually(&format!("{id} is {state}"), async || {
        gate.api.find(automation, &key(id)).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

/// Time goes by, of which the store's clock of leases sees a little.
async fn days_pass(gate: &Gate) {
    gate.clock.advance(hours(60));
    gate.advance(mins(11)).await;
}

async fn back_up(gate: &Gate) -> PathBuf {
    let made = gate.api.post("/v1/backup", &json!({})).await.ok();
    PathBuf::from(made["path"].as_str().unwrap())
}

async fn end_recovery(gate: &Gate) {
    let said = gate.api.post("/v1/recovery/end", &json!({ "reason": "looked at the lists" })).await.ok();
    assert_eq!(said, json!({ "in_recovery": false }));
}

async fn in_recovery(gate: &Gate) -> Value {
    let said = gate.api.get("/v1/recovery").await.ok();
    assert_eq!(said["in_recovery"], !said["recovery"].is_null());
    said["recovery"].clone()
}

#[tokio::test]
async fn a_restored_store_never_sends_again_and_shows_all_that_may_be_missing() {
    let receiver = Receiver::start().await;
    let (in_flight, mut sent) = (Hold::new(), Sent::default());
    let mut gate = Setup::new(YAML, &receiver).var("TALLY", SECRET).start().await;

    // Before the backup: done, in flight, waiting as it was asked to, waiting because it is paused; and two callers.
    sent.deliver(&gate, "forms", "b_done").await;
    is(&gate, "welcome", "b_done", "done").await;
    receiver.script("/b_flight", [Reply::held(&in_flight)]);
    sent.deliver(&gate, "forms", "b_flight").await;
    receiver.got("/b_flight", 1).await;
    receiver.script("/b_deferred", [Reply::retry_after(429, "600")]);
    sent.deliver(&gate, "forms", "b_deferred").await;
    receiver.got("/b_deferred", 1).await;
    gate.api.pause("later").await.ok();
    sent.deliver(&gate, "forms-later", "b_waiting").await;
    let finished = gate.api.claim("story", "c_done").await;
    gate.api.done_with(&finished, &json!({ "result": { "id": 7 } })).await.ok();
    let open = gate.api.claim("story", "c_open").await;
    gate.advance(mins(1)).await;
    let backup = back_up(&gate).await;

    // After it all of them are done, and others come: done, done by a caller, and one that never gets to run.
    in_flight.let_go();
    is(&gate, "welcome", "b_flight", "done").await;
    gate.advance(mins(15)).await;
    is(&gate, "welcome", "b_deferred", "done").await;
    gate.api.resume("later").await.ok();
    is(&gate, "later", "b_waiting", "done").await;
    sent.deliver(&gate, "forms", "a_done").await;
    is(&gate, "welcome", "a_done", "done").await;
    gate.api.done(&open).await.ok();
    let new = gate.api.claim("story", "c_new").await;
    gate.api.pause("later").await.ok();
    sent.deliver(&gate, "forms-later", "a_missing").await;
    let never_redelivered_in_recovery = form("a_after", gate.now());
    gate.advance(mins(5)).await;
    let before = effects(&receiver);
    assert_eq!(before.values().sum::<usize>(), 5, "{before:?}");

    gate.restore(&backup);
    gate.clock.advance(mins(5));
    gate.reopen().await;
    let recovery = in_recovery(&gate).await;
    assert_eq!(recovery["open_claims"], 4, "{recovery}");
    for (automation, id) in [("welcome", "b_flight"), ("welcome", "b_deferred"), ("later", "b_waiting")] {
        let claim = is(&gate, automation, id, "error").await;
        assert_eq!(claim["error_cause"], "restored", "{claim}");
        assert!(claim["note"].as_str().unwrap().contains("outcome unknown"), "{claim}");
        assert!(claim["note"].as_str().unwrap().contains("2026-01-05T10:01"), "dated: {claim}");
    }

    // Everybody sends again what they sent, and days pass.
    sent.redeliver(&gate).await;
    gate.api.claim("story", "c_done").await.is("stop duplicate");
    gate.api.claim("story", "c_open").await.is("stop needs_review");
    let held = gate.api.claim("story", "c_new").await;
    assert!(held.is("stop paused").note.as_ref().unwrap().contains("oncegate recovery end"), "{held:?}");
    days_pass(&gate).await;
    sent.redeliver(&gate).await;
    assert_eq!(effects(&receiver), before, "while it is in recovery");

    // A holder from before the backup proves the effect; one from after it holds nothing, and is told so.
    assert_eq!(gate.api.done(&open).await.ok()["answer"], "accepted");
    gate.api.done(&new).await.problem(409, "lost_claim");

    // Whatever may be missing can be seen.
    let (errors, parked) = (gate.api.keys_in("error").await, gate.api.keys_in("parked").await);
    for id in ["b_flight", "b_deferred", "b_waiting"] {
        assert!(errors.contains(&key(id)), "{id}: {errors:?}");
    }
    for key in [key("a_done"), key("a_missing"), "c_new".to_owned()] {
        assert!(parked.contains(&key), "{key}: {parked:?}");
    }

    // What a person has set to run, and nothing else, runs once the recovery is ended.
    let missing = gate.api.find("later", &key("a_missing")).await.unwrap();
    assert_eq!(missing["parked"], "restored");
    gate.api.resume("later").await.ok();
    gate.api.run_now(missing["claim_id"].as_str().unwrap()).await.ok();
    gate.advance(mins(2)).await;
    assert_eq!(effects(&receiver), before, "even what was set to run waits for the end");
    end_recovery(&gate).await;
    assert_eq!(in_recovery(&gate).await, json!(null));
    receiver.got("/a_missing", 1).await;
    is(&gate, "later", "a_missing", "done").await;

    sent.redeliver(&gate).await;
    gate.api.deliver("forms", &never_redelivered_in_recovery).await.ok();
    let parked = is(&gate, "welcome", "a_after", "none").await;
    assert_eq!(parked["parked"], "restored", "dated between the backup and the restore");
    let held = gate.api.claim("story", "c_new").await;
    assert!(held.is("stop needs_review").note.as_ref().unwrap().contains("restored"), "{held:?}");
    sent.deliver(&gate, "forms", "fresh").await;
    is(&gate, "welcome", "fresh", "done").await;
    days_pass(&gate).await;
    gate.restart().await;
    sent.redeliver(&gate).await;
    gate.advance(mins(2)).await;
    let mut after = before;
    after.insert("/a_missing".into(), 1);
    after.insert("/fresh".into(), 1);
    assert_eq!(effects(&receiver), after, "each once, whatever came again");
    let audit = gate.api.get("/v1/audit?limit=50").await.ok();
    let actions: Vec<_> = audit["audit"].as_array().unwrap().iter().map(|row| &row["action"]).collect();
    for action in ["restore", "end_recovery"] {
        assert!(actions.contains(&&json!(action)), "{action}: {actions:?}");
    }
}

#[tokio::test]
async fn no_token_from_between_backup_and_restore_fits_an_attempt_given_after_it() {
    let mut gate = Setup::alone("").start().await;
    let first = gate.api.claim("story", "s_1").await;
    gate.api.error(&first, &json!({ "note": "boom", "retryable": true })).await.ok();
    let backup = back_up(&gate).await;
    // Attempt 2, and attempt 1 of a key and of an automation that the backup does not know.
    gate.advance(mins(2)).await;
    let lost = [
        gate.api.claim("story", "s_1").await,
        gate.api.claim("story", "s_2").await,
        gate.api.claim("new", "n_1").await,
    ];
    assert_eq!(lost[0].is("run retry").attempt, 2);

    gate.restore(&backup);
    gate.reopen().await;
    end_recovery(&gate).await;
    let id = gate.api.find("story", "s_1").await.unwrap()["claim_id"].as_str().unwrap().to_owned();
    gate.api.reset(&id).await.ok();
    let again = [
        gate.api.claim("story", "s_1").await,
        gate.api.claim("story", "s_2").await,
        gate.api.claim("new", "n_1").await,
    ];
    for (lost, again) in lost.iter().zip(&again) {
        assert_eq!(
            (again.decision.as_str(), again.attempt),
            ("run", lost.attempt),
            "the numbers are given anew"
        );
        assert_eq!(again.claim_id, lost.claim_id, "as are the keys that receivers may remember");
        assert_ne!(again.token, lost.token);
        gate.api.done(lost).await.problem(409, "lost_claim");
        gate.api.heartbeat(lost).await.problem(409, "lost_claim");
        assert_eq!(gate.api.done(again).await.ok()["answer"], "accepted");
    }
    let late = gate.api.keys_in("late").await;
    assert_eq!(late.len(), 3, "somebody may have done it twice: {late:?}");
}

#[tokio::test]
async fn only_an_admin_of_the_server_ends_a_recovery_with_a_reason() {
    let mut gate = Setup::alone("").start().await;
    gate.api.post("/v1/recovery/end", &json!({ "reason": "why not" })).await.problem(409, "nothing_to_do");
    let backup = back_up(&gate).await;
    gate.restore(&backup);
    gate.reopen().await;
    gate.api.post("/v1/recovery/end", &json!({})).await.problem(422, "invalid_field");
    assert!(in_recovery(&gate).await.is_object());
    // It lasts over restarts, until somebody ends it.
    gate.restart().await;
    assert!(in_recovery(&gate).await.is_object());
    end_recovery(&gate).await;
    assert_eq!(gate.api.audit().await[0]["action"], "end_recovery");
    gate.restart().await;
    assert_eq!(in_recovery(&gate).await, json!(null));
}

//! One effect under several keys, and one key for several records.

use serde_json::{Value, json};

use super::identity::{forms, runs};
use crate::harness::{Receiver, Setup, at, eventually, mins, secs};

const TWICE: &str = "repeat: { fields: [{ field: email, as: email }, course], within: 30m }";

fn enrolment(id: &str, email: &str, course: &str) -> Value {
    json!({ "submission_id": id, "email": email, "course": course })
}

#[tokio::test]
async fn c15_a_double_click_is_parked_and_a_person_can_release_it() {
    for (rule, at_source) in [(TWICE, true), (TWICE, false), ("", true)] {
        let receiver = Receiver::start().await;
        let (of_source, of_automation) = if at_source { (rule, "ttl: 10m") } else { ("", rule) };
        let yaml = forms("[submission_id]", of_source, of_automation);
        let gate = Setup::new(&yaml, &receiver).start().await;
        gate.api.order(&enrolment("s_5001", "ana@example.com", "A")).await.ok();
        gate.clock.advance(std::time::Duration::from_millis(800));
        gate.api.order(&enrolment("s_5002", " ANA@example.com", "A")).await.ok();
        gate.advance(secs(1)).await;
        gate.api.order(&enrolment("s_5004", "ana@example.com", "B")).await.ok();
        // Nothing can be said of one that lacks a field: it runs.
        gate.api.order(&json!({ "submission_id": "s_5005", "email": "ana@example.com" })).await.ok();
        gate.advance_to(at("2026-01-05T10:31:00Z")).await;
        gate.api.order(&enrolment("s_5003", "ana@example.com", "A")).await.ok();
        if rule.is_empty() {
            runs(&receiver, 5).await;
            continue;
        }
        runs(&receiver, 4).await;
        gate.advance(mins(60)).await;
        assert_eq!(receiver.to("/write").len(), 4, "it never runs by itself");
        assert_eq!(gate.api.keys_in("parked").await, ["s_5002"]);
        let parked = gate.api.list("inbox=parked&parked=repeat").await.remove(0);
        assert_eq!((&parked["note"], &parked["parked"]), (&json!("repeat of s_5001"), &json!("repeat")));
        assert_eq!(parked["repeat_of"]["idempotency_key"], "s_5001");
        let id = parked["claim_id"].as_str().unwrap();
        let first = gate.api.find("enrol", "s_5001").await.unwrap();
        assert_eq!(
            (&first["processing_state"], &first["claim_id"]),
            (&json!("done"), &parked["repeat_of"]["claim_id"])
        );
        let history = gate.api.show(id).await["history"].to_string();
        assert!(history.contains("repeat of s_5001"), "{history}");
        // The same request once more changes nothing; a person's word does.
        let again = gate.api.order(&enrolment("s_5002", " ANA@example.com", "A")).await.ok();
        assert_eq!(again["status"], "already accepted");
        gate.api.run_now(id).await.ok();
        runs(&receiver, 5).await;
        eventually("it is done", async || {
            gate.api.find("enrol", "s_5002").await.filter(|c| c["processing_state"] == "done")
        })
        .await;
        assert!(gate.api.keys_in("parked").await.is_empty());
    }
}

#[tokio::test]
async fn c15_of_callers_at_once_exactly_one_runs_and_the_others_may_be_released() {
    let yaml = format!("automations: {{ enrol: {{ {TWICE} }} }}");
    let gate = Setup::alone(&yaml).start().await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..20 {
        let api = gate.api.another();
        let claim = json!({ "automation": "enrol", "idempotency_key": format!("k-{n}"),
            "payload": { "email": "ana@example.com", "course": "A", "n": n } });
        asked.spawn(async move { api.claim_with(&claim).await });
    }
    let answers = asked.join_all().await;
    let (ran, parked): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.decision == "run");
    assert_eq!((ran.len(), parked.len()), (1, 19));
    let note = format!("repeat of {}", ran[0].idempotency_key);
    for stopped in &parked {
        assert!(stopped.is("stop repeat").note.as_deref().unwrap().starts_with(&note), "{stopped:?}");
    }
    // Key fields say as much as a payload; another automation is another matter.
    let by_fields = json!({ "email": "Ana@example.com", "course": "A" });
    gate.api.claim_with(&json!({ "automation": "enrol", "key_fields": by_fields })).await.is("stop repeat");
    gate.api.claim_with(&json!({ "automation": "other", "key_fields": by_fields })).await.is("run first");
    // What it repeats is done, the window is over: it still waits for a person, and then it runs.
    gate.api.done(&ran[0]).await.ok();
    gate.advance(mins(31)).await;
    gate.api.claim("enrol", &parked[0].idempotency_key).await.is("stop repeat");
    gate.api.reset(&parked[0].claim_id).await.ok();
    gate.api.claim("enrol", &parked[0].idempotency_key).await.is("run first");
    let fresh = json!({ "automation": "enrol", "idempotency_key": "k-99", "payload": { "email": "ana@example.com", "course": "A" } });
    gate.api.claim_with(&fresh).await.is("run first");
}

#[tokio::test]
async fn c15_a_repeat_that_came_while_all_was_paused_is_one_when_it_is_resumed() {
    let gate = Setup::alone(&format!("automations: {{ enrol: {{ {TWICE} }} }}")).start().await;
    let claim = |key: &str| {
        json!({ "automation": "enrol", "idempotency_key": key,
        "payload": { "email": "ana@example.com", "course": "A" } })
    };
    gate.api.claim_with(&claim("a")).await.is("run first");
    gate.api.pause("enrol").await.ok();
    gate.api.claim_with(&claim("b")).await.is("stop paused");
    gate.api.resume("enrol").await.ok();
    gate.advance(mins(40)).await;
    gate.api.claim_with(&claim("b")).await.is("stop repeat");
    // It opened no window of its own.
    gate.api.claim_with(&claim("c")).await.is("run first");
}

#[tokio::test]
async fn c82_an_id_that_was_given_away_again_is_never_stopped_in_silence() {
    let yaml = "automations: { welcome: { on_mismatch: ignore, identity: [{ field: email, as: email }, created_at] } }";
    let gate = Setup::alone(yaml).start().await;
    let lead = |email: &str, created: &str| json!({ "email": email, "created_at": created });
    let (beth, max) = (lead("beth@example.com", "2025-03-01"), lead("max@example.com", "2026-01-04"));
    let claim =
        |about: &Value| json!({ "automation": "welcome", "idempotency_key": "lead 10936", "payload": about });
    let first = gate.api.claim_with(&claim(&beth)).await;
    gate.api.done(&first).await.ok();
    let again = gate.api.claim_with(&claim(&lead(" BETH@example.com", "2025-03-01"))).await;
    assert_eq!(again.is("stop duplicate").note, None, "the same record says nothing");
    assert!(gate.api.keys_in("mismatch").await.is_empty());
    let other = gate.api.claim_with(&claim(&max)).await;
    assert!(
        other.is("stop duplicate").note.as_deref().unwrap().contains("record identity changed"),
        "{other:?}"
    );
    assert_eq!(gate.api.keys_in("mismatch").await, ["lead 10936"]);
    // A caller that sends no payload says it by itself; without a declaration what it says is taken as it is.
    let said =
        |about: &Value| json!({ "automation": "bare", "idempotency_key": "10936", "identity_fields": about });
    let first = gate.api.claim_with(&said(&beth)).await;
    gate.api.done(&first).await.ok();
    assert_eq!(gate.api.claim_with(&said(&beth)).await.is("stop duplicate").note, None);
    assert!(gate.api.claim_with(&said(&max)).await.is("stop duplicate").note.is_some());
    let wrong =
        gate.api.post("/v1/claims", &said(&json!({ "email": true }))).await.problem(422, "invalid_field");
    assert_eq!(wrong["field"], "identity_fields.email");
    // With the date in the key it is another effect.
    let keyed = |about: &Value| json!({ "automation": "keyed", "key_fields": { "lead": 10936, "created_at": about["created_at"] } });
    gate.api.claim_with(&keyed(&beth)).await.is("run first");
    gate.api.claim_with(&keyed(&max)).await.is("run first");
}

#[tokio::test]
async fn c82_an_event_of_another_record_is_kept_with_its_body() {
    let receiver = Receiver::start().await;
    let of_automation = "on_mismatch: ignore\n    identity: [email]";
    let gate = Setup::new(&forms("[lead]", "", of_automation), &receiver).start().await;
    gate.api.order(&json!({ "lead": 10936, "email": "beth@example.com" })).await.ok();
    eventually("it is done", async || {
        gate.api.find("enrol", "10936").await.filter(|c| c["processing_state"] == "done")
    })
    .await;
    gate.api.order(&json!({ "lead": 10936, "email": "max@example.com" })).await.ok();
    let claim = gate.api.find("enrol", "10936").await.unwrap();
    assert_eq!(claim["inbox"], "mismatch");
    let kept = &claim["deliveries"][0];
    assert_eq!((&kept["verdict"], &kept["reason"]), (&json!("mismatch"), &json!("record_identity_changed")));
    let body = gate.api.get(&format!("/v1/rejected/{}", kept["id"])).await.ok()["body"].clone();
    assert!(body.as_str().unwrap().contains("max@example.com"));
    assert_eq!(receiver.to("/write").len(), 1);
}

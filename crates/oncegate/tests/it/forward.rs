//! Handing work to a hook of Zapier, Make or n8n.

use serde_json::{Value, json};

use crate::harness::{Client, Gate, Receiver, Reply, Setup, at, eventually, mins};

fn yaml(policy: &str, forward: &str, repeat: &str) -> String {
    format!(
        "
automations:
  welcome:
    ttl: 10m
    {policy}
    steps:
      - {{ name: enrich, http: {{ url: '$RECEIVER/enrich' }}, repeat: by_key }}
      - {{ name: hand over, forward: {{ url: '$RECEIVER/hook'{forward} }}, repeat: {repeat} }}
sources:
  orders: {{ provider: hmac, automation: welcome, secret: env:ORDERS, hmac: {{ header: X-Signature }}, key: [order] }}
"
    )
}

async fn in_state(api: &Client, state: &str, attempt: u32) -> Value {
    eventually(&format!("attempt {attempt} is {state}"), async || {
        let claim = api.find("welcome", "o_1").await?;
        (claim["processing_state"] == state && claim["attempt"] == attempt).then_some(claim)
    })
    .await
}

/// Waits until the hook has taken the work.
async fn handed_over(gate: &Gate, attempt: u32) -> Value {
    eventually("the hook has it", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        let calls = claim["calls"].as_array().unwrap();
        let taken = |call: &Value| {
            call["step"] == "hand over" && call["outcome"] == "succeeded" && call["attempt"] == attempt
        };
        calls.iter().any(taken).then_some(claim)
    })
    .await
}

async fn started(yaml: &str, receiver: &Receiver) -> Gate {
    let gate = Setup::new(yaml, receiver).start().await;
    let said = gate.api.order(&json!({ "order": "o_1", "email": "ann@example.com" })).await;
    assert_eq!(said.ok()["status"], "accepted");
    gate
}

#[tokio::test]
async fn a_forward_until_finished_stays_processing_until_its_run_calls_back() {
    let receiver = Receiver::start().await;
    let mut gate = started(&yaml("on_stale: retry_once", "", "by_key"), &receiver).await;
    let sent = receiver.got("/hook", 1).await[0].json();
    assert_eq!(sent["payload"], json!({ "order": "o_1", "email": "ann@example.com" }));
    assert_eq!(
        (&sent["oncegate"]["idempotency_key"], &sent["oncegate"]["attempt"]),
        (&json!("o_1"), &json!(1))
    );
    handed_over(&gate, 1).await;
    let claim = in_state(&gate.api, "processing", 1).await;
    assert_eq!(claim["holder"], "attempt-1", "the hook's run holds it now");

    // A restart does not take it away from the run that has it.
    gate.advance(mins(5)).await;
    gate.restart().await;
    gate.advance(mins(4)).await;
    in_state(&gate.api, "processing", 1).await;
    assert_eq!(gate.api.press(sent["oncegate"]["heartbeat_url"].as_str()).await.ok()["answer"], "accepted");
    gate.crash();
    gate.reopen().await;
    gate.advance(mins(9)).await;
    in_state(&gate.api, "processing", 1).await;
    assert_eq!(receiver.to("/hook").len(), 1);

    let done = gate.api.press(sent["oncegate"]["done_url"].as_str()).await.ok();
    assert_eq!((&done["answer"], &done["processing_state"]), (&json!("accepted"), &json!("done")));
    gate.advance(mins(30)).await;
    assert_eq!(receiver.requests().len(), 2, "one call of each step");
}

#[tokio::test]
async fn a_hook_may_call_back_before_it_answers() {
    let receiver = Receiver::start().await;
    let hold = crate::harness::Hold::new();
    receiver.script("/hook", [Reply::held(&hold)]);
    let gate = started(&yaml("on_stale: retry_once", "", "by_key"), &receiver).await;
    let sent = receiver.got("/hook", 1).await[0].json();
    gate.api.press(sent["oncegate"]["done_url"].as_str()).await.ok();
    in_state(&gate.api, "done", 1).await;
    hold.let_go();
    eventually("the answer is written down", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        (claim["calls"][1]["status"] == 200).then_some(())
    })
    .await;
    in_state(&gate.api, "done", 1).await;
    assert_eq!(gate.api.inbox().await["late"], 0);
}

#[tokio::test]
async fn an_error_url_brings_it_to_the_error_list() {
    let receiver = Receiver::start().await;
    let gate = started(&yaml("on_stale: retry_once", "", "by_key"), &receiver).await;
    let sent = receiver.got("/hook", 1).await[0].json();
    handed_over(&gate, 1).await;
    gate.api.press(sent["oncegate"]["error_url"].as_str()).await.ok();
    let claim = in_state(&gate.api, "error", 1).await;
    assert_eq!((&claim["inbox"], &claim["due_at"]), (&json!("error"), &json!(null)), "{claim}");
    // Reset and run: the step that is done is remembered, the hook gets the work anew.
    let id = claim["claim_id"].as_str().unwrap();
    gate.api.run_now(id).await.ok();
    let again = receiver.got("/hook", 2).await[1].json();
    gate.api.press(again["oncegate"]["done_url"].as_str()).await.ok();
    in_state(&gate.api, "done", 2).await;
    assert_eq!(receiver.to("/enrich").len(), 1);
    gate.api.press(sent["oncegate"]["done_url"].as_str()).await.problem(409, "lost_claim");
}

#[tokio::test]
async fn a_run_that_never_calls_back_goes_where_its_repeat_says() {
    // What a repeat would do, and whether a stale one may run → how often the hook is called and where it ends.
    for (policy, repeat, calls, cause) in [
        ("on_stale: retry_once", "by_key", 2, "stale"),
        ("on_stale: retry_once", "never", 1, "outcome_unknown"),
        ("on_stale: hold", "by_key", 1, "stale"),
    ] {
        let receiver = Receiver::start().await;
        let gate = started(&yaml(policy, "", repeat), &receiver).await;
        receiver.got("/hook", 1).await;
        handed_over(&gate, 1).await;
        gate.advance(mins(10)).await;
        if calls == 2 {
            let requests = receiver.got("/hook", 2).await;
            assert_eq!(requests[0].key(), requests[1].key(), "so that the hook can tell");
            handed_over(&gate, 2).await;
            // The first run's token is void, and says so to it.
            let first = requests[0].json();
            gate.api.press(first["oncegate"]["done_url"].as_str()).await.problem(409, "lost_claim");
            gate.advance(mins(10)).await;
        }
        let claim = eventually("a person is asked", async || {
            gate.api.find("welcome", "o_1").await.filter(|claim| claim["processing_state"] == "error")
        })
        .await;
        assert_eq!(
            (&claim["error_cause"], &claim["due_at"]),
            (&json!(cause), &json!(null)),
            "{policy} {repeat}: {claim}"
        );
        gate.advance(mins(60)).await;
        assert_eq!(receiver.to("/hook").len(), calls, "{policy} {repeat}");
    }
}

#[tokio::test]
async fn a_forward_until_accepted_is_done_and_shown_as_handed_over() {
    let receiver = Receiver::start().await;
    let gate = started(&yaml("on_stale: retry_once", ", until: accepted", "by_key"), &receiver).await;
    let claim = in_state(&gate.api, "done", 1).await;
    assert_eq!(claim["result"], json!({ "handed_over": true, "status": 200 }));
    let duplicate = gate.api.claim("welcome", "o_1").await;
    assert_eq!(duplicate.is("stop duplicate").result["handed_over"], true);
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn a_forward_until_accepted_may_be_followed_by_other_steps() {
    let receiver = Receiver::start().await;
    receiver.script("/hook", [Reply::json(&json!({ "id": "h_7" }))]);
    let yaml = yaml("on_stale: retry_once", ", until: accepted, json: { to: '{{ payload.email }}' }", "by_key")
        .replace("sources:", "      - { name: note, http: { url: '$RECEIVER/note', json: { run: '{{ steps[\"hand over\"].json.id }}' } } }\nsources:");
    let gate = started(&yaml, &receiver).await;
    in_state(&gate.api, "done", 1).await;
    assert_eq!(receiver.to("/hook")[0].json(), json!({ "to": "ann@example.com" }));
    assert_eq!(receiver.to("/note")[0].json(), json!({ "run": "h_7" }));
}

#[tokio::test]
async fn a_hook_that_refuses_is_asked_again_when_it_says_so() {
    let receiver = Receiver::start().await;
    receiver.script("/hook", [Reply::retry_after(429, "90"), Reply::status(410)]);
    let gate = started(&yaml("on_stale: retry_once", "", "by_key"), &receiver).await;
    let waits = eventually("it waits", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        (claim["processing_state"] == "processing" && claim["due_at"].is_string()).then_some(claim)
    })
    .await;
    let due = at(waits["due_at"].as_str().unwrap());
    assert_eq!(due, gate.now().after(std::time::Duration::from_secs(90)));
    gate.advance_to(due).await;
    let claim = in_state(&gate.api, "error", 2).await;
    let note = claim["note"].as_str().unwrap();
    assert!(note.contains("step 2 `hand over`") && note.contains("410"), "{note}");
    assert_eq!(claim["retries_used"], 0);
    assert_eq!(receiver.to("/hook").len(), 2);
}

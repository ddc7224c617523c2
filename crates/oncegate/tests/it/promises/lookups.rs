//! Steps that look whether their effect has happened before they repeat it, and steps that are done for each of a list.

use serde_json::{Value, json};

use crate::conditions::{state, yaml};
use crate::harness::{Gate, Receiver, Reply, Setup, eventually, mins, secs};

/// Time passes for as long as the claim waits for it, and no longer: what works is not hurried.
async fn done_in_time(gate: &Gate, key: &str) -> Value {
    eventually(&format!("{key} is done"), async || {
        let claim = gate.api.find("welcome", key).await?;
        if !claim["due_at"].is_null() {
            gate.advance(mins(1)).await;
        }
        (claim["processing_state"] == "done").then_some(claim)
    })
    .await
}

const CREATE: &str = "
      - name: create
        http: { url: '$RECEIVER/create', json: { email: '{{ payload.email }}' } }
        timeout: 1s
        lookup:
          url: '$RECEIVER/find'
          json: { email: '{{ payload.email | email }}' }
          found: '{{ response.json.total > 0 }}'
          answer: '{{ response.json.results[0] }}'
      - { name: tell, http: { url: '$RECEIVER/tell', json: { id: '{{ steps.create.json.id }}' } }, repeat: by_key }";

fn found(id: Option<u64>) -> Reply {
    let results: Vec<Value> = id.iter().map(|id| json!({ "id": id })).collect();
    Reply::json(&json!({ "total": results.len(), "results": results }))
}

#[tokio::test]
async fn c47_a_create_that_was_not_answered_is_looked_for_and_adopted() {
    let receiver = Receiver::start().await;
    let with_lookup = Setup::new(&yaml(CREATE), &receiver).start().await;
    // It commits, and nobody hears of it.
    receiver.script("/create", [Reply::Silence]);
    receiver.script("/find", [found(Some(7))]);
    with_lookup.api.order(&json!({ "order": "a", "email": "lee@example.com" })).await.ok();
    let failed = state(&with_lookup, "a", "error").await;
    assert!(failed["note"].as_str().unwrap().starts_with("outcome unknown at step 1 `create`"), "{failed}");
    with_lookup.advance(secs(60)).await;
    let done = state(&with_lookup, "a", "done").await;
    assert_eq!((receiver.to("/create").len(), receiver.to("/find").len()), (1, 1), "one prospect");
    assert_eq!(receiver.to("/find")[0].json(), json!({ "email": "lee@example.com" }));
    assert_eq!(receiver.to("/tell")[0].json(), json!({ "id": 7 }), "what was found stands for its answer");
    let calls = done["calls"].as_array().unwrap();
    let outcomes: Vec<_> = calls.iter().map(|call| &call["outcome"]).collect();
    assert_eq!(outcomes, ["unknown", "succeeded", "succeeded"]);
    assert!(calls[1]["target"].as_str().unwrap().starts_with("lookup POST "), "{}", calls[1]);
    assert!(calls[1]["note"].as_str().unwrap().contains("found by its lookup"), "{}", calls[1]);

    // Without a lookup a person must look.
    let without = "
      - { name: create, http: { url: '$RECEIVER/create', json: {} }, timeout: 1s }";
    let without = Setup::new(&yaml(without), &receiver).start().await;
    receiver.script("/create", [Reply::Silence]);
    without.api.order(&json!({ "order": "b", "email": "lee@example.com" })).await.ok();
    let failed = state(&without, "b", "error").await;
    without.advance(mins(60)).await;
    assert_eq!((&failed["due_at"], &failed["error_cause"]), (&Value::Null, &json!("outcome_unknown")));
    assert!(failed["note"].as_str().unwrap().starts_with("outcome unknown at step 1"), "{failed}");
    assert_eq!(receiver.to("/create").len(), 2, "no second create of b");
}

#[tokio::test]
async fn what_is_not_found_is_sent_again_but_not_before_its_trace_must_have_been_seen() {
    let receiver = Receiver::start().await;
    let steps = CREATE.replace("found:", "settle: 5m\n          found:");
    let gate = Setup::new(&yaml(&steps), &receiver).start().await;
    // Whether the second commit is one nobody knows either; then a look fails, another one finds nothing.
    receiver.script("/create", [Reply::status(500), Reply::status(502), Reply::json(&json!({ "id": 9 }))]);
    receiver.script("/find", [found(None), found(None), Reply::status(503), found(None), found(None)]);
    gate.api.order(&json!({ "order": "a", "email": "lee@example.com" })).await.ok();
    state(&gate, "a", "error").await;
    gate.advance(secs(60)).await;
    receiver.got("/find", 1).await;
    let waits = eventually("it waits", async || {
        gate.api
            .find("welcome", "a")
            .await
            .filter(|claim| !claim["due_at"].is_null() && claim["attempt"] == 2)
    })
    .await;
    assert!(
        waits["note"].as_str().unwrap().contains("its lookup did not find it; looks again at"),
        "{waits}"
    );
    gate.advance(mins(3)).await;
    assert_eq!((receiver.to("/create").len(), receiver.to("/find").len()), (1, 1), "it may still be seen");
    gate.advance(mins(2)).await;
    receiver.got("/create", 2).await;
    assert_eq!(receiver.to("/find").len(), 2);
    let done = done_in_time(&gate, "a").await;
    assert_eq!(receiver.to("/create").len(), 3, "{done}");
    assert_eq!(receiver.to("/tell")[0].json(), json!({ "id": 9 }));
    let looks: Vec<&Value> = done["calls"].as_array().unwrap().iter().map(|call| &call["note"]).collect();
    assert!(
        looks.iter().any(|note| note.as_str().is_some_and(|n| n.contains("could not look"))),
        "{looks:?}"
    );
}

#[tokio::test]
async fn a_look_that_can_never_tell_goes_to_a_person_and_a_reset_looks_again() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&yaml(CREATE), &receiver).start().await;
    receiver.script("/create", [Reply::status(500)]);
    receiver.script("/find", [Reply::status(401), found(Some(3))]);
    gate.api.order(&json!({ "order": "a", "email": "lee@example.com" })).await.ok();
    state(&gate, "a", "error").await;
    gate.advance(secs(60)).await;
    receiver.got("/find", 1).await;
    let failed = eventually("a person is asked", async || {
        gate.api.find("welcome", "a").await.filter(|claim| claim["error_cause"] == "outcome_unknown")
    })
    .await;
    assert_eq!(failed["due_at"], Value::Null);
    assert!(failed["note"].as_str().unwrap().contains("could not look whether it happened"), "{failed}");
    // The person mended the credentials. That it may run again is no reason not to look.
    gate.api.run_now(failed["claim_id"].as_str().unwrap()).await.ok();
    state(&gate, "a", "done").await;
    assert_eq!((receiver.to("/create").len(), receiver.to("/find").len()), (1, 2));
}

const EACH: &str = "
      - name: mail
        for_each: '{{ payload.to }}'
        when: '{{ item.on }}'
        http: { url: '$RECEIVER/{{ item.name }}', json: { no: '{{ index }}' } }
        repeat: by_key
      - { name: tell, http: { url: '$RECEIVER/tell', json: { answers: '{{ steps.mail[\"items\"] }}' } }, repeat: by_key }";

fn to(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "on": *name != "off" })).collect()
}

#[tokio::test]
async fn each_item_is_done_once_and_one_that_fails_stops_no_other() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&yaml(EACH), &receiver).start().await;
    for name in ["a", "c", "e"] {
        receiver.always(&format!("/{name}"), Reply::json(&json!({ "of": name })));
    }
    // Not taken, then taken; refused for good, and mended after that.
    receiver.script("/b", [Reply::status(425), Reply::json(&json!({ "of": "b" }))]);
    receiver.script("/d", [Reply::status(422), Reply::json(&json!({ "of": "d" }))]);
    gate.api.order(&json!({ "order": "o_1", "to": to(&["a", "b", "off", "c", "d", "e"]) })).await.ok();
    let failed = state(&gate, "o_1", "error").await;
    let note = failed["note"].as_str().unwrap();
    assert!(
        note.starts_with("2 of 6 items failed: step 1 `mail[1]`") && note.contains("`mail[4]`"),
        "{note}"
    );
    assert_ne!(failed["due_at"], Value::Null, "b may be tried again");
    let sent =
        |receiver: &Receiver| ["a", "b", "c", "d", "e"].map(|name| receiver.to(&format!("/{name}")).len());
    assert_eq!(sent(&receiver), [1, 1, 1, 1, 1]);
    gate.advance(secs(60)).await;
    let failed = eventually("only d is left", async || {
        gate.api
            .find("welcome", "o_1")
            .await
            .filter(|claim| claim["due_at"].is_null() && claim["note"].is_string())
    })
    .await;
    assert_eq!(sent(&receiver), [1, 2, 1, 1, 1], "only what may succeed is sent again");
    assert!(failed["note"].as_str().unwrap().starts_with("1 of 6 items failed: `mail[4]`"), "{failed}");
    assert_eq!(receiver.to("/tell").len(), 0);
    gate.api.run_now(failed["claim_id"].as_str().unwrap()).await.ok();
    let done = state(&gate, "o_1", "done").await;
    assert_eq!(sent(&receiver), [1, 2, 1, 2, 1]);
    let answers = receiver.to("/tell")[0].json()["answers"].clone();
    let of: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["json"]["of"]).collect();
    assert_eq!(of, ["a", "b", "c", "d", "e"], "in the list's order, without what was left out");
    let keys: std::collections::BTreeSet<String> =
        ["a", "c", "e"].map(|name| receiver.to(&format!("/{name}"))[0].key().to_owned()).into();
    assert_eq!(keys.len(), 3, "each has a key of its own");
    let steps = done["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["outcome"], &steps[0]["calls"]), (&json!("succeeded"), &json!(7)));
}

#[tokio::test]
async fn a_list_is_gone_on_with_after_a_kill_and_what_is_no_list_is_told() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(&yaml(EACH), &receiver).start().await;
    let hold = crate::harness::Hold::new();
    receiver.script("/c", [Reply::held(&hold)]);
    gate.api.order(&json!({ "order": "o_1", "to": to(&["a", "b", "c", "d"]) })).await.ok();
    receiver.got("/c", 1).await;
    gate.crash();
    hold.let_go();
    gate.reopen().await;
    state(&gate, "o_1", "done").await;
    let sent = ["a", "b", "c", "d"].map(|name| receiver.to(&format!("/{name}")).len());
    assert_eq!(sent, [1, 1, 2, 1], "only the one that was under way is repeated, under its key");
    let c = receiver.to("/c");
    assert_eq!(c[0].key(), c[1].key());
    let many: Vec<Value> = (0..501).map(|_| json!({ "name": "a", "on": true })).collect();
    for (order, to, told) in [
        ("text", json!("ann"), "for_each: `{{ payload.to }}` is no list"),
        ("many", Value::Array(many), "501 items are more than one step may have (500)"),
        ("none", Value::Null, "is no list"),
        ("item", json!([{ "on": true }]), "`mail[0]`: url: `item.name` is undefined"),
    ] {
        gate.api.order(&json!({ "order": order, "to": to })).await.ok();
        let claim = state(&gate, order, "error").await;
        assert!(claim["note"].as_str().unwrap().contains(told), "{claim}");
    }
    gate.api.order(&json!({ "order": "empty", "to": [] })).await.ok();
    let claim = state(&gate, "empty", "error").await;
    assert!(claim["note"].as_str().unwrap().contains("steps.mail"), "nothing has answered: {claim}");
}

#[tokio::test]
async fn c52_only_the_rows_that_were_locked_are_sent_again_and_soon() {
    let receiver = Receiver::start().await;
    let steps = "
      - name: put
        for_each: '{{ payload.rows }}'
        http: { method: PUT, url: '$RECEIVER/{{ item }}' }";
    let gate = Setup::new(&yaml(steps), &receiver).start().await;
    let rows: Vec<String> = (0..10).map(|n| format!("row-{n}")).collect();
    for locked in [3, 7] {
        receiver.script(&format!("/row-{locked}"), [Reply::status(423), Reply::status(200)]);
    }
    gate.api.order(&json!({ "order": "o_1", "rows": rows })).await.ok();
    let failed = state(&gate, "o_1", "error").await;
    assert!(failed["note"].as_str().unwrap().starts_with("2 of 10 items failed"), "{failed}");
    gate.advance(secs(2)).await;
    assert_eq!(receiver.requests().len(), 10, "not at once into the same lock");
    gate.advance(secs(2)).await;
    let done = state(&gate, "o_1", "done").await;
    let sent: Vec<usize> = rows.iter().map(|row| receiver.to(&format!("/{row}")).len()).collect();
    assert_eq!(sent, [1, 1, 1, 2, 1, 1, 1, 2, 1, 1]);
    assert_eq!(done["retries_used"], 1);
}

#[tokio::test]
async fn an_item_is_looked_for_like_any_other_and_a_look_is_no_refusal() {
    let receiver = Receiver::start().await;
    let steps = "
      - name: create
        for_each: '{{ payload.rows }}'
        http: { url: '$RECEIVER/create/{{ item }}' }
        lookup: { url: '$RECEIVER/find/{{ item }}', found: '{{ response.status == 200 }}', settle: 5m }";
    let gate = Setup::new(&yaml(steps), &receiver).start().await;
    receiver.script("/create/a", [Reply::status(500)]);
    receiver.script("/create/b", [Reply::status(500), Reply::status(200)]);
    receiver.script("/find/a", [Reply::status(200)]);
    // Not there yet, may not look, not there.
    receiver.script("/find/b", [Reply::status(404), Reply::status(404), Reply::status(404)]);
    gate.api.order(&json!({ "order": "o_1", "rows": ["a", "b", "c"] })).await.ok();
    state(&gate, "o_1", "error").await;
    let done = done_in_time(&gate, "o_1").await;
    let sent = ["a", "b", "c"].map(|row| receiver.to(&format!("/create/{row}")).len());
    assert_eq!(sent, [1, 2, 1], "{done}");
}

#[tokio::test]
async fn a_list_or_a_step_that_was_edited_under_a_claim_goes_to_a_person_before_anything_is_sent() {
    let list = "
      - name: mail
        for_each: '{{ payload.to }}'
        http: { url: '$RECEIVER/{{ item.name }}' }
        repeat: by_key";
    let plain = "
      - { name: mail, http: { url: '$RECEIVER/a' }, repeat: by_key }
      - { name: last, http: { url: '$RECEIVER/last' }, repeat: by_key }";
    let shorter = list.replace("payload.to }}", r#"payload.to | rejectattr("name", "eq", "b") | list }}"#);
    let gone = "is not declared any more";
    for (before, after, told) in [
        (list, shorter.as_str(), "`mail[1]` is another item than the one that was sent"),
        (list, plain, gone),
        (plain, list, gone),
    ] {
        let receiver = Receiver::start().await;
        let mut gate = Setup::new(&yaml(before), &receiver).start().await;
        for path in ["/d", "/last"] {
            receiver.script(path, [Reply::status(425), Reply::status(200)]);
        }
        gate.api.order(&json!({ "order": "o_1", "to": to(&["a", "b", "c", "d"]) })).await.ok();
        state(&gate, "o_1", "error").await;
        let sent = receiver.requests().len();
        let (before, after) = (yaml(before), yaml(after));
        let url = receiver.url();
        gate.restart_with(|now| {
            let (before, after) = (before.replace("$RECEIVER", &url), after.replace("$RECEIVER", &url));
            assert!(now.contains(&before), "{now}");
            now.replace(&before, &after)
        })
        .await;
        gate.advance(secs(60)).await;
        let claim = eventually("a person is asked", async || {
            gate.api
                .find("welcome", "o_1")
                .await
                .filter(|c| c["due_at"].is_null() && c["processing_state"] == "error")
        })
        .await;
        assert!(claim["note"].as_str().unwrap().contains(told), "{claim}");
        assert_eq!(receiver.requests().len(), sent, "nothing is sent before somebody has looked");
    }
}

//! `POST /v1/claims`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Claimed, Gate, Setup, at, json_body, mins, query, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

#[tokio::test]
async fn a_claim_is_told_everything_its_caller_needs() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    claimed.is("run first");
    assert_eq!((claimed.attempt, claimed.processing_state.as_str()), (1, "processing"));
    assert_eq!(claimed.idempotency_key, "s_1");
    assert_eq!(at(claimed.processing_started_at.as_deref().unwrap()), gate.now());
    for (verb, url) in
        [("done", &claimed.done_url), ("error", &claimed.error_url), ("heartbeat", &claimed.heartbeat_url)]
    {
        let expected =
            format!("{}/v1/claims/{}/{verb}?token={}", gate.api.base(), claimed.claim_id, claimed.token());
        assert_eq!(url.as_deref(), Some(expected.as_str()));
    }
    let stopped = gate.api.claim("story", "s_1").await;
    stopped.is("stop in_progress");
    assert_eq!((stopped.retry_after_s, stopped.done_url), (Some(600), None));
    // The token is for its holder alone.
    for shown in [gate.api.show(&claimed.claim_id).await, json!(gate.api.list("").await)] {
        assert!(!shown.to_string().contains(claimed.token()), "{shown}");
    }
}

#[tokio::test]
async fn json_form_and_query_are_the_same_claim() {
    let gate = gate().await;
    let pairs = [("automation", "story"), ("idempotency_key", "4711"), ("run_id", "r 1")];
    let post = |query: &str| gate.api.request(Method::POST, &format!("/v1/claims?{query}"));
    let form = "application/x-www-form-urlencoded";
    let text = r#"{"automation":"story","idempotency_key":4711,"run_id":"r 1","wait":null,"record":""}"#;
    let ways = [
        post(&query(&pairs)),
        post("").header("content-type", form).body(query(&pairs)),
        post("").header("content-type", "application/json").body(text),
        post("").header("content-type", "application/vnd.api+json; charset=utf-8").body(text),
        // As `curl -d` announces it.
        post("").header("content-type", form).body(text),
        post("automation=story")
            .header("content-type", form)
            .body("idempotency_key=4711&run_id=r+1&automation=story"),
        post(&query(&pairs)).body("  \r\n"),
    ];
    let mut words = vec![];
    for way in ways {
        let claimed: Claimed = serde_json::from_value(send(way).await.ok()).unwrap();
        assert_eq!(claimed.idempotency_key, "4711");
        words.push(claimed.words());
    }
    // One claim, repeated by its own run twice, then refused.
    assert_eq!(words[..3], ["run first", "run same_run", "run same_run"]);
    assert!(words[3..].iter().all(|w| w == "stop in_progress"), "{words:?}");
    assert_eq!(gate.api.list("").await.len(), 1);
}

#[tokio::test]
async fn key_fields_make_one_key_whatever_their_order() {
    let gate = gate().await;
    let claim = |fields: Value| json!({ "automation": "story", "key_fields": fields });
    let first = gate.api.claim_with(&claim(json!({ "form_id": "f", "submission_id": 7 }))).await;
    assert_eq!(first.is("run first").idempotency_key, "form_id=f:submission_id=7");
    let again = gate.api.claim_with(&claim(json!({ "submission_id": "7", "form_id": "f" }))).await;
    again.is("stop in_progress");
    // A separator inside a value does not make two effects one.
    let other = gate.api.claim_with(&claim(json!({ "form_id": "f:submission_id=7" }))).await;
    other.is("run first");
    assert_ne!(other.idempotency_key, first.idempotency_key);
}

#[tokio::test]
async fn key_fields_and_payload_are_the_same_in_json_form_and_query() {
    let gate = gate().await;
    let post = |query: &str| gate.api.request(Method::POST, &format!("/v1/claims?{query}"));
    let form = "application/x-www-form-urlencoded";
    let json =
        json!({ "automation": "story", "key_fields": { "form_id": "f", "id": 7 }, "payload": { "a": [1] } });
    let payload = ("payload", r#"{"a": [1]}"#);
    let ways = [
        json_body(post(""), &json),
        post("").header("content-type", form).body(query(&[
            ("automation", "story"),
            ("key_fields[form_id]", "f"),
            ("key_fields[id]", "7"),
            payload,
        ])),
        post(&query(&[
            ("automation", "story"),
            ("key_fields.id", "7"),
            ("key_fields.form_id", "f"),
            payload,
        ])),
        post(&query(&[("automation", "story"), ("key_fields", r#"{"form_id":"f","id":"7"}"#), payload])),
    ];
    let mut words = vec![];
    for way in ways {
        let claimed: Claimed = serde_json::from_value(send(way).await.ok()).unwrap();
        assert_eq!(claimed.idempotency_key, "form_id=f:id=7");
        words.push(claimed.words());
    }
    // Another payload under the key would have been a mismatch.
    assert_eq!(words, ["run first", "stop in_progress", "stop in_progress", "stop in_progress"]);
    let twice = query(&[("automation", "story"), ("key_fields", "x"), ("key_fields.id", "7")]);
    send(post(&twice)).await.problem(422, "invalid_field");
}

#[tokio::test]
async fn an_automation_is_one_however_its_name_is_written() {
    let gate = gate().await;
    gate.api.claim("story", "s_1").await.is("run first");
    for name in ["Story", " STORY ", "story\u{a0}"] {
        gate.api.claim(name, "s_1").await.is("stop in_progress");
    }
    gate.api.claim("stories", "s_1").await.is("run first");
}

#[tokio::test]
async fn a_stop_can_have_a_status_of_its_own_and_a_run_never_has() {
    let gate = gate().await;
    let claim = json!({ "automation": "story", "idempotency_key": "s_1" });
    for (status, words) in [(200, "run first"), (409, "stop in_progress")] {
        let said = gate.api.post("/v1/claims?stop_status=409", &claim).await;
        assert_eq!(said.status, status);
        assert_eq!(said.header("cache-control"), Some("no-store"));
        assert_eq!(said.header("retry-after"), (status == 409).then_some("600"));
        let claimed: Claimed = serde_json::from_value(said.body).unwrap();
        claimed.is(words);
    }
}

#[tokio::test]
async fn a_holder_may_repeat_its_claim_twice_with_its_run_id_until_it_was_heard_from() {
    let gate = gate().await;
    let claim =
        |key: &str, run: &str| json!({ "automation": "story", "idempotency_key": key, "run_id": run });
    let first = gate.api.claim_with(&claim("s_1", "zap-1")).await;
    gate.api.claim_with(&claim("s_1", "zap-2")).await.is("stop in_progress");
    for words in ["run same_run", "run same_run", "stop in_progress"] {
        gate.advance(mins(2)).await;
        let again = gate.api.claim_with(&claim("s_1", "zap-1")).await;
        again.is(words);
        assert!(again.token.is_none() || again.token == first.token, "the same attempt and token");
        assert_eq!(again.attempt, 1);
    }
    let first = gate.api.claim_with(&claim("s_2", "zap-1")).await;
    gate.api.heartbeat(&first).await.ok();
    gate.api.claim_with(&claim("s_2", "zap-1")).await.is("stop in_progress");
}

#[tokio::test]
async fn a_claim_may_have_a_ttl_of_its_own() {
    let gate = gate().await;
    let claim = json!({ "automation": "story", "idempotency_key": "s_1", "ttl": "5m" });
    gate.api.claim_with(&claim).await.is("run first");
    assert_eq!(gate.api.claim("story", "s_1").await.retry_after_s, Some(300));
    gate.advance(mins(5)).await;
    gate.api.claim("story", "s_1").await.is("run stale_retry");
}

#[tokio::test]
async fn a_record_has_one_live_claim_at_a_time_across_automations() {
    let gate = gate().await;
    let claim = |automation: &str, key: &str| json!({ "automation": automation, "idempotency_key": key, "record": "hubspot:contacts:ann@example.com" });
    let first = gate.api.claim_with(&claim("story", "s_1")).await;
    let busy = gate.api.claim_with(&claim("scoring", "c_1")).await;
    assert_eq!(busy.is("stop record_busy").retry_after_s, Some(600));
    assert_eq!(gate.api.keys_in("parked").await, ["c_1"], "a stop is never the end of an effect");
    gate.api.done(&first).await.ok();
    gate.api.claim_with(&claim("scoring", "c_1")).await.is("run first");
    assert_eq!(gate.api.inbox().await["parked"], 0);
    let other = json!({ "automation": "story", "idempotency_key": "s_1", "record": "hubspot:contacts:bob@example.com" });
    gate.api.claim_with(&other).await.is("stop payload_mismatch");
}

#[tokio::test]
async fn another_payload_under_the_key_stops_with_the_state_and_without_the_result() {
    let gate = gate().await;
    let claim =
        |payload: Value| json!({ "automation": "story", "idempotency_key": "s_1", "payload": payload });
    let first = gate.api.claim_with(&claim(json!({ "a": 1, "b": [2.0, null] }))).await;
    gate.api.done_with(&first, &json!({ "result": "r_1" })).await.ok();
    let same = gate.api.claim_with(&claim(json!({ "b": [2, null], "a": 1 }))).await;
    assert_eq!(same.is("stop duplicate").result, "r_1");
    let other = gate.api.claim_with(&claim(json!({ "a": 2 }))).await;
    assert_eq!(other.is("stop payload_mismatch").result, Value::Null);
    assert_eq!(other.processing_state, "done");
    assert_eq!(gate.api.keys_in("mismatch").await, ["s_1"]);
    assert_eq!(gate.api.show(&first.claim_id).await["payload"]["a"], 1);
}

#[tokio::test]
async fn a_field_that_is_wrong_is_named_with_what_to_write() {
    let gate = gate().await;
    let good = json!({ "automation": "story", "idempotency_key": "s_1" });
    let long = "x".repeat(600);
    for (field, value, says) in [
        ("automation", json!(null), "missing or blank"),
        ("automation", json!("  "), "missing or blank"),
        ("automation", json!(["story"]), "must be text, not a list"),
        ("automation", json!("x".repeat(200)), "128"),
        ("idempotency_key", json!(""), "every event would be the same one"),
        ("idempotency_key", json!(1.5), "must be text, not a fractional or huge number"),
        ("idempotency_key", json!({ "id": 1 }), "must be text, not an object"),
        ("idempotency_key", json!(true), "must be text, not true or false"),
        ("idempotency_key", json!(long), "512"),
        ("idempotency_key", json!("a\nb"), "control"),
        ("key_fields", json!({ "a": "b" }), "send one of them"),
        ("record", json!(long), "512"),
        ("run_id", json!(long), "256"),
        ("run_url", json!("javascript:alert(1)"), "http or https"),
        ("run_url", json!("https://a b"), "http or https"),
        ("ttl", json!(600), "has no unit"),
        ("ttl", json!("10 minutes"), "is not a duration"),
        ("ttl", json!("2h"), "outside 5m to 30m"),
        ("wait", json!("1h"), "longer than 25 s"),
        ("wait", json!("soon"), "is not a duration"),
        ("stop_status", json!(200), "400 to 499"),
        ("stop_status", json!("503"), "400 to 499"),
        (
            "idempotencyKey",
            json!("s_1"),
            "did you mean `idempotency_key`? This call takes automation, idempotency_key",
        ),
    ] {
        let mut claim = good.clone();
        claim[field] = value.clone();
        let problem = gate.api.post("/v1/claims", &claim).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{value}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(field) && detail.contains(says), "{field} {value}: {detail}");
    }
    for (fields, field) in [
        (json!({}), "key_fields"),
        (json!("f"), "key_fields"),
        (json!({ "form": null }), "key_fields.form"),
        (json!({ "form": " " }), "key_fields.form"),
        (json!({ "form": [1] }), "key_fields.form"),
        (json!({ "form": 0.1 }), "key_fields.form"),
        (json!({ "a:b": "c" }), "key_fields.a:b"),
    ] {
        let claim = json!({ "automation": "story", "key_fields": fields });
        let problem = gate.api.post("/v1/claims", &claim).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert_eq!(gate.api.list("").await, Vec::<Value>::new(), "nothing was claimed");
}

#[tokio::test]
async fn a_field_given_twice_must_not_differ() {
    let gate = gate().await;
    let claim = json!({ "idempotency_key": "s_1" });
    let twice = |query| {
        json_body(gate.api.request(Method::POST, &format!("/v1/claims?automation=story&{query}")), &claim)
    };
    let problem = send(twice("idempotency_key=s_2")).await.problem(422, "invalid_field");
    assert_eq!(problem["field"], "idempotency_key");
    send(twice("idempotency_key=s_1")).await.ok();
    // Two in one query string or form differ just as well.
    let problem = send(
        gate.api.request(Method::POST, "/v1/claims?automation=story&idempotency_key=s_3&idempotency_key=s_4"),
    )
    .await
    .problem(422, "invalid_field");
    assert_eq!(problem["field"], "idempotency_key");
}

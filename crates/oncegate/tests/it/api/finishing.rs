//! Done, error, heartbeat.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Gate, Setup, at, json_body, mins, secs, send};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

#[tokio::test]
async fn urls_in_the_answer_need_no_body_and_no_other_token() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    assert_eq!(gate.api.press(claimed.heartbeat_url.as_deref()).await.ok()["answer"], "accepted");
    let errored = gate.api.press(claimed.error_url.as_deref()).await.ok();
    assert_eq!(errored["processing_state"], "error");
    assert_eq!(errored["note"], "the caller reported an error without a note");
    let done = gate.api.press(claimed.done_url.as_deref()).await.ok();
    assert_eq!((&done["answer"], &done["processing_state"]), (&json!("accepted"), &json!("done")));
    assert_eq!(gate.api.press(claimed.done_url.as_deref()).await.ok()["answer"], "unchanged");
}

#[tokio::test]
async fn get_and_head_of_a_finish_url_never_act() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    for url in [&claimed.done_url, &claimed.error_url, &claimed.heartbeat_url] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        {
            let said = send(gate.api.bare(method.clone(), url.as_deref().unwrap())).await;
            assert_eq!((said.status, said.header("allow")), (405, Some("POST")), "{method}");
        }
    }
    let shown = gate.api.show(&claimed.claim_id).await;
    assert_eq!(shown["processing_state"], "processing");
    assert_eq!(shown["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_stands_in_query_body_or_header() {
    let gate = gate().await;
    for (n, way) in ["query", "json", "form", "bearer"].into_iter().enumerate() {
        let claimed = gate.api.claim("story", &format!("s_{n}")).await;
        let (path, token) = (format!("/v1/claims/{}/done", claimed.claim_id), claimed.token());
        let post = |query: &str| gate.api.bare(Method::POST, &format!("{path}{query}"));
        let said = send(match way {
            "query" => post(&format!("?token={token}")),
            "json" => json_body(post(""), &json!({ "token": token })),
            "form" => post("")
                .header("content-type", "application/x-www-form-urlencoded")
                .body(format!("token={token}")),
            _ => post("").bearer_auth(token),
        })
        .await;
        assert_eq!(said.ok()["answer"], "accepted", "{way}");
    }
}

#[tokio::test]
async fn only_the_claims_own_token_holds() {
    let gate = gate().await;
    let (one, two) = (gate.api.claim("story", "s_1").await, gate.api.claim("story", "s_2").await);
    for verb in ["done", "error", "heartbeat"] {
        let path = format!("/v1/claims/{}/{verb}", one.claim_id);
        send(gate.api.bare(Method::POST, &path)).await.problem(401, "missing_credentials");
        let mut bent = one.token().to_owned();
        let last = if bent.pop() == Some('A') { 'B' } else { 'A' };
        bent.push(last);
        let empty = String::new();
        for token in [two.token(), bent.as_str(), "x", &one.claim_id, crate::harness::ADMIN] {
            let said = send(gate.api.bare(Method::POST, &format!("{path}?token={token}"))).await;
            said.problem(403, "invalid_token");
        }
        let said = send(gate.api.bare(Method::POST, &format!("{path}?token={empty}"))).await;
        said.problem(401, "missing_credentials");
        let elsewhere = format!("/v1/claims/not-an-id/{verb}?token={}", one.token());
        send(gate.api.bare(Method::POST, &elsewhere)).await.problem(403, "invalid_token");
        // More wrong tokens at a time than this are answered 429.
        gate.advance(crate::harness::mins(1)).await;
    }
    assert_eq!(gate.api.show(&one.claim_id).await["processing_state"], "processing");
    assert_eq!(gate.api.inbox().await["late"], 0, "a foreign token is nobody's late finish");
}

#[tokio::test]
async fn a_finish_call_is_not_refused_for_its_body() {
    let gate = gate().await;
    let json = "application/json";
    let bodies: [(&str, Vec<u8>); 8] = [
        (json, b"{\"result\": {\"id\":".to_vec()),
        (json, b"[1, 2]".to_vec()),
        ("text/plain", b"OK".to_vec()),
        ("application/xml", b"<ok/>".to_vec()),
        ("application/octet-stream", vec![0xff, 0, 0xfe]),
        (json, json!({ "unknown": 1, "idempotency_key": "other" }).to_string().into_bytes()),
        (json, json!({ "token": "another" }).to_string().into_bytes()),
        (json, vec![b'['; 2 * 1024 * 1024]),
    ];
    for (n, (kind, body)) in bodies.into_iter().enumerate() {
        let claimed = gate.api.claim("story", &format!("s_{n}")).await;
        let press = gate.api.bare(Method::POST, claimed.done_url.as_deref().unwrap());
        let said = send(press.header("content-type", kind).body(body)).await.ok();
        assert_eq!(
            (&said["answer"], &said["processing_state"]),
            (&json!("accepted"), &json!("done")),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_result_that_is_too_large_is_left_out_and_the_effect_is_done() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    let said = gate.api.done_with(&claimed, &json!({ "result": "x".repeat(70_000) })).await.ok();
    assert_eq!(said["processing_state"], "done");
    assert!(said["note"].as_str().unwrap().contains("was not kept"), "{said}");
    assert_eq!(gate.api.claim("story", "s_1").await.is("stop duplicate").result, Value::Null);
}

#[tokio::test]
async fn the_first_result_is_kept_and_done_stays_done() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    gate.api.done_with(&claimed, &json!({ "result": [1, "a", null] })).await.ok();
    assert_eq!(gate.api.done_with(&claimed, &json!({ "result": 2 })).await.ok()["answer"], "unchanged");
    let refused = gate.api.error(&claimed, &json!({ "note": "boom" })).await.problem(409, "already_done");
    assert_eq!(refused["claim"]["processing_state"], "done");
    gate.api.heartbeat(&claimed).await.problem(409, "already_done");
    assert_eq!(gate.api.claim("story", "s_1").await.result, json!([1, "a", null]));
    assert_eq!(gate.api.show(&claimed.claim_id).await["result"], json!([1, "a", null]));
}

#[tokio::test]
async fn an_error_waits_for_a_person_unless_its_caller_says_that_it_may_be_retried() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    let said = gate.api.error(&claimed, &json!({ "note": "no such\ncontact\u{7}" })).await.ok();
    assert_eq!(said["note"], "no such contact ");
    assert_eq!(gate.api.error(&claimed, &json!({ "note": "again" })).await.ok()["answer"], "unchanged");
    gate.api.heartbeat(&claimed).await.problem(409, "not_processing");
    let stopped = gate.api.claim("story", "s_1").await;
    assert_eq!(stopped.is("stop needs_review").note.as_deref(), Some("no such contact "));
    let [row] = gate.api.list("inbox=error").await.try_into().unwrap();
    assert_eq!((&row["due_at"], &row["error_cause"]), (&json!(null), &json!("failed")));

    let claimed = gate.api.claim("story", "s_2").await;
    let said = gate.api.error(&claimed, &json!({ "note": "locked", "retryable": true })).await.ok();
    let due = at(said["due_at"].as_str().unwrap());
    let wait = due.since(gate.now());
    assert!(wait >= secs(22) && wait <= secs(38), "30 s × 0.75 to 1.25: {wait:?}");
    let stopped = gate.api.claim("story", "s_2").await;
    assert_eq!(stopped.is("stop backing_off").retry_after_s, Some(wait.as_millis().div_ceil(1000) as u64));
    gate.advance_to(due).await;
    let retry = gate.api.claim("story", "s_2").await;
    assert_eq!(retry.is("run retry").attempt, 2);
    // No sooner than the other side asked for.
    let later = json!({ "retryable": "true", "retry_after": "1200" });
    let said = gate.api.error(&retry, &later).await.ok();
    assert_eq!(at(said["due_at"].as_str().unwrap()), gate.now().after(mins(20)));
    assert_eq!(gate.api.show(&retry.claim_id).await["retries_used"], 1);
}

#[tokio::test]
async fn three_retries_and_then_a_person() {
    let gate = gate().await;
    let mut claimed = gate.api.claim("story", "s_1").await;
    for used in 0..=3 {
        assert_eq!(claimed.attempt, used + 1);
        let said = gate.api.error(&claimed, &json!({ "note": "locked", "retryable": true })).await.ok();
        match said["due_at"].as_str() {
            Some(due) => gate.advance_to(at(due)).await,
            None => assert_eq!(used, 3, "{said}"),
        }
        claimed = gate.api.claim("story", "s_1").await;
    }
    claimed.is("stop needs_review");
    gate.api.reset(&claimed.claim_id).await.ok();
    let fresh = gate.api.claim("story", "s_1").await;
    let said = gate.api.error(fresh.is("run first"), &json!({ "retryable": true })).await.ok();
    assert!(said["due_at"].is_string(), "a reset grants fresh retries: {said}");
}

#[tokio::test]
async fn a_heartbeat_past_the_ttl_holds_if_nobody_took_over() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s_1").await;
    gate.advance(mins(12)).await;
    assert_eq!(gate.api.keys_in("stuck").await, ["s_1"]);
    assert_eq!(gate.api.heartbeat(&claimed).await.ok()["answer"], "accepted");
    assert_eq!(gate.api.inbox().await["stuck"], 0);
    assert_eq!(gate.api.claim("story", "s_1").await.is("stop in_progress").retry_after_s, Some(600));
}

#[tokio::test]
async fn finishing_works_while_paused_and_after_a_restart() {
    let mut gate = gate().await;
    let tokens = [gate.api.claim("story", "s_1").await, gate.api.claim("story", "s_2").await];
    gate.api.pause("story").await.ok();
    gate.api.claim("story", "s_3").await.is("stop paused");
    gate.api.heartbeat(&tokens[0]).await.ok();
    gate.api.done(&tokens[0]).await.ok();
    gate.restart().await;
    gate.api.error(&tokens[1], &json!({ "note": "boom" })).await.ok();
    assert_eq!(gate.api.keys_in("parked").await, ["s_3"], "its run must be replayed where it came from");
}

//! Reading: pages, filters, one claim with its whole story.

use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Setup, WELCOME, eventually, mins};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

/// Follows the cursor to the end.
async fn pages(gate: &Gate, path: &str, name: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (vec![], String::new());
    loop {
        let page = gate.api.get(&format!("{path}{cursor}")).await.ok();
        pages.push(page[name].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn pages_follow_each_other_newest_first_and_miss_nothing() {
    let gate = gate().await;
    for n in 0..25 {
        gate.api.claim("story", &format!("s_{n}")).await;
    }
    let found = pages(&gate, "/v1/claims?limit=10", "claims").await;
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let keys: Vec<_> = found.concat().iter().map(|row| row["idempotency_key"].clone()).collect();
    assert_eq!(keys, (0..25).rev().map(|n| json!(format!("s_{n}"))).collect::<Vec<_>>());
    // Rows that come in while somebody pages shift nothing.
    let first = gate.api.get("/v1/claims?limit=10").await.ok();
    gate.api.claim("story", "new").await;
    let path = format!("/v1/claims?limit=10&cursor={}", first["next_cursor"].as_str().unwrap());
    assert_eq!(gate.api.get(&path).await.ok()["claims"][0]["idempotency_key"], "s_14");
}

#[tokio::test]
async fn a_list_holds_what_its_filters_say() {
    let gate = gate().await;
    gate.api.claim("story", "running").await;
    let done = gate.api.claim("story", "finished").await;
    gate.api.done(&done).await.ok();
    let error = gate.api.claim("scoring", "failed").await;
    gate.api.error(&error, &json!({ "note": "boom" })).await.ok();
    for (query, keys) in [
        ("", vec!["failed", "finished", "running"]),
        ("state=done", vec!["finished"]),
        ("state=processing", vec!["running"]),
        ("state=none", vec![]),
        ("automation=STORY", vec!["finished", "running"]),
        ("automation=unheard-of", vec![]),
        ("automation=story&state=error", vec![]),
        ("inbox=error", vec!["failed"]),
        ("inbox=error&automation=story", vec![]),
        ("automation=story&idempotency_key=running", vec!["running"]),
        ("automation=story&idempotency_key=failed", vec![]),
        ("automation=unheard-of&idempotency_key=running", vec![]),
    ] {
        let rows = gate.api.list(query).await;
        let found: Vec<_> = rows.iter().map(|row| row["idempotency_key"].as_str().unwrap()).collect();
        assert_eq!(found, keys, "{query}");
    }
    assert_eq!(gate.api.list("automation=unheard-of").await.len(), 0, "looking makes no automation");
}

#[tokio::test]
async fn each_claim_stands_in_exactly_one_list_and_is_counted_there() {
    let gate = gate().await;
    let payload = |key: &str, n: u32| json!({ "automation": "story", "idempotency_key": key, "payload": n });
    gate.api.claim("story", "stuck").await;
    let late = gate.api.claim("story", "late").await;
    gate.api.claim_with(&payload("mismatch", 1)).await;
    gate.advance(mins(11)).await;
    for key in ["late", "mismatch"] {
        let taken = gate.api.claim("story", key).await;
        gate.api.done(taken.is("run stale_retry")).await.ok();
    }
    gate.api.done(&late).await.problem(409, "lost_claim");
    gate.api.claim_with(&payload("mismatch", 2)).await.is("stop payload_mismatch");
    let error = gate.api.claim("story", "error").await;
    gate.api.error(&error, &json!({})).await.ok();
    gate.api.pause("story").await.ok();
    gate.api.claim("story", "parked").await.is("stop paused");

    let counts = gate.api.inbox().await;
    for list in ["stuck", "error", "mismatch", "parked", "late"] {
        assert_eq!(gate.api.keys_in(list).await, [list]);
        assert_eq!(counts[list], 1, "{list}");
    }
    assert_eq!(counts["rejected"], 0);
    assert_eq!(counts.len(), 6);
    for row in gate.api.list("").await {
        assert_eq!(row["inbox"], row["idempotency_key"]);
    }
}

#[tokio::test]
async fn a_claim_is_shown_with_its_payload_its_steps_its_calls_and_its_story() {
    let receiver = Receiver::start().await;
    let yaml = WELCOME.replace("/send' }", "/send?api_key=s3cret', headers: { X-Api-Key: env:API_KEY } }");
    let gate = Setup::new(&yaml, &receiver).var("API_KEY", "s3cret-header").start().await;
    let order = json!({ "order": "o_1", "items": [1, 2] });
    gate.api.order(&order).await.ok();
    let claim = eventually("it is done", async || {
        gate.api.find("welcome", "o_1").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
    assert_eq!(claim["payload"], order);
    assert_eq!(claim["result"], json!({ "ok": true }), "the last step's answer");
    assert_eq!(claim["steps"], json!([{ "step": "send", "outcome": "succeeded", "calls": 1 }]));
    let [call] = claim["calls"].as_array().unwrap().clone().try_into().unwrap();
    assert_eq!((&call["step"], &call["attempt"], &call["status"]), (&json!("send"), &json!(1), &json!(200)));
    assert_eq!(call["target"], format!("POST {}/send", receiver.url()), "without its query");
    let request = &receiver.requests()[0];
    assert_eq!(
        (request.path.as_str(), request.headers["x-api-key"].as_str()),
        ("/send?api_key=s3cret", "s3cret-header")
    );
    assert_eq!(call["idempotency_key"], request.key());
    let kinds: Vec<_> = claim["history"].as_array().unwrap().iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(kinds, ["queued", "run", "done"]);
    assert!(!claim.to_string().contains("s3cret"), "{claim}");
    // Duplicates of callers get what the step answered.
    assert_eq!(gate.api.claim("welcome", "o_1").await.is("stop duplicate").result, json!({ "ok": true }));
}

#[tokio::test]
async fn audit_and_rejected_have_pages_too() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    for n in 0..5 {
        gate.api.order(&json!({ "n": n })).await.ok();
        gate.api.claim(&format!("a{n}"), "k").await.is("run first");
        gate.api.pause(&format!("a{n}")).await.ok();
    }
    // A misspelt name would stand still while the real one runs on.
    gate.api.pause("a00").await.problem(404, "not_found");
    // The first token was made at the start, which found a configuration.
    for (path, name, rows) in [("/v1/rejected?limit=2", "rejected", 5), ("/v1/audit?limit=2", "audit", 7)] {
        let found = pages(&gate, path, name).await;
        assert_eq!(found.iter().map(Vec::len).sum::<usize>(), rows, "{name}");
        let ids: Vec<_> = found.concat().iter().map(|row| row["id"].as_i64().unwrap()).collect();
        assert!(ids.is_sorted_by(|a, b| a > b), "{name}: {ids:?}");
    }
}

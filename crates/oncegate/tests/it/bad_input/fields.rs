//! Each field's rule: which field, what is wrong with it, what the limit is.

use reqwest::Method;
use serde_json::{Value, json};

use super::rows;
use crate::harness::{Gate, Setup, send};

/// A claim of an automation that nobody knows yet, with changes.
fn claim(changes: &Value) -> Value {
    let mut json = json!({ "automation": "never seen", "idempotency_key": "k" });
    for (name, value) in changes.as_object().unwrap() {
        json[name] = value.clone();
    }
    if changes.get("key_fields").is_some() && changes.get("idempotency_key").is_none() {
        json.as_object_mut().unwrap().remove("idempotency_key");
    }
    json
}

async fn refused(gate: &Gate, json: &Value, field: &str, says: &str) {
    let before = rows(gate);
    let problem = gate.api.post("/v1/claims", json).await.problem(422, "invalid_field");
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(problem["field"], field, "{problem}");
    assert!(detail.starts_with(&format!("{field}: ")) && detail.contains(says), "{says}: {problem}");
    assert!(detail.len() < 600, "{problem}");
    // Not even the automation that it named.
    assert_eq!(rows(gate), before, "{json}");
}

#[tokio::test]
async fn each_field_of_a_claim_has_a_rule_that_is_told() {
    let gate = Setup::alone("").start().await;
    let long = |bytes: usize| "x".repeat(bytes);
    for (changes, field, says) in [
        (json!({ "automation": null }), "automation", "missing or blank"),
        (json!({ "automation": "\u{200b} " }), "automation", "blank"),
        (json!({ "automation": ["a"] }), "automation", "must be text, not a list"),
        (json!({ "automation": long(129) }), "automation", "129 bytes long; at most 128"),
        (json!({ "automation": "a\nb" }), "automation", "U+000A"),
        (json!({ "idempotency_key": "" }), "idempotency_key", "missing or blank"),
        (json!({ "idempotency_key": "\u{feff}\u{200b}" }), "idempotency_key", "blank"),
        (json!({ "idempotency_key": long(513) }), "idempotency_key", "513 bytes long; at most 512"),
        (json!({ "idempotency_key": "caf\u{fffd}" }), "idempotency_key", "U+FFFD"),
        (json!({ "idempotency_key": true }), "idempotency_key", "must be text, not true or false"),
        (json!({ "idempotency_key": 1.5 }), "idempotency_key", "a fractional or huge number"),
        (json!({ "idempotency_key": 1e30 }), "idempotency_key", "a fractional or huge number"),
        (json!({ "idempotency_key": { "a": 1 } }), "idempotency_key", "must be text, not an object"),
        (json!({ "idempotency_key": "k", "key_fields": { "a": 1 } }), "key_fields", "send one of them"),
        (json!({ "key_fields": {} }), "key_fields", "is empty"),
        (json!({ "key_fields": [1] }), "key_fields", "not a list"),
        (json!({ "key_fields": "a" }), "key_fields", "not text"),
        (json!({ "key_fields": { "a": true } }), "key_fields.a", "not true or false"),
        (json!({ "key_fields": { "a": 1.5 } }), "key_fields.a", "a fractional or huge number"),
        (json!({ "key_fields": { "a": [] } }), "key_fields.a", "not a list"),
        (json!({ "key_fields": { "a": "\u{200b} " } }), "key_fields.a", "missing or blank"),
        (json!({ "key_fields": { "a b": 1 } }), "key_fields.a b", "letters, digits"),
        (json!({ "key_fields": { "": 1 } }), "key_fields.", "letters, digits"),
        (json!({ "key_fields": { "a": "x\u{0}" } }), "key_fields.a", "U+0000"),
        (json!({ "key_fields": { "a": "caf\u{fffd}" } }), "key_fields.a", "U+FFFD"),
        (json!({ "key_fields": { "a": long(600) } }), "key_fields.a", "600 bytes long; at most 512"),
        (
            json!({ "key_fields": { "a": long(300), "b": long(300) } }),
            "key_fields",
            "605 bytes long; at most 512",
        ),
        (json!({ "record": long(513) }), "record", "513 bytes long; at most 512"),
        (json!({ "record": "crm:\u{1b}[0m" }), "record", "U+001B"),
        (json!({ "run_id": long(257) }), "run_id", "257 bytes long; at most 256"),
        (json!({ "run_id": {} }), "run_id", "must be text, not an object"),
        (json!({ "run_url": "javascript:alert(1)" }), "run_url", "http or https"),
        (json!({ "run_url": format!("https://a.example/{}", long(2_048)) }), "run_url", "at most 2048 bytes"),
        (json!({ "run_url": "https://a.example/ x" }), "run_url", "http or https"),
        (json!({ "wait": 26 }), "wait", "longer than 25 s"),
        (json!({ "wait": -1 }), "wait", "not a duration"),
        (json!({ "wait": 1.5 }), "wait", "fractional"),
        (json!({ "wait": "1h" }), "wait", "longer than 25 s"),
        (json!({ "wait": "99999999999999999999" }), "wait", "`99999999999999999999`"),
        (json!({ "stop_status": 200 }), "stop_status", "400 to 499"),
        (json!({ "stop_status": 500 }), "stop_status", "400 to 499"),
        (json!({ "stop_status": "99999999999" }), "stop_status", "400 to 499"),
        (json!({ "idempotencyKey": "k" }), "idempotencyKey", "did you mean `idempotency_key`?"),
        (json!({ "Idempotency-Key": "k" }), "Idempotency-Key", "did you mean `idempotency_key`?"),
        (json!({ "paylod": {} }), "paylod", "did you mean `payload`?"),
        (json!({ "Payload": {} }), "Payload", "did you mean `payload`?"),
        (json!({ "zzz": 1 }), "zzz", "not known here; this call takes automation"),
    ] {
        refused(&gate, &claim(&changes), field, says).await;
    }
    // A name from outside is told short.
    let problem =
        gate.api.post("/v1/claims", &claim(&json!({ long(100_000): 1 }))).await.problem(422, "invalid_field");
    assert!(problem.to_string().len() < 800, "{problem}");
    assert!(gate.api.list("").await.is_empty());
    gate.api.claim("never seen", "k").await.is("run first");
}

#[tokio::test]
async fn a_body_with_two_readings_has_none() {
    let gate = Setup::alone("").start().await;
    let head = r#""automation":"never seen","idempotency_key":"k""#;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (body, status, field, says) in [
        (format!(r#"{{{head},"idempotency_key":"k"}}"#), 422, Some("idempotency_key"), "more than once"),
        (format!(r#"{{{head},"idempotency_\u006bey":"l"}}"#), 422, Some("idempotency_key"), "more than once"),
        (
            format!(r#"{{{head},"payload":{{"a":[{{"b":1,"b":2}}]}}}}"#),
            422,
            Some("payload.a.0.b"),
            "more than once",
        ),
        (
            r#"{"automation":"never seen","key_fields":{"f":1,"f":1}}"#.to_owned(),
            422,
            Some("key_fields.f"),
            "more than once",
        ),
        (format!(r#"{{{head},"payload":{deep}}}"#), 400, None, "nested deeper than 127 levels"),
        (deep.clone(), 400, None, "nested deeper than 127 levels"),
        (format!(r#"{{{head},"payload":NaN}}"#), 400, None, "`payload` is not JSON"),
        (
            format!(r#"{{{head},"payload":[1,1e999]}}"#),
            400,
            None,
            "`payload.1` is not JSON: number out of range",
        ),
        (format!(r#"{{{head},"payload":"\ud800"}}"#), 400, None, "`payload` is not JSON"),
        (format!("{{{head}}} trailing"), 400, None, "trailing characters"),
        (format!("{{{head},}}"), 400, None, "trailing comma"),
        (format!("{{{head}"), 400, None, "EOF"),
        (format!("// {{{head}}}"), 400, None, "is not JSON"),
        ("null".to_owned(), 400, None, "must be a JSON object"),
    ] {
        let post = gate.api.request(Method::POST, "/v1/claims").header("content-type", "application/json");
        let code = if status == 422 { "invalid_field" } else { "unreadable_body" };
        let problem = send(post.body(body)).await.problem(status, code);
        assert_eq!(problem.get("field").and_then(Value::as_str), field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    assert_eq!(rows(&gate)["claims"] + rows(&gate)["automations"], 0);
    // What JSON allows is taken: a mark before it, a NUL in a payload, depth up to the limit.
    let depth = format!("{}{}", "[".repeat(126), "]".repeat(126));
    for (key, body) in [
        ("mark", "\u{feff}{\"automation\":\"a\",\"idempotency_key\":\"mark\"}".to_owned()),
        ("nul", r#"{"automation":"a","idempotency_key":"nul","payload":{"a":"\u0000"}}"#.to_owned()),
        ("deep", format!(r#"{{"automation":"a","idempotency_key":"deep","payload":{depth}}}"#)),
    ] {
        let post = gate.api.request(Method::POST, "/v1/claims").header("content-type", "application/json");
        let claimed = send(post.body(body)).await.ok();
        assert_eq!(claimed["idempotency_key"], key);
        gate.api.show(claimed["claim_id"].as_str().unwrap()).await;
    }
}

#[tokio::test]
async fn forms_and_queries_follow_the_same_rules() {
    let gate = Setup::alone("").start().await;
    let body = "automation=never+seen&idempotency_key=k";
    let many: String = (0..201).map(|n| format!("&f{n}=1")).collect();
    let named = format!("&{}=1", "n".repeat(300));
    for (query, body, field, says) in [
        ("", format!("{body}&idempotency_key=l"), Some("idempotency_key"), "given twice and differs"),
        ("idempotency_key=l", body.to_owned(), Some("idempotency_key"), "in the query and in the body"),
        ("run_id=a&run_id=b", body.to_owned(), Some("run_id"), "given twice"),
        ("run_id=%ff", body.to_owned(), Some("run_id"), "UTF-8"),
        ("run_id=%C3%28", body.to_owned(), Some("run_id"), "UTF-8"),
        ("run_id=5%", body.to_owned(), Some("run_id"), "%25"),
        ("%E0%80=1", body.to_owned(), Some("%E0%80"), "UTF-8"),
        ("", format!("{body}&run_id=%zz"), Some("run_id"), "%25"),
        ("", format!("{body}&payload=%7B%22a%22%3A1%2C%22a%22%3A2%7D"), Some("payload.a"), "more than once"),
        ("", format!("{body}&key_fields.a=1&key_fields%5Ba%5D=2"), Some("key_fields[a]"), "given twice"),
        ("", format!("{body}&key_fields=x&key_fields.a=1"), Some("key_fields"), "as a whole"),
        ("", format!("{body}{many}"), None, "more than 200 fields"),
        ("", format!("{body}{named}"), Some(&*format!("{}…", "n".repeat(64))), "300 bytes; at most 256"),
        ("", format!("{body}&ttl=600"), Some("ttl"), "no unit"),
        ("", format!("{body}&tll=10m"), Some("tll"), "did you mean `ttl`?"),
    ] {
        let kind = "application/x-www-form-urlencoded";
        let post =
            gate.api.request(Method::POST, &format!("/v1/claims?{query}")).header("content-type", kind);
        let problem = send(post.body(body)).await.problem(422, "invalid_field");
        assert_eq!(problem.get("field").and_then(Value::as_str), field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        assert_eq!(rows(&gate)["claims"] + rows(&gate)["automations"], 0);
    }
    for path in ["/v1/claims?state=done&state=none", "/v1/claims?limit=%ff", "/v1/audit?cursor=5%"] {
        gate.api.get(path).await.problem(422, "invalid_field");
    }
    let problem = gate.api.get("/v1/claims?sate=done").await.problem(422, "invalid_field");
    assert!(problem["detail"].as_str().unwrap().contains("did you mean `state`?"), "{problem}");
}

//! What each platform makes of one submission: numbers as text, empty text or nothing for what is missing, lists.

use reqwest::Method;
use serde_json::{Value, json};

use super::gate;
use crate::harness::{Gate, Receiver, Said, query, send};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const KEY: &str = "form=contact-form:submission=8812";

async fn claim(gate: &Gate, kind: &str, body: &str) -> Said {
    let post = gate.api.request(Method::POST, "/v1/claims").header("content-type", kind);
    send(post.body(body.to_owned())).await
}

#[tokio::test]
async fn c81_one_submission_is_one_key_whichever_platform_sends_it() {
    let gate = gate(&Receiver::start().await).await;
    let head = [("automation", "welcome mail")];
    let form = |rest: &[(&str, &str)]| query(&[&head[..], rest].concat());
    let json = |rest: Value| {
        let mut body = json!({ "automation": "welcome mail" });
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body.to_string()
    };
    let shapes = [
        // Zapier, payload type Form: all is text, what has no value is empty.
        (
            FORM,
            form(&[
                ("key_fields[form]", "contact-form"),
                ("key_fields[submission]", "8812"),
                ("record", ""),
                ("payload", ""),
                ("run_url", ""),
                ("wait", ""),
            ]),
        ),
        (FORM, form(&[("key_fields__form", "contact-form"), ("key_fields__submission", "8812")])),
        // Zapier, payload type JSON: unflattened, and as it stands in the step.
        (
            JSON,
            json(json!({ "key_fields": { "form": "contact-form", "submission": "8812" }, "run_url": "" })),
        ),
        (JSON, json(json!({ "key_fields__form": "contact-form", "key_fields__submission": "8812" }))),
        (JSON, json(json!({ "key_fields.form": "contact-form", "key_fields[submission]": 8812 }))),
        (
            JSON,
            json(
                json!({ "key_fields": null, "key_fields.form": "contact-form", "key_fields.submission": 8812 }),
            ),
        ),
        (JSON, json(json!({ "key_fields": { "form": "contact-form" }, "key_fields.submission": "8812" }))),
        // Make: a number where the module before gave one, and null for what is empty there.
        (FORM, form(&[("key_fields.form", "contact-form"), ("key_fields.submission", "8812")])),
        (JSON, json(json!({ "key_fields": { "form": "contact-form", "submission": 8812 }, "record": null }))),
        // n8n: what is undefined is left out of the JSON.
        (
            JSON,
            json(json!({ "key_fields": { "submission": 8812, "form": "contact-form" }, "run_id": "77:0" })),
        ),
    ];
    for (n, (kind, body)) in shapes.iter().enumerate() {
        let said = claim(&gate, kind, body).await.ok();
        assert_eq!(said["idempotency_key"], KEY, "{body}");
        // Filters compare text.
        let (decision, reason) = if n == 0 { ("run", "first") } else { ("stop", "in_progress") };
        assert_eq!((&said["decision"], &said["reason"]), (&json!(decision), &json!(reason)), "{body}");
        assert_eq!(said["done_url"].is_string(), n == 0, "{said}");
    }
    assert_eq!(gate.api.list("").await.len(), 1);
    // A batch reads its items so, too.
    let item = json!({ "automation": "welcome mail", "key_fields__form": "contact-form", "key_fields__submission": "8812" });
    let said = gate.api.post("/v1/claims/batch", &json!({ "claims": [item] })).await.ok();
    assert_eq!(said["results"][0]["reason"], "in_progress", "{said}");
}

#[tokio::test]
async fn c75_a_submission_whose_id_is_missing_is_refused_and_takes_no_key() {
    let gate = gate(&Receiver::start().await).await;
    let json = |key: Value| json!({ "automation": "welcome mail", "key_fields": key }).to_string();
    let fields = |submission: Value| json(json!({ "form": "contact-form", "submission": submission }));
    let form = |submission: &str| {
        query(&[
            ("automation", "welcome mail"),
            ("key_fields.form", "contact-form"),
            ("key_fields.submission", submission),
        ])
    };
    let bare = |key: &str| json!({ "automation": "welcome again", "idempotency_key": key }).to_string();
    let (submission, key) = ("key_fields.submission", "idempotency_key");
    for (platform, kind, body, field, says) in [
        ("Zapier", FORM, form(""), submission, "missing or blank"),
        (
            "Zapier, an unmapped field",
            FORM,
            "automation=welcome+mail&key_fields.form=contact-form".to_owned(),
            submission,
            "missing or blank",
        ),
        ("Zapier, nothing mapped", FORM, "automation=welcome+mail".to_owned(), key, "missing or blank"),
        ("Zapier, typed and not mapped", FORM, form("{{187__id}}"), submission, "`{{187__id}}`"),
        ("Zapier, line items", JSON, fields(json!(["8812", "8813"])), submission, "not a list"),
        ("Make, null", JSON, fields(Value::Null), submission, "missing or blank"),
        ("Make, blanks", FORM, form(" \u{a0}"), submission, "missing or blank"),
        (
            "n8n, undefined left out",
            JSON,
            json(json!({ "form": "contact-form" })),
            submission,
            "missing or blank",
        ),
        ("n8n, undefined in a text", JSON, fields(json!("undefined")), submission, "`undefined`"),
        ("n8n, an object in a text", JSON, fields(json!("[object Object]")), submission, "`[object Object]`"),
        (
            "n8n, no expression",
            JSON,
            fields(json!("{{ $json.body.id }}")),
            submission,
            "`{{ $json.body.id }}`",
        ),
        ("Apps Script, a named value", JSON, fields(json!(["ann@example.com"])), submission, "not a list"),
        ("Apps Script, a date", FORM, form("NaN"), submission, "`NaN`"),
        ("HubSpot, an empty property", JSON, fields(json!("")), submission, "missing or blank"),
        ("HubSpot, null in a text", JSON, fields(json!("null")), submission, "`null`"),
        ("another field", FORM, form("8812") + "&key_fields.time=now", "key_fields.time", "is no key field"),
        (
            "a group and its member",
            JSON,
            json!({ "automation": "welcome mail", "key_fields": "x", "key_fields.form": 1 }).to_string(),
            "key_fields",
            "by its members",
        ),
        (
            "a member twice",
            JSON,
            json!({ "automation": "welcome mail", "key_fields.form": 1, "key_fields__form": 2 }).to_string(),
            "key_fields__form",
            "twice",
        ),
        // Those who put a key together themselves.
        ("Zapier and Make, joined", JSON, bare("contact-form:"), key, "begins or ends with `:`"),
        ("joined the other way", JSON, bare(":contact-form"), key, "begins or ends with `:`"),
        ("n8n, joined", JSON, bare("contact-form:undefined"), key, "`undefined`"),
        ("Apps Script, joined", JSON, bare("null:8812"), key, "`null`"),
        ("Make, typed and not mapped", JSON, bare("contact-form:{{1.id}}"), key, "`contact-form:{{1.id}}`"),
    ] {
        let problem = claim(&gate, kind, &body).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{platform}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{platform}: {problem}");
    }
    assert!(gate.api.list("").await.is_empty());
    for key in ["arn:aws:s3:::bucket", "undefined-behaviour", "a:nullable"] {
        gate.api.claim("welcome again", key).await.is("run first");
    }
}

#[tokio::test]
async fn one_submission_with_two_payloads_runs_once_and_is_shown() {
    let gate = gate(&Receiver::start().await).await;
    let payload = |payload: Value| {
        let key = json!({ "form": "contact-form", "submission": 8812 });
        json!({ "automation": "welcome mail", "key_fields": key, "payload": payload }).to_string()
    };
    let pairs = query(&[
        ("automation", "welcome mail"),
        ("key_fields.form", "contact-form"),
        ("key_fields.submission", "8812"),
        ("payload.courses", "Rust,SQL"),
        ("payload[note]", ""),
    ]);
    for (kind, body, words) in [
        (FORM, pairs.clone(), "run first"),
        // The same pairs as JSON.
        (JSON, payload(json!({ "courses": "Rust,SQL", "note": "" })), "stop in_progress"),
        (FORM, pairs, "stop in_progress"),
        // Line items as a list; what is empty left out.
        (JSON, payload(json!({ "courses": ["Rust", "SQL"], "note": "" })), "stop payload_mismatch"),
        (JSON, payload(json!({ "courses": "Rust,SQL" })), "stop payload_mismatch"),
    ] {
        let said = claim(&gate, kind, &body).await.ok();
        assert_eq!(
            format!("{} {}", said["decision"].as_str().unwrap(), said["reason"].as_str().unwrap()),
            words,
            "{body}"
        );
    }
    assert_eq!(gate.api.keys_in("mismatch").await, [KEY]);
}

#[tokio::test]
async fn how_it_went_is_understood_whatever_a_platform_sends_along() {
    let gate = gate(&Receiver::start().await).await;
    for (n, (kind, body)) in [
        (None, ""),
        (Some(JSON), ""),
        (Some(JSON), "{}"),
        (Some(FORM), ""),
        (Some(FORM), "="),
        (Some("text/plain"), "null"),
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = gate.api.claim("welcome again", &format!("done {n}")).await;
        let mut post = gate.api.bare(Method::POST, claimed.done_url.as_deref().unwrap()).body(body);
        if let Some(kind) = kind {
            post = post.header("content-type", kind);
        }
        assert_eq!(send(post).await.ok()["processing_state"], "done", "{kind:?} {body}");
    }
    let note = "add to CRM: it said \"500\" & 100 %";
    for (n, (kind, body)) in [
        (FORM, query(&[("note", note)])),
        (JSON, json!({ "note": note }).to_string()),
        (JSON, json!({ "note": note, "retryable": "" }).to_string()),
        (FORM, query(&[("note", note), ("retryable", "no"), ("token", "")])),
        // As it stands, of a tool that encodes nothing.
        (FORM, "note=add to CRM: it said \"500\" %26 100 %".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = gate.api.claim("welcome again", &format!("error {n}")).await;
        let post = gate.api.bare(Method::POST, claimed.error_url.as_deref().unwrap());
        let said = send(post.header("content-type", kind).body(body.clone())).await.ok();
        assert_eq!((&said["processing_state"], &said["inbox"]), (&json!("error"), &json!("error")), "{body}");
        assert_eq!((&said["note"], &said["due_at"]), (&json!(note), &Value::Null), "{body}");
    }
}

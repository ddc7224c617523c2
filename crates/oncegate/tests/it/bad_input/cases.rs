//! The recorded cases of bad input.

use std::path::Path;

use oncegate::config;
use reqwest::Method;
use serde_json::{Value, json};

use super::rows;
use crate::harness::{Gate, Setup, Signed, Vars, send};

/// The TTLs of the case, and what a refusal says; `None` is taken.
fn ttls() -> [(Value, Option<&'static str>); 16] {
    let unit = Some("no unit; write e.g. `10m`");
    let form = Some("is not a duration; write a whole number and a unit");
    let range = Some("is outside 5m to 30m");
    [
        (json!(-1), form),
        (json!(0), unit),
        (json!(300_000), unit),
        (json!(600), unit),
        (json!("600"), unit),
        (json!("10m"), None),
        (json!("600s"), None),
        (json!("5m"), None),
        (json!("30m"), None),
        (json!("4m"), range),
        (json!("31m"), range),
        (json!("0s"), range),
        (json!("PT10M"), form),
        (json!("-10m"), form),
        (json!("600000ms"), form),
        (json!("99999999999999999999m"), form),
    ]
}

#[test]
fn c35_a_declared_ttl_is_a_number_with_a_unit_within_its_range() {
    let read = |yaml: &str| {
        let read = config::parse(yaml, Path::new("oncegate.yaml"), &Vars([].into()));
        read.map(|config| config.automations.values().next().unwrap().policy.ttl).map_err(|e| e.to_string())
    };
    for (ttl, refused) in ttls() {
        for written in [ttl.to_string(), ttl.to_string().replace('"', "")] {
            let read = read(&format!("automations:\n  a:\n    ttl: {written}\n"));
            match refused {
                None => assert!(read.is_ok(), "{written}: {read:?}"),
                Some(says) => {
                    let told = read.expect_err(&written);
                    assert!(
                        told.starts_with("oncegate.yaml:3:10: ") && told.contains(says),
                        "{written}: {told}"
                    );
                }
            }
        }
    }
    let of = |text: &str| read(&format!("automations: {{ a: {{ ttl: {text} }} }}")).unwrap();
    assert_eq!(of("10m"), of("600s"));
    // On purpose, outside the usual range; never without an end.
    for (ttl, ok) in
        [("4m", true), ("31m", true), ("24h", true), ("25h", false), ("0s", false), ("-1", false)]
    {
        let read = read(&format!("automations: {{ a: {{ ttl: {ttl}, ttl_override: true }} }}"));
        assert_eq!(read.is_ok(), ok, "{ttl}: {read:?}");
    }
    let told = read("automations: { a: { ttl: 31m } }").unwrap_err();
    assert!(told.contains("ttl_override: true"), "{told}");
}

#[tokio::test]
async fn c35_a_claims_own_ttl_follows_the_same_rule() {
    let gate = Setup::alone("").start().await;
    for (n, (ttl, refused)) in ttls().into_iter().enumerate() {
        let before = rows(&gate);
        let claim = json!({ "automation": format!("a{n}"), "idempotency_key": "k", "ttl": ttl });
        let said = gate.api.post("/v1/claims", &claim).await;
        match refused {
            None => assert_eq!(said.ok()["decision"], "run", "{ttl}"),
            Some(says) => {
                let problem = said.problem(422, "invalid_field");
                assert_eq!(problem["field"], "ttl", "{problem}");
                assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
                assert_eq!(rows(&gate), before, "{ttl}");
            }
        }
    }
}

#[test]
fn a_configuration_has_a_depth_and_no_aliases_that_explode() {
    let read = |yaml: &str| config::parse(yaml, Path::new("oncegate.yaml"), &Vars([].into()));
    let step = |json: &str| {
        format!(
            "automations: {{ a: {{ steps: [{{ name: s, http: {{ url: 'https://a.example/', json: {json} }} }}] }} }}"
        )
    };
    let nested = |open: &str, close: &str, depth: usize| {
        step(&format!("{}1{}", open.repeat(depth), close.repeat(depth)))
    };
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("{ a: [", "] }")] {
        read(&nested(open, close, 10)).unwrap();
        for depth in [100, 10_000] {
            let told = read(&nested(open, close, depth)).unwrap_err().to_string();
            assert!(
                told.starts_with("oncegate.yaml:1:") && told.contains("nested deeper than 32 levels"),
                "{told}"
            );
        }
    }
    let mut bomb = "x0: &x0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for n in 1..12 {
        bomb += &format!("x{n}: &x{n} [{}]\n", vec![format!("*x{}", n - 1); 10].join(","));
    }
    read(&bomb).unwrap_err();
}

/// Four events of one person that differ in one key field; the first does not have it.
fn courses() -> [Value; 4] {
    let event = |course: &Value| json!({ "form_id": "f", "email": "ana@example.com", "course": course });
    let mut without = event(&Value::Null);
    without.as_object_mut().unwrap().remove("course");
    [without, event(&json!("x")), event(&json!("")), event(&Value::Null)]
}

#[tokio::test]
async fn c45_a_missing_key_field_matches_nothing_in_either_order() {
    let mut runs = vec![];
    for backwards in [false, true] {
        let gate = Setup::alone("").start().await;
        let mut order: Vec<(usize, Value)> = courses().into_iter().enumerate().collect();
        if backwards {
            order.reverse();
        }
        let mut ran = vec![];
        for (n, fields) in order {
            let claim = json!({ "automation": "enrol", "key_fields": fields });
            let said = gate.api.post("/v1/claims", &claim).await;
            // Empty and null name nothing; without the field it is another, shorter key.
            if n >= 2 {
                assert_eq!(said.problem(422, "invalid_field")["field"], "key_fields.course");
            } else {
                let said = said.ok();
                assert_eq!(said["decision"], "run", "{said}");
                ran.push(said["idempotency_key"].as_str().unwrap().to_owned());
            }
        }
        ran.sort();
        runs.push(ran);
        assert_eq!(rows(&gate)["claims"], 2);
    }
    assert_eq!(runs[0], ["course=x:email=ana@example.com:form_id=f", "email=ana@example.com:form_id=f"]);
    assert_eq!(runs[0], runs[1]);
}

/// A source whose key has three fields; nobody listens at port 9, so that nothing comes about.
const ENROL: &str = "
outgoing: { allow_private: ['127.0.0.1:9'] }
automations:
  enrol: { steps: [{ name: send, http: { url: 'http://127.0.0.1:9/' }, repeat: by_key }] }
sources:
  orders: { provider: hmac, automation: enrol, secret: env:ORDERS, hmac: { header: X-Signature }, key: [form_id, email, course] }
";

#[tokio::test]
async fn c45_a_source_that_needs_a_field_shows_the_events_without_it() {
    for backwards in [false, true] {
        let gate = Setup::alone(ENROL).start().await;
        let mut order = courses().to_vec();
        if backwards {
            order.reverse();
        }
        for event in order {
            let status = gate.api.order(&event).await.ok()["status"].clone();
            let accepted = if event["course"] == "x" { "accepted" } else { "stored, not run: no identity" };
            assert_eq!(status, accepted, "{event}");
        }
        let keys: Vec<Value> = gate.api.list("").await.iter().map(|c| c["idempotency_key"].clone()).collect();
        assert_eq!(keys, ["f:ana@example.com:x"]);
        let mut reasons: Vec<String> =
            gate.api.rejected().await.iter().map(|r| r["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        let words = ["blank", "missing", "null"];
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(
            reasons.iter().zip(words).all(|(r, word)| r.contains("`course`") && r.contains(word)),
            "{reasons:?}"
        );
    }
}

async fn refused(gate: &Gate, kind: &str, body: &[u8]) -> Value {
    let post = gate.api.request(Method::POST, "/v1/claims").header("content-type", kind);
    send(post.body(body.to_vec())).await.problem(422, "invalid_field")
}

#[tokio::test]
async fn c103_control_characters_and_broken_text_name_nothing() {
    let gate = Setup::alone("").start().await;
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    for (kind, body, says) in [
        (json, &br#"{"automation":"a","idempotency_key":"a\u0000b"}"#[..], "U+0000"),
        (json, br#"{"automation":"a","idempotency_key":"a\r\nSet-Cookie: x"}"#, "U+000D"),
        (json, br#"{"automation":"a","idempotency_key":"a\u009b31m"}"#, "U+009B"),
        (json, br#"{"automation":"a","idempotency_key":" "}"#, "missing or blank"),
        (json, b"{\"automation\":\"a\",\"idempotency_key\":\"\xff\xfe\"}", "UTF-8"),
        (form, b"automation=a&idempotency_key=a%00b", "U+0000"),
        (form, b"automation=a&idempotency_key=a%0D%0ASet-Cookie:+x", "U+000D"),
        (form, b"automation=a&idempotency_key=%ff%fe", "UTF-8"),
        (form, b"automation=a&idempotency_key=\xff\xfe", "UTF-8"),
        (form, b"automation=a&idempotency_key=+", "missing or blank"),
    ] {
        let problem = refused(&gate, kind, body).await;
        assert_eq!(problem["field"], "idempotency_key", "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says) && !detail.contains(char::is_control), "{problem}");
    }
    assert_eq!(rows(&gate)["claims"] + rows(&gate)["automations"], 0);
    for key in ["../../x", "😀", "<script>", "%00", "' OR 1=1 --", "a b"] {
        assert_eq!(gate.api.claim("a", key).await.is("run first").idempotency_key, key);
        assert_eq!(gate.api.find("a", key).await.unwrap()["idempotency_key"], key);
    }
}

#[tokio::test]
async fn c103_a_note_is_cut_and_cleaned() {
    let gate = Setup::alone("").start().await;
    for (key, note) in [
        ("ansi", "\u{1b}[31mred\u{1b}[0m\u{0}\r\nSet-Cookie: x\u{9b}\u{202e}txt.exe\u{2028}".repeat(300)),
        ("long", "é".repeat(10_000)),
    ] {
        let claimed = gate.api.claim("a", key).await;
        gate.api.error(&claimed, &json!({ "note": note })).await.ok();
        let shown = gate.api.show(&claimed.claim_id).await;
        let kept = shown["note"].as_str().unwrap();
        assert!(kept.len() <= 2_000 && kept.len() > 1_990 && kept.ends_with('…'), "{} bytes", kept.len());
        let all = shown.to_string();
        let odd = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}'];
        assert!(!all.contains(odd) && !all.contains("\\u00") && !all.contains("\\n"), "{all}");
    }
}

#[tokio::test]
async fn a_webhook_that_says_two_things_is_shown_and_not_run() {
    let gate = Setup::alone(ENROL).start().await;
    let body = r#"{"form_id":"f","email":"a@example.com","course":"x","amount":1,"amount":2}"#;
    let said = gate.api.deliver("orders", &Signed::hmac("orders-secret", body)).await.ok();
    assert_eq!(said["status"], "stored, not run: no identity");
    assert!(gate.api.list("").await.is_empty());
    let row = gate.api.rejected().await.remove(0);
    assert!(row["reason"].as_str().unwrap().contains("`amount` twice with different values"), "{row}");
    assert_eq!(gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok()["body"], body);
    gate.api.release(&row["id"]).await.problem(422, "invalid_field");
    // Twice the same is once.
    let body = r#"{"form_id":"f","email":"a@example.com","course":"x","amount":1,"amount":1}"#;
    let said = gate.api.deliver("orders", &Signed::hmac("orders-secret", body)).await.ok();
    assert_eq!(said["status"], "accepted");
}

#[tokio::test]
async fn what_has_happened_is_written_down_however_odd_the_body() {
    let gate = Setup::alone("").start().await;
    let deep = format!("{{\"result\":{}}}", "[".repeat(10_000));
    for (key, body, result) in [
        ("garbage", &b"\x00\xff{{{"[..], Value::Null),
        ("deep", deep.as_bytes(), Value::Null),
        ("broken text", b"{\"result\":\"\xff\"}", Value::Null),
        ("twice", br#"{"result":1,"result":2}"#, json!(1)),
        ("unknown", br#"{"result":1,"resutl":2}"#, json!(1)),
    ] {
        let claimed = gate.api.claim("a", key).await;
        let done = gate.api.bare(Method::POST, claimed.done_url.as_deref().unwrap());
        let said = send(done.header("content-type", "application/json").body(body.to_vec())).await.ok();
        assert_eq!(said["processing_state"], "done", "{key}");
        assert_eq!(gate.api.show(&claimed.claim_id).await["result"], result, "{key}");
    }
}

//! What names an effect: fields and their rules, at every door.

use serde_json::{Value, json};

use crate::harness::{Gate, Hold, Receiver, Reply, Setup, Signed, eventually, mins, secs};

/// A source `orders` with this key, and what else is declared of it and its automation; each event writes once.
pub(super) fn forms(key: &str, of_source: &str, of_automation: &str) -> String {
    format!(
        "
automations:
  enrol:
    {of_automation}
    steps:
      - name: write
        http: {{ url: '$RECEIVER/write', json: {{ email: '{{{{ payload.email | text }}}}' }} }}
        repeat: by_key
sources:
  orders:
    provider: hmac
    automation: enrol
    secret: env:ORDERS
    hmac: {{ header: X-Signature }}
    key: {key}
    {of_source}
"
    )
}

pub(super) async fn runs(receiver: &Receiver, count: usize) -> Vec<Value> {
    let sent = receiver.got("/write", count).await;
    sent.iter().map(|r| serde_json::from_slice(&r.body).unwrap()).collect()
}

async fn keys(gate: &Gate) -> Vec<String> {
    let mut keys: Vec<String> =
        gate.api.list("").await.iter().map(|c| c["idempotency_key"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn c04_a_hook_that_is_registered_twice_runs_once_and_shows_it() {
    let receiver = Receiver::start().await;
    let of_source = "volatile: [event_id]\n    delivery_id: header:X-Delivery";
    let gate = Setup::new(&forms("[form_id, submission_id]", of_source, "ttl: 10m"), &receiver).start().await;
    let event = json!({ "form_id": "f_contact", "submission_id": "s_1001", "email": "ana@example.com" });
    let deliver = async |body: &Value, id: &str| {
        let mut signed = Signed::order(body);
        signed.headers.push(("X-Delivery".into(), id.into()));
        gate.api.deliver("orders", &signed).await.ok()
    };
    for id in ["d-1", "d-2", "d-3", "d-4"] {
        deliver(&event, id).await;
    }
    let mut fifth = event.clone();
    fifth["event_id"] = "evt_9".into();
    assert_eq!(deliver(&fifth, "d-4").await["status"], "already accepted");
    runs(&receiver, 1).await;
    let shown = gate.api.find("enrol", "f_contact:s_1001").await.unwrap();
    let ids: Vec<&str> =
        shown["deliveries"].as_array().unwrap().iter().map(|d| d["delivery_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["d-4", "d-4", "d-3", "d-2", "d-1"]);
    let hint = shown["hint"].as_str().unwrap();
    assert!(hint.contains("under 4 delivery ids: this source may be subscribed more than once"), "{hint}");
    // A sender that only tries again has one id.
    let other = json!({ "form_id": "f_contact", "submission_id": "s_1002", "email": "ana@example.com" });
    for _ in 0..2 {
        deliver(&other, "d-9").await;
    }
    assert_eq!(gate.api.find("enrol", "f_contact:s_1002").await.unwrap()["hint"], Value::Null);
    runs(&receiver, 2).await;
    gate.advance(mins(5)).await;
    assert_eq!(receiver.to("/write").len(), 2);
}

#[tokio::test]
async fn c10_blank_ghosts_take_no_key_and_are_one_row() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&forms("[form_id, submission_id, email]", "", "ttl: 10m"), &receiver).start().await;
    gate.api
        .order(&json!({ "form_id": "f_g", "submission_id": "s_1", "email": "ana@example.com" }))
        .await
        .ok();
    gate.advance(secs(3)).await;
    for _ in 0..51 {
        let ghost = json!({ "form_id": "f_g", "submission_id": "", "email": "" });
        assert_eq!(gate.api.order(&ghost).await.ok()["status"], "stored, not run: no identity");
    }
    runs(&receiver, 1).await;
    assert_eq!(keys(&gate).await, ["f_g:s_1:ana@example.com"]);
    let rejected = gate.api.rejected().await;
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0]["repeats"], 50, "51 in all");
    assert!(rejected[0]["reason"].as_str().unwrap().contains("`submission_id` is blank"));
    let blank = json!({ "automation": "enrol", "key_fields": { "form_id": "f_g", "submission_id": "" } });
    assert_eq!(
        gate.api.post("/v1/claims", &blank).await.problem(422, "invalid_field")["field"],
        "key_fields.submission_id"
    );
}

#[tokio::test]
async fn c11_white_space_inside_counts_unless_the_field_says_otherwise() {
    for (note, count) in [("{ field: note, as: collapse_ws }", 1), ("note", 2)] {
        let receiver = Receiver::start().await;
        let key = format!("[form_id, email, {note}]");
        let gate = Setup::new(&forms(&key, "", "on_mismatch: ignore"), &receiver).start().await;
        for note in ["call  me", "call\nme"] {
            gate.api.order(&json!({ "form_id": "f", "email": "ana@example.com", "note": note })).await.ok();
        }
        runs(&receiver, count).await;
        gate.advance(mins(5)).await;
        assert_eq!(receiver.to("/write").len(), count, "{note}");
        assert_eq!(gate.api.rejected().await.len(), 0);
    }
    // The same two at the gate's own door.
    let gate = Setup::alone("automations: { enrol: { key_fields: { note: collapse_ws } } }").start().await;
    let claim = |note: &str| json!({ "automation": "enrol", "key_fields": { "note": note } });
    gate.api.claim_with(&claim("call  me")).await.is("run first");
    gate.api.claim_with(&claim("call\nme")).await.is("stop in_progress");
    let plain = |note: &str| json!({ "automation": "plain", "key_fields": { "note": note } });
    gate.api.claim_with(&plain("call  me")).await.is("run first");
    gate.api.claim_with(&plain("call\nme")).await.is("run first");
}

#[tokio::test]
async fn c13_a_partial_page_never_takes_the_key_of_the_whole_form() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&forms("[event_type, submission_id]", "", "ttl: 10m"), &receiver).start().await;
    let partial =
        json!({ "event_type": "form_response_partial", "submission_id": "s_77", "email": "ana@example.com" });
    gate.api.order(&partial).await.ok();
    gate.advance(mins(4)).await;
    let whole = json!({ "event_type": "form_response", "submission_id": "s_77", "email": "ana@example.com",
        "company": "Acme", "phone": "200" });
    assert_eq!(gate.api.order(&whole).await.ok()["status"], "accepted");
    runs(&receiver, 2).await;
    assert_eq!(keys(&gate).await, ["form_response:s_77", "form_response_partial:s_77"]);
    assert_eq!(gate.api.inbox().await["mismatch"], 0);
}

#[tokio::test]
async fn c14_two_submissions_of_one_person_are_served_one_after_the_other() {
    let receiver = Receiver::start().await;
    let yaml = "
automations:
  lead:
    record: 'contact:{{ payload.email | email }}'
    steps:
      - { name: look, http: { url: '$RECEIVER/look' }, repeat: by_key }
      - name: write
        http: { url: \"$RECEIVER/{{ 'update' if steps.look.json.found else 'create' }}\" }
        repeat: by_key
sources:
  orders: { provider: hmac, automation: lead, secret: env:ORDERS, hmac: { header: X-Signature }, key: [id] }
";
    // The CRM knows nobody until somebody was created, and enforces nothing.
    let hold = Hold::new();
    let unknown = Reply::Held(hold.clone(), Box::new(Reply::json(&json!({ "found": false }))));
    receiver.script("/look", [unknown, Reply::json(&json!({ "found": true }))]);
    let gate = Setup::new(yaml, &receiver).start().await;
    gate.api.order(&json!({ "id": "s_4001", "email": "lee@example.com" })).await.ok();
    gate.api.order(&json!({ "id": "s_4002", "email": "Lee@Example.COM\u{a0}" })).await.ok();
    receiver.got("/look", 1).await;
    gate.advance(secs(30)).await;
    assert_eq!(receiver.requests().len(), 1, "the second waits for the first, whatever the spelling");
    hold.let_go();
    receiver.got("/create", 1).await;
    // At once: nobody has to come by and look.
    receiver.got("/update", 1).await;
    assert_eq!((receiver.to("/look").len(), receiver.to("/create").len()), (2, 1));
    eventually("both are done", async || (gate.api.list("state=done").await.len() == 2).then_some(())).await;
    let records: Vec<Value> = gate.api.list("").await.iter().map(|c| c["record"].clone()).collect();
    assert_eq!(records, ["contact:lee@example.com", "contact:lee@example.com"]);
}

#[tokio::test]
async fn c45_optional_fields_make_as_many_effects_in_either_order() {
    let events = || {
        let event = |course: Value| json!({ "form_id": "f", "email": "ana@example.com", "course": course });
        let mut without = event(Value::Null);
        without.as_object_mut().unwrap().remove("course");
        vec![without, event(json!("x")), event(json!("")), event(Value::Null)]
    };
    let mut found = vec![];
    for backwards in [false, true] {
        let receiver = Receiver::start().await;
        let key = "[form_id, email, { field: course, optional: true }]";
        let gate = Setup::new(&forms(key, "", "ttl: 10m"), &receiver).start().await;
        let mut order = events();
        if backwards {
            order.reverse();
        }
        for event in order.iter().chain(&order) {
            gate.api.order(event).await.ok();
        }
        runs(&receiver, 4).await;
        found.push(keys(&gate).await);
        // The same at the other door: by name.
        let yaml = "automations: { enrol: { key_fields: { form_id: opaque, email: email, \
            course: { as: text, optional: true } } } }";
        let gate = Setup::alone(yaml).start().await;
        for event in &order {
            gate.api.claim_with(&json!({ "automation": "enrol", "key_fields": event })).await.is("run first");
        }
        found.push(keys(&gate).await);
    }
    assert_eq!((&found[0], &found[1]), (&found[2], &found[3]));
    let of = |kind: &str| format!(r"f:ana@example.com:\({kind})");
    assert_eq!(found[0], [of("blank"), of("missing"), of("null"), "f:ana@example.com:x".to_owned()]);
    assert_eq!(found[1][1], r"course=\(missing):email=ana@example.com:form_id=f");
}

#[tokio::test]
async fn c53_one_key_with_two_requests_runs_once_and_is_listed_as_used_again() {
    let gate = Setup::alone("").start().await;
    let claim = |amount: u32| json!({ "automation": "charge", "idempotency_key": "k-9", "payload": { "amount": amount } });
    let first = gate.api.claim_with(&claim(10)).await;
    gate.api.done_with(&first, &json!({ "result": { "id": "ch_1" } })).await.ok();
    let other = gate.api.claim_with(&claim(12)).await;
    assert_eq!(other.is("stop payload_mismatch").result, Value::Null, "nothing of the first is told");
    assert_eq!(gate.api.claim_with(&claim(10)).await.is("stop duplicate").result["id"], "ch_1");
    assert_eq!(gate.api.keys_in("mismatch").await, ["k-9"]);
}

#[tokio::test]
async fn c75_without_an_id_nobody_shares_a_key() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&forms("[$.submission_id]", "", "ttl: 10m"), &receiver).start().await;
    for fields in [
        json!({ "form_id": "f", "email": "ana@example.com" }),
        json!({ "form_id": "f", "submission_id": null }),
        json!({ "form_id": "f", "submission_id": "  " }),
        json!({ "form_id": "f", "submission_id": [] }),
    ] {
        assert_eq!(gate.api.order(&fields).await.ok()["status"], "stored, not run: no identity", "{fields}");
    }
    let rejected = gate.api.rejected().await;
    assert_eq!(rejected.len(), 4, "each is listed");
    assert!(
        rejected.iter().all(|r| r["reason"].as_str().unwrap().contains("`submission_id`")),
        "{rejected:?}"
    );
    assert!(keys(&gate).await.is_empty());
    let declared = "automations: { enrol: { key_fields: { submission_id: opaque } } }";
    let gate = Setup::alone(declared).start().await;
    for sent in [
        json!({}),
        json!({ "submission_id": null }),
        json!({ "submission_id": "  " }),
        json!({ "submission_id": [] }),
    ] {
        let said = gate.api.post("/v1/claims", &json!({ "automation": "enrol", "key_fields": sent })).await;
        let field = said.problem(422, "invalid_field")["field"].as_str().unwrap().to_owned();
        assert!(field.starts_with("key_fields"), "{field}");
    }
    let misspelt = json!({ "automation": "enrol", "key_fields": { "submission_id": "1", "submision": "1" } });
    let told = gate.api.post("/v1/claims", &misspelt).await.problem(422, "invalid_field");
    assert!(told["detail"].as_str().unwrap().contains("It declares submission_id"), "{told}");
}

/// What one person typed, in spellings that must be one, and others that must not.
#[tokio::test]
async fn c76_c77_c79_c80_an_address_is_one_key_at_every_door_and_is_sent_as_it_was_typed() {
    let email = "{ field: email, as: email, fold_tags: [gmail.com] }";
    let groups: [&[&str]; 8] = [
        &["INFO@EXAMPLE.COM", "info@example.com", "Info@Example.Com", " info@example.com\u{200b}\u{a0}\r"],
        &["İPEK@example.com"],
        &["ipek@example.com", "IPEK@example.com"],
        &["zo\u{eb}@example.com", "zoe\u{308}@example.com"],
        &["a@bücher.example", "a@xn--bcher-kva.example"],
        &["ana+fair@example.com"],
        &["a.na@example.com"],
        &["ana+x@gmail.com", "ana@gmail.com"],
    ];
    let receiver = Receiver::start().await;
    let of_automation =
        "on_mismatch: ignore\n    key_fields: { email: { as: email, fold_tags: [gmail.com] } }";
    let gate = Setup::new(&forms(&format!("[{email}]"), "", of_automation), &receiver).start().await;
    let mut typed = vec![];
    for group in groups {
        for spelling in group {
            gate.api.order(&json!({ "email": spelling })).await.ok();
        }
        typed.push(group[0].trim_matches(['\u{200b}', '\u{a0}', '\r', ' ']));
    }
    let mut sent: Vec<String> =
        runs(&receiver, groups.len()).await.iter().map(|b| b["email"].as_str().unwrap().to_owned()).collect();
    sent.sort();
    typed.sort();
    assert_eq!(sent, typed, "the first spelling, trimmed and not folded");
    let by_webhook = keys(&gate).await;
    assert_eq!(by_webhook.len(), groups.len());
    assert!(
        by_webhook.iter().any(|key| key.as_bytes().starts_with(&[0x69, 0xcc, 0x87, 0x70])),
        "{by_webhook:?}"
    );
    // At the gate's own door, in JSON and as a form: the same keys, each once.
    let mut by_call = vec![];
    for group in groups {
        let mut keys: Vec<String> = vec![];
        for spelling in group {
            let claim = json!({ "automation": "enrol", "key_fields": { "email": spelling } });
            keys.push(gate.api.claim_with(&claim).await.idempotency_key);
            let form = crate::harness::query(&[("automation", "enrol"), ("key_fields[email]", spelling)]);
            let said = gate.api.request(http::Method::POST, "/v1/claims").body(form);
            let said = said.header("content-type", "application/x-www-form-urlencoded");
            keys.push(crate::harness::send(said).await.ok()["idempotency_key"].as_str().unwrap().to_owned());
        }
        keys.dedup();
        assert_eq!(keys.len(), 1, "{group:?}: {keys:?}");
        by_call.push(keys[0].strip_prefix("email=").unwrap().to_owned());
    }
    by_call.sort();
    assert_eq!(by_call, by_webhook);
    gate.api.order(&json!({ "email": "mia @example.com" })).await.ok();
    assert!(
        gate.api.rejected().await[0]["reason"].as_str().unwrap().contains("blank or an invisible character")
    );
}

#[tokio::test]
async fn c81_a_number_and_its_digits_are_one_id_and_a_boolean_is_none() {
    let receiver = Receiver::start().await;
    let gate =
        Setup::new(&forms("[form_id, submission_id]", "", "on_mismatch: ignore"), &receiver).start().await;
    for (id, status) in [
        (json!(11497), "accepted"),
        (json!("11497"), "already accepted"),
        (json!("011497"), "accepted"),
        (json!(true), "stored, not run: no identity"),
    ] {
        let event = json!({ "form_id": "f", "submission_id": id });
        assert_eq!(gate.api.order(&event).await.ok()["status"], status, "{id}");
        let said = gate.api.post("/v1/claims", &json!({ "automation": "other", "key_fields": event })).await;
        match status {
            "accepted" => assert_eq!(said.ok()["decision"], "run", "{id}"),
            "already accepted" => assert_eq!(said.ok()["reason"], "in_progress", "{id}"),
            _ => assert_eq!(said.problem(422, "invalid_field")["field"], "key_fields.submission_id"),
        }
    }
    assert_eq!(
        gate.api.order(&json!({ "form_id": "f", "submission_id": "true" })).await.ok()["status"],
        "accepted"
    );
}

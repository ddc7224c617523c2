//! What came to a source lately, for whoever sets it up.

use serde_json::{Value, json};

use crate::harness::{Receiver, Setup, Signed, hours, secs};

const FORMS: &str = "
automations:
  welcome:
    steps: [{ name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }]
sources:
  forms:
    provider: zapier
    automation: welcome
    secret: env:SHOWN
    key: [form, id]
    delivery_id: header:X-Delivery
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";
const SHOWN: &str = "a-secret-that-is-long";

fn form(delivery: &str, body: &Value) -> Signed {
    let headers = [
        ("content-type", "application/json"),
        ("X-Shared-Secret", SHOWN),
        ("X-Delivery", delivery),
        ("X-Kind", "form"),
    ];
    Signed::with(&headers, body.to_string())
}

#[tokio::test]
async fn the_last_requests_of_a_source_are_kept_to_choose_its_key_by() {
    let receiver = Receiver::start().await;
    // Each node has its own memory: one is asked here.
    let mut gate = Setup::new(FORMS, &receiver).var("SHOWN", SHOWN).start().await;
    let api = gate.api.of_first_node();
    let source = async |name: &str| api.get(&format!("/v1/sources/{name}")).await.ok();
    let quiet = source("forms").await;
    assert_eq!((&quiet["signed"], &quiet["seen"]), (&json!(false), &json!({})));
    assert!(quiet["hints"][0].as_str().unwrap().contains("nothing came"), "{quiet}");
    assert!(quiet["address"].as_str().unwrap().ends_with("/in/forms"));

    api.deliver("forms", &form("d-1", &json!({ "form": "f", "id": 1 }))).await.ok();
    gate.advance_wall(secs(2));
    api.deliver("forms", &form("d-2", &json!({ "form": "f", "id": 1 }))).await.ok();
    gate.advance_wall(secs(2));
    api.deliver("forms", &form("d-3", &json!({ "form": "f", "id": "" }))).await.ok();
    gate.advance_wall(secs(2));
    let mut forged = form("d-4", &json!({ "form": "f", "id": 4 }));
    forged.headers[1].1 = "some-other-long-secret".to_owned();
    api.deliver("forms", &forged).await.problem(401, "invalid_signature");

    let told = source("forms").await;
    assert_eq!(told["seen"], json!({ "accepted": 1, "duplicate": 1, "rejected": 1, "unverified": 1 }));
    let hints = told["hints"].to_string();
    assert!(hints.contains("as d-1 and as d-2") && hints.contains("subscribed more than once"), "{hints}");
    assert!(hints.contains("1 event had no identity"), "{hints}");
    let came = told["deliveries"].as_array().unwrap();
    let verdicts: Vec<_> = came.iter().map(|sample| sample["verdicts"][0].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["unverified", "rejected", "duplicate", "accepted"]);
    assert_eq!(came[3]["body"], json!({ "form": "f", "id": 1 }).to_string());
    assert!(came[3]["headers"].as_array().unwrap().contains(&json!(["x-kind", "form"])), "{told}");
    assert!(!told.to_string().contains(SHOWN) && !told.to_string().contains("some-other-long"), "{told}");

    // Few, not many at a time, and not for ever.
    gate.advance_wall(secs(2));
    for n in 10..20 {
        api.deliver("forms", &form("d", &json!({ "form": "f", "id": n }))).await.ok();
    }
    assert_eq!(source("forms").await["deliveries"].as_array().unwrap().len(), 5, "one more in this second");
    gate.advance_wall(hours(25));
    let later = source("forms").await;
    assert_eq!((&later["deliveries"], &later["seen"]["accepted"]), (&json!([]), &json!(11)));

    let all = api.get("/v1/sources").await.ok();
    let names: Vec<_> =
        all["sources"].as_array().unwrap().iter().map(|row| row["source"].as_str().unwrap()).collect();
    assert_eq!(names, ["forms", "orders"]);
    api.get("/v1/sources/nobody").await.problem(404, "not_found");
    gate.restart().await;
    assert_eq!(gate.api.get("/v1/sources/forms").await.ok()["seen"], json!({}), "it was in memory");
}

#[tokio::test]
async fn who_is_forgotten_is_not_kept_in_memory() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(FORMS, &receiver).var("SHOWN", SHOWN).start().await;
    let api = gate.api.of_first_node();
    api.deliver("forms", &form("d-1", &json!({ "form": "f", "id": 1, "email": "ann@example.com" })))
        .await
        .ok();
    receiver.got("/send", 1).await;
    assert!(api.get("/v1/sources/forms").await.ok().to_string().contains("ann@example.com"));
    let forget = json!({ "match": { "email": "ann@example.com" }, "reason": "asked for it" });
    crate::harness::eventually("the claim is finished", async || {
        (api.post("/v1/forget", &forget).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(api.get("/v1/sources/forms").await.ok()["deliveries"], json!([]));
}

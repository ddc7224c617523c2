//! One server for many clients: no one sees another's, and each goes whole.

use super::*;
use crate::harness::{Signed, eventually};

#[tokio::test]
async fn c67_the_same_key_of_two_tenants_is_two_keys() {
    let gate = two().await;
    gate.api.post("/v1/workspaces", &json!({ "name": "birch" })).await.ok();
    let acme = acme(&gate).await;
    let birch = with_token(&gate, json!({ "name": "b", "role": "operator", "workspace": "birch" })).await;
    let ask =
        |payload: &str| json!({ "automation": "lead", "idempotency_key": "1", "payload": { "a": payload } });
    let ours = acme.claim_with(&ask("acme")).await;
    ours.is("run first");
    acme.done_with(&ours, &json!({ "result": { "secret": "of acme" } })).await.ok();
    // Neither a stop, nor a mismatch, nor a result tells that the key exists elsewhere.
    let theirs = birch.claim_with(&ask("birch")).await;
    theirs.is("run first");
    assert_eq!(theirs.result, json!(null));
    assert_ne!(theirs.claim_id, ours.claim_id);
    birch.claim_with(&ask("acme")).await.is("stop payload_mismatch");
    birch.done_with(&theirs, &json!({ "result": { "secret": "of birch" } })).await.ok();
    let again = acme.claim_with(&ask("acme")).await;
    assert_eq!(again.is("stop duplicate").result["secret"], "of acme");
    assert_eq!(birch.claim_with(&ask("birch")).await.result["secret"], "of birch");
}

#[tokio::test]
async fn ids_cursors_and_exports_of_one_workspace_open_nothing_in_another() {
    let gate = two().await;
    let acme = acme(&gate).await;
    for n in 0..3 {
        gate.api.claim("shared", &format!("ours-{n}")).await;
        acme.claim("shared", &format!("theirs-{n}")).await;
    }
    let page = gate.api.get("/v1/claims?limit=1").await.ok();
    let (cursor, id) =
        (page["next_cursor"].as_str().unwrap(), page["claims"][0]["claim_id"].as_str().unwrap());
    acme.get(&format!("/v1/claims?cursor={cursor}")).await.problem(422, "invalid_field");
    let refused = async |id: &str| {
        let mut problem = acme.get(&format!("/v1/claims/{id}")).await.problem(404, "not_found");
        problem["request_id"].take();
        problem
    };
    let (foreign, unknown) = (refused(id).await, refused(&"0".repeat(32)).await);
    assert_eq!(foreign, unknown, "that it exists elsewhere is not told");
    let known = acme.get("/v1/claims?automation=shared&idempotency_key=ours-0").await.ok();
    assert_eq!(known["claims"], json!([]));
    for path in ["/v1/workspaces/default/export", "/v1/workspaces/nowhere/export"] {
        acme.get(path).await.problem(404, "not_found");
    }
    let export = lines(&acme.get("/v1/workspaces/acme/export").await);
    let text = json!(export).to_string();
    assert!(text.contains("theirs-0") && !text.contains("ours-"), "{text}");
    get_in(&acme, "default", "/v1/claims").await.problem(403, "forbidden");
    let elsewhere = json!({ "name": "x", "role": "admin", "workspace": "default" });
    acme.post("/v1/tokens", &elsewhere).await.problem(404, "not_found");
    acme.get("/v1/workspaces").await.problem(403, "forbidden");
}

#[tokio::test]
async fn automations_and_sources_of_one_name_are_independent() {
    let gate = two().await;
    let acme = acme(&gate).await;
    let order = |n: u64| Signed::order(&json!({ "order": n }));
    gate.api.deliver("acme/orders", &order(1)).await.ok();
    gate.api.deliver("orders", &order(1)).await.problem(404, "unknown_source");
    gate.api.deliver("default/orders", &order(1)).await.problem(404, "unknown_source");
    gate.api.deliver("birch/orders", &order(1)).await.problem(404, "unknown_source");
    assert_eq!(acme.list("automation=shared").await.len(), 1);
    assert!(gate.api.list("").await.is_empty());
    acme.pause("shared").await.ok();
    acme.claim("shared", "k").await.is("stop paused");
    gate.api.claim("shared", "k").await.is("run first");
}

#[tokio::test]
async fn the_servers_admin_acts_in_any_workspace_and_its_people_see_who() {
    let gate = two().await;
    let acme = acme(&gate).await;
    acme.claim("shared", "k").await;
    let listed = get_in(&gate.api, "acme", "/v1/claims").await.ok();
    assert_eq!(listed["claims"][0]["idempotency_key"], "k");
    let pause =
        gate.api.request(Method::POST, "/v1/automations/shared/pause").header("oncegate-workspace", "acme");
    send(crate::harness::json_body(pause, &json!({ "reason": "asked by phone" }))).await.ok();
    assert_eq!(acme.last_act().await["actor"], "token:admin@default");
    get_in(&gate.api, "nowhere", "/v1/claims").await.problem(404, "not_found");
    let own = get_in(&gate.api, "acme", "/v1/tokens/self").await.ok();
    assert_eq!((&own["workspace"], &own["acts_in"]), (&json!("default"), &json!("acme")));
}

#[tokio::test]
async fn a_workspace_is_made_once_and_wrong_names_are_told() {
    let gate = two().await;
    let make = async |name: &str| gate.api.post("/v1/workspaces", &json!({ "name": name })).await;
    assert_eq!(make("birch").await.ok(), json!({ "name": "birch", "made": true }));
    assert_eq!(make("birch").await.ok()["made"], false);
    for name in ["", "Birch", "a b", "../x", &"x".repeat(65)] {
        assert_eq!(make(name).await.problem(422, "invalid_field")["field"], "name");
    }
    let all = gate.api.get("/v1/workspaces").await.ok();
    let names: Vec<_> = all["workspaces"].as_array().unwrap().iter().map(|w| w["name"].clone()).collect();
    assert_eq!(names, [json!("default"), json!("acme"), json!("birch")]);
}

#[tokio::test]
async fn an_export_has_everything_of_a_workspace_but_no_secret() {
    let gate = two().await;
    let acme = acme(&gate).await;
    gate.api.deliver("acme/orders", &Signed::order(&json!({ "order": 1 }))).await.ok();
    gate.api.deliver("acme/orders", &Signed::order(&json!({ "no": "identity" }))).await.ok();
    for n in 0..250 {
        acme.claim("lead", &n.to_string()).await;
    }
    let said = acme.get("/v1/workspaces/acme/export").await;
    let rows = lines(&said);
    let count = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!((count("workspace"), count("token"), count("claim"), count("delivery")), (1, 1, 251, 1));
    let end = rows.last().unwrap();
    assert_eq!((&end["kind"], &end["claims"], &end["deliveries"]), (&json!("end"), &json!(251), &json!(1)));
    let from_source =
        rows.iter().find(|row| row["automation"] == "shared" && row["kind"] == "claim").unwrap();
    assert_eq!(from_source["payload"]["order"], 1);
    assert!(from_source["deliveries"].as_array().is_some_and(|d| d.len() == 1));
    let text = said.body.as_str().unwrap();
    assert!(!text.contains("oga_") && !text.contains("ogt_") && !text.contains("hash"), "no secret is in it");
}

#[tokio::test]
async fn a_deleted_workspace_is_gone_with_its_tokens_at_once_and_its_data_soon() {
    let gate = two().await;
    gate.api.post("/v1/workspaces", &json!({ "name": "birch" })).await.ok();
    let birch = with_token(&gate, json!({ "name": "b", "role": "admin", "workspace": "birch" })).await;
    let held = birch.claim("lead", "1").await;
    let delete = async |name: &str, fields: Value| {
        gate.api.post(&format!("/v1/workspaces/{name}/delete"), &fields).await
    };
    delete("birch", json!({ "reason": "r" })).await.problem(422, "invalid_field");
    delete("birch", json!({ "reason": "r", "confirm": "acme" })).await.problem(422, "invalid_field");
    delete("default", json!({ "reason": "r", "confirm": "default" })).await.problem(422, "invalid_field");
    delete("nowhere", json!({ "reason": "r", "confirm": "nowhere" })).await.problem(404, "not_found");
    // Its senders would be refused until the next start made it again.
    delete("acme", json!({ "reason": "r", "confirm": "acme" })).await.problem(409, "still_declared");
    let live = delete("birch", json!({ "reason": "r", "confirm": "birch" })).await.problem(409, "still_live");
    assert_eq!(live["live"], 1);
    birch.get("/v1/inbox").await.ok();
    let said =
        delete("birch", json!({ "reason": "left", "confirm": "birch", "although_live": true })).await.ok();
    assert_eq!((&said["claims"], &said["tokens"]), (&json!(1), &json!(1)));
    birch.get("/v1/inbox").await.problem(401, "invalid_credentials");
    eventually("its claims go", async || (gate.api.done(&held).await.status == 404).then_some(())).await;
    let act = gate.api.last_act().await;
    assert_eq!((&act["action"], &act["subject"]), (&json!("workspace_deleted"), &json!("birch")));
    assert_eq!(
        (&act["reason"], &act["detail"]),
        (&json!("left"), &json!("1 claims, 0 deliveries, 1 tokens"))
    );
    // The name is free, and what it named is not known any more.
    assert_eq!(gate.api.post("/v1/workspaces", &json!({ "name": "birch" })).await.ok()["made"], true);
    let fresh = with_token(&gate, json!({ "name": "b", "role": "admin", "workspace": "birch" })).await;
    fresh.claim("lead", "1").await.is("run first");
    assert_eq!(fresh.audit().await.len(), 1, "only that its token was made");
}

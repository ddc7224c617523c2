//! Whoever hangs up while a call is written does not part what the store knows from what the server goes by.

use tokio::io::AsyncWriteExt;

use super::*;
use crate::harness::{ADMIN, Raw, eventually};

/// Posts, and hangs up while the store cannot write; it can again when the server has let go of the request.
async fn post_and_hang_up(gate: &Gate, path: &str, json: &Value) {
    let disk = gate.slow_disk();
    let body = json.to_string();
    let headers = format!(
        "authorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    let mut raw = Raw::post(gate, path, &headers).await;
    raw.send(body).await;
    // Reads go on meanwhile; after some of them the call stands before the store.
    for _ in 0..10 {
        gate.api.get("/v1/tokens").await.ok();
    }
    raw.0.shutdown().await.unwrap();
    raw.until_closed().await;
    drop(disk);
    // What was asked for before is written by now.
    gate.api.post("/v1/tokens", &json!({ "name": "later", "role": "viewer" })).await.ok();
}

#[tokio::test]
async fn a_token_is_ended_although_nobody_waits_to_hear_of_it() {
    let gate = two().await;
    let made = gate.api.post("/v1/tokens", &json!({ "name": "leaky", "role": "operator" })).await.ok();
    let leaky = Client::new(gate.api.base(), made["token"].as_str().unwrap());
    leaky.get("/v1/inbox").await.ok();
    let path = format!("/v1/tokens/{}/revoke", made["token_id"]);
    eventually("it is revoked", async || {
        post_and_hang_up(&gate, &path, &json!({ "reason": "stood in a public repository" })).await;
        let tokens = gate.api.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().clone();
        tokens.iter().any(|t| t["token_id"] == made["token_id"] && t["good"] == false).then_some(())
    })
    .await;
    eventually("it opens nothing", async || (leaky.get("/v1/inbox").await.status == 401).then_some(())).await;
}

#[tokio::test]
async fn the_tokens_of_a_deleted_workspace_open_nothing_although_nobody_waits_to_hear_of_it() {
    let gate = two().await;
    gate.api.post("/v1/workspaces", &json!({ "name": "gone" })).await.ok();
    let fields = json!({ "name": "theirs", "role": "admin", "workspace": "gone" });
    let theirs = with_token(&gate, fields).await;
    theirs.get("/v1/inbox").await.ok();
    eventually("it is deleted", async || {
        let fields = json!({ "confirm": "gone", "reason": "they left" });
        post_and_hang_up(&gate, "/v1/workspaces/gone/delete", &fields).await;
        let left = gate.api.get("/v1/workspaces").await.ok();
        (!left.to_string().contains("\"gone\"")).then_some(())
    })
    .await;
    eventually("they open nothing", async || (theirs.get("/v1/inbox").await.status == 401).then_some(()))
        .await;
}

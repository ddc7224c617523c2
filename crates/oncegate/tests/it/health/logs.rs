//! The log tells what happened, and not to whom.
#![expect(clippy::disallowed_methods, reason = "the program reads its configuration from a file")]

use reqwest::Method;
use serde_json::{Value, json};

use super::program::Program;
use crate::harness::{ADMIN, Receiver, Reply, Signed, eventually, query, send};

/// Stands wherever a person's data can stand.
const WHO: &str = "ann.private@example.com";
const SECRET: &str = "orders-secret";
/// As Slack's and Zapier's hooks have it: the path is the key.
const HOOK: &str = "/hooks/T0-secret-path";

const YAML: &str = "
outgoing: { allow_private: ['$HOST'] }
automations:
  welcome:
    steps:
      - { name: send, http: { url: '$RECEIVER/hooks/T0-secret-path', json: { to: '{{ payload.email }}' } }, repeat: never }
  broken:
    steps:
      - { name: send, http: { url: '$RECEIVER/x', json: { to: '{{ payload.email.nothing.here }}' } }, repeat: by_key }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [email] }
  more: { provider: hmac, automation: broken, secret: env:ORDERS, hmac: { header: X-Signature }, key: [email] }
";

/// Everything of ours, however loud.
const LOUD: &str = "warn,oncegate=trace,oncegate_core=trace,oncegate_store=trace,oncegate_runner=trace,oncegate_connect=trace";

async fn live_a_life(program: &Program, receiver: &Receiver) -> Vec<String> {
    let api = &program.api;
    let echo = json!({ "error": format!("{WHO} is not wanted here") }).to_string();
    receiver.always(HOOK, Reply::Status(422, vec![], echo));
    let claim = json!({
        "automation": "by hand", "idempotency_key": WHO, "record": format!("crm:{WHO}"), "run_id": WHO,
        "run_url": format!("https://zap.example/run?for={WHO}"), "payload": { "email": WHO },
    });
    let claimed = api.claim_with(&claim).await;
    api.claim_with(&claim).await;
    api.error(&claimed, &json!({ "note": format!("{WHO} bounced"), "retryable": false })).await.ok();
    api.act("reset", &claimed.claim_id, &json!({ "reason": format!("{WHO} asked"), "by": WHO })).await.ok();
    // In the address: a list's filter, a page that is not there, a form's field that is wrong.
    api.get(&format!("/v1/claims?{}", query(&[("automation", WHO), ("idempotency_key", WHO)]))).await;
    api.get(&format!("/{WHO}")).await.problem(404, "not_found");
    api.get(&format!("/v1/claims?{}", query(&[(WHO, WHO)]))).await;
    api.post("/v1/claims", &json!({ "automation": "a", "idempotency_key": format!("{WHO}\u{200b}") })).await;
    api.post("/v1/claims", &json!({ "automation": "a", "idempotency_key": "k", WHO: WHO })).await;
    let garbage = api.request(Method::POST, "/v1/claims").header("content-type", "application/json");
    send(garbage.body(format!("{{\"email\": \"{WHO}\""))).await;
    let id = api.bare(Method::GET, "/v1/inbox").header("x-request-id", WHO).bearer_auth(WHO);
    send(id).await.problem(401, "invalid_credentials");
    let again = api.claim_with(&claim).await;
    assert_eq!(api.press(again.done_url.as_deref()).await.status, 200);
    // Webhooks: a target that echoes, a template that fails, a wrong signature.
    api.order(&json!({ "email": WHO })).await.ok();
    api.order(&json!({ "email": [WHO] })).await.ok();
    api.deliver("more", &Signed::order(&json!({ "email": WHO }))).await.ok();
    let mut forged = Signed::order(&json!({ "email": WHO }));
    forged.body.push(b' ');
    api.deliver("orders", &forged).await.problem(401, "invalid_signature");
    let unsigned = Signed::with(&[("x-signature", WHO)], json!({ "email": WHO }).to_string());
    api.deliver("orders", &unsigned).await.problem(401, "invalid_signature");
    for automation in ["welcome", "broken"] {
        eventually("it ended", async || {
            let claims = api.list(&query(&[("automation", automation), ("state", "error")])).await;
            (!claims.is_empty()).then_some(())
        })
        .await;
    }
    [claimed, again].iter().map(|claimed| claimed.token().to_owned()).collect()
}

#[tokio::test]
async fn nobodys_data_and_no_secret_stand_in_the_log_however_loud() {
    for format in ["text", "json"] {
        let receiver = Receiver::start().await;
        let dir = tempfile::Builder::new().prefix("logs-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let yaml = YAML.replace("$HOST", &receiver.address.to_string()).replace("$RECEIVER", &receiver.url());
        std::fs::write(dir.path().join("oncegate.yaml"), yaml).unwrap();
        let args = ["--log", LOUD, "--log-format", format];
        let program = Program::serve(dir.path(), &args, &[("ORDERS", SECRET)]);
        let tokens = live_a_life(&program, &receiver).await;
        let (out, log) = tokio::task::spawn_blocking(move || program.stop()).await.unwrap();
        let hidden =
            [WHO, "ann.private", "ann%2eprivate", "ann.private%40", SECRET, HOOK, ADMIN, "ogt_", "?token="];
        for hidden in hidden.into_iter().chain(tokens.iter().map(String::as_str)) {
            let leak =
                out.lines().chain(log.lines()).find(|l| l.to_lowercase().contains(&hidden.to_lowercase()));
            assert_eq!(leak, None, "{hidden} stands in the {format} log");
        }
        // It was as loud as can be: what was looked for could have been there.
        for told in ["answered", "delivery", "a signature does not verify", "SIGTERM", "/v1/claims/{id}/done"]
        {
            assert!(log.contains(told), "the {format} log does not tell `{told}`:\n{log}");
        }
        if format == "json" {
            for line in log.lines() {
                let told: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
                for member in ["timestamp", "level", "target", "message"] {
                    assert!(told[member].is_string(), "{member}: {line}");
                }
            }
        }
    }
}

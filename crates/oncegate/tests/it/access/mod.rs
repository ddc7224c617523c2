//! Who may do what, in whose workspace; what of it is written down; and what is forgotten.

mod audit;
mod failures;
mod hung_up;
mod persons;
mod tokens;
mod walk;
mod workspaces;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Client, Gate, Said, Setup, send};

/// Two clients on one server. `shared` is declared in both, with another policy in each.
const TWO: &str = "
automations:
  shared: { ttl: 10m }
  other: {}
workspaces:
  acme:
    automations:
      shared: { ttl: 20m, steps: [{ name: send, http: { url: 'https://crm.example/' } }] }
    sources:
      orders: { provider: hmac, automation: shared, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

async fn two() -> Gate {
    Setup::alone(TWO).start().await
}

/// A caller with a new token of its own.
async fn with_token(gate: &Gate, fields: Value) -> Client {
    let made = gate.api.post("/v1/tokens", &fields).await.ok();
    Client::new(gate.api.base(), made["token"].as_str().unwrap())
}

/// An admin of the workspace `acme`.
async fn acme(gate: &Gate) -> Client {
    with_token(gate, json!({ "name": "acme admin", "role": "admin", "workspace": "acme" })).await
}

/// The server's admin, acting in another workspace.
async fn get_in(client: &Client, workspace: &str, path: &str) -> Said {
    send(client.request(Method::GET, path).header("oncegate-workspace", workspace)).await
}

/// The documents of an answer in JSON lines.
fn lines(said: &Said) -> Vec<Value> {
    assert_eq!(said.status, 200, "{}", said.body);
    assert_eq!(said.header("content-type"), Some("application/x-ndjson"));
    match &said.body {
        Value::String(text) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        // One line alone reads as a document.
        one => vec![one.clone()],
    }
}

//! The recipes of docs/recipes: the bodies that each platform makes, and the files of examples/ as their platform
//! runs them.

mod blueprint;
mod runs;
mod shapes;

use serde_json::json;

use crate::harness::{Gate, Receiver, Setup};

/// As every recipe declares its automation.
const DECLARED: &str = "
automations:
  welcome mail:
    ttl: 5m
    on_stale: hold
    key_fields: { form: opaque, submission: opaque }
  welcome again:
    on_stale: hold
";

/// One that can claim keys of `welcome mail`, and nothing else: all that a recipe asks for.
async fn token(gate: &Gate) -> String {
    let asked = json!({ "name": "a recipe", "role": "caller", "automations": ["welcome mail"] });
    let made = gate.api.post("/v1/tokens", &asked).await.ok();
    made["token"].as_str().unwrap().to_owned()
}

async fn gate(receiver: &Receiver) -> Gate {
    Setup::new(DECLARED, receiver).start().await
}

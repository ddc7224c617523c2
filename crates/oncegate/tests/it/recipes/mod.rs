//! The recipes of docs/recipes: the bodies that each platform makes, and the files of examples/ as their platform
//! runs them.

mod blueprint;
mod runs;
mod shapes;

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

async fn gate(receiver: &Receiver) -> Gate {
    Setup::new(DECLARED, receiver).start().await
}

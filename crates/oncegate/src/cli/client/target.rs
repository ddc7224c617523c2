//! What a verb is about: a claim's id, or its automation and key.

use serde_json::Value;

use super::super::ending::{Exit, Failure};
use super::super::term::text::{clean, shell_word, width};
use super::gate::Gate;

/// A claim, named either way.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Target {
    /// A claim id, or an automation and its idempotency key.
    #[arg(value_name = "ID or AUTOMATION KEY", num_args = 1..=2, required = true)]
    words: Vec<String>,
}

impl Target {
    /// Its id; asks the gate if it is named by its key.
    pub(super) async fn id(&self, gate: &Gate) -> Result<String, Failure> {
        match self.words.as_slice() {
            [id] if is_id(id) => Ok(id.to_ascii_lowercase()),
            [automation, key] => {
                let query =
                    [("automation", Some(automation.clone())), ("idempotency_key", Some(key.clone()))];
                let found = gate.get(&["v1", "claims"], &query).await?;
                match found.body["claims"][0]["claim_id"].as_str() {
                    Some(id) => Ok(id.to_owned()),
                    None => Err(Failure::new(
                        Exit::NotFound,
                        format!("`{}` has no claim with the key `{}`", clean(automation), clean(key)),
                    )
                    .hint("a claim may have been forgotten after its retention; `oncegate list` shows what is there")),
                }
            }
            [one] => Err(Failure::usage(format!(
                "`{}` is not a claim id, which has 32 hexadecimal digits; a key needs its automation before it",
                clean(one)
            ))),
            _ => Err(Failure::usage("name a claim by its id, or by an automation and a key")),
        }
    }

    /// As it was typed, for a command that is to be repeated.
    pub(super) fn typed(&self) -> String {
        let words: Vec<String> =
            self.words.iter().map(|w| shell_word(w).unwrap_or_else(|| "…".into())).collect();
        words.join(" ")
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The words that name a claim in a command line: automation and key where they can be typed and leave room, or else
/// its id, which always can.
pub(super) fn words(claim: &Value, room: usize) -> String {
    let word = |name: &str| shell_word(claim[name].as_str()?);
    match (word("automation"), word("idempotency_key")) {
        (Some(automation), Some(key)) if width(&automation) + width(&key) < room => {
            format!("{automation} {key}")
        }
        _ => clean(claim["claim_id"].as_str().unwrap_or_default()),
    }
}

//! `oncegate claim --parent`: the token of the claim that a run works for.

use std::io::Read;

use serde_json::Value;
use url::Url;

use super::super::ending::Failure;
use crate::config::{Environment, ProcessEnvironment};

/// The token: of the environment if nothing is said, of stdin for `-`, or as it is given. It is never shown in a
/// message.
pub(super) fn token(given: &str) -> Result<String, Failure> {
    let variable = |name| ProcessEnvironment.get(name).filter(|value| !value.trim().is_empty());
    let text = match given {
        "" => {
            variable("ONCEGATE_DONE_URL").or_else(|| variable("ONCEGATE_CLAIM_TOKEN")).ok_or_else(|| {
                Failure::usage("--parent: this command does not run under a claim").hint(
                    "set ONCEGATE_DONE_URL, or ONCEGATE_CLAIM_TOKEN, to what the parent's claim was answered",
                )
            })?
        }
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|e| Failure::usage(format!("--parent: stdin cannot be read: {e}")))?;
            text
        }
        given => given.to_owned(),
    };
    of(text.trim()).ok_or_else(|| {
        Failure::usage("--parent: this is no token of a claim, nor an answer or URL with one")
            .hint("give the parent's `token` or `done_url` as it came; a claim that was stopped has none")
    })
}

fn of(text: &str) -> Option<String> {
    let is_token = |text: &str| text.starts_with("ogt_");
    if is_token(text) {
        return Some(text.to_owned());
    }
    if let Ok(answer) = serde_json::from_str::<Value>(text) {
        return answer["token"].as_str().filter(|token| is_token(token)).map(str::to_owned);
    }
    let url = Url::parse(text).ok()?;
    let found = url.query_pairs().find(|(name, _)| name == "token")?;
    Some(found.1.into_owned()).filter(|token| is_token(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_all_that_carries_one() {
        for text in [
            "ogt_1",
            r#"{ "decision": "run", "token": "ogt_1" }"#,
            "http://127.0.0.1:7480/v1/claims/0/done?token=ogt_1",
        ] {
            assert_eq!(of(text).as_deref(), Some("ogt_1"), "{text}");
        }
        for text in ["", "oga_1", "{}", r#"{ "token": null }"#, "http://a/done", "http://a/done?token=oga_1"]
        {
            assert_eq!(of(text), None, "{text}");
        }
    }
}

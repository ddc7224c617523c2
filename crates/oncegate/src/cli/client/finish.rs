//! `oncegate done`, `error`, `heartbeat`: what the holder of a claim says about its run.

use std::io::Read;

use oncegate_core::secret::Secret;
use serde_json::{Value, json};
use url::Url;

use super::super::ending::Failure;
use super::super::term::text::clean;
use super::gate::{Answer, Connection, Gate};
use super::trouble::Trouble;
use crate::config::{Environment, ProcessEnvironment};

/// Which claim, and the proof that one holds it.
#[derive(Debug, clap::Args)]
struct Held {
    /// An URL of the claim's answer, a claim id (with its token in ONCEGATE_CLAIM_TOKEN), or `-` to read the answer
    /// of `oncegate claim --json` from stdin; without it, ONCEGATE_DONE_URL.
    #[arg(value_name = "URL or ID or -")]
    claim: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Done {
    #[command(flatten)]
    held: Held,
    /// What duplicates get back: JSON, or else a text.
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Error {
    #[command(flatten)]
    held: Held,
    /// What failed, in words.
    #[arg(long)]
    note: String,
    /// The effect surely did not happen and may be tried again by itself.
    #[arg(long)]
    retryable: bool,
    /// Not before so long, e.g. `10m`.
    #[arg(long, value_name = "DURATION", requires = "retryable")]
    retry_after: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Heartbeat {
    #[command(flatten)]
    held: Held,
}

pub(super) async fn done(args: Done) -> Result<u8, Failure> {
    let result = args.result.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    say(&args.held, "done", &json!({ "result": result })).await
}

pub(super) async fn error(args: Error) -> Result<u8, Failure> {
    let fields = json!({ "note": args.note, "retryable": args.retryable, "retry_after": args.retry_after });
    say(&args.held, "error", &fields).await
}

pub(super) async fn heartbeat(args: Heartbeat) -> Result<u8, Failure> {
    say(&args.held, "heartbeat", &json!({})).await
}

async fn say(held: &Held, verb: &str, fields: &Value) -> Result<u8, Failure> {
    let gate = held.connection.open()?;
    let answer = holder(held)?.say(&gate, verb, fields).await?;
    gate.print(&answer, |_| {
        let text = |name: &str| clean(answer.body[name].as_str().unwrap_or_default());
        let so = if text("answer") == "unchanged" { ", as it was" } else { "" };
        format!("{} {}: {}{so}\n", text("automation"), text("idempotency_key"), text("processing_state"))
    });
    Ok(0)
}

/// Who may say how an attempt went.
pub(super) enum Holder {
    /// One of the three URLs of an answer.
    Url(Url),
    /// A claim, and its token.
    Token { id: String, token: Secret },
}

impl Holder {
    pub(super) async fn say(&self, gate: &Gate, verb: &str, fields: &Value) -> Result<Answer, Trouble> {
        match self {
            Self::Url(url) => gate.press(of_verb(url, verb), fields).await,
            Self::Token { id, token } => gate.finish(&["v1", "claims", id, verb], token, fields).await,
        }
    }
}

/// The three URLs of a claim differ in their last word only.
fn of_verb(url: &Url, verb: &str) -> Url {
    let mut url = url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop().push(verb);
    }
    url
}

fn holder(held: &Held) -> Result<Holder, Failure> {
    let variable = |name| ProcessEnvironment.get(name).filter(|value| !value.trim().is_empty());
    match held.claim.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| Failure::usage(format!("stdin cannot be read: {e}")))?;
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            match answer["done_url"].as_str() {
                Some(url) => capability(url),
                None if answer["decision"] == "stop" => Err(Failure::usage(
                    "the claim on stdin was answered with stop: there is nothing to finish",
                )),
                None => capability(text.trim()),
            }
        }
        Some(id) if id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
            match variable("ONCEGATE_CLAIM_TOKEN") {
                Some(token) => Ok(Holder::Token { id: id.to_owned(), token: Secret::new(token.trim()) }),
                None => Err(Failure::usage("a claim id proves nothing by itself").hint(
                    "set ONCEGATE_CLAIM_TOKEN to the `token` of the claim's answer, or give its done_url",
                )),
            }
        }
        Some(url) => capability(url),
        None => match variable("ONCEGATE_DONE_URL") {
            Some(url) => capability(url.trim()),
            None => Err(Failure::usage("which claim?")
                .hint("give the done_url of its answer, or set ONCEGATE_DONE_URL to it")),
        },
    }
}

/// Never shown in a message: it carries a token.
fn capability(text: &str) -> Result<Holder, Failure> {
    let known = |url: &Url| {
        let last = url.path_segments().and_then(|mut segments| segments.next_back());
        matches!(last, Some("done" | "error" | "heartbeat"))
            && url.query_pairs().any(|(name, _)| name == "token")
    };
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https")).filter(known);
    url.map(Holder::Url).ok_or_else(|| {
        Failure::usage("this is not an URL of a claim's answer")
            .hint("give its done_url, error_url or heartbeat_url as it came, in quotes")
    })
}

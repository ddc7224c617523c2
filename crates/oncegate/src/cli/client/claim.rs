//! `oncegate claim`: may I run? And, with a command behind `--`, run it if so.

use std::io::Read;
use std::time::Duration;

use oncegate_core::policy::parse_duration;
use serde_json::{Map, Value, json};

use super::super::ending::{Exit, Failure};
use super::super::term::Screen;
use super::super::term::text::clean;
use super::super::term::{Style, age};
use super::gate::{Answer, Connection};
use super::once::{self, Once};
use super::parent;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The flow, e.g. `welcome-mail`.
    automation: String,
    /// Names the one effect, e.g. `contact-form:8812`. Never a time of day, never random.
    #[arg(value_name = "KEY", required_unless_present = "key_field")]
    key: Option<String>,
    /// Run this if the gate says run, then tell the gate how it ended.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "json")]
    command: Vec<String>,
    /// Instead of KEY: a field that the key is made of; once per field.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "key", value_parser = pair)]
    key_field: Vec<(String, String)>,
    /// The business record touched; one run per record at a time.
    #[arg(long)]
    record: Option<String>,
    /// The claim that this run works for, whose record it shares: without a value, the one that this command runs
    /// under; `-` reads an answer of `oncegate claim --json` from stdin.
    #[arg(long, value_name = "DONE_URL or TOKEN or -", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    parent: Option<String>,
    /// Names this item of this run: the same caller may ask again and is not stopped by itself.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Where a person finds this run.
    #[arg(long, value_name = "URL")]
    run_url: Option<String>,
    /// What the run works on, as JSON; `-` reads it from stdin. The same key with another payload is stopped.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// How long silence is believed to be work, from `5m` to `30m`; without it, the automation's.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    /// Up to so many seconds, at most 25: if somebody is on it, wait for the end instead of stopping at once.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<String>,
    /// With a command: if it fails, surely nothing happened, and it may be tried again when it is due.
    #[arg(long, requires = "command")]
    retryable: bool,
    /// With a command: the exit status if the gate says stop.
    #[arg(long, value_name = "STATUS", default_value_t = Exit::Stop as u8, requires = "command")]
    stop_exit: u8,
    /// With a command: say nothing if the gate says stop.
    #[arg(long, requires = "command")]
    quiet: bool,
    /// With a command: how often the gate hears that it still runs.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration, requires = "command")]
    heartbeat: Duration,
    /// With a command: how long the gate is told how it ended, if it does not answer.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, requires = "command")]
    tell_for: Duration,
    #[command(flatten)]
    connection: Connection,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|e| e.to_string())?;
    if duration.is_zero() { Err("must be at least 1s".to_owned()) } else { Ok(duration) }
}

impl Args {
    fn fields(&self) -> Result<Value, Failure> {
        let mut fields = json!({
            "automation": self.automation,
            "idempotency_key": self.key,
            "record": self.record,
            "parent": self.parent()?,
            "run_id": self.run_id,
            "run_url": self.run_url,
            "payload": self.payload()?,
            "ttl": self.ttl,
            "wait": self.wait,
        });
        if !self.key_field.is_empty() {
            let mut parts = Map::new();
            for (name, value) in &self.key_field {
                if parts.insert(name.clone(), value.as_str().into()).is_some() {
                    return Err(Failure::usage(format!("--key-field {}: is given twice", clean(name))));
                }
            }
            fields["key_fields"] = parts.into();
        }
        Ok(fields)
    }

    fn parent(&self) -> Result<Option<String>, Failure> {
        if self.parent.as_deref() == Some("-") && self.payload.as_deref() == Some("-") {
            return Err(Failure::usage("--parent and --payload cannot both be read from stdin"));
        }
        self.parent.as_deref().map(parent::token).transpose()
    }

    fn payload(&self) -> Result<Value, Failure> {
        let wrong = |e: &dyn std::fmt::Display| {
            Failure::usage(format!("--payload is not JSON: {e}"))
                .hint("a text is written with its quotes: '\"text\"'")
        };
        match self.payload.as_deref() {
            None => Ok(Value::Null),
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map_err(|e| wrong(&e))?;
                serde_json::from_str(&text).map_err(|e| wrong(&e))
            }
            Some(text) => serde_json::from_str(text).map_err(|e| wrong(&e)),
        }
    }
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let fields = args.fields()?;
    if !args.command.is_empty() {
        let once = Once {
            command: args.command,
            retryable: args.retryable,
            stop_exit: args.stop_exit,
            quiet: args.quiet,
            heartbeat: args.heartbeat,
            tell_for: args.tell_for,
        };
        return once::run(&gate, fields, once).await;
    }
    let answer = gate.post(&["v1", "claims"], &fields).await.map_err(|trouble| {
        let failure = Failure::from(trouble);
        match failure.exit {
            Exit::Unreachable => {
                failure.hint("with --run-id ID, a repeated claim gets the answer that was lost")
            }
            _ => failure,
        }
    })?;
    let runs = answer.body["decision"] == "run";
    gate.print(&answer, |screen| shown(screen, &answer));
    Ok(if runs { 0 } else { Exit::Stop as u8 })
}

/// `stop: duplicate`, coloured.
fn headline(screen: &Screen, claim: &Value) -> String {
    let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
    let decision = text("decision");
    let style = if decision == "run" { Style::Green } else { Style::Yellow };
    format!("{}: {}", screen.paint(style, &decision), text("reason").replace('_', " "))
}

/// Why it was stopped, in one line.
pub(super) fn stop_line(claim: &Value) -> String {
    let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
    let mut line = format!("stop: {}", text("reason").replace('_', " "));
    if !text("note").is_empty() {
        line.push_str(&format!(" ({})", text("note")));
    }
    if let Some(seconds) = claim["retry_after_s"].as_u64() {
        line.push_str(&format!("; ask again in {seconds} s at the earliest"));
    }
    line
}

fn shown(screen: &Screen, answer: &Answer) -> String {
    let claim = &answer.body;
    let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
    let mut page = format!("{}\n", headline(screen, claim));
    let mut fact = |name: &str, text: String| {
        if !text.is_empty() {
            page.push_str(&format!("  {}{text}\n", screen.paint(Style::Dim, &format!("{name:<10}"))));
        }
    };
    fact("note", text("note"));
    fact("key", text("idempotency_key"));
    let since = age::read(&claim["processing_started_at"])
        .map(|at| format!(", started {}", age::relative(answer.now, at)));
    // Whoever may run knows that it runs.
    if claim["decision"] != "run" {
        fact("state", format!("{}{}", text("processing_state"), since.unwrap_or_default()));
    }
    fact("attempt", claim["attempt"].to_string());
    if let Some(seconds) = claim["retry_after_s"].as_u64() {
        fact("ask again", format!("in {seconds} s at the earliest"));
    }
    if !claim["result"].is_null() {
        fact("result", clean(&claim["result"].to_string()));
    }
    fact("claim", text("claim_id"));
    fact("token", text("token"));
    fact("done_url", text("done_url"));
    if claim["decision"] == "run" {
        let then = "Then: oncegate done DONE_URL, or: oncegate error DONE_URL --note '…'";
        page.push_str(&format!("  {}\n", screen.paint(Style::Dim, then)));
    }
    page
}

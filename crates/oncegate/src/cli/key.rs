//! `oncegate key preview`: which keys a sample would get, before a source goes live. Offline: nothing is sent, nothing
//! stored.

use std::io::Read;
use std::path::{Path, PathBuf};

use oncegate_core::key::{IdempotencyKey, RecordName};
use oncegate_core::webhook::{self, Headers, Reading, SignatureError};
use oncegate_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use super::ending::{Exit, Failure};
use super::term::text::clean;
use super::term::{self, Screen, Style};
use crate::config::{self, Config, Environment, ProcessEnvironment, Source};
use crate::http::identified;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the keys that a sample of a webhook would get. Exit status 5 if an event would be rejected.
    #[command(after_help = PREVIEW)]
    Preview(Preview),
}

const PREVIEW: &str = "\
Examples:
  oncegate key preview --source contact-form sample.json
  oncegate key preview --source contact-form --header 'Typeform-Signature: sha256=…' - < sample.json";

#[derive(Debug, clap::Args)]
struct Preview {
    /// The configuration file.
    #[arg(long, env = "ONCEGATE_CONFIG", default_value = "oncegate.yaml")]
    config: PathBuf,
    /// The source's name, as in /in/NAME.
    #[arg(long)]
    source: String,
    /// A header of the sample; some providers name the event there. Once per header.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Print JSON instead of text for people.
    #[arg(long)]
    json: bool,
    /// The sample's body; `-` reads it from stdin.
    #[arg(value_name = "BODYFILE")]
    body: PathBuf,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as in 'X-GitHub-Event: issues'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Secrets that are not set do not matter to keys: they are replaced, and then no signature is checked.
struct Placeholders;

/// Long enough, and of the form that the strictest provider asks for.
const PLACEHOLDER: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==";
const PLACEHOLDER_URL: &str = "https://placeholder.invalid/";

impl Environment for Placeholders {
    fn get(&self, name: &str) -> Option<String> {
        let absent = if name.ends_with("URL") { PLACEHOLDER_URL } else { PLACEHOLDER };
        let set = ProcessEnvironment.get(name).filter(|value| !value.trim().is_empty());
        Some(set.unwrap_or_else(|| absent.to_owned()))
    }
}

/// What would become of one event.
struct Event {
    identity: Result<IdempotencyKey, String>,
    record: Option<RecordName>,
}

pub(super) fn run(args: Args) -> Result<u8, Failure> {
    let Verb::Preview(args) = args.verb;
    let (config, secrets_set) = match config::load(&args.config, &ProcessEnvironment) {
        Ok(config) => (config, true),
        // With every variable set, what is still wrong is wrong with the file.
        Err(_) => (config::load(&args.config, &Placeholders).map_err(|e| e.to_string())?, false),
    };
    // As in its address: `orders` of the default workspace, `acme/orders` of another.
    let (declared, name) = config.declares(&args.source);
    let found = declared.and_then(|declared| Some((declared, declared.sources.get(name)?)));
    let (declared, source) = found.ok_or_else(|| unknown(&config, &args))?;
    let body = read(&args.body)?;
    let headers = Headers::new(args.header.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let request = webhook::Request { headers: &headers, body: &body };
    let signature = signature(source, &request, secrets_set);
    let template = declared.automations.get(&source.automation).and_then(|a| a.record.as_deref());
    let events: Vec<Event> = match source.provider.read(&request, name, &source.rules) {
        Reading::Handshake => {
            term::write(if args.json {
                "{\"handshake\":true}\n"
            } else {
                "It only tests the connection: nothing would run.\n"
            });
            return Ok(0);
        }
        Reading::Events(events) => events
            .into_iter()
            .map(|event| {
                let (identity, record) = identified(event.identity, &event.payload, template);
                Event { identity, record }
            })
            .collect(),
    };
    match args.json {
        true => term::write(&format!("{}\n", document(&args, source, &signature, &events))),
        false => term::write(&page(&Screen::stdout(), &args, source, &signature, &events)),
    }
    let all_run = events.iter().all(|event| event.identity.is_ok());
    Ok(if all_run { 0 } else { Exit::Refused as u8 })
}

fn unknown(config: &Config, args: &Preview) -> Failure {
    let others = config.workspaces.iter().flat_map(|(workspace, declared)| {
        declared.sources.keys().map(move |name| format!("{workspace}/{name}"))
    });
    let mut names: Vec<String> = config.default.sources.keys().cloned().chain(others).collect();
    names.sort_unstable();
    let known = if names.is_empty() {
        "it declares none".to_owned()
    } else {
        format!("it declares {}", names.join(", "))
    };
    Failure::new(
        Exit::NotFound,
        format!("{} has no source `{}`; {known}", args.config.display(), clean(&args.source)),
    )
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() != "-" {
        return Ok(config::sample_file(path)?);
    }
    let mut body = vec![];
    let read = std::io::stdin().read_to_end(&mut body);
    read.map(|_| body).map_err(|e| Failure::from(format!("stdin cannot be read: {e}")))
}

fn signature(source: &Source, request: &webhook::Request<'_>, secrets_set: bool) -> String {
    if !secrets_set {
        return "not checked: a secret of the configuration is not set here".to_owned();
    }
    match source.provider.verify(request, &source.secrets, SystemClock::new().read().wall) {
        Ok(()) => "fits".to_owned(),
        Err(SignatureError::MissingHeader { header }) => {
            format!("not checked: no --header '{header}: …' was given")
        }
        Err(error) => format!("does not fit: {error}"),
    }
}

fn document(args: &Preview, source: &Source, signature: &str, events: &[Event]) -> Value {
    let events: Vec<Value> = events
        .iter()
        .map(|event| {
            json!({
                "idempotency_key": event.identity.as_ref().ok(),
                "record": event.record,
                "rejected": event.identity.as_ref().err(),
            })
        })
        .collect();
    json!({
        "source": args.source,
        "provider": source.provider.name(),
        "automation": source.automation,
        "signature": signature,
        "events": events,
    })
}

fn page(screen: &Screen, args: &Preview, source: &Source, signature: &str, events: &[Event]) -> String {
    let dim = |text: &str| screen.paint(Style::Dim, text);
    let mut page = format!(
        "  {} {} ({}), runs {}\n  {} {}\n",
        dim("source   "),
        clean(&args.source),
        source.provider.name(),
        clean(source.automation.as_str()),
        dim("signature"),
        clean(signature)
    );
    for (number, event) in (1..).zip(events) {
        page.push('\n');
        match &event.identity {
            Ok(key) => {
                page.push_str(&format!("  event {number}: {}\n", screen.paint(Style::Green, "would run")));
                page.push_str(&format!(
                    "    {} {}\n",
                    dim("key   "),
                    screen.paint(Style::Bold, &clean(key.as_str()))
                ));
                if let Some(record) = &event.record {
                    page.push_str(&format!("    {} {}\n", dim("record"), clean(record.as_str())));
                }
            }
            Err(why) => {
                page.push_str(&format!(
                    "  event {number}: {}\n",
                    screen.paint(Style::Red, "would be rejected")
                ));
                page.push_str(&format!("    {} {}\n", dim("why   "), clean(why)));
            }
        }
    }
    if events.is_empty() {
        page.push_str("\n  There is no event in it.\n");
    }
    page
}

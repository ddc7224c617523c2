//! `oncegate key preview`: which keys a sample would get, and how they come about, before a source goes live. Nothing
//! is sent to anybody and nothing stored; only `--delivery` asks a gate for what it has kept.

mod against;
mod look;
mod page;

use std::io::Read;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use oncegate_core::webhook::{self, Headers, Provider, SignatureError};
use oncegate_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use super::client::{self, Connection};
use super::ending::{Exit, Failure};
use super::term::text::clean;
use super::term::{self, Screen};
use crate::config::{self, Config, Declared, Environment, ProcessEnvironment, Source};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the keys that a sample of a webhook would get. Exit status 5 if an event would be rejected.
    #[command(after_help = PREVIEW)]
    Preview(Box<Preview>),
}

const PREVIEW: &str = "\
Examples:
  oncegate key preview --source contact-form sample.json
  oncegate key preview --source contact-form first.json --against second.json
  oncegate key preview --source contact-form --header 'Typeform-Signature: sha256=…' - < sample.json
  oncegate key preview --source contact-form --recent 1 # the last one that came
  oncegate key preview --delivery 6                     # one that the gate has kept";

#[derive(Debug, clap::Args)]
struct Preview {
    /// The configuration file.
    #[arg(long, env = "ONCEGATE_CONFIG", default_value = "oncegate.yaml")]
    config: PathBuf,
    /// The source's name, as in /in/NAME; of a delivery its own unless given.
    #[arg(long, required_unless_present = "delivery")]
    source: Option<String>,
    /// A header of the sample; some providers name the event there. Once per header.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// A second sample: would the two be one effect?
    #[arg(long, value_name = "BODYFILE")]
    against: Option<PathBuf>,
    /// Take a delivery that the gate has kept (rejected, unverified or a mismatch) as the sample.
    #[arg(long, value_name = "NO", conflicts_with = "body")]
    delivery: Option<u64>,
    /// Take a request that came to the source lately as the sample, by its number in `oncegate sources NAME`.
    #[arg(long, value_name = "NO", requires = "source", conflicts_with_all = ["delivery", "body"])]
    recent: Option<u64>,
    /// The sample's body; `-` reads it from stdin.
    #[arg(value_name = "BODYFILE", required_unless_present_any = ["delivery", "recent"])]
    body: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as in 'X-GitHub-Event: issues'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Secrets that are not set do not matter to keys: they are replaced, and then no signature is checked.
struct Placeholders;

/// Long enough; what form a provider's secrets have is not asked of it.
const PLACEHOLDER: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==";
const PLACEHOLDER_URL: &str = "https://placeholder.invalid/";

impl Environment for Placeholders {
    fn get(&self, name: &str) -> Option<String> {
        let absent = if name.ends_with("URL") { PLACEHOLDER_URL } else { PLACEHOLDER };
        let set = ProcessEnvironment.get(name).filter(|value| !value.trim().is_empty());
        Some(set.unwrap_or_else(|| absent.to_owned()))
    }

    fn is_real(&self) -> bool {
        false
    }
}

/// What a sender sends, or has sent.
struct Sample {
    /// Of the source, as its sender was given it.
    url: String,
    headers: Headers,
    body: Vec<u8>,
    /// Why it was not believed.
    refused: Option<String>,
}

impl Sample {
    fn request(&self) -> webhook::Request<'_> {
        webhook::Request::post(&self.url, &self.headers, &self.body)
    }
}

/// The source that a sample is shown to.
struct Shown<'a> {
    /// As in its address.
    address: &'a str,
    name: &'a str,
    source: &'a Source,
    declared: &'a Declared,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let Verb::Preview(args) = args.verb;
    let (config, secrets_set) = match config::load(&args.config, &ProcessEnvironment) {
        Ok(config) => (config, true),
        // With every variable set, what is still wrong is wrong with the file.
        Err(_) => (config::load(&args.config, &Placeholders).map_err(|e| e.to_string())?, false),
    };
    let (mut sample, of_delivery) = sample(&args).await?;
    let address = args.source.clone().or(of_delivery.clone()).unwrap_or_default();
    sample.url = format!("{}/in/{address}", config.public_url.as_deref().unwrap_or_default());
    // As in its address: `orders` of the default workspace, `acme/orders` of another.
    let (declared, name) = config.declares(&address);
    let found = declared.and_then(|declared| Some((declared, declared.source(name)?)));
    let (declared, source) = found.ok_or_else(|| unknown(&config, &args.config, &address))?;
    let shown = Shown { address: &address, name, source, declared };
    let signature = match of_delivery {
        Some(_) => match &sample.refused {
            None => "not checked: it was judged when it came".to_owned(),
            Some(why) => format!("refused when it came: {why}"),
        },
        None => signature(source, &sample.request(), secrets_set),
    };
    let Some(seen) = look::at(&shown, &sample) else {
        term::write(if args.connection.json {
            "{\"handshake\":true}\n"
        } else {
            "It only tests the connection: nothing would run.\n"
        });
        return Ok(0);
    };
    let second = match &args.against {
        None => None,
        Some(path) => {
            let sample = Sample {
                body: read(path)?,
                url: sample.url.clone(),
                headers: sample.headers.clone(),
                refused: None,
            };
            let second = look::at(&shown, &sample)
                .ok_or_else(|| Failure::from("the second sample only tests the connection".to_owned()))?;
            Some(against::compare(&seen, &second))
        }
    };
    if args.connection.json {
        let mut document = json!({
            "source": address,
            "provider": source.provider.name(),
            "automation": source.automation,
            "signature": signature,
            "events": seen.iter().map(look::Seen::document).collect::<Vec<_>>(),
        });
        if let Some(second) = &second {
            document["against"] = second.document();
        }
        term::write(&format!("{document}\n"));
    } else {
        let mut text = page::page(&Screen::stdout(), &shown, &signature, &seen);
        if let (Some(second), Some(path)) = (&second, &args.against) {
            text.push_str(&page::second(&Screen::stdout(), &path.display().to_string(), second));
        }
        term::write(&text);
    }
    let all_run = sample.refused.is_none() && seen.iter().all(|event| event.identity.is_ok());
    Ok(if all_run { 0 } else { Exit::Refused as u8 })
}

/// The sample, and the source that it came to if it is a delivery.
async fn sample(args: &Preview) -> Result<(Sample, Option<String>), Failure> {
    let given = args.header.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let row = match (args.delivery, args.recent, &args.source) {
        (Some(number), _, _) => client::delivery(&args.connection, number).await?,
        (None, Some(number), Some(source)) => client::recent(&args.connection, source, number).await?,
        (None, _, _) => {
            let body = read(args.body.as_deref().unwrap_or(Path::new("-")))?;
            return Ok((
                Sample { url: String::new(), headers: Headers::new(given), body, refused: None },
                None,
            ));
        }
    };
    let number = args.delivery.or(args.recent).unwrap_or_default();
    let body = match (row["body"].as_str(), row["body_base64"].as_str()) {
        (_, Some(coded)) => BASE64.decode(coded.as_bytes()).unwrap_or_default(),
        (text, None) => text.unwrap_or_default().as_bytes().to_vec(),
    };
    if body.is_empty() {
        let told = match args.delivery {
            Some(_) => format!("delivery {number} has no body any more: it was released, or only counted"),
            None => format!("request {number} has no body: it was empty, or too large to be kept in memory"),
        };
        return Err(Failure::new(Exit::Refused, told));
    }
    let kept: Vec<(String, String)> = serde_json::from_value(row["headers"].clone()).unwrap_or_default();
    let kept = kept.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    // What is given on the command line stands in for what was not kept.
    let headers = Headers::new(given.chain(kept));
    let source = row["source"].as_str().or(args.source.as_deref()).unwrap_or_default().to_owned();
    let unverified = row["verdict"] == "unverified" || row["verdicts"][0] == "unverified";
    let refused =
        unverified.then(|| row["reason"].as_str().unwrap_or("its signature did not fit").to_owned());
    Ok((Sample { url: String::new(), headers, body, refused }, Some(source)))
}

fn unknown(config: &Config, file: &Path, address: &str) -> Failure {
    let others = config
        .workspaces
        .iter()
        .flat_map(|(workspace, declared)| declared.named().map(move |name| format!("{workspace}/{name}")));
    let mut names: Vec<String> = config.default.named().cloned().chain(others).collect();
    names.sort_unstable();
    let known = if names.is_empty() {
        "it declares none".to_owned()
    } else {
        format!("it declares {}", names.join(", "))
    };
    Failure::new(Exit::NotFound, format!("{} has no source `{}`; {known}", file.display(), clean(address)))
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
    if source.provider == Provider::Polled {
        return "none: oncegate itself asks for it".to_owned();
    }
    if !secrets_set {
        return "not checked: a secret of the configuration is not set here".to_owned();
    }
    match source.provider.verify(request, &source.trust, SystemClock::new().read().wall) {
        Ok(()) => "fits".to_owned(),
        Err(SignatureError::MissingHeader { header }) => {
            format!("not checked: no --header '{header}: …' was given")
        }
        Err(SignatureError::NoSharedSecret { .. }) => {
            format!("none: {} signs nothing, and is believed by the secret that it shows", source.provider)
        }
        Err(error) => format!("does not fit: {error}"),
    }
}

/// A value as it was sent, in one line.
fn as_sent(value: &Value) -> String {
    clean(&value.to_string())
}

//! A sender that behaves as webhook providers do: it repeats until somebody says 200.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use oncegate_core::key::sha256;
use oncegate_store::clock::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;
use tokio::task::JoinSet;

use super::ledger::{Delivery, Ledger};
use super::wire::{self, Lost};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to post; of several, each event goes to one, in turn.
    #[arg(long, required = true)]
    to: Vec<String>,
    /// A sample request: JSON with `method`, `headers` and `body_text`.
    #[arg(long)]
    sample: PathBuf,
    /// The file it keeps.
    #[arg(long)]
    file: PathBuf,
    /// Parallel copies of each event.
    #[arg(long, default_value_t = 1)]
    copies: u32,
    /// Send this many events made from a Typeform sample, each with a token of its own and freshly signed with
    /// the secret in ONCEGATE_LAB_SECRET. Without it, the sample goes out untouched.
    #[arg(long, requires = "prefix")]
    events: Option<u32>,
    /// What the tokens of those events begin with.
    #[arg(long)]
    prefix: Option<String>,
    /// Draws an order from this: all copies of all events mixed, over a few connections at a time, some of which are
    /// hung up before the answer. Without it, everything goes out at once.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which it gives up.
    #[arg(long, default_value_t = 60)]
    give_up: u64,
    #[arg(long, env = "ONCEGATE_LAB_SECRET", hide = true, hide_env_values = true, default_value = "")]
    secret: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Sample {
    method: String,
    headers: serde_json::Map<String, Value>,
    body_text: String,
}

/// One event, ready to be posted.
struct Event {
    to: String,
    token: String,
    sample: Sample,
}

/// One copy of an event, and how it is sent.
struct Copy {
    event: Arc<Event>,
    number: u32,
    /// Hung up after so long, once.
    hung_up: Option<Duration>,
}

/// Senders at a time, where an order is drawn.
const LANES: usize = 4;

/// Providers wait minutes between tries; a lab has none to spare.
const PAUSE: Duration = Duration::from_millis(20);
/// Typeform's own limit.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(args: Args) -> Result<(), String> {
    let sample = read(&args.sample)?;
    let ledger = Arc::new(Ledger::open(&args.file)?);
    let mut posts = JoinSet::new();
    for lane in lanes(events(&sample, &args)?, &args) {
        let ledger = Arc::clone(&ledger);
        posts.spawn(async move {
            for copy in lane {
                deliver(copy, &ledger).await?;
            }
            Ok(())
        });
    }
    let all = async {
        let mut ended = Ok(());
        while let Some(post) = posts.join_next().await {
            ended = ended.and(post.map_err(|e| e.to_string()).flatten());
        }
        ended
    };
    match tokio::time::timeout(Duration::from_secs(args.give_up), all).await {
        Ok(ended) => ended,
        Err(_) => {
            let to = args.to.join(", ");
            Err(format!("{to} did not acknowledge everything within {} s", args.give_up))
        }
    }
}

fn read(path: &Path) -> Result<Sample, String> {
    #[expect(clippy::disallowed_methods, reason = "the lab's own files")]
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn events(sample: &Sample, args: &Args) -> Result<Vec<Event>, String> {
    let body: Value = serde_json::from_str(&sample.body_text).map_err(|e| format!("body_text: {e}"))?;
    let token = body["form_response"]["token"].as_str().unwrap_or_default();
    let (Some(events), Some(prefix)) = (args.events, &args.prefix) else {
        let event = |to: &String| Event { to: to.clone(), token: token.to_owned(), sample: sample.clone() };
        return Ok(args.to.iter().map(event).collect());
    };
    if token.is_empty() || args.secret.is_empty() {
        return Err("--events needs a Typeform sample and ONCEGATE_LAB_SECRET to sign it anew".to_owned());
    }
    let fresh = |(n, to): (u32, &String)| {
        let new = format!("{prefix}-{n}");
        let mut sample = sample.clone();
        // As text, so that every other byte stays as it was.
        sample.body_text = sample.body_text.replace(token, &new);
        let signature = sign(args.secret.as_bytes(), sample.body_text.as_bytes())?;
        sample.headers.retain(|name, _| !name.eq_ignore_ascii_case("typeform-signature"));
        sample.headers.insert("Typeform-Signature".to_owned(), signature.into());
        Ok(Event { to: to.clone(), token: new, sample })
    };
    (0..events).zip(args.to.iter().cycle()).map(fresh).collect()
}

/// What is sent one after another; the lanes go side by side.
fn lanes(events: Vec<Event>, args: &Args) -> Vec<Vec<Copy>> {
    let events: Vec<Arc<Event>> = events.into_iter().map(Arc::new).collect();
    let copies = events.iter().flat_map(|event| (1..=args.copies).map(move |copy| (Arc::clone(event), copy)));
    let Some(seed) = args.seed else {
        return copies.map(|(event, number)| vec![Copy { event, number, hung_up: None }]).collect();
    };
    let mut drawn: Vec<([u8; 32], Copy)> = copies
        .map(|(event, number)| {
            let drawn = sha256(format!("{seed} {number} {}", event.token).as_bytes());
            // Before, while or after the gate writes it down.
            let hung_up =
                drawn[31].is_multiple_of(6).then(|| Duration::from_micros(u64::from(drawn[30]) * 60));
            (drawn, Copy { event, number, hung_up })
        })
        .collect();
    drawn.sort_by_key(|(drawn, _)| *drawn);
    let mut lanes: Vec<Vec<Copy>> = (0..LANES).map(|_| vec![]).collect();
    for (n, (_, copy)) in drawn.into_iter().enumerate() {
        lanes[n % LANES].push(copy);
    }
    lanes
}

/// Typeform's signature: `sha256=` and the base64 of the raw body's HMAC-SHA256.
fn sign(secret: &[u8], body: &[u8]) -> Result<String, String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|e| e.to_string())?;
    mac.update(body);
    Ok(format!("sha256={}", BASE64.encode(&mac.finalize().into_bytes())))
}

async fn deliver(copy: Copy, ledger: &Ledger) -> Result<(), String> {
    let Copy { event, number: copy, mut hung_up } = copy;
    let clock = SystemClock::new();
    let (to, mut sent) = (&event.to, 0);
    loop {
        let outcome = wire::send(request(to, &event.sample)?, hung_up.unwrap_or(PATIENCE)).await;
        let reached = !matches!(outcome, Err(Lost::NotSent(_)));
        sent += u32::from(reached);
        hung_up = hung_up.filter(|_| !reached);
        let answer = match outcome {
            Ok(answer) if !matches!(answer.status, 408 | 429 | 500..) => answer,
            _ => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        ledger.write(&Delivery {
            event: event.token.clone(),
            copy,
            status: answer.status,
            answer: said["status"].as_str().map_or_else(|| said["detail"].to_string(), str::to_owned),
            sent,
            body_sha256: HEXLOWER.encode(&sha256(event.sample.body_text.as_bytes())),
            at: clock.read().wall,
        })?;
        return match answer.status {
            200 => Ok(()),
            // A provider would try again for days; here it is a mistake in the lab.
            status => Err(format!("{to} answered {status} to {}: {said}", event.token)),
        };
    }
}

fn request(to: &str, sample: &Sample) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder().method(sample.method.as_str()).uri(to);
    for (name, value) in &sample.headers {
        request = request.header(name, value.as_str().unwrap_or_default());
    }
    request.body(Full::from(sample.body_text.clone())).map_err(|e| e.to_string())
}

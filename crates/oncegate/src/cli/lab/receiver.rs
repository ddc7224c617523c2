//! A receiver that counts effects by `Idempotency-Key`: what the outside world would say really happened.
//!
//! Every request is one line in its file, written before the answer. The first part of the path says how the
//! receiver behaves:
//!
//! | path | the first request with a key | later ones |
//! | --- | --- | --- |
//! | `/hold/…` | acts, then answers 200 once the hold file is gone | the same |
//! | `/fail500/…` | acts, then answers 500 | 200 |
//! | `/reset/…` | acts, then resets the connection | 200 |
//! | `/silence/…` | acts, then never answers | 200 |
//! | `/throttle/…` | does nothing, answers 429 with `Retry-After: 1` | acts, 200 |
//! | `/wild/…` | as its [mood](super::mood) is; acts and waits as `/hold/…` while there is a hold file | the same |
//! | `/find/…` | looks, as its mood is: how many effects `/wild/…` has had | the same |
//! | anything else | acts, answers 200 | 200 |

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use oncegate_core::key::sha256;
use oncegate_store::clock::{Clock, SystemClock};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::ledger::{Arrival, Did, Ledger};
use super::mood::{Mood, mood};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The file it keeps.
    #[arg(long)]
    file: PathBuf,
    /// While this file exists, requests to /hold/… are recorded but not answered.
    #[arg(long)]
    hold_file: Option<PathBuf>,
    /// What the moods of /wild/… and /find/… are drawn from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// While this file exists, /wild/… and /find/… are in no mood.
    #[arg(long)]
    calm_file: Option<PathBuf>,
    /// Knows no keys: every request is an effect.
    #[arg(long)]
    no_dedupe: bool,
    /// Ends when its standard input does, so that it never outlives who started it.
    #[arg(long)]
    until_stdin_ends: bool,
}

struct Receiver {
    ledger: Ledger,
    hold_file: Option<PathBuf>,
    calm_file: Option<PathBuf>,
    seed: u64,
    dedupe: bool,
    clock: SystemClock,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: u64,
    by_key: HashMap<String, Known>,
    by_path: HashMap<String, Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    requests: u64,
    effects: u64,
}

/// A request as it came.
struct Asked {
    method: String,
    path: String,
    key: Option<String>,
    body: Bytes,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Act,
    Refuse,
    Break,
    Look,
}

/// Ends the connection without a word.
#[derive(Debug, thiserror::Error)]
#[error("reset on purpose")]
struct HangUp;

pub(super) async fn run(args: Args) -> Result<(), String> {
    let listener = TcpListener::bind(args.listen).await.map_err(|e| format!("{}: {e}", args.listen))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let receiver = Arc::new(Receiver {
        ledger: Ledger::open(&args.file)?,
        hold_file: args.hold_file,
        calm_file: args.calm_file,
        seed: args.seed,
        dedupe: !args.no_dedupe,
        clock: SystemClock::new(),
        seen: Mutex::default(),
    });
    crate::cli::say(format_args!("receiver on http://{address}"));
    tokio::select! {
        never = accept(listener, receiver) => match never {},
        () = stdin_ends(), if args.until_stdin_ends => Ok(()),
    }
}

async fn accept(listener: TcpListener, receiver: Arc<Receiver>) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => drop(tokio::spawn(converse(tcp, Arc::clone(&receiver)))),
            // Out of file handles, say: the next one may fit.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn stdin_ends() {
    let drain = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let _ = tokio::task::spawn_blocking(drain).await;
}

async fn converse(tcp: TcpStream, receiver: Arc<Receiver>) {
    let service = service_fn(move |request| answer(Arc::clone(&receiver), request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
    if Pin::new(&mut connection).await.is_err() {
        // RST, not FIN: how a crashed host or a firewall ends a connection.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

type Answer = Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>>;

async fn answer(receiver: Arc<Receiver>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let asked = Asked {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        key: head.headers.get("idempotency-key").and_then(|k| k.to_str().ok()).map(str::to_owned),
        body: body.collect().await?.to_bytes(),
    };
    let mode = asked.path.split('/').nth(1).unwrap_or_default().to_owned();
    if matches!(mode.as_str(), "wild" | "find") {
        return moody(receiver, asked, mode == "find").await;
    }
    let (arrival, first) = receiver.record(&asked, |first| match first && mode == "throttle" {
        true => Wish::Refuse,
        false => Wish::Act,
    })?;
    match mode.as_str() {
        "hold" => receiver.released().await,
        "fail500" if first => return reply(StatusCode::INTERNAL_SERVER_ERROR, &arrival),
        "reset" if first => return Err(Box::new(HangUp)),
        "silence" if first => std::future::pending().await,
        "throttle" if first => return throttled(&arrival, "1"),
        _ => {}
    }
    reply(StatusCode::OK, &arrival)
}

/// Meets a request as the seed has it.
async fn moody(receiver: Arc<Receiver>, asked: Asked, looks: bool) -> Answer {
    let mood = receiver.mood(&asked.path);
    let act = if looks { Wish::Look } else { Wish::Act };
    let wish = match mood {
        Mood::Well | Mood::Late(_) | Mood::Slow(_) => act,
        Mood::FailsAfter | Mood::HangsUpAfter | Mood::Silent => act,
        Mood::Fails | Mood::HangsUp => Wish::Break,
        Mood::Throttles | Mood::ThrottlesByDate => Wish::Refuse,
    };
    let lasting = Arc::clone(&receiver);
    // A task of its own: what has arrived is done, also when whoever sent it is dead by then.
    let done = tokio::spawn(async move {
        if let Mood::Late(wait) = mood {
            tokio::time::sleep(wait).await;
        }
        lasting.record(&asked, |_| wish)
    });
    let (arrival, _) = done.await??;
    receiver.released().await;
    match mood {
        Mood::Slow(wait) => tokio::time::sleep(wait).await,
        Mood::Fails | Mood::FailsAfter => return reply(StatusCode::INTERNAL_SERVER_ERROR, &arrival),
        Mood::HangsUp | Mood::HangsUpAfter => return Err(Box::new(HangUp)),
        Mood::Silent => std::future::pending().await,
        Mood::Throttles => return throttled(&arrival, "1"),
        Mood::ThrottlesByDate => {
            let soon = receiver.clock.read().wall.after(Duration::from_secs(1)).as_millis();
            let soon = Duration::from_millis(u64::try_from(soon)?);
            return throttled(&arrival, &httpdate::fmt_http_date(std::time::UNIX_EPOCH + soon));
        }
        Mood::Well | Mood::Late(_) => {}
    }
    if !looks {
        return reply(StatusCode::OK, &arrival);
    }
    let total = receiver.effects_of(&arrival.path.replacen("/find/", "/wild/", 1));
    json_reply(StatusCode::OK, &json!({ "total": total }))
}

fn throttled(arrival: &Arrival, retry_after: &str) -> Answer {
    let mut reply = reply(StatusCode::TOO_MANY_REQUESTS, arrival)?;
    reply.headers_mut().insert(header::RETRY_AFTER, retry_after.parse()?);
    Ok(reply)
}

/// A repeat is answered like the first: nothing in it tells them apart.
fn reply(status: StatusCode, arrival: &Arrival) -> Answer {
    json_reply(status, &json!({ "received": arrival.key, "status": status.as_u16() }))
}

fn json_reply(status: StatusCode, body: &serde_json::Value) -> Answer {
    Ok(Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()))?)
}

impl Receiver {
    /// Judges and writes down, in one go: two requests of one key cannot both be the first. `wish` is told whether
    /// this is the first one of its key; the answer says it, too.
    fn record(&self, asked: &Asked, wish: impl FnOnce(bool) -> Wish) -> Result<(Arrival, bool), String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests += 1;
        let number = seen.requests;
        // Without a key nobody could tell that it is a repeat.
        let known = match &asked.key {
            Some(key) => seen.by_key.entry(key.clone()).or_default(),
            None => &mut Known::default(),
        };
        known.requests += 1;
        let first = known.requests == 1;
        let did = match (wish(first), known.effects) {
            (Wish::Refuse, _) => Did::Refused,
            (Wish::Break, _) => Did::Nothing,
            (Wish::Look, _) => Did::Look,
            (Wish::Act, 1..) if self.dedupe => Did::Repeat,
            (Wish::Act, _) => Did::Effect,
        };
        known.effects += u64::from(did == Did::Effect);
        seen.by_path.entry(asked.path.clone()).or_default().effects += u64::from(did == Did::Effect);
        let arrival = Arrival {
            number,
            at: self.clock.read().wall,
            key: asked.key.clone(),
            method: asked.method.clone(),
            path: asked.path.clone(),
            body_sha256: HEXLOWER.encode(&sha256(&asked.body)),
            did,
        };
        self.ledger.write(&arrival)?;
        Ok((arrival, first))
    }

    /// Draws how the next request for one thing is met.
    fn mood(&self, path: &str) -> Mood {
        if self.calm_file.as_ref().is_some_and(|f| f.exists()) {
            return Mood::Well;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.by_path.entry(path.to_owned()).or_default();
        known.requests += 1;
        mood(self.seed, path, known.requests)
    }

    fn effects_of(&self, path: &str) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.by_path.get(path).map_or(0, |known| known.effects)
    }

    async fn released(&self) {
        while self.hold_file.as_ref().is_some_and(|f| f.exists()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

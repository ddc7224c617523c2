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
    dedupe: bool,
    clock: SystemClock,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: u64,
    by_key: HashMap<String, Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    requests: u64,
    effects: u64,
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

async fn answer(
    receiver: Arc<Receiver>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path().to_owned();
    let key = head.headers.get("idempotency-key").and_then(|k| k.to_str().ok()).map(str::to_owned);
    let mode = path.split('/').nth(1).unwrap_or_default();
    let (arrival, first) = receiver.record(mode, head.method.as_str(), &path, key, &body)?;
    match mode {
        "hold" => receiver.released().await,
        "fail500" if first => return reply(StatusCode::INTERNAL_SERVER_ERROR, &arrival),
        "reset" if first => return Err(Box::new(HangUp)),
        "silence" if first => std::future::pending().await,
        "throttle" if first => {
            let mut reply = reply(StatusCode::TOO_MANY_REQUESTS, &arrival)?;
            reply.headers_mut().insert(header::RETRY_AFTER, 1.into());
            return Ok(reply);
        }
        _ => {}
    }
    reply(StatusCode::OK, &arrival)
}

/// A repeat is answered like the first: nothing in it tells them apart.
fn reply(
    status: StatusCode,
    arrival: &Arrival,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let body = json!({ "received": arrival.key, "status": status.as_u16() }).to_string();
    Ok(Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body))?)
}

impl Receiver {
    /// Judges and writes down, in one go: two requests of one key cannot both be the first.
    fn record(
        &self,
        mode: &str,
        method: &str,
        path: &str,
        key: Option<String>,
        body: &[u8],
    ) -> Result<(Arrival, bool), String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests += 1;
        let number = seen.requests;
        // Without a key nobody could tell that it is a repeat.
        let known = match &key {
            Some(key) => seen.by_key.entry(key.clone()).or_default(),
            None => &mut Known::default(),
        };
        known.requests += 1;
        let first = known.requests == 1;
        let did = match known.effects {
            _ if mode == "throttle" && first => Did::Refused,
            1.. if self.dedupe => Did::Repeat,
            _ => Did::Effect,
        };
        known.effects += u64::from(did == Did::Effect);
        let arrival = Arrival {
            number,
            at: self.clock.read().wall,
            key,
            method: method.to_owned(),
            path: path.to_owned(),
            body_sha256: HEXLOWER.encode(&sha256(body)),
            did,
        };
        self.ledger.write(&arrival)?;
        Ok((arrival, first))
    }

    async fn released(&self) {
        while self.hold_file.as_ref().is_some_and(|f| f.exists()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

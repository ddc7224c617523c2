//! Sends one request and says what came of it.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use oncegate_core::time::Timestamp;
use reqwest::redirect;
use url::Url;

use crate::allow::PrivateAllowance;
use crate::classify::{self, NoAnswer, Verdict};
use crate::guard::{self, BlockedAddress, CheckedResolver, Guard, OpenResolver, Refusal, Route};
use crate::once_body::{OnceBody, Recall};
use crate::outcome::{Answer, CallOutcome, Failure};
use crate::request::OutgoingRequest;
use crate::tls;

/// How calls are made; one for the whole process.
#[derive(Clone, Debug)]
pub struct Options {
    /// `outgoing.allow_private`: what may be called although it is not on the public internet.
    pub allow_private: Vec<PrivateAllowance>,
    /// For looking up the name, connecting and the TLS handshake together. 10 s unless set.
    pub connect_timeout: Duration,
    /// Keep connections for the next call to the same host. Off unless set: a receiver that closes an idle
    /// connection just as a request is written to it leaves an outcome that cannot be told, which costs a
    /// person's time, while a handshake costs a tenth of a second. It never sends a request twice.
    pub reuse_connections: bool,
    /// Certificates (DER) trusted besides the system's.
    pub extra_roots: Vec<Vec<u8>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            reuse_connections: false,
            extra_roots: Vec::new(),
        }
    }
}

/// Why no caller could be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// An extra root is not a certificate.
    #[error("a certificate authority cannot be read: {0}")]
    Roots(#[from] rustls::Error),
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Makes the calls. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Caller {
    guard: Guard,
    /// Two clients, because a resolver is told a name but not the port or why it is wanted.
    checked: reqwest::Client,
    allowed: reqwest::Client,
    /// Whether certificates can be checked at all.
    has_roots: bool,
}

impl Caller {
    /// Sets up both clients.
    ///
    /// # Errors
    /// An extra root is not a certificate, or the client cannot be set up.
    pub fn new(options: &Options) -> Result<Self, SetupError> {
        let guard = Guard::new(&options.allow_private);
        let tls = tls::config(&options.extra_roots)?;
        let has_roots = tls.has_roots;
        let tls = tls.config;
        let checked = client(options, tls.clone()).dns_resolver(CheckedResolver(guard.clone())).build()?;
        let allowed = client(options, tls).dns_resolver(OpenResolver).build()?;
        Ok(Self { guard, checked, allowed, has_roots })
    }

    /// Whether an URL could be called, as far as can be told without looking up its name: for checking a
    /// configuration.
    ///
    /// # Errors
    /// What is wrong with it, and how to mend it.
    pub fn check_url(&self, url: &str) -> Result<(), Refusal> {
        self.route(&guard::read_url(url)?).map(|_| ())
    }

    fn route(&self, url: &Url) -> Result<Route, Refusal> {
        if url.scheme() == "https" && !self.has_roots {
            return Err(Refusal::NoRoots);
        }
        self.guard.route(url)
    }

    /// Sends `request` at most once, and reads the answer. `wall_now` is what dates in `Retry-After` count
    /// from.
    ///
    /// If the returned future is dropped before it is ready, the outcome is unknown.
    pub async fn call(&self, request: &OutgoingRequest, wall_now: Timestamp) -> CallOutcome {
        let (client, outgoing, recall) = match self.prepare(request) {
            Ok(prepared) => prepared,
            Err(refusal) => return without_answer(NoAnswer::Refused, refusal.to_string()),
        };
        let url = outgoing.url().clone();
        let mut received = None;
        let exchange = Box::pin(exchange(client, outgoing, request.answer_bytes_max, &mut received));
        let ended = tokio::time::timeout(request.timeout, exchange).await;
        match (received, ended) {
            (Some(received), _) => received.outcome(&url, wall_now),
            (None, Ok(Err(error))) => broken(&url, &error, recall.as_ref()),
            // Without an error there is an answer, so this is the timeout.
            (None, _) => timed_out(&url, request.timeout, recall.as_ref()),
        }
    }

    fn prepare(
        &self,
        request: &OutgoingRequest,
    ) -> Result<(&reqwest::Client, reqwest::Request, Option<Recall>), Refusal> {
        request.check_method()?;
        let url = guard::read_url(&request.url)?;
        let client = match self.route(&url)? {
            Route::Checked => &self.checked,
            Route::Allowed => &self.allowed,
        };
        let mut outgoing = reqwest::Request::new(request.method.clone(), url);
        *outgoing.headers_mut() = request.header_map()?;
        let mut recall = None;
        match &request.body {
            Some(body) if !body.is_empty() => {
                let (body, r) = OnceBody::new(Bytes::copy_from_slice(body));
                recall = Some(r);
                *outgoing.body_mut() = Some(reqwest::Body::wrap(body));
            }
            _ => {}
        }
        Ok((client, outgoing, recall))
    }
}

fn client(options: &Options, tls: rustls::ClientConfig) -> reqwest::ClientBuilder {
    let mut always = HeaderMap::new();
    if !options.reuse_connections {
        // RFC 9112 §9.6: a client that does not keep connections must say so in every request.
        always.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    reqwest::Client::builder()
        .user_agent(concat!("oncegate/", env!("CARGO_PKG_VERSION")))
        .default_headers(always)
        .http1_only()
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(options.connect_timeout)
        .tls_backend_preconfigured(tls)
        .pool_max_idle_per_host(if options.reuse_connections { 8 } else { 0 })
        // Below the 5 s after which Node.js closes idle connections, the shortest of the common servers.
        .pool_idle_timeout(Duration::from_secs(4))
}

/// What has come so far; kept outside the exchange so that a timeout does not lose it.
struct Received {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    cut: bool,
}

async fn exchange(
    client: &reqwest::Client,
    request: reqwest::Request,
    bytes_max: usize,
    received: &mut Option<Received>,
) -> Result<(), reqwest::Error> {
    let mut response = client.execute(request).await?;
    let received = received.insert(Received {
        status: response.status().as_u16(),
        headers: std::mem::take(response.headers_mut()),
        body: Vec::new(),
        cut: true,
    });
    while let Some(chunk) = response.chunk().await? {
        let room = bytes_max - received.body.len();
        received.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(());
        }
    }
    received.cut = false;
    Ok(())
}

impl Received {
    fn outcome(self, url: &Url, wall_now: Timestamp) -> CallOutcome {
        let status = self.status;
        let waits = self.headers.get_all(header::RETRY_AFTER).iter().map(HeaderValue::as_bytes);
        let verdict = classify::by_status(status, classify::retry_after(waits, wall_now));
        let note = status_note(url, status, &self.headers, verdict);
        let content_type =
            self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let answer = Answer { body: self.body, content_type, cut: self.cut };
        match verdict {
            Verdict::Succeeded => CallOutcome::Succeeded { status, answer },
            Verdict::Failed(failure) => {
                CallOutcome::Failed { failure, status: Some(status), answer: Some(answer), note }
            }
            Verdict::Unknown => CallOutcome::Unknown { status: Some(status), note, answer: Some(answer) },
        }
    }
}

/// Scheme, host and port. Paths are left out as well as queries: Slack's and Zapier's hooks carry their key
/// in the path.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn status_note(url: &Url, status: u16, headers: &HeaderMap, verdict: Verdict) -> String {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("");
    let said = format!("{} answered {status} {reason}", origin(url));
    let said = said.trim_end();
    match (verdict, status) {
        (Verdict::Unknown, 302 | 303) => format!(
            "{said}: a page was named instead of an answer, which many send after they have acted; whether the \
             request was carried out cannot be told"
        ),
        (_, 300..=399) => {
            let location = headers.get(header::LOCATION).and_then(|v| v.to_str().ok());
            let target = location.and_then(|l| url.join(l).ok());
            let to =
                target.map_or_else(|| "elsewhere".to_owned(), |target| format!("to {}", origin(&target)));
            format!(
                "{said} and points {to}; redirects are not followed, because that would be a second request. \
                 Put the final address into the step's url"
            )
        }
        (Verdict::Succeeded, _) => said.to_owned(),
        (Verdict::Failed(Failure::Throttled { retry_after }), _) => {
            format!("{said} and asked to wait {} s", retry_after.as_secs())
        }
        (Verdict::Failed(Failure::Transient), _) => format!("{said}; it can be tried again later"),
        (Verdict::Failed(Failure::Locked), _) => {
            format!("{said}: somebody else is at it; it is tried again soon")
        }
        (Verdict::Failed(Failure::Permanent), 401 | 403) => {
            format!("{said}; check the credentials of this step and what they are allowed to do")
        }
        (Verdict::Failed(Failure::Permanent), _) => {
            format!("{said}; the request must be changed before it is sent again")
        }
        (Verdict::Unknown, _) => {
            format!("{said}, which does not tell whether the request was carried out")
        }
    }
}

/// Whether the receiver may have got the whole request. Takes the body back if not, so that this stays true.
fn ended(recall: Option<&Recall>, connected: bool) -> NoAnswer {
    let never_sent = match recall {
        Some(recall) => recall.take_back(),
        None => !connected,
    };
    if never_sent { NoAnswer::NeverSent } else { NoAnswer::MaybeSent }
}

fn broken(url: &Url, error: &reqwest::Error, recall: Option<&Recall>) -> CallOutcome {
    if let Some(blocked) = find::<BlockedAddress>(error) {
        return without_answer(NoAnswer::Refused, blocked.refusal(url).to_string());
    }
    if error.is_builder() {
        return without_answer(NoAnswer::Refused, "the URL is too long or cannot be sent".to_owned());
    }
    let (to, cause) = (origin(url), innermost(error));
    let ended = ended(recall, !error.is_connect());
    let note = match ended {
        NoAnswer::MaybeSent => format!(
            "{to} broke off after the request may have reached it ({cause}); whether it was carried out cannot \
             be told"
        ),
        _ if error.is_dns() => {
            format!("the name of {to} could not be looked up ({cause}); check its spelling and the DNS")
        }
        _ if error.is_connect() && error.is_timeout() => {
            format!(
                "no connection to {to} came about in time; check that it runs and that firewalls let it pass"
            )
        }
        _ if find::<rustls::Error>(error).is_some() => {
            format!("no TLS connection to {to} came about ({cause}); check its certificate")
        }
        _ => format!("no connection to {to} came about ({cause}); check that it runs and listens there"),
    };
    without_answer(ended, note)
}

fn timed_out(url: &Url, timeout: Duration, recall: Option<&Recall>) -> CallOutcome {
    let (to, ms) = (origin(url), timeout.as_millis());
    // A body-less request says nothing about how far it got, so it counts as sent.
    let ended = ended(recall, true);
    let note = match ended {
        NoAnswer::MaybeSent => {
            format!("{to} did not answer within {ms} ms; whether the request was carried out cannot be told")
        }
        _ => format!("nothing could be sent to {to} within {ms} ms; check that it runs and can be reached"),
    };
    without_answer(ended, note)
}

fn without_answer(ended: NoAnswer, note: String) -> CallOutcome {
    match classify::by_no_answer(ended) {
        Verdict::Failed(failure) => CallOutcome::Failed { failure, status: None, answer: None, note },
        Verdict::Unknown | Verdict::Succeeded => CallOutcome::Unknown { status: None, note, answer: None },
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        // `io::Error::source` skips the error it wraps.
        match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|e| e.downcast_ref())
}

/// The cause at the bottom, e.g. "Connection refused". The layers above it print the URL. Part of the text
/// can come from the other side's certificate, so it is held short and to one line.
fn innermost(error: &reqwest::Error) -> String {
    let text = chain(error).last().map(ToString::to_string).unwrap_or_default();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

//! One call to the gate: where it is, who calls, and what came of it.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_runner::entropy;
use oncegate_store::clock::{Clock, SystemClock};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use url::{Host, Url};

use super::super::ending::{Exit, Failure};
use super::super::term::{self, Screen, text};
use super::trouble::{Refused, Trouble};
use crate::config::{self, Environment, ProcessEnvironment};

/// Where the gate is and who calls; the same for every verb.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(in crate::cli) struct Connection {
    /// Where the gate answers.
    #[arg(long, env = "ONCEGATE_URL", value_name = "URL", default_value = "http://127.0.0.1:7480")]
    url: String,
    /// A file that holds the API token; without it the token is taken from ONCEGATE_TOKEN.
    #[arg(long, env = "ONCEGATE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<String>,
    /// Act in this workspace; only the server's admins may.
    #[arg(long, env = "ONCEGATE_WORKSPACE", value_name = "NAME")]
    workspace: Option<String>,
    /// Print the gate's JSON instead of text for people.
    #[arg(long)]
    pub(in crate::cli) json: bool,
}

/// Pauses before a write whose answer got lost is sent again.
const SEND_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// For an answer to begin and end; claims may `wait` for 25 s of it.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Lists of 500 claims with notes take about a megabyte; more than this is not a gate's answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A gate to call.
pub(super) struct Gate {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    workspace: Option<String>,
    pub(super) json: bool,
}

/// How a file is asked for.
pub(super) enum Asked<'a> {
    /// With these parameters; those without a value are left out.
    Get(&'a [(&'a str, Option<String>)]),
    /// With these fields.
    Post(&'a Value),
}

/// What the gate answered.
pub(super) struct Answer {
    /// As it came.
    pub(super) text: String,
    pub(super) body: Value,
    /// The store's clock as it answered.
    pub(super) now: Timestamp,
}

impl Connection {
    /// Reads what is needed; nothing is sent.
    pub(super) fn open(&self) -> Result<Gate, Failure> {
        let base = Url::parse(self.url.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none())
            .ok_or_else(|| {
                let url = text::clean(&self.url);
                Failure::usage(format!("`{url}` is not the address of a gate"))
                    .hint("write it as in http://127.0.0.1:7480, in ONCEGATE_URL or --url")
            })?;
        let token = match &self.token_file {
            Some(path) => {
                Some(config::secret_file(path).map_err(|e| Failure::usage(format!("--token-file: {e}")))?)
            }
            None => ProcessEnvironment
                .get("ONCEGATE_TOKEN")
                .filter(|token| !token.trim().is_empty())
                .map(|token| Secret::new(token.trim())),
        };
        let http = oncegate_connect::gate_client(is_own_machine(&base)).map_err(|e| e.to_string())?;
        let workspace = self.workspace.clone().filter(|name| !name.trim().is_empty());
        Ok(Gate { http, base, token, workspace, json: self.json })
    }
}

/// Whether calls stay on this machine; no proxy may get them.
fn is_own_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
        None => false,
    }
}

impl Gate {
    /// For headings and messages, without a slash at its end.
    pub(super) fn name(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// The address of `path`, whose parts are escaped here.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Only URLs that cannot be a base have no path, and `open` takes none of those.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// A reading call. Parameters without a value are left out.
    pub(super) async fn get(
        &self,
        path: &[&str],
        query: &[(&str, Option<String>)],
    ) -> Result<Answer, Trouble> {
        let mut url = self.url(path);
        let given: Vec<_> = query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect();
        if !given.is_empty() {
            url.query_pairs_mut().extend_pairs(given);
        }
        self.send(self.signed(Method::GET, url)).await
    }

    /// A call that does something. What it means to send it again is for the caller to know.
    pub(super) async fn post(&self, path: &[&str], fields: &Value) -> Result<Answer, Trouble> {
        self.send(with_json(self.signed(Method::POST, self.url(path)), fields)).await
    }

    /// A write that the gate does once: it is named by a key of its own, so it is sent again if its answer got lost.
    /// Only for addresses that take an `Idempotency-Key`.
    pub(super) async fn act(&self, path: &[&str], fields: &Value) -> Result<Answer, Trouble> {
        let key = data_encoding::HEXLOWER.encode(&entropy::bytes::<16>());
        let mut pauses = SEND_AGAIN.iter();
        let mut lost = false;
        loop {
            let request = self.signed(Method::POST, self.url(path)).header("idempotency-key", &key);
            let trouble = match self.send(with_json(request, fields)).await {
                Err(trouble) if trouble.is_passing() => trouble,
                said => return said,
            };
            lost |= matches!(trouble, Trouble::Silent { .. });
            match pauses.next().filter(|_| lost) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(trouble),
            }
        }
    }

    /// A call to an URL that carries its own token.
    pub(super) async fn press(&self, url: Url, fields: &Value) -> Result<Answer, Trouble> {
        self.send(with_json(self.http.post(url), fields)).await
    }

    /// A claim's call by its id, proved by the claim's own token.
    pub(super) async fn finish(
        &self,
        path: &[&str],
        token: &Secret,
        fields: &Value,
    ) -> Result<Answer, Trouble> {
        let request = bearer(self.http.post(self.url(path)), token);
        self.send(with_json(request, fields)).await
    }

    fn signed(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        let request = match &self.workspace {
            Some(name) => request.header("oncegate-workspace", name.trim()),
            None => request,
        };
        match &self.token {
            Some(token) => bearer(request, token),
            None => request,
        }
    }

    /// A file that the gate makes while it sends it: written to stdout as it comes. It is whole when this returns.
    pub(super) async fn file(&self, path: &[&str], asked: Asked<'_>) -> Result<(), Failure> {
        let screen = Screen::stdout();
        self.lines(path, asked, |text| {
            match screen.terminal {
                // A line of CSV ends with both, and to a terminal that is one end.
                true => term::write(&text::clean_json(&text.replace("\r\n", "\n"))),
                false => term::write(text),
            }
            Ok(())
        })
        .await
    }

    /// The same, whole lines at a time, to whoever takes them.
    pub(super) async fn lines(
        &self,
        path: &[&str],
        asked: Asked<'_>,
        mut take: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let request = match asked {
            Asked::Get(query) => {
                let mut url = self.url(path);
                let given = query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
                url.query_pairs_mut().extend_pairs(given);
                self.signed(Method::GET, url)
            }
            Asked::Post(fields) => with_json(self.signed(Method::POST, self.url(path)), fields),
        };
        let mut response = request.send().await.map_err(|e| self.lost(&e))?;
        if !response.status().is_success() {
            return Err(self.refused(response).await.into());
        }
        let mut line = vec![];
        while let Some(chunk) = response.chunk().await.map_err(|e| self.lost(&e))? {
            line.extend_from_slice(&chunk);
            let whole = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let text = String::from_utf8(line.drain(..whole).collect());
            let text = text.map_err(|_| Trouble::Stranger(self.name()))?;
            take(&text)?;
        }
        match line.is_empty() {
            true => Ok(()),
            false => Err(Trouble::Stranger(self.name()).into()),
        }
    }

    async fn refused(&self, response: reqwest::Response) -> Trouble {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        match self.read(response).await {
            Ok(text) => {
                let body = serde_json::from_str(&text).unwrap_or(Value::Null);
                Trouble::Refused(Box::new(Refused::read(status, &headers, body, &self.name())))
            }
            Err(trouble) => trouble,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer, Trouble> {
        let response = request.timeout(ANSWER_MAX).send().await.map_err(|e| self.lost(&e))?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let headers = response.headers().clone();
        let text = self.read(response).await?;
        let body = serde_json::from_str(&text);
        match body {
            Ok(body) => Ok(Answer { text, body, now: now(&headers) }),
            Err(_) => Err(Trouble::Stranger(self.name())),
        }
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<String, Trouble> {
        let mut bytes = vec![];
        while let Some(chunk) = response.chunk().await.map_err(|e| self.lost(&e))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::Stranger(self.name()));
            }
        }
        String::from_utf8(bytes).map_err(|_| Trouble::Stranger(self.name()))
    }

    fn lost(&self, error: &reqwest::Error) -> Trouble {
        let mut why: &dyn std::error::Error = error;
        while let Some(source) = why.source() {
            why = source;
        }
        let why = text::clean(&why.to_string());
        match error.is_connect() {
            true => Trouble::Unreachable { gate: self.name(), why },
            false if error.is_timeout() => Trouble::Silent {
                gate: self.name(),
                why: format!("no answer came within {} s", ANSWER_MAX.as_secs()),
            },
            false => Trouble::Silent { gate: self.name(), why },
        }
    }

    /// Prints the JSON as it came if it was asked for, or else what `page` makes of the answer.
    pub(super) fn print(&self, answer: &Answer, page: impl FnOnce(&Screen) -> String) {
        let screen = Screen::stdout();
        match self.json {
            true => print_json(&screen, &answer.text),
            false => term::write(&page(&screen)),
        }
    }
}

/// JSON goes out as it came; on a terminal, what would steer it is escaped, which is the same document.
pub(super) fn print_json(screen: &Screen, json: &str) {
    let end = if json.ends_with('\n') { "" } else { "\n" };
    match screen.terminal {
        true => term::write(&format!("{}{end}", text::clean_json(json))),
        false => term::write(&format!("{json}{end}")),
    }
}

fn with_json(request: RequestBuilder, fields: &Value) -> RequestBuilder {
    request.header(header::CONTENT_TYPE, "application/json").body(fields.to_string())
}

fn bearer(request: RequestBuilder, token: &Secret) -> RequestBuilder {
    let value = [b"Bearer ", token.expose()].concat();
    match HeaderValue::from_bytes(&value) {
        Ok(mut value) => {
            value.set_sensitive(true);
            request.header(header::AUTHORIZATION, value)
        }
        // No token of any gate looks like that: the gate says that one is needed.
        Err(_) => request,
    }
}

/// The store's clock if the answer tells it; a proxy in between may have dropped the header.
fn now(headers: &HeaderMap) -> Timestamp {
    let told = headers.get("oncegate-time").and_then(|v| v.to_str().ok());
    told.and_then(|text| Timestamp::parse_rfc3339(text).ok())
        .unwrap_or_else(|| SystemClock::new().read().wall)
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let exit = trouble.exit();
        Self::new(exit, trouble.to_string()).with_hints(trouble.hints())
    }
}

impl Failure {
    fn with_hints(self, hints: Vec<String>) -> Self {
        hints.into_iter().fold(self, Self::hint)
    }
}

impl Trouble {
    fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => Exit::Unreachable,
            Self::Stranger(_) => Exit::Failed,
            Self::Refused(refused) => match refused.status {
                // Of a release: what it releases is still not believed, whoever asks.
                401 if refused.code == "invalid_signature" => Exit::Refused,
                401 | 403 => Exit::NotAllowed,
                404 => Exit::NotFound,
                400 | 405 | 409 | 413 | 415 | 422 => Exit::Refused,
                408 | 429 | 502 | 503 | 504 => Exit::Unreachable,
                _ => Exit::Failed,
            },
        }
    }
}

//! The load of our own: keep-alive connections that each send one request after another, written by hand on a socket.
//! For machines without wrk, and for what wrk does not send.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::servers::TOKEN;

/// Keys that are done before duplicates of them are sent.
pub(crate) const DONE_KEYS: usize = 1_000;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A claim of a random key each time.
    Claims,
    /// Such a claim, and then its done.
    Cycles,
    /// A claim of a key that is done.
    Duplicates,
    /// Five hundred claims of random keys in one call.
    Batches,
}

impl Target {
    /// What one request counts for.
    pub(crate) const fn per_call(self) -> f64 {
        match self {
            Self::Claims | Self::Duplicates => 1.0,
            Self::Cycles => 0.5,
            Self::Batches => BATCH as f64,
        }
    }
}

/// The most that one call may bring.
const BATCH: usize = 500;

/// One drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Claims, cycles or whatever the target is.
    pub(crate) per_second: f64,
    /// Of one request, in its middle.
    pub(crate) p50: Duration,
    /// What one request in a hundred exceeds.
    pub(crate) p99: Duration,
}

/// Drives a server for about `length`.
pub(crate) async fn drive(
    address: &str,
    target: Target,
    connections: usize,
    length: Duration,
) -> Result<Measured, String> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(connection(address.to_owned(), target, start + length)))
        .collect();
    let mut times = vec![];
    for task in tasks {
        times.extend(task.await.map_err(|e| e.to_string())??);
    }
    let took = start.elapsed();
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Measured {
        per_second: times.len() as f64 * target.per_call() / took.as_secs_f64(),
        p50: at(0.5),
        p99: at(0.99),
    })
}

/// Makes the keys that duplicates are sent of.
pub(crate) async fn finish_keys(address: &str) -> Result<(), String> {
    let mut http = Http::connect(address).await?;
    for key in 0..DONE_KEYS {
        http.cycle(&claim(key as u128)).await?;
    }
    Ok(())
}

async fn connection(address: String, target: Target, until: Instant) -> Result<Vec<Duration>, String> {
    let mut http = Http::connect(&address).await?;
    let mut times = vec![];
    while Instant::now() < until {
        let sent = Instant::now();
        match target {
            Target::Claims => http.call("/v1/claims", &claim(random())).await?,
            Target::Duplicates => http.call("/v1/claims", &claim(random() % DONE_KEYS as u128)).await?,
            Target::Cycles => {
                let (claim, done) = http.cycle(&claim(random())).await?;
                times.push(claim);
                times.push(done);
                continue;
            }
            Target::Batches => {
                let claims: Vec<String> = (0..BATCH).map(|_| claim(random())).collect();
                http.call("/v1/claims/batch", &format!("{{\"claims\":[{}]}}", claims.join(","))).await?;
            }
        }
        times.push(sent.elapsed());
    }
    Ok(times)
}

/// A key that repeats would only measure something else.
pub(crate) fn random() -> u128 {
    let mut random = [0u8; 16];
    let _ = getrandom::fill(&mut random);
    u128::from_be_bytes(random)
}

fn claim(key: u128) -> String {
    format!(
        "{{\"automation\":\"bench\",\"idempotency_key\":\"form_contact:{key:032x}\",\
         \"run_url\":\"https://zap.example.com/runs/1\"}}"
    )
}

/// One connection.
pub(crate) struct Http {
    address: String,
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Where the last answer's body stands.
    body: std::ops::Range<usize>,
}

impl Http {
    pub(crate) async fn connect(address: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Self { address: address.to_owned(), stream, buffer: vec![0; 8 * 1024], body: 0..0 })
    }

    /// A claim and its done; how long each took.
    async fn cycle(&mut self, claim: &str) -> Result<(Duration, Duration), String> {
        let begun = Instant::now();
        self.call("/v1/claims", claim).await?;
        let claimed = begun.elapsed();
        let text = String::from_utf8_lossy(&self.buffer[self.body.clone()]);
        let url = text.split("\"done_url\":\"http://").nth(1).and_then(|rest| rest.split('"').next());
        let path = url.and_then(|url| url.find('/').map(|at| url[at..].to_owned()));
        let path = path.ok_or_else(|| format!("a claim without a done_url: {text}"))?;
        self.call(&path, "{}").await?;
        Ok((claimed, begun.elapsed() - claimed))
    }

    /// With the token of who may do everything.
    pub(crate) async fn call(&mut self, path: &str, body: &str) -> Result<(), String> {
        self.post(path, &format!("authorization: Bearer {TOKEN}"), body).await
    }

    /// Anything but 200 ends the benchmark, because a refusal is fast and proves nothing.
    pub(crate) async fn post(&mut self, path: &str, header: &str, body: &str) -> Result<(), String> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{header}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
        let (mut filled, mut whole) = (0, None);
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(2 * filled, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..]).await.map_err(|e| e.to_string())?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            filled += read;
            if whole.is_none() {
                whole = head(&self.buffer[..filled])?;
            }
            if let Some((begin, end)) = whole.filter(|(_, end)| filled >= *end) {
                self.body = begin..end;
                return Ok(());
            }
        }
    }
}

/// Where the body begins and ends, once the head is there.
fn head(read: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let text = String::from_utf8_lossy(read);
    let Some(head_end) = text.find("\r\n\r\n") else { return Ok(None) };
    if !text.starts_with("HTTP/1.1 200") {
        return Err(format!("unexpected answer: {}", text.lines().next().unwrap_or_default()));
    }
    let length = text[..head_end]
        .lines()
        .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok())
        .ok_or("an answer without content-length")?;
    Ok(Some((head_end + 4, head_end + 4 + length)))
}

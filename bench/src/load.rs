//! The load: keep-alive connections that each send one request after another. Written by hand on a socket, because
//! a full HTTP client would eat the two cores that the servers are measured on.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::servers::TOKEN;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A claim of a random key each time.
    Claims,
    /// Five hundred of them in one call.
    Batches,
}

impl Target {
    /// Claims in one request.
    pub(crate) const fn claims(self) -> usize {
        match self {
            Self::Claims => 1,
            Self::Batches => 500,
        }
    }
}

/// One drive.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
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
        per_second: (times.len() * target.claims()) as f64 / took.as_secs_f64(),
        p50: at(0.5),
        p99: at(0.99),
    })
}

async fn connection(address: String, target: Target, until: Instant) -> Result<Vec<Duration>, String> {
    let mut stream = TcpStream::connect(&address).await.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let mut times = vec![];
    let mut buffer = vec![0u8; 8 * 1024];
    while Instant::now() < until {
        let request = request(&address, target);
        let sent = Instant::now();
        stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
        answer(&mut stream, &mut buffer).await?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

fn request(address: &str, target: Target) -> String {
    let (path, body) = match target {
        Target::Claims => ("/v1/claims", claim()),
        Target::Batches => {
            let claims: Vec<String> = (0..target.claims()).map(|_| claim()).collect();
            ("/v1/claims/batch", format!("{{\"claims\":[{}]}}", claims.join(",")))
        }
    };
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A key that repeats would only measure something else.
fn claim() -> String {
    let mut random = [0u8; 16];
    let _ = getrandom::fill(&mut random);
    format!(
        "{{\"automation\":\"bench\",\"idempotency_key\":\"form_contact:{:032x}\",\"run_url\":\"https://zap.example.com/runs/1\"}}",
        u128::from_be_bytes(random)
    )
}

/// Reads one answer; anything but 200 ends the benchmark, because a refusal is fast and proves nothing.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), String> {
    let (mut filled, mut whole) = (0, None);
    loop {
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        let read = stream.read(&mut buffer[filled..]).await.map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        if let Some(whole) = whole {
            match filled >= whole {
                true => return Ok(()),
                false => continue,
            }
        }
        let text = String::from_utf8_lossy(&buffer[..filled]);
        let Some(head_end) = text.find("\r\n\r\n") else { continue };
        if !text.starts_with("HTTP/1.1 200") {
            return Err(format!("unexpected answer: {}", text.lines().next().unwrap_or_default()));
        }
        let length = text[..head_end]
            .lines()
            .find_map(|l| {
                l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
            })
            .ok_or("an answer without content-length")?;
        whole = Some(head_end + 4 + length);
        if filled >= head_end + 4 + length {
            return Ok(());
        }
    }
}

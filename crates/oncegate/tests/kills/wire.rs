//! One HTTP request over one connection, on nothing but the standard library: the judge shares no code with the
//! accused.

use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn call(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, Error> {
    let mut tcp = TcpStream::connect(at)?;
    tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n");
    request.push_str(&format!("content-length: {}\r\n", body.len()));
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    tcp.write_all(&bytes)?;
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer)?;
    let broken = || Error::other("the answer broke off");
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(broken)?;
    let status =
        answer.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse().ok()).ok_or_else(broken)?;
    Ok(Answer { status, body: answer[head + 4..].to_vec() })
}

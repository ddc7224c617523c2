//! Raw TCP servers that misbehave on purpose, and count what they read whole.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request that arrived whole: head and all announced bytes of the body.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Read {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (n, v) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then_some(v.trim())
        })
    }
}

/// What the server saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    reads: Arc<Mutex<Vec<Read>>>,
    connections: Arc<Mutex<usize>>,
}

impl Seen {
    pub(crate) fn reads(&self) -> Vec<Read> {
        self.reads.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub(crate) fn with_key(&self, key: &str) -> usize {
        self.reads.lock().unwrap().iter().filter(|r| r.header("idempotency-key") == Some(key)).count()
    }

    fn add(&self, read: Read) {
        self.reads.lock().unwrap().push(read);
    }
}

/// One accepted connection.
pub(crate) struct Conn {
    pub(crate) number: usize,
    pub(crate) tcp: TcpStream,
    seen: Seen,
}

impl Conn {
    /// Reads one whole request and writes it down; `None` if the other side went away before.
    pub(crate) async fn read(&mut self) -> Option<Read> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if self.tcp.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
        let mut read = Read { head, body: bytes.split_off(head_end) };
        let length = read.header("content-length").map_or(0, |v| v.parse().unwrap());
        while read.body.len() < length {
            if self.tcp.read_buf(&mut read.body).await.ok()? == 0 {
                return None;
            }
        }
        self.seen.add(read.clone());
        Some(read)
    }

    pub(crate) async fn write(&mut self, text: &str) {
        // The caller may have gone; that is its business.
        let _ = self.tcp.write_all(text.as_bytes()).await;
    }

    /// Closes with RST instead of FIN.
    pub(crate) fn reset(self) {
        self.tcp.set_zero_linger().unwrap();
    }
}

/// Serves each connection with `each` on a port of its own, until the test ends.
pub(crate) async fn serve<F, Fut>(each: F) -> (SocketAddr, Seen)
where
    F: Fn(Conn) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let shared = seen.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let number = {
                let mut count = shared.connections.lock().unwrap();
                *count += 1;
                *count
            };
            tokio::spawn(each(Conn { number, tcp, seen: shared.clone() }));
        }
    });
    (address, seen)
}

/// Answers every request with the same text, as often as it is asked.
pub(crate) async fn serve_text(answer: impl Into<String>) -> (SocketAddr, Seen) {
    let answer = answer.into();
    serve(move |mut conn| {
        let answer = answer.clone();
        async move {
            while conn.read().await.is_some() {
                conn.write(&answer).await;
            }
        }
    })
    .await
}

//! A connection whose every byte the test sends itself.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Gate, PATIENCE};

pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(gate: &Gate) -> Self {
        Self(TcpStream::connect(gate.api.base().strip_prefix("http://").unwrap()).await.unwrap())
    }

    /// A connection on which the head of a POST was sent.
    pub(crate) async fn post(gate: &Gate, path: &str, headers: &str) -> Self {
        let mut raw = Self::connect(gate).await;
        raw.send(format!("POST {path} HTTP/1.1\r\nhost: gate\r\n{headers}\r\n")).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// One answer with a body, without waiting for the connection's end.
    pub(crate) async fn answer(&mut self) -> String {
        let mut read = vec![];
        let whole = async {
            loop {
                let text = String::from_utf8_lossy(&read).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head
                        .to_lowercase()
                        .split("content-length: ")
                        .nth(1)
                        .map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
                    if length.is_some_and(|length| body.len() >= length) {
                        return text;
                    }
                }
                let got = self.0.read_buf(&mut read).await.unwrap();
                assert_ne!(got, 0, "the connection ended after {text:?}");
            }
        };
        tokio::time::timeout(PATIENCE, whole).await.expect("an answer")
    }

    /// Whatever came until the gate closed the connection.
    pub(crate) async fn until_closed(&mut self) -> String {
        let mut read = vec![];
        let closed = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut read)).await;
        // Closed or reset, it is gone.
        let _ = closed.expect("the gate closes the connection");
        String::from_utf8_lossy(&read).into_owned()
    }
}

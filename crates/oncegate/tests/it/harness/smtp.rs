//! A mail server (RFC 5321) that keeps what it takes, and fails where it is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How one connection goes.
#[derive(Clone, Debug)]
pub(crate) enum Post {
    /// The mail is taken.
    Taken,
    /// What begins with this word is answered so.
    Refused(&'static str, &'static str),
    /// The whole mail is taken, and the connection ends before that is said.
    TakenInSilence,
    /// The connection ends when this word comes.
    Gone(&'static str),
}

/// One mail as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    /// Head and body, with plain line breaks.
    pub(crate) text: String,
}

impl Letter {
    /// A header's value; folded lines are one.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let head = self.text.split("\n\n").next()?.replace("\n ", " ");
        let line = head
            .lines()
            .find(|line| line.to_lowercase().starts_with(&format!("{}:", name.to_lowercase())))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }
}

#[derive(Default)]
struct Inner {
    script: VecDeque<Post>,
    letters: Vec<Letter>,
    connections: usize,
}

/// Listens until the test ends. What nobody scripted is taken.
#[derive(Clone)]
pub(crate) struct MailServer {
    pub(crate) address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

impl MailServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), inner: Arc::default() };
        let shared = server.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move { shared.serve(tcp).await });
            }
        });
        server
    }

    pub(crate) fn script(&self, posts: impl IntoIterator<Item = Post>) {
        self.inner.lock().unwrap().script.extend(posts);
    }

    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.inner.lock().unwrap().letters.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.lock().unwrap().connections
    }

    /// How it is declared.
    pub(crate) fn yaml(&self) -> String {
        format!(
            "smtp: {{ host: 127.0.0.1, port: {}, security: none, from: 'The gate <gate@example.com>' }}\n",
            self.address.port()
        )
    }

    async fn serve(&self, tcp: TcpStream) -> Option<()> {
        let post = {
            let mut inner = self.inner.lock().unwrap();
            inner.connections += 1;
            inner.script.pop_front().unwrap_or(Post::Taken)
        };
        let (read, mut write) = tcp.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut letter = Letter::default();
        write.write_all(b"220 sink ESMTP\r\n").await.ok()?;
        while let Some(line) = lines.next_line().await.ok()? {
            let word = line.split([' ', ':']).next().unwrap_or_default().to_uppercase();
            match &post {
                Post::Gone(at) if *at == word => return None,
                Post::Refused(at, answer) if *at == word => {
                    write.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
                    continue;
                }
                _ => {}
            }
            let address = || line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
            let answer = match word.as_str() {
                "EHLO" => "250-sink\r\n250 8BITMIME",
                "MAIL" => {
                    letter.from = address();
                    "250 ok"
                }
                "RCPT" => {
                    letter.to.push(address());
                    "250 ok"
                }
                "DATA" => {
                    write.write_all(b"354 go on\r\n").await.ok()?;
                    while let Some(line) = lines.next_line().await.ok()? {
                        if line == "." {
                            break;
                        }
                        // RFC 5321 §4.5.2.
                        letter.text.push_str(line.strip_prefix('.').unwrap_or(&line));
                        letter.text.push('\n');
                    }
                    match &post {
                        Post::Refused("TEXT", answer) => answer,
                        Post::Gone("TEXT") => return None,
                        _ => {
                            self.inner.lock().unwrap().letters.push(std::mem::take(&mut letter));
                            if matches!(post, Post::TakenInSilence) {
                                return None;
                            }
                            "250 2.0.0 queued as 1"
                        }
                    }
                }
                "QUIT" => {
                    write.write_all(b"221 bye\r\n").await.ok()?;
                    return Some(());
                }
                _ => "502 what",
            };
            write.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
        }
        Some(())
    }
}

//! The other side of a step: records every request it read whole, and answers as it is told to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use oncegate_core::time::Timestamp;
use oncegate_store::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::TestClock;

/// How one request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// With a status, headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// Like the one inside, once it is let go.
    Held(Hold, Box<Reply>),
    /// Not at all: the connection is reset after the request was read.
    Reset,
    /// Not at all, and the connection stays.
    Silence,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, vec![], "{\"ok\":true}".to_owned())
    }

    pub(crate) fn json(json: &serde_json::Value) -> Self {
        Self::Status(200, vec![("content-type", "application/json".to_owned())], json.to_string())
    }

    pub(crate) fn retry_after(status: u16, wait: &str) -> Self {
        Self::Status(status, vec![("retry-after", wait.to_owned())], String::new())
    }

    /// 200, once `hold` is let go.
    pub(crate) fn held(hold: &Hold) -> Self {
        Self::Held(hold.clone(), Box::new(Self::status(200)))
    }
}

/// Keeps requests waiting.
#[derive(Clone, Debug)]
pub(crate) struct Hold(Arc<watch::Sender<bool>>);

impl Hold {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn let_go(&self) {
        self.0.send_replace(true);
    }

    async fn wait(&self) {
        let _ = self.0.subscribe().wait_for(|gone| *gone).await;
    }
}

/// A request that was read whole.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The gate's wall clock when it was read.
    pub(crate) at: Option<Timestamp>,
    /// What was answered; `None` while it is held, and for ever if nothing was.
    pub(crate) answered: Option<u16>,
}

impl Request {
    pub(crate) fn key(&self) -> &str {
        &self.headers["idempotency-key"]
    }

    /// Without its query.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Inner {
    requests: Vec<Request>,
    scripts: HashMap<String, VecDeque<Reply>>,
    always: HashMap<String, Reply>,
    clock: Option<Arc<TestClock>>,
}

/// Listens until the test ends. What nobody scripted is answered with 200.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), inner: Arc::default() };
        let shared = receiver.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move { shared.serve(tcp).await });
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests are dated with this clock.
    pub(crate) fn looks_at(&self, clock: &Arc<TestClock>) {
        self.lock().clock = Some(Arc::clone(clock));
    }

    /// Answers the next requests to a path in this order. Without a query it stands for any.
    pub(crate) fn script(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.lock().scripts.entry(path.to_owned()).or_default().extend(replies);
    }

    /// Answers every request to a path like this, once its script is over.
    pub(crate) fn always(&self, path: &str, reply: Reply) {
        self.lock().always.insert(path.to_owned(), reply);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    pub(crate) fn to(&self, path: &str) -> Vec<Request> {
        let is_to = |r: &&Request| r.path == path || r.bare_path() == path;
        self.lock().requests.iter().filter(is_to).cloned().collect()
    }

    /// How many requests came for each key.
    pub(crate) fn by_key(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.lock().requests {
            *counts.entry(request.key().to_owned()).or_default() += 1;
        }
        counts
    }

    /// Waits until that many requests came to a path.
    pub(crate) async fn got(&self, path: &str, count: usize) -> Vec<Request> {
        let all = super::eventually(&format!("{count} requests to {path}"), async || {
            Some(self.to(path)).filter(|all| all.len() >= count)
        })
        .await;
        assert_eq!(all.len(), count, "requests to {path}");
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    async fn serve(&self, mut tcp: TcpStream) {
        while let Some(request) = read(&mut tcp).await {
            let (number, mut reply) = self.take(request);
            while let Reply::Held(hold, then) = reply {
                hold.wait().await;
                reply = *then;
            }
            match reply {
                Reply::Status(status, headers, body) => {
                    let mut text =
                        format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
                    for (name, value) in headers {
                        text.push_str(&format!("{name}: {value}\r\n"));
                    }
                    self.lock().requests[number].answered = Some(status);
                    // The caller may have gone; that is its business.
                    let _ = tcp.write_all(format!("{text}\r\n{body}").as_bytes()).await;
                }
                Reply::Reset => {
                    tcp.set_zero_linger().unwrap();
                    return;
                }
                Reply::Silence => std::future::pending().await,
                Reply::Held(..) => unreachable!("let go above"),
            }
        }
    }

    fn take(&self, mut request: Request) -> (usize, Reply) {
        let mut inner = self.lock();
        request.at = inner.clock.as_ref().map(|clock| clock.read().wall);
        let bare = request.bare_path().to_owned();
        let mut scripted = |path| inner.scripts.get_mut(path).and_then(VecDeque::pop_front);
        let scripted = scripted(&request.path).or_else(|| scripted(&bare));
        let always = |path| inner.always.get(path).cloned();
        let reply = scripted.or_else(|| always(&request.path)).or_else(|| always(&bare));
        inner.requests.push(request);
        (inner.requests.len() - 1, reply.unwrap_or_else(|| Reply::status(200)))
    }
}

/// One whole request; `None` if the other side went away before.
async fn read(tcp: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if tcp.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(head_end);
    let head = String::from_utf8(bytes).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |v| v.parse().unwrap());
    while body.len() < length {
        if tcp.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request { method, path, headers, body, at: None, answered: None })
}

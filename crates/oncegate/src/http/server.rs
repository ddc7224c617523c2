//! Takes connections: not more than there are file descriptors for, none for longer than it is of use.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use oncegate_core::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::budget::Share;
use super::connection::{Arriving, Phase, Socket};
use super::peer::Peer;
use super::problem::Problem;

/// What the server grants to those who call it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the first byte of a request, or from the connection's begin, to the end of the request's head.
    pub head: Duration,
    /// From an answer to the end of the next request's head.
    pub idle: Duration,
    /// How long a caller may take nothing of an answer.
    pub write_stall: Duration,
    /// Connections at a time; `None` is what the limit on open files leaves.
    pub connections: Option<usize>,
    /// Bytes of bodies in memory at a time, without the part of each that is free.
    pub bytes_in_flight: usize,
    /// How long `/readyz` says that the gate is about to stop before it takes no more connections.
    pub drain_notice: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: limits::HEAD_READ_TIME_MAX,
            idle: limits::KEEP_ALIVE_MAX,
            write_stall: limits::WRITE_STALL_MAX,
            connections: None,
            bytes_in_flight: limits::BODY_BYTES_IN_FLIGHT_MAX,
            drain_notice: Duration::ZERO,
        }
    }
}

/// What a connection's buffer grows to: the largest head, and the piece in which a body arrives.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Until it is tried again after no connection could be taken: a full table of files empties by itself.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Why no connection can be taken is said once in this time.
const ACCEPT_SAID_FOR: Duration = Duration::from_secs(60);

/// Raises the limit on open files to what this process may have; many systems begin with 1,024. To be called once, by
/// the program: it counts for the whole process.
pub(crate) fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // What cannot be raised is lived with: the number of connections follows the limit.
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!(%error, ?current, ?maximum, "the limit on open files stays");
    }
}

/// Connections that the limit on open files leaves, with room for the store, the steps' calls and the log.
fn connections_max() -> usize {
    let files =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    files.saturating_sub(limits::FILES_KEPT).max(files / 4).clamp(1, limits::CONNECTIONS_MAX)
}

/// Answers until it is told to stop; then takes no more connections and ends with the last request. Ended from
/// outside it cuts what is left.
pub(crate) async fn run(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections.unwrap_or_else(connections_max)));
    let budget = Arc::new(Semaphore::new(limits.bytes_in_flight.min(Semaphore::MAX_PERMITS)));
    let router = TowerToHyperService::new(router.with_state(()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER_BYTES_MAX);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut door = Door { listener, said: None };
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (door.accept().await, place)
        };
        let (tcp, place) = tokio::select! {
            next = next => next,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        // Small answers must not wait for an acknowledgement. A socket that is gone already shows that soon enough.
        let _ = tcp.set_nodelay(true);
        let peer = Peer(tcp.peer_addr().ok().map(|address| address.ip()));
        let phase = Arc::new(Phase::default());
        let socket = TokioIo::new(Socket::new(tcp, &phase, limits));
        let (router, budget) = (router.clone(), Arc::clone(&budget));
        let service = service_fn(move |request| {
            answer(router.clone(), Share::new(&budget), Arc::clone(&phase), peer, request)
        });
        let connection = graceful.watch(http.serve_connection(socket, service));
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(door);
    graceful.shutdown().await;
}

struct Door {
    listener: TcpListener,
    /// Runs while the last complaint still counts.
    said: Option<JoinHandle<()>>,
}

impl Door {
    async fn accept(&mut self) -> TcpStream {
        loop {
            let error = match self.listener.accept().await {
                Ok((tcp, _)) => return tcp,
                Err(error) => error,
            };
            // The caller's, not ours: it hung up before it was taken.
            if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                continue;
            }
            if self.said.as_ref().is_none_or(JoinHandle::is_finished) {
                tracing::error!(%error, "cannot take connections; is the limit on open files (ulimit -n) too low?");
                self.said = Some(tokio::spawn(tokio::time::sleep(ACCEPT_SAID_FOR)));
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// What holds for every answer, whoever makes it.
async fn answer(
    router: TowerToHyperService<Router>,
    share: Arc<Share>,
    phase: Arc<Phase>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let _busy = phase.begin();
    let mut request = request.map(|body| Body::new(Arriving::new(body, &phase)));
    request.extensions_mut().insert(Arc::clone(&share));
    request.extensions_mut().insert(peer);
    let path = request.uri().path();
    let is_api = path.strip_prefix("/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut response = match is_text(path) {
        true => router.call(request).await?,
        false => Problem::not_found("this address cannot be read: it is not UTF-8").into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_api {
        // Tokens, payloads and states that the next moment changes.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if phase.is_unread() {
        // The connection ends with this answer; a caller that did not know would send its next request into nothing.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // Given back with the answer, not with the last who holds the request's parts.
    drop(share);
    Ok(response)
}

/// Whether a path is UTF-8 once its `%` sequences are read.
fn is_text(path: &str) -> bool {
    if !path.contains('%') {
        return true;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    loop {
        rest = match rest {
            [] => return std::str::from_utf8(&bytes).is_ok(),
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default();
                bytes.extend(u8::try_from(16 * digit(*high) + digit(*low)));
                rest
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_text_or_not() {
        for path in ["/", "/v1/claims/a", "/in/%C3%A9", "/in/100%", "/in/%zz", "/in/%F0%9F%98%80"] {
            assert!(is_text(path), "{path}");
        }
        for path in ["/%ff", "/v1/claims/%FF/done", "/in/%C3", "/in/%C3x%A9", "/%ED%A0%80"] {
            assert!(!is_text(path), "{path}");
        }
    }

    #[test]
    fn connections_leave_files_for_everything_else() {
        raise_file_limit();
        let files = getrlimit(Resource::Nofile);
        assert_eq!(files.current, files.maximum);
        assert!((1..=limits::CONNECTIONS_MAX).contains(&connections_max()));
    }
}

//! One connection as the server sees it: a socket that gives up on those who only hold it.
//!
//! Between requests hyper's own timer runs. It knows no other limits, so these stand here: the time from the first
//! byte of a request to the end of its head, the time in which an answer goes on being taken, and what becomes of a
//! body that nobody reads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::server::Limits;

/// How long what is still being sent is thrown away after the answer: closing at once would reset the connection, and
/// a sender that is not done sending would never see why it was refused.
const LINGER: Duration = Duration::from_secs(5);

/// What the socket must know of its requests. Only one task touches it at a time.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    /// Requests whose head has been read.
    begun: AtomicU64,
    /// Requests that were answered.
    ended: AtomicU64,
    /// The last request's body has not been read to its end.
    unread: AtomicBool,
}

/// A request that is being answered.
pub(crate) struct Busy(Arc<Phase>);

impl Phase {
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.begun.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

/// A body that tells its connection whether it was read to the end.
pub(crate) struct Arriving {
    body: Incoming,
    phase: Arc<Phase>,
}

impl Arriving {
    pub(crate) fn new(body: Incoming, phase: &Arc<Phase>) -> Self {
        phase.unread.store(!body.is_end_stream(), Relaxed);
        Self { body, phase: Arc::clone(phase) }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.phase.unread.store(false, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket with patience that ends.
pub(crate) struct Socket {
    tcp: TcpStream,
    phase: Arc<Phase>,
    limits: Limits,
    /// The number of the request whose head has begun to arrive; a new connection owes its first at once.
    head_of: u64,
    head: Timer,
    write: Timer,
    linger: Timer,
    is_shut: bool,
}

/// Runs from the first time that it is asked until it is stopped.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn stop(&mut self) {
        self.0 = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>, patience: Duration) -> Poll<()> {
        self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience))).as_mut().poll(cx)
    }
}

fn timed_out<T>(what: &'static str) -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)))
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream, phase: &Arc<Phase>, limits: Limits) -> Self {
        let (head, write, linger) = <(Timer, Timer, Timer)>::default();
        Self { tcp, phase: Arc::clone(phase), limits, head_of: 0, head, write, linger, is_shut: false }
    }

    /// Passes on how a write went, unless nothing was taken for too long.
    fn written<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.write.stop();
        } else if self.write.poll(cx, self.limits.write_stall).is_ready() {
            return timed_out("the answer was not taken");
        }
        poll
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let poll = Pin::new(&mut this.tcp).poll_read(cx, buf);
        let begun = this.phase.begun.load(Relaxed);
        if buf.filled().len() > before && this.phase.ended.load(Relaxed) == begun && this.head_of != begun {
            this.head_of = begun;
            this.head.stop();
        }
        if this.head_of != begun {
            this.head.stop();
        } else if poll.is_pending() && this.head.poll(cx, this.limits.head).is_ready() {
            return timed_out("the head of a request did not arrive");
        }
        poll
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.written(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut {
            ready!(Pin::new(&mut this.tcp).poll_shutdown(cx))?;
            this.is_shut = true;
        }
        if !this.phase.is_unread() || this.linger.poll(cx, LINGER).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut thrown_away = [0; 16 * 1024];
        loop {
            let mut buf = ReadBuf::new(&mut thrown_away);
            // Whatever goes wrong here, the connection ends.
            if ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut buf)).is_err() || buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

//! A request body that can be read once, and that can be taken back before it was.
//!
//! It answers two questions no HTTP library answers: *can this have been sent twice?* (no: a second reader
//! gets an error, and a request whose announced bytes do not come is none) and *can this have been sent at
//! all?* (only if somebody read it). Who takes it back and who reads it race on one atomic, so a connection
//! task that still runs after its caller gave up cannot send what was reported as never sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const UNREAD: u8 = 0;
const READ: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// The body, handed to the HTTP client.
#[derive(Debug)]
pub(crate) struct OnceBody {
    bytes: Bytes,
    length: u64,
    state: Arc<AtomicU8>,
    given: bool,
}

/// The caller's end of a [`OnceBody`].
#[derive(Debug)]
pub(crate) struct Recall(Arc<AtomicU8>);

impl OnceBody {
    /// `bytes` must not be empty: HTTP clients do not read empty bodies, which would tell nothing.
    pub(crate) fn new(bytes: Bytes) -> (Self, Recall) {
        debug_assert!(!bytes.is_empty());
        let state = Arc::new(AtomicU8::new(UNREAD));
        let length = bytes.len() as u64;
        (Self { bytes, length, state: Arc::clone(&state), given: false }, Recall(state))
    }
}

impl Recall {
    /// Takes the body back. True if nobody had read it, in which case nobody ever will.
    pub(crate) fn take_back(&self) -> bool {
        self.0.compare_exchange(UNREAD, TAKEN_BACK, Ordering::AcqRel, Ordering::Acquire) != Err(READ)
    }
}

impl Body for OnceBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.given {
            return Poll::Ready(None);
        }
        match self.state.compare_exchange(UNREAD, READ, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.given = true;
                let bytes = std::mem::take(&mut self.bytes);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Err(_) => Poll::Ready(Some(Err(io::Error::other("the request was taken back")))),
        }
    }

    /// Stays at the first length after the bytes were given, and `is_end_stream` stays false: a layer that
    /// started over with the same body must announce bytes that then do not come, not an empty body.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn read(body: &mut OnceBody) -> Option<Result<Bytes, ()>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|f| f.map(|f| f.into_data().unwrap()).map_err(drop)),
            Poll::Pending => panic!("the bytes are here"),
        }
    }

    #[test]
    fn a_body_is_read_once_and_then_cannot_be_taken_back() {
        let (mut body, recall) = OnceBody::new(Bytes::from_static(b"x"));
        assert_eq!(body.size_hint().exact(), Some(1));
        assert_eq!(read(&mut body), Some(Ok(Bytes::from_static(b"x"))));
        assert_eq!(read(&mut body), None);
        assert!(
            body.size_hint().exact() == Some(1) && !body.is_end_stream(),
            "no empty body to start over with"
        );
        assert!(!recall.take_back());
    }

    #[test]
    fn a_body_taken_back_cannot_be_read() {
        let (mut body, recall) = OnceBody::new(Bytes::from_static(b"x"));
        assert!(recall.take_back());
        assert_eq!(read(&mut body), Some(Err(())));
        assert!(recall.take_back(), "asking again changes nothing");
    }
}

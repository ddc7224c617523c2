//! Answers that are made while they are sent: exports, whose size nobody knows before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use hyper::body::Frame;
use oncegate_store::StoreError;
use serde_json::Value;
use tokio::sync::mpsc;

/// Pieces that wait for a slow reader; each is a page of rows at most.
const WAITING_MAX: usize = 4;

/// Where the lines are put. The reader is gone when it says so.
pub(crate) struct Lines(mpsc::Sender<io::Result<Bytes>>);

/// Why nothing more is put.
pub(crate) enum Ended {
    /// The reader hung up.
    ReaderGone,
    /// The store could not be read.
    Store(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Lines {
    /// One JSON document per line.
    pub(crate) async fn json(&self, line: &Value) -> Result<(), Ended> {
        self.bytes(format!("{line}\n").into_bytes()).await
    }

    pub(crate) async fn bytes(&self, bytes: Vec<u8>) -> Result<(), Ended> {
        self.0.send(Ok(bytes.into())).await.map_err(|_| Ended::ReaderGone)
    }
}

struct Coming(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Coming {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|next| next.map(|bytes| bytes.map(Frame::data)))
    }
}

/// An answer that `write` goes on making. If it fails on the way, the connection breaks: a reader must not take half
/// of it for the whole.
pub(crate) fn stream<F>(content_type: &'static str, file: &str, write: impl FnOnce(Lines) -> F) -> Response
where
    F: Future<Output = Result<(), Ended>> + Send + 'static,
{
    let (sender, coming) = mpsc::channel(WAITING_MAX);
    let breaking = sender.clone();
    let writing = write(Lines(sender));
    tokio::spawn(async move {
        if let Err(Ended::Store(error)) = writing.await {
            tracing::error!(%error, "an export broke off");
            let _ = breaking.send(Err(io::Error::other("the store failed"))).await;
        }
    });
    let mut response = Body::new(Coming(coming)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{file}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// The content type of JSON lines.
pub(crate) const JSON_LINES: &str = "application/x-ndjson";

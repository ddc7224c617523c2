//! Claims as a file: CSV for spreadsheets, JSON lines for programs. Sent while it is read, with little in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, Uri, header};
use hyper::body::Frame;
use oncegate_core::csv_cell;
use oncegate_core::time::Now;
use oncegate_store::StoreError;
use oncegate_store::api::{ClaimView, Filter};
use oncegate_store::people::Export;
use serde_json::Value;

use super::auth::Caller;
use super::filter;
use super::input::Fields;
use super::problem::Problem;
use super::{AppState, answer};

/// The columns, in order; the names are those of the JSON answer.
const COLUMNS: [&str; 21] = [
    "claim_id",
    "automation",
    "idempotency_key",
    "processing_state",
    "inbox",
    "processing_started_at",
    "attempt",
    "record",
    "tag",
    "note",
    "error_cause",
    "due_at",
    "done_at",
    "remembered_until",
    "parked",
    "dismissed",
    "mismatch_at",
    "late_at",
    "run_url",
    "created_at",
    "updated_at",
];
/// Bytes that are gathered before they are sent.
const GATHERED: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

pub(crate) async fn claims(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut fields = Fields::query(&uri)?;
    let format = match fields.text("format")?.as_deref() {
        None | Some("csv") => Format::Csv,
        Some("jsonl") => Format::JsonLines,
        Some(_) => return Err(Problem::field("format", "must be csv or jsonl")),
    };
    let store = state.gate.store();
    let now = store.now();
    let asked = filter::read(&mut fields, &caller, now)?;
    fields.finish(&format!("format, {}", filter::TAKES))?;
    let filter = Filter { oldest_first: true, ..asked.filter };
    let rows = store.export(caller.workspace, filter).await?;
    let (kind, name, gathered) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "claims.csv", line(COLUMNS)),
        Format::JsonLines => ("application/jsonl", "claims.jsonl", Vec::new()),
    };
    let headers: [(HeaderName, String); 3] = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        // Keys and notes may name people; no cache is to keep them.
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, Body::new(File { rows, format, gathered, now })).into_response())
}

/// The rest of a file.
struct File {
    rows: Export,
    format: Format,
    gathered: Vec<u8>,
    now: Now,
}

impl File {
    fn gather(&mut self, view: &ClaimView) {
        let claim = answer::claim(view, self.now);
        match self.format {
            Format::Csv => self.gathered.extend(line(COLUMNS.map(|name| cell(&claim[name])))),
            Format::JsonLines => self.gathered.extend(format!("{claim}\n").into_bytes()),
        }
    }

    fn frame(&mut self) -> Option<Result<Frame<Bytes>, StoreError>> {
        let bytes = std::mem::take(&mut self.gathered);
        (!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into())))
    }
}

impl HttpBody for File {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        loop {
            match self.rows.poll_recv(cx) {
                Poll::Ready(Some(Ok(view))) => {
                    self.gather(&view);
                    if self.gathered.len() >= GATHERED {
                        return Poll::Ready(self.frame());
                    }
                }
                // The connection breaks off, so that half a file is not taken for a whole one.
                Poll::Ready(Some(Err(error))) => {
                    tracing::error!(%error, "an export broke off");
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => return Poll::Ready(self.frame()),
                Poll::Pending if self.gathered.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(self.frame()),
            }
        }
    }
}

pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv_cell::escape(text).into_owned(),
        other => other.to_string(),
    }
}

/// One line, quoted where it must be (RFC 4180).
pub(crate) fn line<S: AsRef<[u8]>>(cells: impl IntoIterator<Item = S>) -> Vec<u8> {
    let mut line = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    // Writing to memory does not fail.
    match line.write_record(cells) {
        Ok(()) => line.into_inner().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

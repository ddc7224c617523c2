//! What one call tells about the effect it was to have.

use std::fmt;
use std::time::Duration;

/// What is known about the effect after a call (DESIGN §9, law 7: unknown is an outcome of its own).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The receiver said that it did it (2xx).
    Succeeded {
        /// The HTTP status, 200 to 299.
        status: u16,
        /// What it answered. If the answer broke off after its status line, it is marked [`Answer::cut`].
        answer: Answer,
    },
    /// Surely not done.
    Failed {
        /// When, if ever, the same request may be sent again.
        failure: Failure,
        /// The HTTP status; `None` if nothing was sent.
        status: Option<u16>,
        /// What the receiver answered, if it did.
        answer: Option<Answer>,
        /// What happened, where, and how to mend it. For people; holds no body, path, query or header value.
        note: String,
    },
    /// Sent, perhaps in part, and what came of it cannot be told.
    Unknown {
        /// The HTTP status, if one came.
        status: Option<u16>,
        /// As in [`CallOutcome::Failed`].
        note: String,
        /// What the receiver answered, if it did.
        answer: Option<Answer>,
    },
}

/// Why a call surely had no effect, told by what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The receiver asked to wait; this uses up no retry (DESIGN §3, "Retries").
    Throttled {
        /// How long it asked to wait; between zero and [`crate::classify::RETRY_AFTER_MAX`].
        retry_after: Duration,
    },
    /// May work later as it is.
    Transient,
    /// The same, within moments: somebody else holds what it would change.
    Locked,
    /// Will not work until somebody changes something.
    Permanent,
}

/// The body of an answer, as it came: neither decompressed nor decoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// At most [`crate::OutgoingRequest::answer_bytes_max`] bytes.
    pub body: Vec<u8>,
    /// The `Content-Type`, if it came and is readable text.
    pub content_type: Option<String>,
    /// The body is not whole: longer than the limit, broken off, or not finished within the timeout. A
    /// connector whose receiver reports failures *inside* a 200 (Marketo) must not take a cut answer for one.
    pub cut: bool,
}

impl fmt::Debug for Answer {
    /// Shows sizes only: bodies hold personal data and must not reach logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("bytes", &self.body.len())
            .field("content_type", &self.content_type)
            .field("cut", &self.cut)
            .finish()
    }
}

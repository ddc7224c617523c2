//! Why a call brought nothing: no gate, no answer, or a refusal; each says how to mend it.

use std::fmt;

use http::{HeaderMap, header};
use serde_json::Value;

use super::super::term::text::clean;

/// What came instead of an answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing was sent.
    Unreachable { gate: String, why: String },
    /// It was sent, and no whole answer came: it may have been done.
    Silent { gate: String, why: String },
    /// Something answered that is not a gate.
    Stranger(String),
    /// A problem document (RFC 9457), or a status of something in between.
    Refused(Box<Refused>),
}

/// A refusal.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    /// Empty if something else than a gate refused.
    pub(super) code: String,
    title: String,
    detail: String,
    retry_after_s: Option<u64>,
    gate: String,
    /// The whole document.
    pub(super) body: Value,
}

impl Refused {
    pub(super) fn read(status: u16, headers: &HeaderMap, body: Value, gate: &str) -> Self {
        let text = |name: &str| clean(body[name].as_str().unwrap_or_default());
        let seconds = headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let (code, title, detail) = (text("code"), text("title"), text("detail"));
        Self { status, code, title, detail, retry_after_s: seconds, gate: gate.to_owned(), body }
    }

    /// A text member of the document.
    pub(super) fn member(&self, name: &str) -> Option<&str> {
        self.body[name].as_str()
    }
}

impl Trouble {
    /// The stable code of a refusal.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Refused(refused) => &refused.code,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Stranger(_) => "",
        }
    }

    /// Whether the same call may succeed later, and nothing speaks against sending it again if it may be repeated.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => true,
            Self::Refused(refused) => matches!(refused.status, 408 | 429 | 500 | 502 | 503 | 504),
            Self::Stranger(_) => false,
        }
    }

    /// How to go on.
    pub(super) fn hints(&self) -> Vec<String> {
        match self {
            Self::Unreachable { .. } => vec![
                "is it running? `oncegate serve` starts one".into(),
                "elsewhere? set ONCEGATE_URL, or pass --url".into(),
            ],
            Self::Silent { .. } => {
                vec!["it may have been done all the same: look before you repeat it".into()]
            }
            Self::Stranger(_) => {
                vec!["compare ONCEGATE_URL with the address that `oncegate serve` printed".into()]
            }
            Self::Refused(refused) => refused.hints(),
        }
    }
}

impl Refused {
    fn hints(&self) -> Vec<String> {
        let mut hints = vec![];
        if matches!(self.code.as_str(), "missing_credentials" | "invalid_credentials") {
            hints.push("set ONCEGATE_TOKEN, or pass --token-file FILE".to_owned());
        }
        if let Some(seconds) = self.retry_after_s {
            hints.push(format!("try again in {seconds} s"));
        }
        hints
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { gate, why } => write!(f, "no gate answers at {gate}: {why}"),
            Self::Silent { gate, why } => write!(f, "the answer of {gate} got lost: {why}"),
            Self::Stranger(gate) => write!(f, "what answers at {gate} is not a gate"),
            Self::Refused(refused) => write!(f, "{refused}"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, code, title, detail, gate, .. } = self;
        match code.as_str() {
            "" => write!(f, "{gate} answered with status {status}, which is not a gate's way to refuse"),
            code => write!(f, "{title} ({code}, {status})\n  {detail}"),
        }
    }
}

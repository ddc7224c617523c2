//! What the schemes share that sign a time with the body, so that a captured request is good for minutes only.

use std::borrow::Cow;

use super::request::Request;
use super::signature::{Algorithm, Encoding, SignatureError, any_fits, presented};
use crate::time::Timestamp;

/// How a time is counted from 1970.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// How far a signed time may lie from ours, in seconds, before or after, where a provider says nothing else: the
/// value of the reference libraries.
pub(super) const TOLERANCE_S: u64 = 300;

/// Checks a signed time, on both sides (webhooks/README.md §1.10).
pub(super) fn check_time(
    header: &str,
    text: &str,
    unit: Unit,
    tolerance_s: u64,
    now: Timestamp,
) -> Result<(), SignatureError> {
    let number = match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<i64>().ok(),
        false => None,
    };
    let Some(number) = number else {
        let expected = match unit {
            Unit::Seconds => "<seconds since 1970>",
            Unit::Milliseconds => "<milliseconds since 1970>",
        };
        return Err(SignatureError::Malformed { header: header.to_owned(), expected: expected.to_owned() });
    };
    let (ours, theirs, in_a_second) = match unit {
        Unit::Seconds => (now.as_secs(), number, 1),
        Unit::Milliseconds => (now.as_millis(), number, 1_000),
    };
    let off_by = ours.abs_diff(theirs);
    if off_by <= tolerance_s * in_a_second {
        return Ok(());
    }
    Err(SignatureError::OutsideTolerance {
        header: header.to_owned(),
        // A millisecond too late is a second too late.
        off_by_s: off_by.div_ceil(in_a_second),
        direction: if theirs < ours { "behind" } else { "ahead of" },
        tolerance_s,
    })
}

/// One header `t=<seconds>,v1=<hex>` with the HMAC-SHA256 of `t.body`; several `v1` while a secret is rotated, of
/// which one must fit, and other schemes beside it, which do not count.
pub(super) struct Elements {
    pub(super) header: &'static str,
    pub(super) tolerance_s: u64,
}

impl Elements {
    pub(super) fn verify(
        &self,
        req: &Request<'_>,
        keys: &[Cow<'_, [u8]>],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let header = || self.header.to_owned();
        let malformed = || SignatureError::Malformed {
            header: header(),
            expected: "t=<seconds>,v1=<hexadecimal digits>".to_owned(),
        };
        let mut signed_at: Option<&str> = None;
        let mut signatures = Vec::new();
        for element in presented(req.headers, self.header, |c| c == ',')? {
            match element.split_once('=') {
                Some(("t", text)) if signed_at.is_some_and(|other| other != text) => {
                    return Err(SignatureError::Twice { header: header() });
                }
                Some(("t", text)) => signed_at = Some(text),
                Some(("v1", text)) => signatures.extend(Encoding::Hex.decode(text).filter(|s| !s.is_empty())),
                _ => {}
            }
        }
        let signed_at = signed_at.ok_or_else(malformed)?;
        if signatures.is_empty() {
            return Err(malformed());
        }
        check_time(self.header, signed_at, Unit::Seconds, self.tolerance_s, now)?;
        any_fits(self.header, Algorithm::Sha256, keys, &[signed_at.as_bytes(), b".", req.body], &signatures)
    }
}

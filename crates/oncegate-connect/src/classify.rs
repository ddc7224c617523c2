//! From what came back to what is known about the effect: the one table of it, pure.
//!
//! Sources: RFC 9110 §15 (status codes) and the retry classes shared by all connectors (apis/README.md).

use std::time::{Duration, SystemTime};

use oncegate_core::lane::{Asked, Heard, Standing};
use oncegate_core::time::Timestamp;

use crate::outcome::{CallOutcome, Failure};

/// What a call told about its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Succeeded,
    /// Surely not done.
    Failed(Failure),
    /// Cannot be told.
    Unknown,
}

/// How a call ended that brought no status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The request itself is not one that can be sent, or goes where oncegate may not call.
    Refused,
    /// The receiver cannot have got the whole request: no connection came about, or the body never left.
    NeverSent,
    /// The request may have arrived whole.
    MaybeSent,
}

/// The wait after a 429 that names none.
pub const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(30);
/// The longest wait that is believed; a receiver that asks for more is held to this. A year and a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a call without an answer tells.
pub fn by_no_answer(ended: NoAnswer) -> Verdict {
    match ended {
        NoAnswer::Refused => Verdict::Failed(Failure::Permanent),
        NoAnswer::NeverSent => Verdict::Failed(Failure::Transient),
        NoAnswer::MaybeSent => Verdict::Unknown,
    }
}

/// What a status tells, whether or not the body after it came whole.
///
/// A 2xx whose body broke off is a success: the receiver decides on the status line after it has acted, and
/// calling again would risk the second effect that oncegate exists to prevent.
pub fn by_status(status: u16, retry_after: Option<Duration>) -> Verdict {
    match status {
        200..=299 => Verdict::Succeeded,
        // What a form handler answers after it has acted, pointing to a page about it (RFC 9110 §15.4.4).
        302 | 303 => Verdict::Unknown,
        // Not followed: a redirected request is a second request.
        300..=399 => Verdict::Failed(Failure::Permanent),
        // Meant for requests that did not arrive whole; gateways also send it while the receiver works on.
        408 => Verdict::Unknown,
        // RFC 8470 §5.2: the receiver did not process the request.
        425 => Verdict::Failed(Failure::Transient),
        429 => {
            Verdict::Failed(Failure::Throttled { retry_after: retry_after.unwrap_or(RETRY_AFTER_DEFAULT) })
        }
        // RFC 4918 §11.3: what it would change is locked.
        423 => Verdict::Failed(Failure::Locked),
        400..=499 => Verdict::Failed(Failure::Permanent),
        503 => Verdict::Failed(match retry_after {
            Some(retry_after) => Failure::Throttled { retry_after },
            None => Failure::Transient,
        }),
        // A 500 can come after the commit, a 502 or 504 from a gateway while the receiver still works
        // (apis/README.md, class 2).
        500..=599 => Verdict::Unknown,
        // No final status of HTTP (RFC 9110 §15: treat as a server error).
        _ => Verdict::Unknown,
    }
}

/// Reads `Retry-After` (RFC 9110 §10.2.3: whole seconds or an HTTP date). Of several the longest counts.
///
/// `None` if there is none that can be read. A date in the past and a negative number are zero; all is held
/// to [`RETRY_AFTER_MAX`]. Dates are compared with `wall_now`, the store's clock.
pub fn retry_after<'a>(values: impl IntoIterator<Item = &'a [u8]>, wall_now: Timestamp) -> Option<Duration> {
    values.into_iter().filter_map(|value| one_retry_after(value, wall_now)).max()
}

fn one_retry_after(value: &[u8], wall_now: Timestamp) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are just a very long wait.
        let seconds = if negative { 0 } else { digits.parse::<u64>().unwrap_or(u64::MAX) };
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    Some(at.since(wall_now).min(RETRY_AFTER_MAX))
}

/// Whose language an outcome's status is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP (RFC 9110 §15).
    Http,
    /// SMTP (RFC 5321 §4.2).
    Smtp,
}

/// What an outcome tells of its target, as against of its effect. A 4xx is the request's own fault: the target is
/// there.
pub fn heard(outcome: &CallOutcome, spoken: Spoken) -> Heard {
    let (status, failure) = match outcome {
        CallOutcome::Succeeded { status, .. } => (Some(*status), None),
        CallOutcome::Failed { status, failure, .. } => (*status, Some(*failure)),
        CallOutcome::Unknown { status, .. } => (*status, None),
    };
    let standing = match (spoken, status, failure) {
        // Refused before anything was sent.
        (_, None, Some(Failure::Permanent)) => Standing::Untold,
        (_, None, None | Some(Failure::Transient | Failure::Locked | Failure::Throttled { .. })) => {
            Standing::Down
        }
        (Spoken::Http, Some(500..), _) => Standing::Down,
        // RFC 5321 §4.2.3: the service is not available. Every other answer is about one mail.
        (Spoken::Smtp, Some(421), _) => Standing::Down,
        (Spoken::Http | Spoken::Smtp, Some(_), _) => Standing::Up,
    };
    let asked = match (failure, status) {
        (Some(Failure::Throttled { retry_after }), Some(503)) => Some(Asked::Everybody(retry_after)),
        (Some(Failure::Throttled { retry_after }), _) => Some(Asked::Workspace(retry_after)),
        (None | Some(Failure::Transient | Failure::Locked | Failure::Permanent), _) => None,
    };
    Heard { standing, asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(7);

    #[test]
    fn every_status_has_its_verdict() {
        use Verdict::{Failed, Succeeded, Unknown};
        let throttled = |retry_after| Failed(Failure::Throttled { retry_after });
        for status in 0..=1000_u16 {
            let (without, with) = match status {
                200..=299 => (Succeeded, Succeeded),
                429 => (throttled(RETRY_AFTER_DEFAULT), throttled(WAIT)),
                503 => (Failed(Failure::Transient), throttled(WAIT)),
                425 => (Failed(Failure::Transient), Failed(Failure::Transient)),
                423 => (Failed(Failure::Locked), Failed(Failure::Locked)),
                302 | 303 | 408 => (Unknown, Unknown),
                300..=499 => (Failed(Failure::Permanent), Failed(Failure::Permanent)),
                _ => (Unknown, Unknown),
            };
            assert_eq!(by_status(status, None), without, "{status}");
            assert_eq!(by_status(status, Some(WAIT)), with, "{status} with Retry-After");
        }
    }

    #[test]
    fn without_an_answer_only_what_never_left_has_surely_failed() {
        assert_eq!(by_no_answer(NoAnswer::Refused), Verdict::Failed(Failure::Permanent));
        assert_eq!(by_no_answer(NoAnswer::NeverSent), Verdict::Failed(Failure::Transient));
        assert_eq!(by_no_answer(NoAnswer::MaybeSent), Verdict::Unknown);
    }

    #[test]
    fn a_target_is_down_where_it_does_not_answer_or_says_so_and_nowhere_else() {
        use Standing::{Down, Untold, Up};
        let of = |status: Option<u16>, verdict| match (verdict, status) {
            (Verdict::Succeeded, _) => {
                let answer = crate::Answer { body: vec![], content_type: None, cut: false };
                CallOutcome::Succeeded { status: status.unwrap(), answer }
            }
            (Verdict::Failed(failure), _) => {
                CallOutcome::Failed { failure, status, answer: None, note: String::new() }
            }
            (Verdict::Unknown, _) => CallOutcome::Unknown { status, note: String::new(), answer: None },
        };
        for status in 200..=700 {
            let outcome = of(Some(status), by_status(status, Some(WAIT)));
            let told = heard(&outcome, Spoken::Http);
            assert_eq!(told.standing, if status < 500 { Up } else { Down }, "{status}");
            let asked = match status {
                429 => Some(Asked::Workspace(WAIT)),
                503 => Some(Asked::Everybody(WAIT)),
                _ => None,
            };
            assert_eq!(told.asked, asked, "{status}");
        }
        for spoken in [Spoken::Http, Spoken::Smtp] {
            for (ended, standing) in
                [(NoAnswer::Refused, Untold), (NoAnswer::NeverSent, Down), (NoAnswer::MaybeSent, Down)]
            {
                assert_eq!(heard(&of(None, by_no_answer(ended)), spoken).standing, standing);
            }
        }
        for (code, failure, standing) in [
            (421, Failure::Transient, Down),
            (450, Failure::Transient, Up),
            (550, Failure::Permanent, Up),
            (535, Failure::Permanent, Up),
        ] {
            let told = heard(&of(Some(code), Verdict::Failed(failure)), Spoken::Smtp);
            assert_eq!(told, Heard { standing, asked: None }, "{code}");
        }
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = Timestamp::parse_rfc3339("2026-01-05T10:01:00Z").unwrap();
        let table: &[(&str, Option<u64>)] = &[
            ("60", Some(60)),
            (" 60\t", Some(60)),
            ("0", Some(0)),
            ("-5", Some(0)),
            ("-99999999999999999999999", Some(0)),
            ("86400", Some(86_400)),
            ("99999999999999999999999", Some(RETRY_AFTER_MAX.as_secs())),
            ("31622401", Some(RETRY_AFTER_MAX.as_secs())),
            ("Mon, 05 Jan 2026 10:02:30 GMT", Some(90)),
            ("Monday, 05-Jan-26 10:02:30 GMT", Some(90)),
            ("Mon Jan  5 10:02:30 2026", Some(90)),
            ("Mon, 05 Jan 2026 09:00:00 GMT", Some(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_MAX.as_secs())),
            ("", None),
            ("-", None),
            ("+5", None),
            ("1.5", None),
            ("5 s", None),
            ("soon", None),
            ("2026-01-05T10:02:30Z", None),
            ("٣", None),
        ];
        for (text, seconds) in table {
            assert_eq!(retry_after([text.as_bytes()], now), seconds.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(retry_after([&b"\xff"[..]], now), None);
        assert_eq!(retry_after([], now), None);
        assert_eq!(retry_after([&b"5"[..], b"soon", b"60", b"7"], now), Some(Duration::from_secs(60)));
    }
}

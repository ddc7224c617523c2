//! Points in time in words, as seen from the store's clock.

use std::time::Duration;

use oncegate_core::time::Timestamp;
use serde_json::Value;

/// A time in an answer.
pub(in crate::cli) fn read(value: &Value) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(value.as_str()?).ok()
}

/// `12 s`, `5 min`, `3 h`, `2 d`: one number, rounded down, as ages are told.
pub(in crate::cli) fn words(d: Duration) -> String {
    match d.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// How long ago, or how soon: `3 h ago`, `in 4 min`.
pub(in crate::cli) fn relative(now: Timestamp, at: Timestamp) -> String {
    match at > now {
        // Rounded up: what is due in 90 s is not due in a minute.
        true => format!("in {}", words(up(at.since(now)))),
        false => format!("{} ago", words(now.since(at))),
    }
}

fn up(d: Duration) -> Duration {
    match d.as_secs() {
        0..60 => d + Duration::from_millis(999),
        60..3_600 => d + Duration::from_secs(59),
        _ => d,
    }
}

/// `2026-01-05 10:00:00`, in UTC.
pub(in crate::cli) fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_unit_that_people_think_in() {
        for (seconds, told) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h"),
            (172_799, "47 h"),
            (172_800, "2 d"),
            (91 * 86_400, "91 d"),
        ] {
            assert_eq!(words(Duration::from_secs(seconds)), told);
        }
        let now = Timestamp::from_secs(1_000_000);
        assert_eq!(relative(now, now.after(Duration::from_secs(90))), "in 2 min");
        assert_eq!(relative(now, now.before(Duration::from_secs(90))), "1 min ago");
        assert_eq!(clock(Timestamp::from_secs(0)), "1970-01-01 00:00:00");
    }
}

//! Where an item stands: an instant, or a number that grows.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::{Timestamp, millis};

/// A place in the order of changes: milliseconds since 1970, or a number of the API's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark(pub i64);

/// How a cursor is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// RFC 3339 with a zone: `2026-01-05T10:00:05Z`.
    #[default]
    Timestamp,
    /// Seconds since 1970, with a fraction or without.
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
    /// A whole number that grows, e.g. a sequence.
    Number,
}

impl Form {
    /// Whether it tells instants.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Number)
    }

    /// In words, behind "that is".
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Timestamp => "a date and time with a zone",
            Self::Seconds => "a number of seconds",
            Self::Milliseconds => "a number of milliseconds",
            Self::Number => "a whole number",
        }
    }

    /// Reads what stands in an item. Digits in a text are a number, as everywhere.
    pub fn read(self, value: &Value) -> Option<Mark> {
        match self {
            Self::Timestamp => instant(value.as_str()?).map(|at| Mark(at.as_millis())),
            Self::Seconds => {
                let seconds = match value {
                    Value::String(text) => text.trim().parse::<f64>().ok()?,
                    value => value.as_f64()?,
                };
                // Beyond what can be written it is no instant; below a millisecond nobody asks.
                let ms = seconds * 1000.0;
                (ms.abs() <= Timestamp::NEVER.as_millis() as f64).then_some(Mark(ms.floor() as i64))
            }
            Self::Milliseconds => {
                let mark = whole(value)?;
                (mark.0.unsigned_abs() <= Timestamp::NEVER.as_millis().unsigned_abs()).then_some(mark)
            }
            Self::Number => whole(value),
        }
    }

    /// Writes it as the API is asked for it. Of instants the second in which they lie: some APIs refuse a fraction,
    /// and to read a little more costs nothing.
    pub fn write(self, mark: Mark) -> String {
        let seconds = mark.0.div_euclid(1000);
        match self {
            Self::Timestamp => Timestamp::from_secs(seconds).to_string().replacen(".000Z", "Z", 1),
            Self::Seconds => seconds.to_string(),
            Self::Milliseconds | Self::Number => mark.0.to_string(),
        }
    }
}

/// With the zone written `+0000` too, as Salesforce does.
fn instant(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    Timestamp::parse_rfc3339(text).ok().or_else(|| {
        let (rest, minutes) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let is_zone = rest.len() > 3 && matches!(rest.as_bytes()[rest.len() - 3], b'+' | b'-');
        is_zone.then(|| Timestamp::parse_rfc3339(&format!("{rest}:{minutes}")).ok()).flatten()
    })
}

fn whole(value: &Value) -> Option<Mark> {
    match value {
        Value::String(text) => text.trim().parse().ok().map(Mark),
        value => value.as_i64().map(Mark),
    }
}

impl Mark {
    /// This place, and so much before it.
    #[must_use]
    pub fn before(self, overlap: Duration) -> Self {
        Self(self.0.saturating_sub(millis(overlap)))
    }
}

impl From<Timestamp> for Mark {
    fn from(at: Timestamp) -> Self {
        Self(at.as_millis())
    }
}

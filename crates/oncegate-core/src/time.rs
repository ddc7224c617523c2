//! Points in time as the core sees them: handed in, never read from a clock.
//!
//! Two clocks run side by side. The **wall** clock is what people read and what due times, retention and
//! `processing_started_at` are written in. The **lease** clock counts only the time during which the store was
//! alive and ticking; leases age by it, so that a gate that was down for an hour, or a node whose wall clock
//! was set forward, does not declare every running automation stale (DESIGN §3, "Time").

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::short::Short;

/// A wall-clock instant: milliseconds since 1970-01-01T00:00:00Z, negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Last millisecond that can be written in every time zone within the year 9999 (`jiff::Timestamp::MAX`).
const LAST_MS: i64 = 253_402_207_200_000;

impl Timestamp {
    /// The last instant that can be written: for what comes by itself at no time.
    pub const NEVER: Self = Self(LAST_MS);

    /// From milliseconds since the epoch; clamped to the years RFC 3339 can write.
    pub const fn from_millis(ms: i64) -> Self {
        if ms > LAST_MS {
            Self(LAST_MS)
        } else if ms < -LAST_MS {
            Self(-LAST_MS)
        } else {
            Self(ms)
        }
    }

    /// From whole seconds since the epoch.
    pub const fn from_secs(s: i64) -> Self {
        Self::from_millis(s.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This instant and `d` later; stops at the year 9999.
    pub fn after(self, d: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(d)))
    }

    /// This instant and `d` earlier.
    pub fn before(self, d: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(millis(d)))
    }

    /// How long after `earlier` this instant lies; zero if it does not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads an RFC 3339 date and time with a zone.
    ///
    /// # Errors
    /// The text is not one, or has no zone: a time without a zone names no instant (DESIGN §4).
    pub fn parse_rfc3339(text: &str) -> Result<Self, String> {
        text.parse::<jiff::Timestamp>()
            .map(|t| Self::from_millis(t.as_millisecond()))
            .map_err(|e| e.to_string())
    }
}

impl Timestamp {
    /// How it is shown, if it lies in the years 1970 to 9999. Written by hand: every answer names several instants, and
    /// a general formatter takes ten times as long.
    fn text(self) -> Option<Short<24>> {
        let ms = u64::try_from(self.0).ok()?;
        let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
        // Years begin in March, so that a leap day is the last of its year; 400 years are 146,097 days.
        let from_march_0 = days + 719_468;
        let (era, day) = (from_march_0 / 146_097, from_march_0 % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let fields = [
            (400 * era + year + next, 0..4),
            (month, 5..7),
            (day, 8..10),
            (ms / 3_600_000, 11..13),
            (ms / 60_000 % 60, 14..16),
            (ms / 1_000 % 60, 17..19),
            (ms % 1_000, 20..23),
        ];
        for (mut value, place) in fields {
            for digit in text[place].iter_mut().rev() {
                *digit += (value % 10) as u8;
                value /= 10;
            }
        }
        Some(Short::ascii(text))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, e.g. `2026-01-05T10:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.text() {
            return f.write_str(text.as_str());
        }
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            // `from_millis` clamps to years jiff can write; a number is still better than a panic.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => s.serialize_str(text.as_str()),
            None => s.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse_rfc3339(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// Whole milliseconds of a duration, as the integer that time arithmetic here is done in.
pub fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

/// A reading of the lease clock: milliseconds for which the store has been alive since it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LeaseInstant(pub i64);

impl LeaseInstant {
    /// This reading and `d` of live time later.
    pub fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(millis(d)))
    }

    /// This reading and `d` of live time earlier.
    pub fn before(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(millis(d)))
    }

    /// Live time from `earlier` to this reading; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Both clocks, read together by the store at the moment it loads the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What a person's clock shows.
    pub wall: Timestamp,
    /// What leases age by.
    pub lease: LeaseInstant,
}

/// The store's last tick, from which the lease clock is carried on.
///
/// Between ticks the lease clock follows the elapsed time, but never more than two tick intervals past the
/// last tick: time without ticks (a stopped process, a suspended machine, a clock set forward) does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The lease clock at the tick.
    pub lease: LeaseInstant,
}

impl Tick {
    /// How often a store ticks (DESIGN §3, "Time").
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// The lease clock, `elapsed` after this tick.
    pub fn lease_after(self, elapsed: Duration) -> LeaseInstant {
        self.lease.after(elapsed.min(Self::INTERVAL * 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_read_and_written() {
        let t = Timestamp::parse_rfc3339("2026-01-05T12:00:00+02:00").unwrap();
        assert_eq!(t.to_string(), "2026-01-05T10:00:00.000Z");
        assert!(Timestamp::parse_rfc3339("2026-01-05T12:00:00").is_err(), "no zone names no instant");
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9999-12-30T22:00:00.000Z");
    }

    #[test]
    fn an_instant_is_written_as_a_calendar_library_writes_it() {
        let written = |ms: i64| format!("{:.3}", jiff::Timestamp::from_millisecond(ms).unwrap());
        let shown = |ms: i64| Timestamp::from_millis(ms).to_string();
        // Every day, at a time of day that is another one each time.
        for day in -1_000..LAST_MS / 86_400_000 {
            let ms = day * 86_400_000 + day * 7_919 % 86_400_000;
            assert_eq!(shown(ms), written(ms), "{ms}");
        }
        for edge in [0, -1, 951_782_399_999, 951_782_400_000, 4_107_542_399_999, LAST_MS, -LAST_MS] {
            assert_eq!(shown(edge), written(edge));
            assert_eq!(serde_json::to_string(&Timestamp(edge)).unwrap(), format!("\"{}\"", written(edge)));
        }
    }

    #[test]
    fn time_without_ticks_does_not_age_leases() {
        let tick = Tick { lease: LeaseInstant(1_000) };
        assert_eq!(tick.lease_after(Duration::from_secs(3)), LeaseInstant(4_000));
        assert_eq!(tick.lease_after(Duration::from_secs(3600)), LeaseInstant(11_000));
    }
}

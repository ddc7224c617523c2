//! Points in time as the core sees them: handed in, never read from a clock.
//!
//! Two clocks run side by side. The **wall** clock is what people read and what due times, retention and
//! `processing_started_at` are written in. The **lease** clock counts only the time during which the store was
//! alive and ticking; leases age by it, so that a gate that was down for an hour, or a node whose wall clock
//! was set forward, does not declare every running automation stale (DESIGN §3, "Time").

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A wall-clock instant: milliseconds since 1970-01-01T00:00:00Z, negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Last millisecond that can be written in every time zone within the year 9999 (`jiff::Timestamp::MAX`).
const LAST_MS: i64 = 253_402_207_200_000;

impl Timestamp {
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

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, e.g. `2026-01-05T10:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            // `from_millis` clamps to years jiff can write; a number is still better than a panic.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
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
    fn time_without_ticks_does_not_age_leases() {
        let tick = Tick { lease: LeaseInstant(1_000) };
        assert_eq!(tick.lease_after(Duration::from_secs(3)), LeaseInstant(4_000));
        assert_eq!(tick.lease_after(Duration::from_secs(3600)), LeaseInstant(11_000));
    }
}

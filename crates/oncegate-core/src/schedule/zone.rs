//! Time zones, from the tables that are part of the program: it runs on machines that have none, and every node of
//! one version judges by the same.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Instant};

use super::ScheduleError;

/// A time zone of the IANA database (<https://www.iana.org/time-zones>).
#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of this name; case does not matter.
    ///
    /// # Errors
    /// There is none, or the name is one of the old abbreviations: `EST` has no summer time, and hardly anybody who
    /// writes it means that.
    pub fn named(name: &str) -> Result<Self, ScheduleError> {
        if name.eq_ignore_ascii_case("UTC") {
            return Ok(Self::utc());
        }
        let known = TimeZoneDatabase::bundled().get(name);
        match (known, name.contains('/')) {
            (Ok(zone), true) => Ok(Self(zone)),
            (Ok(_), false) => Err(ScheduleError::NoPlace(name.to_owned())),
            (Err(_), _) => Err(ScheduleError::UnknownZone(name.to_owned())),
        }
    }

    /// Where no clock is ever changed.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// What a clock there shows.
    pub(super) fn shows(&self, instant: Instant) -> DateTime {
        self.0.to_datetime(instant)
    }

    /// The same with its offset from UTC, as RFC 3339 writes it.
    pub(super) fn written(&self, instant: Instant) -> String {
        let offset = self.0.to_offset(instant);
        instant.display_with_offset(offset).to_string()
    }

    /// When a clock there shows this: the first time if it does twice. If it never does, because clocks are set over
    /// it, then the moment at which they are (C37). `None` at the end of time.
    pub(super) fn when(&self, shown: DateTime) -> Option<Instant> {
        match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(shown).ok()
            }
            AmbiguousOffset::Gap { before, .. } => {
                // By the clock that was not set it is then; the last change before is the one that made the gap.
                let unset = before.to_timestamp(shown).ok()?;
                let just_after = unset.checked_add(SignedDuration::from_secs(1)).ok()?;
                self.0.preceding(just_after).next().map(|change| change.timestamp())
            }
        }
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of all zones that can be declared.
pub fn zone_names() -> Vec<String> {
    let all = TimeZoneDatabase::bundled();
    all.available().map(|name| name.to_string()).filter(|name| name.contains('/') || name == "UTC").collect()
}

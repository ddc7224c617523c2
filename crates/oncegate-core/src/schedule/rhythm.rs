//! When a schedule runs: times of day in a zone, or parts of a day that are counted in UTC.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::civil::{self, Time};
use jiff::{SignedDuration, Timestamp as Instant};

use super::{Days, ScheduleError, Slot, Zone, time_of_day};
use crate::limits;
use crate::policy::show_duration;
use crate::time::{Timestamp, millis};

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// At times of day.
    Daily(Daily),
    /// Some times a day, evenly.
    Every(Every),
}

/// Times of day in a zone, on some days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daily {
    times: BTreeSet<Time>,
    days: Days,
    zone: Zone,
}

/// A part of a day, counted from midnight UTC: setting clocks for summer does not touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(Duration);

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

impl Daily {
    /// At these times, e.g. `01:30`.
    ///
    /// # Errors
    /// There is none, one of them is no time of day, or there are too many.
    pub fn new<'a>(
        times: impl IntoIterator<Item = &'a str>,
        days: Days,
        zone: Zone,
    ) -> Result<Self, ScheduleError> {
        let read = |text: &str| {
            let since_midnight = time_of_day(text).and_then(|d| SignedDuration::try_from(d).ok());
            let time = since_midnight.and_then(|d| Time::midnight().checked_add(d).ok());
            time.ok_or_else(|| ScheduleError::TimeOfDay(text.to_owned()))
        };
        let times = times.into_iter().map(read).collect::<Result<BTreeSet<_>, _>>()?;
        match times.len() {
            0 => Err(ScheduleError::NoTimes),
            n if n > limits::SLOT_TIMES_MAX => Err(ScheduleError::TooManyTimes(n)),
            _ => Ok(Self { times, days, zone }),
        }
    }

    fn slot(&self, date: civil::Date, time: Time) -> Option<Slot> {
        let shown = date.to_datetime(time);
        let instant = self.zone.when(shown)?;
        Some(Slot {
            slot: shown.strftime("%Y-%m-%dT%H:%M").to_string(),
            local: self.zone.written(instant),
            zone: self.zone.name().to_owned(),
            instant: Timestamp::from_millis(instant.as_millisecond()),
        })
    }

    /// From the first that may come after an instant. Their order is that of their instants, because a slot runs when
    /// the zone's clock first shows its time or more: one whose date is past there has come.
    fn slots(&self, after: Timestamp) -> impl Iterator<Item = Slot> + '_ {
        let instant = Instant::from_millisecond(after.as_millis()).unwrap_or(Instant::MIN);
        let first = self.zone.shows(instant).date();
        let dates = first.series(jiff::Span::new().days(1)).filter(|date| self.days.has(*date));
        dates.flat_map(move |date| self.times.iter().filter_map(move |time| self.slot(date, *time)))
    }
}

impl Every {
    /// This part of a day.
    ///
    /// # Errors
    /// It is below a minute or above 12 hours, or a day is no whole number of it.
    pub fn new(part: Duration) -> Result<Self, ScheduleError> {
        let fits = part >= MINUTE && part <= DAY / 2 && millis(DAY) % millis(part) == 0;
        match fits && millis(part) % millis(MINUTE) == 0 {
            true => Ok(Self(part)),
            false => Err(ScheduleError::Every),
        }
    }

    fn slots(self, after: Timestamp) -> impl Iterator<Item = Slot> {
        let part = millis(self.0);
        let first = after.as_millis().div_euclid(part) + 1;
        // The epoch is a midnight.
        (first..).map_while(move |n| {
            let instant = Instant::from_millisecond(n.checked_mul(part)?).ok()?;
            let zone = Zone::utc();
            Some(Slot {
                slot: zone.shows(instant).strftime("%Y-%m-%dT%H:%MZ").to_string(),
                local: zone.written(instant),
                zone: zone.name().to_owned(),
                instant: Timestamp::from_millis(instant.as_millisecond()),
            })
        })
    }
}

impl Rhythm {
    /// The slots after an instant, in their order. No end, but that of time.
    pub fn after(&self, after: Timestamp) -> Box<dyn Iterator<Item = Slot> + '_> {
        match self {
            Self::Daily(daily) => Box::new(daily.slots(after).skip_while(move |slot| slot.instant <= after)),
            Self::Every(every) => Box::new(every.slots(after)),
        }
    }
}

impl fmt::Display for Rhythm {
    /// A store remembers by these words what was declared: other words are another schedule, which begins anew.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daily(Daily { times, days, zone }) => {
                let times: Vec<String> = times.iter().map(|t| t.strftime("%H:%M").to_string()).collect();
                write!(f, "{days} at {} {}", times.join(", "), zone.name())
            }
            Self::Every(Every(part)) => write!(f, "every {}", show_duration(*part)),
        }
    }
}

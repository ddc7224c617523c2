//! Schedules: sources whose events are the time. What is declared and an instant give the slots; a slot is an event
//! like any other, with a key of its own, so that neither a restart nor a second node nor the repeated hour of autumn
//! runs it twice.

mod days;
mod rhythm;
mod step;
mod zone;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fingerprint::Fingerprint;
use crate::key::{IdempotencyKey, NameError};
use crate::time::Timestamp;

pub use days::{Date, Days, Weekday};
pub use rhythm::{Daily, Every, Rhythm};
pub use step::{Position, Step, Told, step};
pub use zone::{Zone, zone_names};

/// What is declared of a schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// When it runs.
    pub rhythm: Rhythm,
    /// What becomes of a slot that nobody looked at in time.
    pub missed: Missed,
    /// What becomes of a slot that comes while the run before is not over.
    pub overlap: Overlap,
}

/// What becomes of slots that nobody looked at in time: the gate was down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// The latest runs once, unless it is older than [`crate::limits::SLOT_MADE_UP_WITHIN`].
    #[default]
    Run,
    /// None runs.
    Skip,
}

/// What becomes of a slot that comes while the run of an earlier one is not over (C57).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does not run.
    #[default]
    Skip,
    /// The latest of them waits and runs once the run is over.
    Queue,
}

/// One run that a schedule asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Date and time as they are declared, e.g. `2026-11-01T01:30`: they name the slot, also where no clock shows
    /// them. With a `Z` where time is counted in UTC.
    pub slot: String,
    /// What a clock of the zone shows when it runs, with its offset.
    pub local: String,
    /// The zone's name.
    pub zone: String,
    /// When it runs.
    pub instant: Timestamp,
}

impl Slot {
    /// What names its run: one claim, whoever comes to it and how often.
    ///
    /// # Errors
    /// The source's name is too long for a key.
    pub fn key(&self, source: &str) -> Result<IdempotencyKey, NameError> {
        IdempotencyKey::try_from(format!("{source}:{}", self.slot).as_str())
    }

    /// What its run is given.
    pub fn payload(&self, source: &str) -> Value {
        json!({
            "source": source,
            "slot": self.slot,
            "date": self.slot.get(..10),
            "local": self.local,
            "zone": self.zone,
            "instant": self.instant,
        })
    }

    /// Of what names it and nothing else: two versions of oncegate may know other rules of a zone, and a slot is no
    /// other one for that.
    pub fn fingerprint(&self, source: &str) -> Fingerprint {
        Fingerprint::of(&json!({ "source": source, "slot": self.slot }), &[])
    }
}

/// Why a schedule cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No such time of day.
    #[error("`{0}` is no time of day; write hours and minutes between quotes, e.g. `\"01:30\"`")]
    TimeOfDay(String),
    /// No time at all.
    #[error("`at` is empty; write at least one time of day, e.g. `at: \"01:30\"`")]
    NoTimes,
    /// More than anybody reads.
    #[error("`at` names {0} times of day; {max} are the most, write `every` for more", max = crate::limits::SLOT_TIMES_MAX)]
    TooManyTimes(usize),
    /// No such day.
    #[error("`{0}` is no day; write mon, tue, wed, thu, fri, sat, sun, or `weekdays` for the first five")]
    Weekday(String),
    /// No such day of a month.
    #[error("`{0}` is no day of a month; write 1 to 31, or `last`")]
    Date(String),
    /// No day at all.
    #[error("`{0}` is empty, so it would never run; name at least one day, or remove it")]
    NoDays(&'static str),
    /// An interval that slots of a day do not fit.
    #[error(
        "`every` is a part of a day that fits into it a whole number of times, from 1m to 12h, e.g. `15m`, `1h` or \
         `6h`; for once a day write `at`"
    )]
    Every,
    /// No such zone.
    #[error("no time zone is called `{0}`; write its IANA name, e.g. `America/New_York` or `UTC`")]
    UnknownZone(String),
    /// A name that does not say which rules.
    #[error(
        "`{0}` names no place, so it does not say when clocks change there; write the zone of a place, e.g. \
         `America/New_York`, or `UTC`"
    )]
    NoPlace(String),
}

/// Reads `01:30`, exactly two digits each, as the time since midnight.
pub fn time_of_day(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u64| {
        let plain = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|n| plain && *n < below)
    };
    Some(Duration::from_secs(number(hours, 24)? * 3600 + number(minutes, 60)? * 60))
}

impl Schedule {
    /// Whether a slot may wait for the run before to be over.
    pub fn waits(&self) -> bool {
        self.overlap == Overlap::Queue
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rhythm.fmt(f)
    }
}

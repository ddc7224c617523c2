//! Sources that run by the clock: what the file says of them.

use std::fmt;

use oncegate_core::schedule::{
    Daily, Days, Every, Missed, Overlap, Rhythm, Schedule, ScheduleError, Zone, zone_names,
};
use oncegate_core::time::Timestamp;
use oncegate_runner::flow;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};

use super::file::{Period, SourceFile};
use super::{At, ConfigError, Timed, sentence};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleFile {
    #[serde(default)]
    at: Option<Spanned<Words>>,
    #[serde(default)]
    every: Option<Spanned<Period>>,
    #[serde(default)]
    zone: Option<Spanned<String>>,
    #[serde(default)]
    days: Option<Spanned<Words>>,
    #[serde(default)]
    dates: Option<Spanned<Words>>,
    #[serde(default)]
    missed: Missed,
    #[serde(default)]
    overlap: Overlap,
}

/// One word or a list of them; a number is a word.
struct Words(Vec<String>);

impl Words {
    fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Many;
        impl<'de> Visitor<'de> for Many {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one or a list, e.g. `mon` or `[mon, tue]`")
            }
            fn visit_str<E>(self, text: &str) -> Result<Words, E> {
                Ok(Words(vec![text.to_owned()]))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Words, E> {
                Ok(Words(vec![number.to_string()]))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Words, E> {
                Ok(Words(vec![number.to_string()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
                let mut all = vec![];
                while let Some(Words(words)) = seq.next_element()? {
                    all.extend(words);
                }
                Ok(Words(all))
            }
        }
        d.deserialize_any(Many)
    }
}

/// The declared schedule of a source.
pub(super) fn timed(
    (name, declared): (&Spanned<String>, &SourceFile),
    file: &Spanned<ScheduleFile>,
    leads_to: (oncegate_core::key::AutomationName, Option<&str>),
    at: At<'_>,
) -> Result<Timed, ConfigError> {
    let poll = declared.poll.as_ref().map(|_| "poll");
    if let Some(member) = declared.of_senders().or_else(|| declared.of_events()).or(poll) {
        let message =
            format!("`{name}` has a `schedule`, so nobody sends to it; remove `{member}`", name = name.value);
        return Err(at(name.referenced, message));
    }
    let (automation, record) = leads_to;
    let rhythm = rhythm(file).map_err(|(place, message)| at(place, message))?;
    let schedule = Schedule { rhythm, missed: file.value.missed, overlap: file.value.overlap };
    // What its events hold is known now: a record that cannot be named of them never could be.
    let first = schedule.rhythm.after(Timestamp::default()).next();
    if let (Some(template), Some(slot)) = (record, first)
        && let Err(why) = flow::record(template, &slot.payload(&name.value))
    {
        let message = format!(
            "the automation `{automation}` cannot run by the clock: {why}; see what a slot's payload holds"
        );
        return Err(at(declared.automation.referenced, message));
    }
    Ok(Timed { automation, schedule })
}

type Wrong = (Location, String);

fn rhythm(file: &Spanned<ScheduleFile>) -> Result<Rhythm, Wrong> {
    let ScheduleFile { at, every, zone, days, dates, .. } = &file.value;
    let wrong = |place: Location, message: &str| Err((place, message.to_owned()));
    let told = |place: Location| move |e: ScheduleError| (place, e.to_string());
    let times = match (at, every) {
        (Some(at), None) => at,
        (None, Some(every)) => {
            let others = [zone.as_ref().map(|z| z.referenced), days.as_ref().map(|d| d.referenced)];
            if let Some(place) =
                others.into_iter().flatten().chain(dates.as_ref().map(|d| d.referenced)).next()
            {
                return wrong(
                    place,
                    "`every` counts from midnight UTC on every day; for days and zones write `at`",
                );
            }
            return Every::new(every.value.0).map(Rhythm::Every).map_err(told(every.referenced));
        }
        (Some(at), Some(_)) => {
            return wrong(at.referenced, "both `at` and `every` say when; keep one of them");
        }
        (None, None) => {
            return wrong(
                file.referenced,
                "a schedule needs `at`, e.g. `at: \"01:30\"`, or `every`, e.g. `every: 15m`",
            );
        }
    };
    let Some(zone) = zone else {
        let message = "`at` needs `zone`: whose clocks are meant, e.g. `zone: America/New_York`, or `UTC`";
        return wrong(times.referenced, message);
    };
    let whose =
        Zone::named(zone.value.trim()).map_err(|e| (zone.referenced, with_nearest(&zone.value, &e)))?;
    let days = match (days, dates) {
        (None, None) => Days::All,
        (Some(days), None) => Days::of_week(days.value.all()).map_err(told(days.referenced))?,
        (None, Some(dates)) => Days::of_month(dates.value.all()).map_err(told(dates.referenced))?,
        (Some(days), Some(_)) => {
            return wrong(days.referenced, "both `days` and `dates` say on which days; keep one of them");
        }
    };
    Daily::new(times.value.all(), days, whose).map(Rhythm::Daily).map_err(told(times.referenced))
}

fn with_nearest(written: &str, error: &ScheduleError) -> String {
    let known = zone_names();
    let nearest = match error {
        ScheduleError::UnknownZone(_) => sentence::nearest(written, known.iter().map(String::as_str)),
        _ => None,
    };
    match nearest {
        Some(meant) => format!("no time zone is called `{written}`; did you mean `{meant}`?"),
        None => error.to_string(),
    }
}

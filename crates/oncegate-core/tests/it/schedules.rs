//! When schedules run: the days on which clocks are set, days that a month does not have, and what was missed.

use std::time::Duration;

use jiff::Timestamp as Instant;
use jiff::tz::TimeZoneDatabase;
use oncegate_core::schedule::{
    Daily, Days, Every, Missed, Overlap, Position, Rhythm, Schedule, ScheduleError, Slot, Step, Told, Zone,
    step, time_of_day, zone_names,
};
use oncegate_core::time::Timestamp;
use proptest::prelude::*;

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap()
}

fn daily(times: &[&str], days: Days, zone: &str) -> Rhythm {
    Rhythm::Daily(Daily::new(times.iter().copied(), days, Zone::named(zone).unwrap()).unwrap())
}

fn every(part: &str) -> Rhythm {
    Rhythm::Every(Every::new(oncegate_core::policy::parse_duration(part).unwrap()).unwrap())
}

/// `2026-11-01T01:30 at 2026-11-01T05:30Z`, of all slots after `from`, up to and with `to`.
fn slots(rhythm: &Rhythm, from: &str, to: &str) -> Vec<String> {
    let shown = |slot: Slot| format!("{} at {}Z", slot.slot, &slot.instant.to_string()[..16]);
    rhythm.after(at(from)).take_while(|slot| slot.instant <= at(to)).map(shown).collect()
}

#[test]
fn c37_each_local_date_has_one_slot_on_the_days_on_which_clocks_are_set() {
    let new_york = |time| daily(&[time], Days::All, "America/New_York");
    let weekdays = Days::of_week(["weekdays"]).unwrap();
    for (rhythm, from, to, expected) in [
        // 01:30 happens twice: it runs the first time.
        (
            new_york("01:30"),
            "2026-10-31T12:00:00Z",
            "2026-11-02T12:00:00Z",
            vec!["2026-11-01T01:30 at 2026-11-01T05:30Z", "2026-11-02T01:30 at 2026-11-02T06:30Z"],
        ),
        // 02:30 does not exist: it runs when clocks are set over it.
        (
            new_york("02:30"),
            "2026-03-07T12:00:00Z",
            "2026-03-09T12:00:00Z",
            vec!["2026-03-08T02:30 at 2026-03-08T07:00Z", "2026-03-09T02:30 at 2026-03-09T06:30Z"],
        ),
        (
            new_york("02:00"),
            "2026-03-08T00:00:00Z",
            "2026-03-09T00:00:00Z",
            vec!["2026-03-08T02:00 at 2026-03-08T07:00Z"],
        ),
        (
            new_york("03:00"),
            "2026-03-08T00:00:00Z",
            "2026-03-09T00:00:00Z",
            vec!["2026-03-08T03:00 at 2026-03-08T07:00Z"],
        ),
        // Lord Howe sets its clocks by half an hour.
        (
            daily(&["01:45"], Days::All, "Australia/Lord_Howe"),
            "2026-04-03T20:00:00Z",
            "2026-04-05T20:00:00Z",
            vec!["2026-04-05T01:45 at 2026-04-04T14:45Z", "2026-04-06T01:45 at 2026-04-05T15:15Z"],
        ),
        (
            daily(&["02:15"], Days::All, "Australia/Lord_Howe"),
            "2026-10-02T20:00:00Z",
            "2026-10-04T20:00:00Z",
            vec!["2026-10-04T02:15 at 2026-10-03T15:30Z", "2026-10-05T02:15 at 2026-10-04T15:15Z"],
        ),
        // Days without a midnight.
        (
            daily(&["00:00"], Days::All, "America/Sao_Paulo"),
            "2018-11-03T12:00:00Z",
            "2018-11-05T12:00:00Z",
            vec!["2018-11-04T00:00 at 2018-11-04T03:00Z", "2018-11-05T00:00 at 2018-11-05T02:00Z"],
        ),
        (
            daily(&["00:15"], Days::All, "Africa/Cairo"),
            "2026-04-23T12:00:00Z",
            "2026-04-25T12:00:00Z",
            vec!["2026-04-24T00:15 at 2026-04-23T22:00Z", "2026-04-25T00:15 at 2026-04-24T21:15Z"],
        ),
        // And one that was left out.
        (
            daily(&["09:00"], Days::All, "Pacific/Apia"),
            "2011-12-29T18:00:00Z",
            "2011-12-31T12:00:00Z",
            vec![
                "2011-12-29T09:00 at 2011-12-29T19:00Z",
                "2011-12-30T09:00 at 2011-12-30T10:00Z",
                "2011-12-31T09:00 at 2011-12-30T19:00Z",
            ],
        ),
        (
            daily(&["18:00", "06:00"], weekdays, "Europe/Berlin"),
            "2026-07-03T05:00:00Z",
            "2026-07-06T05:00:00Z",
            vec!["2026-07-03T18:00 at 2026-07-03T16:00Z", "2026-07-06T06:00 at 2026-07-06T04:00Z"],
        ),
        (
            daily(&["07:00"], Days::of_week(["Sunday", " sat "]).unwrap(), "UTC"),
            "2026-07-03T07:00:00Z",
            "2026-07-05T07:00:00Z",
            vec!["2026-07-04T07:00 at 2026-07-04T07:00Z", "2026-07-05T07:00 at 2026-07-05T07:00Z"],
        ),
        // A month without a 31st has none; the last day is each month's.
        (
            daily(&["12:00"], Days::of_month(["31"]).unwrap(), "UTC"),
            "2026-03-31T12:00:00Z",
            "2026-07-31T12:00:00Z",
            vec!["2026-05-31T12:00 at 2026-05-31T12:00Z", "2026-07-31T12:00 at 2026-07-31T12:00Z"],
        ),
        (
            daily(&["12:00"], Days::of_month(["29", "last"]).unwrap(), "UTC"),
            "2027-12-31T12:00:00Z",
            "2028-03-01T12:00:00Z",
            vec![
                "2028-01-29T12:00 at 2028-01-29T12:00Z",
                "2028-01-31T12:00 at 2028-01-31T12:00Z",
                "2028-02-29T12:00 at 2028-02-29T12:00Z",
            ],
        ),
        // Parts of a day are counted in UTC: no hour is left out, none comes twice.
        (
            every("1h"),
            "2026-11-01T04:00:00Z",
            "2026-11-01T07:00:00Z",
            vec![
                "2026-11-01T05:00Z at 2026-11-01T05:00Z",
                "2026-11-01T06:00Z at 2026-11-01T06:00Z",
                "2026-11-01T07:00Z at 2026-11-01T07:00Z",
            ],
        ),
        (
            every("12h"),
            "1969-12-31T13:00:00Z",
            "1970-01-01T11:00:00Z",
            vec!["1970-01-01T00:00Z at 1970-01-01T00:00Z"],
        ),
    ] {
        assert_eq!(slots(&rhythm, from, to), expected, "{rhythm}");
    }
}

#[test]
fn a_slot_says_what_clocks_show_and_its_fingerprint_does_not_depend_on_them() {
    let slot =
        daily(&["02:30"], Days::All, "America/New_York").after(at("2026-03-08T00:00:00Z")).next().unwrap();
    assert_eq!(slot.key("nightly").unwrap().as_str(), "nightly:2026-03-08T02:30");
    assert_eq!(
        slot.payload("nightly").to_string(),
        r#"{"source":"nightly","slot":"2026-03-08T02:30","date":"2026-03-08","local":"2026-03-08T03:00:00-04:00","#
            .to_owned()
            + r#""zone":"America/New_York","instant":"2026-03-08T07:00:00.000Z"}"#
    );
    // Another version knows that New York will have given up summer time.
    let other = Slot {
        local: "2026-03-08T02:30:00-05:00".into(),
        instant: at("2026-03-08T07:30:00Z"),
        ..slot.clone()
    };
    assert_eq!(slot.fingerprint("nightly"), other.fingerprint("nightly"));
    let next = Slot { slot: "2026-03-09T02:30".into(), ..slot.clone() };
    assert_ne!(slot.fingerprint("nightly"), next.fingerprint("nightly"));
}

#[test]
fn what_is_declared_is_read_or_refused() {
    for (text, minutes) in
        [("00:00", Some(0)), ("23:59", Some(1_439)), ("7:00", None), ("24:00", None), ("+1:00", None)]
    {
        assert_eq!(time_of_day(text), minutes.map(|m| Duration::from_secs(m * 60)), "{text}");
    }
    let times = |times: &[&str]| Daily::new(times.iter().copied(), Days::All, Zone::utc()).unwrap_err();
    assert_eq!(times(&[]), ScheduleError::NoTimes);
    assert_eq!(times(&["01:30", "1:30"]), ScheduleError::TimeOfDay("1:30".into()));
    let many: Vec<String> = (0..49).map(|n| format!("{:02}:{:02}", n / 3, n % 3)).collect();
    assert_eq!(times(&many.iter().map(String::as_str).collect::<Vec<_>>()), ScheduleError::TooManyTimes(49));
    assert_eq!(Days::of_week(["mon", "tues"]).unwrap_err(), ScheduleError::Weekday("tues".into()));
    assert_eq!(Days::of_week([]).unwrap_err(), ScheduleError::NoDays("days"));
    for wrong in ["0", "32", "-1", "first", "1.5"] {
        assert_eq!(Days::of_month([wrong]).unwrap_err(), ScheduleError::Date(wrong.into()));
    }
    assert_eq!(
        Zone::named("Amerika/New_York").unwrap_err(),
        ScheduleError::UnknownZone("Amerika/New_York".into())
    );
    assert_eq!(Zone::named("EST").unwrap_err(), ScheduleError::NoPlace("EST".into()));
    assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
    for wrong in [0, 30, 59, 90, 7 * 3_600, 24 * 3_600, 7 * 60, 86_400 * 2] {
        assert_eq!(Every::new(Duration::from_secs(wrong)), Err(ScheduleError::Every), "{wrong}");
    }
    assert!(zone_names().len() > 300);
}

const HOURLY: &str = "every 1h";

fn schedule(missed: Missed, overlap: Overlap) -> Schedule {
    Schedule { rhythm: every("1h"), missed, overlap }
}

fn slot(hour: u32) -> Slot {
    let before = at("2026-01-05T00:00:00Z").after(Duration::from_secs(u64::from(hour) * 3_600 - 1));
    every("1h").after(before).next().unwrap()
}

fn stands(until: &str, last: Option<u32>, waiting: Option<u32>) -> Position {
    Position { rhythm: HOURLY.into(), until: at(until), last: last.map(slot), waiting: waiting.map(slot) }
}

#[test]
fn what_runs_what_does_not_and_what_is_told() {
    use Missed::{Run, Skip};
    use Overlap::{Queue, Skip as Once};
    let told = |step: &Step| -> Vec<String> {
        let hour = |slot: &Slot| slot.slot[8..13].to_owned();
        step.told
            .iter()
            .map(|told| match told {
                Told::Missed { count, from, to, instead } => {
                    let instead = instead.as_ref().map_or("none".to_owned(), hour);
                    format!("missed {count}: {}-{}, instead {instead}", hour(from), hour(to))
                }
                Told::Skipped { slot, busy_with } => {
                    format!("skipped {} for {}", hour(slot), hour(busy_with))
                }
                Told::Replaced { slot, by } => format!("replaced {} by {}", hour(slot), hour(by)),
            })
            .collect()
    };
    type Case<'a> = (Missed, Overlap, Position, &'a str, bool, Option<u32>, Option<u32>, &'a [&'a str]);
    let table: &[Case<'_>] = &[
        // On time; the one before is over or not.
        (
            Run,
            Once,
            stands("2026-01-05T09:00:01Z", Some(9), None),
            "2026-01-05T10:00:00Z",
            false,
            Some(10),
            None,
            &[],
        ),
        (
            Skip,
            Once,
            stands("2026-01-05T09:00:01Z", None, None),
            "2026-01-05T10:00:01Z",
            false,
            Some(10),
            None,
            &[],
        ),
        (
            Run,
            Once,
            stands("2026-01-05T09:00:01Z", Some(9), None),
            "2026-01-05T10:00:00Z",
            true,
            None,
            None,
            &["skipped 05T10 for 05T09"],
        ),
        (
            Run,
            Queue,
            stands("2026-01-05T09:00:01Z", Some(9), None),
            "2026-01-05T10:00:00Z",
            true,
            None,
            Some(10),
            &[],
        ),
        (
            Run,
            Queue,
            stands("2026-01-05T10:00:01Z", Some(9), Some(10)),
            "2026-01-05T11:00:00Z",
            true,
            None,
            Some(11),
            &["replaced 05T10 by 05T11"],
        ),
        (
            Run,
            Queue,
            stands("2026-01-05T11:00:01Z", Some(9), Some(11)),
            "2026-01-05T11:30:00Z",
            false,
            Some(11),
            None,
            &[],
        ),
        (
            Run,
            Queue,
            stands("2026-01-05T10:00:01Z", Some(9), Some(10)),
            "2026-01-05T11:00:00Z",
            false,
            Some(11),
            None,
            &["replaced 05T10 by 05T11"],
        ),
        // Nobody looked for hours.
        (
            Run,
            Once,
            stands("2026-01-05T03:00:01Z", Some(3), None),
            "2026-01-05T10:59:00Z",
            false,
            Some(10),
            None,
            &["missed 6: 05T04-05T09, instead 05T10"],
        ),
        (
            Skip,
            Once,
            stands("2026-01-05T03:00:01Z", Some(3), None),
            "2026-01-05T10:59:00Z",
            false,
            None,
            None,
            &["missed 7: 05T04-05T10, instead none"],
        ),
        (
            Skip,
            Once,
            stands("2026-01-05T03:00:01Z", Some(3), None),
            "2026-01-05T10:05:00Z",
            false,
            Some(10),
            None,
            &["missed 6: 05T04-05T09, instead 05T10"],
        ),
        (
            Run,
            Once,
            stands("2025-01-01T00:00:00Z", Some(3), None),
            "2026-01-05T10:05:00Z",
            true,
            None,
            None,
            &["missed 743: 05T11-05T09, instead none", "skipped 05T10 for 05T03"],
        ),
    ];
    for (n, (missed, overlap, position, now, is_busy, run, waiting, expected)) in table.iter().enumerate() {
        let step =
            step(&schedule(*missed, *overlap), Some(position), at("2026-01-05T00:00:00Z"), at(now), *is_busy);
        let step = step.unwrap();
        assert_eq!((&step.run, &step.position.waiting), (&run.map(slot), &waiting.map(slot)), "{n}");
        assert_eq!(told(&step), *expected, "{n}");
        assert_eq!(step.position.until, at(now), "{n}");
        assert_eq!(step.position.last, step.run.or(position.last.clone()), "{n}");
    }
    // A daily one is made up for within a day.
    let nightly = |missed| Schedule { rhythm: daily(&["01:30"], Days::All, "UTC"), missed, overlap: Once };
    let words = nightly(Run).to_string();
    let position = Position { rhythm: words, ..stands("2026-01-04T01:30:00Z", None, None) };
    for (missed, now, runs) in [
        (Run, "2026-01-05T02:10:00Z", true),
        (Skip, "2026-01-05T02:10:00Z", false),
        (Run, "2026-01-06T01:29:59Z", true),
    ] {
        let step = step(&nightly(missed), Some(&position), at(now), at(now), false).unwrap();
        assert_eq!((step.run.is_some(), step.told.is_empty()), (runs, runs), "{now}");
    }
    let monthly =
        Schedule { rhythm: daily(&["01:30"], Days::of_month(["1"]).unwrap(), "UTC"), ..nightly(Run) };
    let position = Position { rhythm: monthly.to_string(), ..stands("2026-01-31T00:00:00Z", None, None) };
    let late = step(&monthly, Some(&position), at("2026-02-02T01:30:01Z"), at("2026-02-02T01:30:01Z"), false)
        .unwrap();
    assert_eq!((late.run, late.told.len()), (None, 1), "a day and a second late");
}

#[test]
fn what_was_not_declared_before_did_not_miss_anything() {
    let hourly = schedule(Missed::Run, Overlap::Skip);
    let began = at("2026-01-05T10:30:00Z");
    let first = step(&hourly, None, began, began, false).unwrap();
    assert_eq!((first.run, first.position.until, first.told), (None, began, vec![]));
    let other = Position { rhythm: "every 6h".into(), ..stands("2026-01-05T06:00:01Z", Some(6), None) };
    let begins = step(&hourly, Some(&other), began, began, false).unwrap();
    assert_eq!((begins.run, begins.told.len()), (None, 0));
    assert_eq!((begins.position.rhythm.as_str(), begins.position.until), (HOURLY, began));
    // Another node declares it otherwise, and writes in between: no slot of either is lost, and none of before.
    let other = Position { until: at("2026-01-05T10:59:59Z"), ..other };
    let next = step(&hourly, Some(&other), began, at("2026-01-05T11:00:00Z"), false).unwrap();
    assert_eq!(next.run, Some(slot(11)));
    assert_eq!(
        step(&hourly, Some(&other), began, at("2026-01-05T10:59:59Z"), false),
        None,
        "they do not quarrel"
    );
}

#[test]
fn a_clock_that_is_set_back_runs_nothing_twice_and_holds_nothing_up() {
    let hourly = schedule(Missed::Run, Overlap::Skip);
    let position = stands("2026-01-05T10:00:01Z", Some(10), None);
    let look = |now: &str| step(&hourly, Some(&position), at("2026-01-05T09:00:00Z"), at(now), false);
    assert_eq!(look("2026-01-05T09:59:59Z"), None);
    assert_eq!(look("2026-01-05T10:00:00Z"), None);
    let back = look("2026-01-05T08:00:00Z").unwrap();
    assert_eq!((back.run, back.position.until), (None, at("2026-01-05T08:00:00Z")));
}

/// When a clock of the zone shows this or more for the first time, by looking at every minute.
fn by_hand(zone: &str, shown: jiff::civil::DateTime) -> Option<Instant> {
    let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
    let noon_before =
        jiff::tz::Offset::UTC.to_timestamp(shown).unwrap() - jiff::SignedDuration::from_hours(27);
    (0..60 * 54)
        .map(|minute| noon_before + jiff::SignedDuration::from_mins(minute))
        .find(|instant| zone.to_datetime(*instant) >= shown)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// From 2013 on no zone has left out a day. Zones count by whole minutes since 1972.
    #[test]
    fn every_date_has_one_slot_at_the_first_moment_at_which_clocks_show_it(
        zone in proptest::sample::select(zone_names()),
        // Around the days on which clocks are set, too: every day of some weeks is looked at.
        start in 0_i64..17_000,
        (hour, minute) in (0_i8..24, 0_i8..60),
    ) {
        let time = format!("{hour:02}:{minute:02}");
        let rhythm = daily(&[&time], Days::All, &zone);
        let first = jiff::civil::date(2013, 1, 1).saturating_add(jiff::SignedDuration::from_hours(24 * start));
        let from = jiff::tz::Offset::UTC.to_timestamp(first.at(0, 0, 0, 0)).unwrap().as_second();
        let found: Vec<Slot> = rhythm.after(Timestamp::from_secs(from)).take(45).collect();
        for pair in found.windows(2) {
            prop_assert!(pair[0].instant < pair[1].instant, "{pair:?}");
            let date = |slot: &Slot| slot.slot[..10].parse::<jiff::civil::Date>().unwrap();
            prop_assert_eq!(date(&pair[0]).tomorrow().unwrap(), date(&pair[1]));
        }
        for slot in found.iter().step_by(4) {
            let shown: jiff::civil::DateTime = slot.slot.parse().unwrap();
            let expected = by_hand(&zone, shown).unwrap().as_millisecond();
            prop_assert_eq!(slot.instant.as_millis(), expected, "{:?}", slot);
        }
    }

    #[test]
    fn every_part_of_a_day_comes_once(minutes in 1_u64..721, from in -1_000_000_000_i64..4_000_000_000) {
        let Ok(every) = Every::new(Duration::from_secs(minutes * 60)) else { return Ok(()) };
        let slots: Vec<i64> =
            Rhythm::Every(every).after(Timestamp::from_secs(from)).take(50).map(|s| s.instant.as_secs()).collect();
        let part = i64::try_from(minutes * 60).unwrap();
        prop_assert!(slots[0] > from && slots[0] <= from + part);
        prop_assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == part));
        prop_assert!(slots.iter().all(|s| s.rem_euclid(86_400) % part == 0), "the same of each day");
    }
}

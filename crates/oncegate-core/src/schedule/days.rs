//! On which days a schedule runs.

use std::collections::BTreeSet;
use std::fmt;

use jiff::civil;

use super::ScheduleError;

/// A day of the week; the first is Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weekday {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl Weekday {
    const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Mon, "mon", "monday"),
        (Self::Tue, "tue", "tuesday"),
        (Self::Wed, "wed", "wednesday"),
        (Self::Thu, "thu", "thursday"),
        (Self::Fri, "fri", "friday"),
        (Self::Sat, "sat", "saturday"),
        (Self::Sun, "sun", "sunday"),
    ];
}

/// A day of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Date {
    /// By its number, 1 to 31. A month that has none of this number is left out.
    Day(i8),
    /// The last one.
    Last,
}

/// On which days; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Days {
    /// Every day.
    All,
    /// Those of the week.
    OfWeek(BTreeSet<Weekday>),
    /// Those of the month.
    OfMonth(BTreeSet<Date>),
}

impl Days {
    /// Reads days of the week: `mon` or `monday`, and `weekdays` for Monday to Friday.
    ///
    /// # Errors
    /// There is none, or one of them is no day.
    pub fn of_week<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ScheduleError> {
        let mut days = BTreeSet::new();
        for name in names {
            let folded = name.trim().to_lowercase();
            if folded == "weekdays" {
                days.extend(Weekday::ALL[..5].iter().map(|(day, ..)| *day));
                continue;
            }
            let known = Weekday::ALL.iter().find(|(_, short, long)| folded == *short || folded == *long);
            days.insert(known.ok_or_else(|| ScheduleError::Weekday(name.to_owned()))?.0);
        }
        match days.is_empty() {
            true => Err(ScheduleError::NoDays("days")),
            false => Ok(Self::OfWeek(days)),
        }
    }

    /// Reads days of the month: `1` to `31`, and `last`.
    ///
    /// # Errors
    /// There is none, or one of them is no day.
    pub fn of_month<'a>(dates: impl IntoIterator<Item = &'a str>) -> Result<Self, ScheduleError> {
        let read = |text: &str| match text.trim() {
            "last" => Ok(Date::Last),
            number => match number.parse() {
                Ok(day @ 1..=31) => Ok(Date::Day(day)),
                _ => Err(ScheduleError::Date(text.to_owned())),
            },
        };
        let dates = dates.into_iter().map(read).collect::<Result<BTreeSet<_>, _>>()?;
        match dates.is_empty() {
            true => Err(ScheduleError::NoDays("dates")),
            false => Ok(Self::OfMonth(dates)),
        }
    }

    /// Whether this date is one of them.
    pub(super) fn has(&self, date: civil::Date) -> bool {
        match self {
            Self::All => true,
            Self::OfWeek(days) => {
                let nth = usize::try_from(date.weekday().to_monday_zero_offset()).unwrap_or_default();
                Weekday::ALL.get(nth).is_some_and(|(day, ..)| days.contains(day))
            }
            Self::OfMonth(dates) => {
                dates.contains(&Date::Day(date.day()))
                    || (dates.contains(&Date::Last) && date.day() == date.days_in_month())
            }
        }
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = match self {
            Self::All => return f.write_str("every day"),
            Self::OfWeek(days) => {
                let named = Weekday::ALL.iter().filter(|(day, ..)| days.contains(day));
                named.map(|(_, short, _)| (*short).to_owned()).collect()
            }
            Self::OfMonth(dates) => {
                f.write_str("each month on ")?;
                let written = |date: &Date| match date {
                    Date::Day(day) => day.to_string(),
                    Date::Last => "the last day".to_owned(),
                };
                dates.iter().map(written).collect()
            }
        };
        f.write_str(&all.join(", "))
    }
}

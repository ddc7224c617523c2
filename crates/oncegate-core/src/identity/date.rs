//! Days in a declared form, and instants.

use std::fmt;
use std::str::FromStr;

use super::rule::Unfit;

/// How a day is written: `YYYY`, `MM` or `M`, `DD` or `D`, and what stands between them. A form is declared, because
/// `03/04/2026` is two days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DateForm {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Year,
    /// With the fewest digits it may have: 2, or 1 for one or two.
    Month(usize),
    Day(usize),
    Other(char),
}

impl FromStr for DateForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` is no form of a date: {why}; write e.g. `YYYY-MM-DD`, `DD.MM.YYYY` or `M/D/YYYY`"
            )
        };
        let (mut pieces, mut rest) = (vec![], text);
        while let Some(first) = rest.chars().next() {
            let same = rest.chars().take_while(|c| *c == first).count();
            let (piece, length) = match (first, same) {
                ('Y', 4) => (Piece::Year, 4),
                ('M', 1 | 2) => (Piece::Month(same), same),
                ('D', 1 | 2) => (Piece::Day(same), same),
                ('Y' | 'M' | 'D', _) => {
                    return Err(wrong("a year has four letters, a month or a day one or two"));
                }
                (c, _) if c.is_ascii_digit() => return Err(wrong("digits cannot stand between the parts")),
                (c, _) => (Piece::Other(c), c.len_utf8()),
            };
            pieces.push(piece);
            rest = &rest[length..];
        }
        let count = |which: fn(&Piece) -> bool| pieces.iter().filter(|p| which(p)).count();
        let [years, months, days] = [
            count(|p| matches!(p, Piece::Year)),
            count(|p| matches!(p, Piece::Month(_))),
            count(|p| matches!(p, Piece::Day(_))),
        ];
        if (years, months, days) != (1, 1, 1) {
            return Err(wrong("it needs a year, a month and a day, each once"));
        }
        let open = |piece: &Piece| matches!(piece, Piece::Month(1) | Piece::Day(1));
        if pieces.windows(2).any(|pair| open(&pair[0]) && !matches!(pair[1], Piece::Other(_))) {
            return Err(wrong("something must stand behind a part of one or two digits"));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }
}

impl fmt::Display for DateForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl DateForm {
    /// The day as `YYYY-MM-DD`.
    pub(super) fn fold(&self, text: &str) -> Result<String, Unfit> {
        let wrong = |why| Unfit::NotDate { form: self.text.clone(), why };
        let (mut year, mut month, mut day) = (0, 0, 0);
        let mut rest = text;
        for piece in &self.pieces {
            let (into, fewest, most) = match piece {
                Piece::Year => (&mut year, 4, 4),
                Piece::Month(fewest) => (&mut month, *fewest, 2),
                Piece::Day(fewest) => (&mut day, *fewest, 2),
                Piece::Other(c) => {
                    rest = rest.strip_prefix(*c).ok_or_else(|| wrong("it is written otherwise"))?;
                    continue;
                }
            };
            let digits = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
            if digits < fewest {
                return Err(wrong("it is written otherwise"));
            }
            *into = rest[..digits].parse::<i16>().map_err(|_| wrong("it is written otherwise"))?;
            rest = &rest[digits..];
        }
        if !rest.is_empty() {
            return Err(wrong("something stands behind it"));
        }
        let narrow = |n: i16| i8::try_from(n).unwrap_or(i8::MAX);
        let date = jiff::civil::Date::new(year, narrow(month), narrow(day))
            .map_err(|_| wrong("there is no such day"))?;
        Ok(date.to_string())
    }
}

/// The instant in UTC, with as many decimals as it has: `2026-01-05T10:00:00+02:00` → `2026-01-05T08:00:00Z`.
pub(super) fn timestamp(text: &str) -> Result<String, Unfit> {
    let date_and_time = text.len() > 10 && text.is_char_boundary(10) && text[10..].contains(':');
    let says_zone =
        date_and_time && (text.ends_with(['Z', 'z']) || text[10..].contains(['+', '-', '\u{2212}']));
    if !text.bytes().next().is_some_and(|b| b.is_ascii_digit()) || !date_and_time {
        return Err(Unfit::NotTimestamp("write it as in RFC 3339, e.g. `2026-01-05T10:00:00+01:00`"));
    }
    if !says_zone {
        return Err(Unfit::NotTimestamp("it says no zone; add `Z` or an offset such as `+01:00`"));
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(instant) => Ok(instant.to_string()),
        Err(_) => Err(Unfit::NotTimestamp("write it as in RFC 3339, e.g. `2026-01-05T10:00:00+01:00`")),
    }
}

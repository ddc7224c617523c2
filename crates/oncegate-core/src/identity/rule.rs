//! What a field's value is compared by.

use serde_json::Value;

use super::date::{self, DateForm};
use super::email::EmailFolding;
use super::number;
use super::part::{Folded, Part};
use crate::key::is_invisible;

/// How two spellings of a field are compared. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Never changed, never guessed at: `A1` and `a1`, `10` and `0010` are two.
    #[default]
    Opaque,
    /// An e-mail address: case, white space around it, the spelling of letters and domains do not count.
    Email(EmailFolding),
    /// White space and invisible characters around it do not count.
    Text,
    /// Nor does how much, and which, white space is inside.
    CollapseWs,
    /// By value: `10`, `10.0`, `1e1` are one.
    Number,
    /// A day, written as declared.
    Date(DateForm),
    /// An instant, with its zone.
    Timestamp,
}

/// Why a value does not fit its rule; continues a sentence that begins with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A list, an object or a boolean.
    #[error("is {0}, not a text or a whole number; name a field inside it or another one")]
    NotScalar(&'static str),
    /// A number with a fraction or an exponent, or longer than 64 bits, where no rule says what it means.
    #[error(
        "is the number {0}, which cannot be told apart from its neighbours; have it sent as text, or declare it \
         `as: number`"
    )]
    NotWhole(String),
    /// U+FFFD: bytes were not UTF-8 somewhere on the way, so two ids may look alike.
    #[error("holds a replacement character (U+FFFD): its text was damaged on the way; have it sent as UTF-8")]
    Damaged,
    /// Not an address.
    #[error("is no e-mail address: {0}")]
    NotEmail(&'static str),
    /// Not a number.
    #[error("is no number: {0}")]
    NotNumber(&'static str),
    /// Not a day in the declared form.
    #[error("is no day written as {form}: {why}")]
    NotDate {
        /// The declared form.
        form: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Not an instant.
    #[error("is no instant: {0}")]
    NotTimestamp(&'static str),
}

impl Rule {
    /// The names that configuration can use.
    pub const NAMES: [&str; 7] = ["opaque", "email", "text", "collapse_ws", "number", "date", "timestamp"];

    /// Its name in configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::Email(_) => "email",
            Self::Text => "text",
            Self::CollapseWs => "collapse_ws",
            Self::Number => "number",
            Self::Date(_) => "date",
            Self::Timestamp => "timestamp",
        }
    }

    /// Reads what stands in a field that is there.
    ///
    /// A number and the same digits as text are one (DESIGN §4). Without the rule `number`, only whole numbers of 64
    /// bits are read: any other was rounded when it was parsed, so that two ids could have become one.
    ///
    /// # Errors
    /// It is no scalar, or does not fit the rule.
    pub fn read(&self, value: &Value) -> Result<Part, Unfit> {
        match value {
            Value::Null => Ok(Part::Null),
            Value::String(text) if text.chars().all(is_invisible) => Ok(Part::Blank),
            Value::String(text) => self.fold(text).map(Part::Value),
            Value::Number(n) if *self == Self::Number => {
                let folded = number::of_json(n)?;
                Ok(Part::Value(Folded { shown: folded.clone(), folded }))
            }
            Value::Number(n) if n.is_i64() || n.is_u64() => self.fold(&n.to_string()).map(Part::Value),
            Value::Number(n) => Err(Unfit::NotWhole(n.to_string())),
            Value::Bool(_) => Err(Unfit::NotScalar("true or false")),
            Value::Array(_) => Err(Unfit::NotScalar("a list")),
            Value::Object(_) => Err(Unfit::NotScalar("an object")),
        }
    }

    /// Folds a text that is not blank.
    ///
    /// # Errors
    /// It does not fit the rule.
    pub fn fold(&self, text: &str) -> Result<Folded, Unfit> {
        if text.contains('\u{fffd}') {
            return Err(Unfit::Damaged);
        }
        if *self == Self::Opaque {
            return Ok(Folded { folded: text.to_owned(), shown: text.to_owned() });
        }
        let shown = text.trim_matches(is_invisible);
        let folded = match self {
            Self::Opaque | Self::Text => shown.to_owned(),
            Self::Email(folding) => folding.fold(shown)?,
            Self::CollapseWs => shown.split_whitespace().collect::<Vec<_>>().join(" "),
            Self::Number => number::of_text(shown)?,
            Self::Date(form) => form.fold(shown)?,
            Self::Timestamp => date::timestamp(shown)?,
        };
        Ok(Folded { folded, shown: shown.to_owned() })
    }

    /// What is declared besides the name, for hashes and people: two rules of one name may differ in it.
    pub fn details(&self) -> String {
        match self {
            Self::Email(folding) => folding.to_string(),
            Self::Date(form) => form.to_string(),
            Self::Opaque | Self::Text | Self::CollapseWs | Self::Number | Self::Timestamp => String::new(),
        }
    }
}

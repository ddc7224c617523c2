//! One part of a key: a value, or which kind of nothing; and how parts are joined.

use std::fmt;

use crate::key::{IdempotencyKey, NameError};

/// A value under its rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Folded {
    /// For keys: equal for all spellings that the rule calls equal.
    pub folded: String,
    /// For people and receivers: as it was sent, trimmed where the rule trims. Never folded.
    pub shown: String,
}

/// What stands in one field.
///
/// The three kinds of nothing are for optional fields alone. They are three values, and none of them is any value that
/// can be sent: two events of which one lacks the field never have one key, in whichever order they come (C45).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A value.
    Value(Folded),
    /// The field is not there.
    Missing,
    /// The field is `null`.
    Null,
    /// Empty, or nothing but white space and characters that print nothing.
    Blank,
}

impl Part {
    /// The value's spelling for keys; `None` for nothing.
    pub fn folded(&self) -> Option<&str> {
        match self {
            Self::Value(folded) => Some(&folded.folded),
            Self::Missing | Self::Null | Self::Blank => None,
        }
    }

    /// How it stands in a key, `name=` before it where fields are named. Injective: `:` and `\` in a value are preceded
    /// by `\`, line breaks and tabs are written `\n`, `\r`, `\t`, and no value gives `\(`.
    fn write(&self, name: Option<&str>, out: &mut String) {
        if let Some(name) = name {
            escape(name, out);
            out.push('=');
        }
        match self {
            Self::Value(folded) => escape(&folded.folded, out),
            Self::Missing => out.push_str(r"\(missing)"),
            Self::Null => out.push_str(r"\(null)"),
            Self::Blank => out.push_str(r"\(blank)"),
        }
    }
}

impl fmt::Display for Part {
    /// As it stands in a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(None, &mut text);
        f.write_str(&text)
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            ':' => out.push_str("\\:"),
            '\\' => out.push_str("\\\\"),
            // White space that a name cannot hold is as good as any other in an id.
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
}

/// Joins parts so that no two different lists give one key: `a:b` + `c` ≠ `a` + `b:c` (DESIGN §4). Ordinary ids read as
/// they are. With names, they must be in an order that does not depend on the sender.
///
/// # Errors
/// There is no part or none has a value (no identity), one has control characters, or the whole is too long.
pub fn join<'a>(
    parts: impl IntoIterator<Item = (Option<&'a str>, &'a Part)>,
) -> Result<IdempotencyKey, NameError> {
    let (mut joined, mut has_value) = (String::new(), false);
    for (number, (name, part)) in parts.into_iter().enumerate() {
        if number > 0 {
            joined.push(':');
        }
        has_value |= part.folded().is_some();
        part.write(name, &mut joined);
    }
    if !has_value {
        return Err(NameError::Blank { field: "idempotency_key" });
    }
    IdempotencyKey::try_from(joined.as_str())
}

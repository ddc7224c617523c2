//! What stands where a tool had no value: the same for all its events, so a key of it would make them one.

use crate::json::told;

/// What scripts and no-code tools write for a value that is not there. Whole values only: a text may hold these
/// words.
const NOTHINGS: [&str; 5] = ["undefined", "null", "NaN", "[object Object]", "[undefined]"];

/// Whether this value is none: a variable that nobody filled in (`{{executionId}}`, `row-{{id}}`), or a word for
/// nothing.
pub fn is_unfilled(text: &str) -> bool {
    let open = text.find("{{").map(|at| at + 2);
    let placeholder =
        open.is_some_and(|at| text[at..].find("}}").is_some_and(|end| !text[at..at + end].trim().is_empty()));
    placeholder || NOTHINGS.contains(&text.trim())
}

/// Why a key that a caller put together itself lacks a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hole {
    /// Nothing stands before the first `:` or behind the last.
    #[error(
        "begins or ends with `:`, as if the id beside it were missing: all such events would be one. Map an id that \
         differs from event to event, or send key_fields, of which none may be empty"
    )]
    End,
    /// A part is none.
    #[error(
        "holds `{0}`, which stands where a value is missing: all such events would be one. Map an id that differs from \
         event to event"
    )]
    Unfilled(String),
}

impl Hole {
    /// Of a value that is none, as messages show it.
    pub fn unfilled(value: &str) -> Self {
        Self::Unfilled(told(value.trim()))
    }
}

/// Looks for a part that is missing: `contact-form:` of which the id was empty, `contact-form:undefined`. Parts stand
/// between `:`; that one in the middle is empty says nothing, some names are written so (`arn:aws:s3:::bucket`).
///
/// # Errors
/// The first part that is missing.
pub fn hole(key: &str) -> Result<(), Hole> {
    let key = key.trim();
    if key.starts_with(':') || key.ends_with(':') {
        return Err(Hole::End);
    }
    // A placeholder may hold a `:` itself.
    let whole = std::iter::once(key).filter(|key| is_unfilled(key));
    match whole.chain(key.split(':').filter(|part| is_unfilled(part))).next() {
        Some(part) => Err(Hole::unfilled(part)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_lacks_a_part_is_told_from_one_that_looks_like_it() {
        for (key, lacks) in [
            ("contact-form:8812", false),
            ("arn:aws:s3:::bucket", false),
            ("undefined-behaviour", false),
            ("form:nullable", false),
            ("form:NULL", false),
            ("form:{}", false),
            ("form:{{}}", false),
            ("form:{{ }}", false),
            ("contact-form:", true),
            ("contact-form: ", true),
            (":8812", true),
            ("contact-form:undefined", true),
            ("undefined", true),
            ("form:null:8812", true),
            ("form: NaN", true),
            ("form:[object Object]", true),
            ("form:{{1.id}}", true),
            ("{{ $json.body.id }}", true),
            ("row-{{a:b}}", true),
        ] {
            assert_eq!(hole(key).is_err(), lacks, "{key}: {:?}", hole(key));
        }
    }
}

//! Where a key field stands in a request, and why a request may have no identity.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::body::Body;
use super::environment::as_text;
use super::request::Headers;
use crate::identity::Unfit;
use crate::key::NameError;

/// Longest field path, in bytes; a path is a name written by a person.
const PATH_BYTES_MAX: usize = 512;

/// Where a value stands: a dotted path into the JSON body (`form_response.form_id`, `0.id` for the first item
/// of an array) or a header (`header:x-github-delivery`).
///
/// A dot inside a name is written `\.`, a backslash `\\`; a leading `$.` is ignored, because JSONPath is what
/// people paste.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Place);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Body(Vec<String>),
    Header(String),
}

/// Why a text is no field path; the sentence a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    /// Nothing, or nothing between two dots.
    #[error("`{path}` has an empty name in it; write names joined by dots, e.g. `form_response.form_id`")]
    EmptyName {
        /// The path as written.
        path: String,
    },
    /// Longer than 512 bytes.
    #[error("a field path is {bytes} bytes long; at most {PATH_BYTES_MAX} are allowed")]
    TooLong {
        /// What was offered.
        bytes: usize,
    },
    /// A backslash before something other than a dot or a backslash.
    #[error("`{path}` has a stray `\\`; write `\\.` for a dot inside a name and `\\\\` for a backslash")]
    StrayEscape {
        /// The path as written.
        path: String,
    },
    /// No HTTP header can have this name.
    #[error("`{path}` does not name a header; write e.g. `header:x-github-delivery`")]
    BadHeaderName {
        /// The path as written.
        path: String,
    },
}

/// Whether a text can be the name of a header field (RFC 9110 §5.1, `token`).
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(path: &str) -> Result<Self, FieldPathError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(FieldPathError::TooLong { bytes: path.len() });
        }
        if let Some(name) = path.strip_prefix("header:") {
            let name = name.trim();
            return match is_header_name(name) {
                true => Ok(Self::header(name)),
                false => Err(FieldPathError::BadHeaderName { path: path.to_owned() }),
            };
        }
        let mut names = vec![String::new()];
        let mut chars = path.strip_prefix("$.").unwrap_or(path).chars();
        while let Some(c) = chars.next() {
            let c = match c {
                '.' => {
                    names.push(String::new());
                    continue;
                }
                '\\' => match chars.next() {
                    Some(escaped @ ('.' | '\\')) => escaped,
                    _ => return Err(FieldPathError::StrayEscape { path: path.to_owned() }),
                },
                plain => plain,
            };
            if let Some(name) = names.last_mut() {
                name.push(c);
            }
        }
        if names.iter().any(|name| name.trim().is_empty()) {
            return Err(FieldPathError::EmptyName { path: path.to_owned() });
        }
        Ok(Self(Place::Body(names)))
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for FieldPath {
    /// A text that parses to the same path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Header(name) => write!(f, "header:{name}"),
            Place::Body(names) => {
                for (i, name) in names.iter().enumerate() {
                    // The second dollar of `$.$.x` is a name; without the first it would be read as the root.
                    f.write_str(if i > 0 {
                        "."
                    } else if name == "$" || name.starts_with("header:") {
                        "$."
                    } else {
                        ""
                    })?;
                    f.write_str(&name.replace('\\', "\\\\").replace('.', "\\."))?;
                }
                Ok(())
            }
        }
    }
}

impl FieldPath {
    pub(super) fn header(name: &str) -> Self {
        Self(Place::Header(name.to_ascii_lowercase()))
    }

    pub(crate) fn body(names: &[&str]) -> Self {
        Self(Place::Body(names.iter().map(|&name| name.to_owned()).collect()))
    }

    /// The names on the way through the body; `None` for a header.
    pub(crate) fn body_segments(&self) -> Option<&[String]> {
        match &self.0 {
            Place::Body(names) => Some(names),
            Place::Header(_) => None,
        }
    }

    /// What stands there, if it is one word.
    pub(super) fn plain(&self, headers: &Headers, payload: &Value) -> Option<String> {
        match &self.0 {
            Place::Header(name) => {
                let mut values = headers.all(name);
                let first = values.next()?;
                values.all(|other| other == first).then(|| first.trim().to_owned())
            }
            Place::Body(names) => as_text(walk(payload, names)?),
        }
    }

    /// What stands there, whatever it is; of a header that came more than once the first.
    pub(super) fn value<'a>(&self, headers: &'a Headers, payload: &'a Value) -> Option<Cow<'a, Value>> {
        match &self.0 {
            Place::Header(name) => headers.get(name).map(|text| Cow::Owned(text.into())),
            Place::Body(names) => walk(payload, names).map(Cow::Borrowed),
        }
    }

    /// What stands there; `None` if nothing does.
    ///
    /// # Errors
    /// The header came twice with different values, or the body cannot be read.
    pub(super) fn find(&self, headers: &Headers, body: &Body) -> Result<Option<Value>, NoIdentity> {
        match &self.0 {
            Place::Header(name) => {
                let mut values = headers.all(name);
                let Some(first) = values.next() else { return Ok(None) };
                match values.any(|other| other != first) {
                    true => Err(NoIdentity::Twice { field: self.to_string() }),
                    false => Ok(Some(first.into())),
                }
            }
            Place::Body(names) => match &body.unreadable {
                Some(why) => Err(NoIdentity::BodyUnreadable { field: self.to_string(), why: why.clone() }),
                None => Ok(walk(&body.payload, names).cloned()),
            },
        }
    }

    /// What stands there in a value that came without headers.
    pub fn find_in<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        walk(value, self.body_segments()?)
    }
}

fn walk<'a>(from: &'a Value, names: &[String]) -> Option<&'a Value> {
    names.iter().try_fold(from, |value, name| match value {
        Value::Object(members) => members.get(name),
        // Digits only: `usize` would also read `+1` and `01`, and one place must have one name.
        Value::Array(items) if name == "0" || !name.starts_with(['0', '+']) => {
            items.get(name.parse::<usize>().ok()?)
        }
        _ => None,
    })
}

/// Why a verified event has no identity: nothing may run from it until a person mends the mapping (DESIGN §5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// The field is not there.
    #[error("`{field}` is missing; check the source's `key` against a real request")]
    Missing {
        /// The field path.
        field: String,
    },
    /// The field is `null`.
    #[error("`{field}` is null; a key needs a value that differs from event to event")]
    Null {
        /// The field path.
        field: String,
    },
    /// The field is empty or only white space, which would make all such events one.
    #[error("`{field}` is blank; a key needs a value that differs from event to event")]
    Blank {
        /// The field path.
        field: String,
    },
    /// The field holds `0`, which this provider sends where it stores nothing.
    #[error(
        "`{field}` is 0, which this sender writes when it stores no entries, so all events would be one; switch its \
         storage of entries on, or name another `key`"
    )]
    Zero {
        /// The field path.
        field: String,
    },
    /// The sender's variable was never filled in, or a word stands there that tools write for nothing.
    #[error(
        "`{field}` holds a placeholder that the sender did not fill in, or a word for nothing such as `undefined`; map a \
         value there, one that differs from event to event"
    )]
    Placeholder {
        /// The field path.
        field: String,
    },
    /// What stands in the field does not fit its rule.
    #[error("`{field}` {why}")]
    Unfit {
        /// The field path.
        field: String,
        /// What is wrong.
        why: Unfit,
    },
    /// The header came more than once, with different values.
    #[error("`{field}` was sent more than once with different values; it is not clear which one counts")]
    Twice {
        /// The field path.
        field: String,
    },
    /// The body has no fields, because it is empty, not JSON, or nested too deeply.
    #[error("`{field}` cannot be read: {why}")]
    BodyUnreadable {
        /// The field path.
        field: String,
        /// What is wrong with the body, and where.
        why: String,
    },
    /// The body's JSON names a member twice, with different values: whichever is taken, another reader takes the
    /// other.
    #[error(
        "the body names `{member}` twice with different values, so nobody can say what it means; \
         have the sender name it once"
    )]
    Ambiguous {
        /// The member, from the top.
        member: String,
    },
    /// Neither the source nor the provider says which fields make the key.
    #[error("no key fields are declared and `{provider}` has no default; set `key` on the source")]
    NoKeyFields {
        /// The provider's name.
        provider: &'static str,
    },
    /// Every field is optional, and none of them has a value.
    #[error("none of the key's fields has a value, and a key of nothing would make all such events one")]
    Nothing,
    /// All fields are there, but together they make no legal key.
    #[error(transparent)]
    BadKey(#[from] NameError),
}

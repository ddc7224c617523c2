//! Whose data is it: finds what names one person in payloads, answers and texts, for forgetting and for handing out.
//!
//! A person is described by fields and values, e.g. `email: ann@example.com`. All of them must be in one document. A
//! field's name may be a dotted path (`contact.email`) and may begin anywhere in the document; lists are looked
//! through. Values are compared trimmed and in lower case.
//!
//! Texts without fields (keys, records, notes, URLs) are searched for the value as a whole word, if there is only one
//! value and it is long enough to be found by no accident.

use serde_json::Value;

use crate::key::{StoreSecret, Workspace, is_invisible};
use crate::limits;

/// Why a description was refused; the sentence a user reads after the field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersonError {
    /// Nothing, which everybody is.
    #[error("names no field; send e.g. {{\"email\": \"ann@example.com\"}}")]
    Empty,
    /// More than anybody needs.
    #[error("has more than {max} fields")]
    TooMany {
        /// Fields at most.
        max: usize,
    },
    /// A blank name or value, which would match what is empty everywhere.
    #[error("has a blank field name or value, which nearly everything would match")]
    Blank,
    /// Not comparable.
    #[error("must hold texts or numbers, e.g. {{\"email\": \"ann@example.com\"}}")]
    NotText,
    /// Longer than a key.
    #[error("has a name or value longer than {max} bytes")]
    TooLong {
        /// Bytes at most.
        max: usize,
    },
}

/// One person, described by what documents say of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Person {
    /// Path and folded value.
    fields: Vec<(Vec<String>, String)>,
}

impl std::fmt::Debug for Person {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Whom somebody asks about is personal data itself.
        write!(f, "Person({} field(s))", self.fields.len())
    }
}

impl Person {
    /// From the members of a JSON object.
    ///
    /// # Errors
    /// None, too many, blank ones, or values that are not text or whole numbers.
    pub fn from_fields(fields: &serde_json::Map<String, Value>) -> Result<Self, PersonError> {
        if fields.is_empty() {
            return Err(PersonError::Empty);
        }
        if fields.len() > limits::PERSON_FIELDS_MAX {
            return Err(PersonError::TooMany { max: limits::PERSON_FIELDS_MAX });
        }
        let read = fields.iter().map(|(name, value)| {
            let value = fold(&scalar(value).ok_or(PersonError::NotText)?);
            let path: Vec<String> = name.split('.').map(|part| part.trim().to_owned()).collect();
            if value.is_empty() || path.iter().any(String::is_empty) {
                return Err(PersonError::Blank);
            }
            match name.len().max(value.len()) > limits::KEY_BYTES_MAX {
                true => Err(PersonError::TooLong { max: limits::KEY_BYTES_MAX }),
                false => Ok((path, value)),
            }
        });
        Ok(Self { fields: read.collect::<Result<_, _>>()? })
    }

    /// Whether a document says all of it.
    pub fn is_in(&self, document: &Value) -> bool {
        self.fields.iter().all(|(path, value)| holds(document, path, value))
    }

    /// Whether a text names it; texts in URLs may be percent-encoded.
    pub fn is_named_in(&self, text: &str) -> bool {
        let [(_, value)] = &self.fields[..] else { return false };
        if value.chars().count() < limits::PERSON_TEXT_CHARS_MIN {
            return false;
        }
        let text = text.to_lowercase();
        has_word(&text, value) || (text.contains('%') && has_word(&percent_decoded(&text), value))
    }

    /// Bytes as they came: JSON, a form, or any text.
    pub fn is_in_body(&self, body: &[u8]) -> bool {
        match serde_json::from_slice::<Value>(body) {
            Ok(document) => self.is_in(&document),
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                // In a form, `+` is a blank.
                self.is_named_in(&text) || self.is_named_in(&text.replace('+', " "))
            }
        }
    }

    /// What may be written down about whom it was: only with the store's secret can a guess be tested.
    pub fn hash(&self, secret: &StoreSecret, workspace: Workspace) -> String {
        let mut parts: Vec<String> =
            self.fields.iter().map(|(path, value)| format!("{}={value}", path.join("."))).collect();
        parts.sort();
        let workspace = workspace.0.to_be_bytes();
        let parts: Vec<&[u8]> =
            std::iter::once(&workspace[..]).chain(parts.iter().map(String::as_bytes)).collect();
        data_encoding::HEXLOWER.encode(&secret.mac("person", &parts))
    }
}

fn fold(text: &str) -> String {
    text.trim_matches(is_invisible).to_lowercase()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether `path`, begun anywhere in `document`, leads to `value`. No deeper than JSON is read.
fn holds(document: &Value, path: &[String], value: &str) -> bool {
    leads(document, path, value)
        || match document {
            Value::Object(members) => members.values().any(|member| holds(member, path, value)),
            Value::Array(items) => items.iter().any(|item| holds(item, path, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

fn leads(at: &Value, path: &[String], value: &str) -> bool {
    match (at, path) {
        (Value::Array(items), _) => items.iter().any(|item| leads(item, path, value)),
        (Value::Object(members), [name, rest @ ..]) => {
            let named = |(member, _): &(&String, &Value)| member.trim().eq_ignore_ascii_case(name);
            members.iter().filter(named).any(|(_, member)| leads(member, rest, value))
        }
        (at, []) => scalar(at).is_some_and(|text| fold(&text) == value),
        (_, [_, ..]) => false,
    }
}

/// Whether `word` stands in `text` without going on to either side: `ann@example.com` is not in `joann@example.com`,
/// nor in `ann@example.com.au`.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || "_-+".contains(c);
    text.match_indices(word).any(|(at, _)| {
        let (mut before, mut after) = (text[..at].chars().rev(), text[at + word.len()..].chars());
        let open = |first: Option<char>, second: Option<char>| match first {
            None => true,
            Some('.' | '@') => !second.is_some_and(joins),
            Some(c) => !joins(c),
        };
        open(before.next(), before.next()) && open(after.next(), after.next())
    })
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = match (first, more) {
            (b'%', [high, low, more @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default();
                bytes.extend(u8::try_from(16 * digit(*high) + digit(*low)));
                more
            }
            (byte, more) => {
                bytes.push(*byte);
                more
            }
        };
    }
    String::from_utf8_lossy(&bytes).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn person(fields: Value) -> Person {
        Person::from_fields(fields.as_object().unwrap()).unwrap()
    }

    #[test]
    fn a_document_is_somebodys_wherever_the_field_stands() {
        let ann = person(json!({ "email": " Ann@Example.com " }));
        for theirs in [
            json!({ "email": "ann@example.com" }),
            json!({ "Email": "ANN@EXAMPLE.COM\u{200b}" }),
            json!({ "a": [{ "b": { "email": "ann@example.com" } }] }),
            json!({ "email": ["bob@example.com", "ann@example.com"] }),
        ] {
            assert!(ann.is_in(&theirs), "{theirs}");
        }
        for others in [
            json!({ "email": "joann@example.com" }),
            json!({ "e": "ann@example.com" }),
            json!({ "email": { "x": "ann@example.com" } }),
            json!(null),
        ] {
            assert!(!ann.is_in(&others), "{others}");
        }
        let path = person(json!({ "contact.id": 7 }));
        assert!(path.is_in(&json!({ "data": { "contact": { "id": "7" } } })));
        assert!(!path.is_in(&json!({ "data": { "contact": { "x": { "id": 7 } } } })));
        let both = person(json!({ "first": "Ann", "last": "Lee" }));
        assert!(both.is_in(&json!({ "last": "lee", "first": "ann" })));
        assert!(!both.is_in(&json!({ "first": "ann", "last": "may" })));
    }

    #[test]
    fn a_text_names_somebody_by_the_whole_value() {
        let ann = person(json!({ "email": "ann@example.com" }));
        for theirs in [
            "hubspot:contacts:ann@example.com",
            "ANN@EXAMPLE.COM",
            "mail to <ann@example.com>.",
            "https://crm.test/?q=ann%40example.com&x=1",
        ] {
            assert!(ann.is_named_in(theirs), "{theirs}");
        }
        for others in [
            "joann@example.com",
            "jo.ann@example.com",
            "ann@example.com.au",
            "x+ann@example.com",
            "ann@example.community",
        ] {
            assert!(!ann.is_named_in(others), "{others}");
        }
        assert!(!person(json!({ "id": "17" })).is_named_in("order 17"), "too short to be nobody else's");
        assert!(!person(json!({ "a": "ann@example.com", "b": "x" })).is_named_in("ann@example.com"));
        assert!(ann.is_in_body(b"name=Ann&email=ann%40example.com"));
        assert!(ann.is_in_body(b"to=Ann+ann@example.com"));
        assert!(!ann.is_in_body(b"\xff\xfe"));
    }

    #[test]
    fn nobody_is_described_by_nothing() {
        let refused = |fields: Value| Person::from_fields(fields.as_object().unwrap()).unwrap_err();
        assert_eq!(refused(json!({})), PersonError::Empty);
        assert_eq!(refused(json!({ "email": " " })), PersonError::Blank);
        assert_eq!(refused(json!({ "a..b": "x" })), PersonError::Blank);
        assert_eq!(refused(json!({ "email": ["x"] })), PersonError::NotText);
        let many: serde_json::Map<_, _> = (0..11).map(|n| (n.to_string(), json!("x"))).collect();
        assert!(matches!(Person::from_fields(&many), Err(PersonError::TooMany { .. })));
    }

    #[test]
    fn whom_it_was_about_is_written_as_a_keyed_hash() {
        let (a, b) = (StoreSecret::new([1; 32]), StoreSecret::new([2; 32]));
        let ann = person(json!({ "email": "ann@example.com" }));
        let hash = ann.hash(&a, Workspace::DEFAULT);
        assert_eq!(hash, person(json!({ "email": "ANN@example.com" })).hash(&a, Workspace::DEFAULT));
        assert_ne!(hash, ann.hash(&b, Workspace::DEFAULT));
        assert_ne!(hash, ann.hash(&a, Workspace(2)));
        assert!(!format!("{ann:?}").contains("ann"));
    }
}

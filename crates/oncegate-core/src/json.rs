//! JSON from outside, read once and read strictly: whether a text has one meaning, and where it has none.
//!
//! RFC 8259 §4 leaves open what an object means in which a name stands twice. Senders, signers and receivers then
//! each believe another value, so such a text is told by its place instead of being read by its last one.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits;

/// What becomes of an object that names a member more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// Refused, whatever the values: for calls, whose senders can mend it.
    Refused,
    /// Refused if the values differ; equal ones are one. For bodies that somebody else wrote.
    RefusedIfDifferent,
    /// The first value counts: for calls whose effect has happened and must be written down.
    First,
}

/// Why bytes are not JSON with one meaning, and at which member that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The member, from the top, e.g. `payload.items.3.id`; `None` at the top.
    pub path: Option<String>,
    /// What is wrong there.
    pub fault: JsonFault,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// Bytes that are no text.
    #[error("is not UTF-8 at byte {at} of the body")]
    NotUtf8 {
        /// The first byte that cannot be read, from 0.
        at: usize,
    },
    /// A member that its object names more than once.
    #[error("stands more than once in its object; send it once")]
    Twice,
    /// Lists and objects in one another, more than [`limits::JSON_DEPTH_MAX`].
    #[error("is nested deeper than {} levels", limits::JSON_DEPTH_MAX)]
    TooDeep,
    /// Anything else, in the words of the parser, with line and column.
    #[error("is not JSON: {0}")]
    Syntax(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "`{path}` {}", self.fault),
            None => write!(f, "the body {}", self.fault),
        }
    }
}

impl std::error::Error for JsonError {}

/// A byte order mark, which Windows tools put before a text; it is no part of it (RFC 8259 §8.1).
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes without the byte order mark before them.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes)
}

/// Reads one JSON text, with a byte order mark before it or not, and nothing after it.
///
/// Numbers are those of `serde_json`: whole ones of 64 bits keep every digit, others are doubles.
///
/// # Errors
/// It is not UTF-8 or not JSON, has a number that no double can hold, half of a surrogate pair, is too deep, or
/// names a member twice.
pub fn read(bytes: &[u8], twice: Twice) -> Result<Value, JsonError> {
    let unmarked = without_mark(bytes);
    let (text, broken_at) = match std::str::from_utf8(unmarked) {
        Ok(text) => (text, None),
        // What comes before is read to learn at which member the text breaks.
        Err(e) => (
            std::str::from_utf8(&unmarked[..e.valid_up_to()]).unwrap_or_default(),
            Some(e.valid_up_to() + bytes.len() - unmarked.len()),
        ),
    };
    let seen = RefCell::default();
    let mut parser = serde_json::Deserializer::from_str(text);
    let read = Place { above: Above::Top, twice, seen: &seen }.deserialize(&mut parser);
    let read = read.and_then(|value| parser.end().map(|()| value));
    let seen = seen.into_inner();
    let fault = match (read, broken_at) {
        (_, Some(at)) => JsonFault::NotUtf8 { at },
        (Ok(value), None) => return Ok(value),
        (Err(_), None) if seen.twice => JsonFault::Twice,
        // The parser tells this kind by its words alone; a test notices if they change.
        (Err(e), None) if e.to_string().starts_with("recursion limit exceeded") => JsonFault::TooDeep,
        (Err(e), None) => JsonFault::Syntax(e.to_string()),
    };
    // At 128 levels a path says nothing that a person could look at.
    let path = seen.path.filter(|_| fault != JsonFault::TooDeep);
    Err(JsonError { path, fault })
}

/// What was seen when reading stopped.
#[derive(Default)]
struct Seen {
    path: Option<String>,
    twice: bool,
}

/// The way from the top to a value.
#[derive(Clone, Copy)]
enum Above<'a> {
    Top,
    Member(&'a Above<'a>, &'a str),
    Item(&'a Above<'a>, usize),
}

/// Longest path and longest name in it that are told, in characters: they come from outside.
const TOLD_CHARS_MAX: usize = 64;

impl Above<'_> {
    fn names(&self, names: &mut Vec<String>) {
        match self {
            Self::Top => {}
            Self::Member(above, name) => {
                above.names(names);
                // An empty name is one too, and must not look like the top.
                let shown = if name.is_empty() { "\"\"" } else { name };
                names.push(shown.replace('\\', "\\\\").replace('.', "\\."));
            }
            Self::Item(above, at) => {
                above.names(names);
                names.push(at.to_string());
            }
        }
    }

    fn told(&self) -> String {
        let mut names = vec![];
        self.names(&mut names);
        let names: Vec<String> = names.iter().map(|name| told(name)).collect();
        match names.len() {
            0..=8 => names.join("."),
            // The last names say which member it is, the first ones in which part of the body.
            count => format!("{}.….{}", names[..3].join("."), names[count - 3..].join(".")),
        }
    }
}

/// A name from outside as messages show it: short, and without characters that a terminal would obey.
pub fn told(name: &str) -> String {
    let mut chars = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut told: String = chars.by_ref().take(TOLD_CHARS_MAX).collect();
    if chars.next().is_some() {
        told.push('…');
    }
    told
}

/// One value that is about to be read.
#[derive(Clone, Copy)]
struct Place<'a> {
    above: Above<'a>,
    twice: Twice,
    seen: &'a RefCell<Seen>,
}

impl Place<'_> {
    /// Remembers where reading stopped, if nothing further down has.
    fn stopped(&self, above: Above<'_>) {
        let mut seen = self.seen.borrow_mut();
        if seen.path.is_none() {
            seen.path = Some(above.told()).filter(|path| !path.is_empty());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // JSON knows no infinity and no NaN, and the parser gives none.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = vec![];
        loop {
            let above = Above::Item(&self.above, items.len());
            match seq.next_element_seed(Place { above, ..self }) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(items.into()),
                Err(e) => {
                    self.stopped(above);
                    return Err(e);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>().inspect_err(|_| self.stopped(self.above))? {
            let above = Above::Member(&self.above, &name);
            let value = map.next_value_seed(Place { above, ..self }).inspect_err(|_| self.stopped(above))?;
            let refused = match (members.get(&name), self.twice) {
                (None, _) => {
                    members.insert(name, value);
                    continue;
                }
                (Some(_), Twice::First) => false,
                (Some(first), Twice::RefusedIfDifferent) => *first != value,
                (Some(_), Twice::Refused) => true,
            };
            if refused {
                self.stopped(above);
                self.seen.borrow_mut().twice = true;
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn refused(text: impl AsRef<[u8]>) -> (Option<String>, JsonFault) {
        let JsonError { path, fault } = read(text.as_ref(), Twice::Refused).unwrap_err();
        (path, fault)
    }

    #[test]
    fn a_member_twice_is_told_by_its_place_at_any_depth() {
        for (text, path) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"a":1,"b":{"c":[0,{"d":1,"e":2,"d":3}]}}"#, "b.c.1.d"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
            (r#"{"a.b":{"c\\":0,"c\\":1}}"#, r"a\.b.c\\"),
            (r#"[{"":0,"":1}]"#, "0.\"\""),
            (r#"{"":0,"":1}"#, "\"\""),
            (r#"{"a":{"x":1,"x":2},"a":3}"#, "a.x"),
        ] {
            assert_eq!(refused(text), (Some(path.to_owned()), JsonFault::Twice), "{text}");
        }
        let long = format!("{{\"{0}\":1,\"{0}\":2}}", "n\\u0007".repeat(100));
        let told = refused(long).0.unwrap();
        assert!(told.chars().count() <= 65 && !told.contains(char::is_control), "{told}");
    }

    #[test]
    fn what_twice_means_is_the_readers_choice() {
        let (same, other) = (br#"{"a":{"b":1,"b":1}}"#, br#"{"a":1,"b":0,"a":2}"#);
        assert_eq!(read(same, Twice::RefusedIfDifferent), Ok(json!({"a":{"b":1}})));
        assert!(read(other, Twice::RefusedIfDifferent).is_err());
        assert_eq!(read(other, Twice::First), Ok(json!({"a":1,"b":0})));
    }

    #[test]
    fn depth_has_a_limit_with_words_of_its_own() {
        let nested = |depth: usize| format!("{}0{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(limits::JSON_DEPTH_MAX).as_bytes(), Twice::Refused).is_ok());
        for depth in [limits::JSON_DEPTH_MAX + 1, 10_000, 500_000] {
            assert_eq!(refused(nested(depth)), (None, JsonFault::TooDeep), "{depth}");
            let objects = format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth));
            assert_eq!(refused(objects), (None, JsonFault::TooDeep), "{depth}");
        }
    }

    #[test]
    fn what_is_no_json_says_where() {
        for (text, path, says) in [
            (&b""[..], None, "EOF"),
            (b"{\"a\":\xff\xfe}", Some("a"), "UTF-8 at byte 5"),
            (b"{\"a\":{\"b\":\"x\xff\"}}", Some("a.b"), "UTF-8 at byte 12"),
            (b"{\"\xff\":1}", None, "UTF-8 at byte 2"),
            (b"\xef\xbb\xbf\xef\xbb\xbf{}", None, "expected value"),
            (b"{\"a\":NaN}", Some("a"), "expected value"),
            (b"{\"a\":-Infinity}", Some("a"), "line 1 column"),
            (b"{\"a\":[1e400]}", Some("a.0"), "number out of range"),
            (b"{\"a\":\"\\ud800\"}", Some("a"), "hex escape"),
            (b"{\"a\":\"\\udc00x\"}", Some("a"), "surrogate"),
            (b"{\"a\":\"\x00\"}", Some("a"), "control character"),
            (b"{\"a\":01}", Some("a"), "line 1 column"),
            (b"{\"a\":1,}", None, "trailing comma"),
            (b"{'a':1}", None, "line 1 column"),
            (b"{} {}", None, "trailing characters"),
            (b"{}\0", None, "trailing characters"),
            (b"// no\n{}", None, "expected value"),
        ] {
            let error = read(text, Twice::Refused).unwrap_err();
            let told = error.to_string();
            assert_eq!(error.path.as_deref(), path, "{told}");
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn what_json_allows_is_taken() {
        for (text, value) in [
            ("\u{feff}{\"a\":1}", json!({"a":1})),
            (r#"{"a":"\u0000\ud83d\ude00"}"#, json!({"a":"\0😀"})),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            (" [null,true,-0.5e-7] ", json!([null, true, -0.5e-7])),
        ] {
            assert_eq!(read(text.as_bytes(), Twice::Refused).as_ref(), Ok(&value), "{text}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".{0,3}", inner), 0..6)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(value in values()) {
            let text = value.to_string();
            for twice in [Twice::Refused, Twice::RefusedIfDifferent, Twice::First] {
                prop_assert_eq!(read(text.as_bytes(), twice), Ok(value.clone()));
            }
        }
    }
}

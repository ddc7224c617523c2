//! Form bodies and query strings: pairs of names and values, read into the same fields as JSON; and JSON that was
//! made of such pairs.

use std::borrow::Cow;

use oncegate_core::json::{self, JsonFault, Twice};
use oncegate_core::limits;
use serde_json::{Map, Value};

use super::input::{Reading, not_json};
use super::problem::Problem;

/// Reads `name=value&…`. Nobody can tell which of two values is meant; where that must not matter, the first counts.
///
/// # Errors
/// Read strictly: a pair is no text, a field is given twice and differs, or there are too many. Read leniently:
/// never; a broken text is taken as far as it goes, and what cannot be understood at all is left out.
pub(crate) fn read(bytes: &[u8], reading: Reading) -> Result<Map<String, Value>, Problem> {
    let mut fields = Map::new();
    let pairs = bytes.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
    for (number, pair) in (1..).zip(pairs) {
        match take(&mut fields, number, pair, reading) {
            Err(problem) if reading == Reading::Strict => return Err(problem),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(fields)
}

fn take(
    fields: &mut Map<String, Value>,
    number: usize,
    pair: &[u8],
    reading: Reading,
) -> Result<(), Problem> {
    if number > limits::FORM_FIELDS_MAX {
        return Err(Problem::invalid_field(format!(
            "there are more than {} fields; no call takes that many",
            limits::FORM_FIELDS_MAX
        )));
    }
    let (name, value) = pair.split_at(pair.iter().position(|b| *b == b'=').unwrap_or(pair.len()));
    let value = value.get(1..).unwrap_or_default();
    let name = decoded(name, reading).map_err(|why| {
        let raw = String::from_utf8_lossy(name);
        Problem::field(&raw, format!("is the name of a field and {why}"))
    })?;
    if name.len() > limits::FIELD_NAME_BYTES_MAX {
        return Err(Problem::field(
            &name,
            format!(
                "is a name of {} bytes; at most {} are allowed",
                name.len(),
                limits::FIELD_NAME_BYTES_MAX
            ),
        ));
    }
    let value = decoded(value, reading).map_err(|why| Problem::field(&name, why))?;
    let value = form_value(&name, &value, reading)?;
    put(fields, &name, value)
}

/// Adds a field under its name, or to the group of which it is a member.
fn put(fields: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), Problem> {
    let (group, member) = match grouped(name) {
        Some((group, member)) => (group, Some(member)),
        None => (name, None),
    };
    let into = match member {
        None => fields,
        Some(_) => match fields.entry(group).or_insert_with(|| Map::new().into()) {
            Value::Object(members) => members,
            _ => {
                return Err(Problem::field(
                    group,
                    "is given as a whole and by its members; send one of them",
                ));
            }
        },
    };
    match into.get(member.unwrap_or(group)) {
        Some(other) if *other != value => Err(Problem::field(name, "is given twice and differs")),
        Some(_) => Ok(()),
        None => {
            into.insert(member.unwrap_or(group).to_owned(), value);
            Ok(())
        }
    }
}

/// The text that `+` and `%` sequences stand for. Strictly, what browsers would let pass is refused: a `%` that means
/// itself, and bytes that are no text, would make two values one.
fn decoded(bytes: &[u8], reading: Reading) -> Result<Cow<'_, str>, &'static str> {
    let broken = |rest: &[u8]| !rest.iter().take(2).all(u8::is_ascii_hexdigit) || rest.len() < 2;
    let strict = reading == Reading::Strict;
    if strict && bytes.iter().enumerate().any(|(at, b)| *b == b'%' && broken(&bytes[at + 1..])) {
        return Err("has a % without two hexadecimal digits after it; write %25 for the sign itself");
    }
    let spaced: Cow<'_, [u8]> = match bytes.contains(&b'+') {
        true => bytes.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect(),
        false => bytes.into(),
    };
    let decoded: Cow<'_, [u8]> = match spaced.contains(&b'%') {
        true => percent_encoding::percent_decode(&spaced).collect(),
        false => spaced,
    };
    match decoded {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Some(Cow::Owned(text)),
            Err(e) if !strict => Some(Cow::Owned(String::from_utf8_lossy(e.as_bytes()).into_owned())),
            Err(_) => None,
        },
    }
    .or_else(|| (!strict).then(|| String::from_utf8_lossy(bytes)))
    .ok_or("is not UTF-8")
}

/// What holds members by name.
const GROUPS: [&str; 4] = ["key_fields", "identity_fields", "payload", "result"];

/// `key_fields.form_id`, `key_fields[form_id]` and `key_fields__form_id` name a member: the spellings of no-code
/// tools, whose fields are pairs of a name and a value.
fn grouped(name: &str) -> Option<(&str, &str)> {
    let group = GROUPS.into_iter().find(|group| name.starts_with(group))?;
    let rest = &name[group.len()..];
    let member = match rest.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => rest.strip_prefix('.').or_else(|| rest.strip_prefix("__"))?,
    };
    (!member.is_empty()).then_some((group, member))
}

/// The fields of a JSON object of which some are members by their name, as a tool writes them that makes JSON of
/// pairs.
///
/// # Errors
/// Read strictly: a member is given twice and differs, or as a whole and by its members. Read leniently: never; what
/// comes second is left out.
pub(crate) fn gathered(json: Map<String, Value>, reading: Reading) -> Result<Map<String, Value>, Problem> {
    if !json.keys().any(|name| grouped(name).is_some()) {
        return Ok(json);
    }
    // Whole groups first, so that a member finds what it adds to; one that is null counts as absent.
    let (members, mut fields): (Map<_, _>, Map<_, _>) =
        json.into_iter().partition(|(name, _)| grouped(name).is_some());
    fields.retain(|name, value| !value.is_null() || !GROUPS.contains(&name.as_str()));
    for (name, value) in members {
        match put(&mut fields, &name, value) {
            Err(problem) if reading == Reading::Strict => return Err(problem),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(fields)
}

/// A form has no other way to send JSON than as text; where JSON is meant, it is read as if it had come as JSON, so
/// that one payload has one fingerprint whichever way it comes.
fn form_value(name: &str, text: &str, reading: Reading) -> Result<Value, Problem> {
    if !GROUPS.contains(&name) || !text.trim_start().starts_with(['{', '[']) {
        return Ok(text.into());
    }
    let twice = if reading == Reading::Strict { Twice::Refused } else { Twice::First };
    match json::read(text.as_bytes(), twice) {
        Ok(json) => Ok(json),
        // Meant as JSON without a doubt, and not to be had; anything else may be a text that begins like that.
        Err(mut e) if matches!(e.fault, JsonFault::Twice | JsonFault::TooDeep) => {
            e.path = Some(e.path.map_or_else(|| name.to_owned(), |path| format!("{name}.{path}")));
            Err(not_json(e))
        }
        Err(_) => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn strict(text: &str) -> Result<Value, String> {
        read(text.as_bytes(), Reading::Strict).map(Value::from).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn pairs_are_read_as_browsers_write_them() {
        for (text, fields) in [
            ("", json!({})),
            ("&&a=1&", json!({"a":"1"})),
            ("a=x+y%2Bz%20%C3%A9%F0%9F%98%80", json!({"a":"x y+z é😀"})),
            ("a&b=&=c&%3D=d=e", json!({"a":"","b":"","":"c","=":"d=e"})),
            ("a=1&a=1&b=2", json!({"a":"1","b":"2"})),
            (
                "key_fields.a=1&key_fields[b]=2&key_fields[]=3",
                json!({"key_fields":{"a":"1","b":"2"},"key_fields[]":"3"}),
            ),
            (
                "payload.a=1&payload__b__c=&result[d]={}&payload__=2",
                json!({"payload":{"a":"1","b__c":""},"result":{"d":"{}"},"payload__":"2"}),
            ),
            ("payload={\"a\":[1]}&payloads={}", json!({"payload":{"a":[1]},"payloads":"{}"})),
            ("payload={no&result=[1]", json!({"payload":"{no","result":[1]})),
        ] {
            assert_eq!(strict(text), Ok(fields), "{text}");
        }
        let pairs: Vec<(String, String)> =
            (0..limits::FORM_FIELDS_MAX).map(|n| (format!("n{n}"), format!("a b+&=%ü{n}"))).collect();
        let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
        let fields = read(text.as_bytes(), Reading::Strict).unwrap();
        assert!(pairs.iter().all(|(name, value)| fields[name] == json!(value)));
        assert!(strict(&format!("{text}&one=more")).unwrap_err().contains("more than 200 fields"));
    }

    #[test]
    fn what_has_two_readings_is_refused_by_name_and_left_out_where_nothing_is() {
        for (text, field, rule) in [
            ("a=%", "a", "%25"),
            ("a=%2", "a", "%25"),
            ("a=100%zz", "a", "%25"),
            ("%zz=1", "%zz", "%25"),
            ("a=%ff%fe", "a", "UTF-8"),
            ("a=%C3", "a", "UTF-8"),
            ("a=%ED%A0%80", "a", "UTF-8"),
            ("a=1&a=2", "a", "twice"),
            ("key_fields=x&key_fields.a=1", "key_fields", "as a whole"),
            ("key_fields.a=1&key_fields[a]=2", "key_fields[a]", "twice"),
            ("payload={\"a\":{\"b\":1,\"b\":1}}", "payload.a.b", "more than once"),
        ] {
            let told = strict(&format!("ok=1&{text}")).unwrap_err();
            assert!(told.contains(&format!("\"field\": String({field:?})")) && told.contains(rule), "{told}");
            assert!(
                read(format!("ok=1&{text}").as_bytes(), Reading::Lenient).unwrap()["ok"] == "1",
                "{text}"
            );
        }
        let deep = format!("payload={}", "[".repeat(10_000));
        assert!(strict(&deep).unwrap_err().contains("nested deeper than 127 levels"));
        let long = strict(&format!("{}=1", "n".repeat(100_000))).unwrap_err();
        assert!(long.contains("100000 bytes; at most 256") && long.len() < 1_000, "{long}");
        let first = read(b"token=a&token=b&note=100%+%ff\xfe&raw=\xff", Reading::Lenient).unwrap();
        assert_eq!(Value::from(first), json!({"token":"a","note":"100% \u{fffd}\u{fffd}","raw":"\u{fffd}"}));
    }
}

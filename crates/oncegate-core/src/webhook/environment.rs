//! Which environment an event is of: test events reach live endpoints, and must not take the key of a live one.

use serde_json::Value;

use super::field::FieldPath;
use super::request::Headers;

/// What an event must say to be of a source's own environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventEnvironment {
    /// Where it says it.
    pub field: FieldPath,
    /// What it says, as text: `true`, `live`, `1`.
    pub is: String,
}

/// Longest value that is told to a person; what stands there is a word.
const SHOWN_CHARS_MAX: usize = 40;

impl EventEnvironment {
    /// Why an event is not of this environment; `None` if it is.
    pub fn differs(&self, headers: &Headers, payload: &Value) -> Option<String> {
        let Self { field, is } = self;
        match field.plain(headers, payload) {
            Some(found) if found == *is => None,
            Some(found) => {
                let found: String = found.chars().take(SHOWN_CHARS_MAX).collect();
                Some(format!("other environment: `{field}` is {found}, not {is}"))
            }
            None => Some(format!("other environment: there is no `{field}` that says {is}")),
        }
    }
}

/// A value as it is compared: a number and the same digits, `true` and `"true"` are one.
pub fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Bool(b) => Some(b.to_string()),
        Value::Number(n) => Some(n.to_string()),
        Value::String(s) => Some(s.trim().to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_event_that_says_so_is_of_the_environment() {
        let headers = Headers::new([("x-env", "live")]);
        for (field, is, payload, same) in [
            ("livemode", "true", json!({ "livemode": true }), true),
            ("livemode", "true", json!({ "livemode": "true" }), true),
            ("livemode", "true", json!({ "livemode": false }), false),
            ("livemode", "true", json!({ "livemode": 1 }), false),
            ("livemode", "true", json!({ "livemode": null }), false),
            ("livemode", "true", json!({}), false),
            ("livemode", "true", json!([]), false),
            ("meta.mode", "live", json!({ "meta": { "mode": "live" } }), true),
            ("meta.mode", "live", json!({ "meta": { "mode": "LIVE" } }), false),
            ("header:x-env", "live", json!({}), true),
            ("header:x-env", "test", json!({}), false),
            ("header:x-other", "live", json!({}), false),
        ] {
            let environment = EventEnvironment { field: field.parse().unwrap(), is: is.to_owned() };
            let differs = environment.differs(&headers, &payload);
            assert_eq!(differs.is_none(), same, "{field} {payload}: {differs:?}");
        }
    }
}

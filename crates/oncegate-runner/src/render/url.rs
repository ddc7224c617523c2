//! URLs. A form filler's words stand in them: whatever an expression gives is one piece of the URL and stays one. It
//! is percent-encoded, so that no `/`, `?`, `#` or `@` in a name leads the call, and the credentials with it,
//! somewhere else. `{{ … | safe }}` takes a value as it is, for a URL that is known to be good as a whole.

use minijinja::{Error, ErrorKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{RenderError, environment, error};

/// RFC 3986 §2.3: these may stand anywhere.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Renders a URL.
pub(crate) fn url(place: &str, template: &str, world: &Value) -> Result<String, RenderError> {
    let mut environment = environment();
    environment.set_formatter(|out, _state, value| {
        if value.is_undefined() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
        if value.is_none() {
            return Err(Error::new(ErrorKind::InvalidOperation, "a part of the URL is null"));
        }
        let text = value.to_string();
        let written = match value.is_safe() {
            true => out.write_str(&text),
            false => write!(out, "{}", utf8_percent_encode(&text, ENCODED)),
        };
        written.map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    let rendered = environment
        .render_str(template, minijinja::value::Serde(world))
        .map_err(|e| error(place, template, &e))?;
    match template.contains("{{") && has_dot_segment(&rendered) {
        true => Err(RenderError {
            place: place.to_owned(),
            message: "a value is `.` or `..`, which would lead the call to another path".to_owned(),
        }),
        false => Ok(rendered),
    }
}

/// Dots cannot be encoded away: `%2e%2e` means `..` too (WHATWG URL, "double-dot path segment").
fn has_dot_segment(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.split(['/', '\\']).any(|segment| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        segment == "." || segment == ".."
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_value_stays_one_piece_of_the_url() {
        let put = |name: &str| {
            let world = json!({ "payload": { "name": name } });
            super::url("url", "https://crm.example.com/contacts/{{ payload.name }}?a=1", &world)
        };
        for (name, piece) in [
            ("ann", "ann"),
            ("Ann Lee", "Ann%20Lee"),
            ("ann@example.com", "ann%40example.com"),
            ("../admin/delete", "..%2Fadmin%2Fdelete"),
            ("..\\admin", "..%5Cadmin"),
            ("%2e%2e", "%252e%252e"),
            ("a#b", "a%23b"),
            ("a?admin=true", "a%3Fadmin%3Dtrue"),
            ("a\r\nb", "a%0D%0Ab"),
            ("é", "%C3%A9"),
        ] {
            let expected = format!("https://crm.example.com/contacts/{piece}?a=1");
            assert_eq!(put(name).as_deref(), Ok(expected.as_str()), "{name}");
        }
        for name in [".", ".."] {
            assert!(put(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_whole_url_can_be_declared_good_and_what_is_missing_is_named() {
        let world = json!({ "payload": { "callback": "https://a.example.com/x?y=1", "nothing": null } });
        let url = |template: &str| super::url("url", template, &world);
        assert_eq!(url("{{ payload.callback | safe }}").as_deref(), Ok("https://a.example.com/x?y=1"));
        let missing = url("https://a.example.com/{{ payload.id }}").unwrap_err().to_string();
        assert!(missing.contains("`payload.id` is undefined"), "{missing}");
        assert!(url("https://a.example.com/{{ payload.nothing }}").is_err());
        // A host of the payload cannot bring a path, a user or another port with it.
        let world = json!({ "payload": { "sub": "evil.example/" } });
        let host = super::url("url", "https://{{ payload.sub }}.crm.example.com/", &world).unwrap();
        assert_eq!(host, "https://evil.example%2F.crm.example.com/");
    }
}

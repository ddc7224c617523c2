//! The `Idempotency-Key` header of a request: which key its spellings mean (draft-ietf-httpapi-idempotency-key-header).
//!
//! The draft asks for a quoted string (RFC 8941 §3.3.3); most clients send the bare text. Both are read, and mean the
//! same key, so that a retry by another client library is not a new effect:
//!
//! - the header's name in any case; blanks and tabs around the value do not count;
//! - `"abc"` is `abc`; in quotes, `\"` and `\\` stand for `"` and `\`, and blanks count;
//! - without quotes, `"` and `,` are refused: a comma is where a proxy joins two lines into one (RFC 9110 §5.3);
//! - more than one line is refused unless all say the same key.

use crate::key::{IdempotencyKey, NameError};
use crate::limits;

/// The header's name, in lower case.
pub const NAME: &str = "idempotency-key";

/// Why a header names no key; the sentence a caller reads. Each is a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderKeyError {
    /// Nothing, or nothing that shows.
    #[error("Idempotency-Key is empty; send a value of its own for each intended effect")]
    Empty,
    /// Over the limit once it is unquoted.
    #[error("Idempotency-Key is {bytes} bytes long; at most {max} are allowed")]
    TooLong {
        /// What was sent.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// Two lines that say different keys.
    #[error("Idempotency-Key is sent more than once with different values; send it once")]
    Differ,
    /// Bytes that are no text.
    #[error("Idempotency-Key is not UTF-8")]
    NotUtf8,
    /// A character that breaks logs and lists.
    #[error("Idempotency-Key contains the control character U+{code:04X}; remove it")]
    Control {
        /// Its code point.
        code: u32,
    },
    /// Quotes that do not end, or something after them.
    #[error(
        "Idempotency-Key begins a quote and does not end with it; write e.g. \"abc\", with \\\" for a quote inside"
    )]
    Unclosed,
    /// A backslash before something other than a quote or a backslash.
    #[error("Idempotency-Key has a stray \\ in its quotes; write \\\\ for a backslash and \\\" for a quote")]
    StrayEscape,
    /// A quote or a comma outside quotes.
    #[error("Idempotency-Key has a {found} outside quotes; write the whole value in quotes, e.g. \"a,b\"")]
    Bare {
        /// The character.
        found: char,
    },
}

/// The key that a request's header fields name; `None` if no field has the header's name.
///
/// # Errors
/// It is there and is not one key.
pub fn read<N: AsRef<str>, V: AsRef<[u8]>>(
    fields: impl IntoIterator<Item = (N, V)>,
) -> Result<Option<IdempotencyKey>, HeaderKeyError> {
    let mut key: Option<IdempotencyKey> = None;
    for (name, value) in fields {
        if !name.as_ref().eq_ignore_ascii_case(NAME) {
            continue;
        }
        let said = one(value.as_ref())?;
        match &key {
            Some(first) if *first != said => return Err(HeaderKeyError::Differ),
            _ => key = Some(said),
        }
    }
    Ok(key)
}

fn one(value: &[u8]) -> Result<IdempotencyKey, HeaderKeyError> {
    let text = std::str::from_utf8(value).map_err(|_| HeaderKeyError::NotUtf8)?.trim_matches([' ', '\t']);
    let text = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted)?,
        None => match text.chars().find(|c| matches!(c, '"' | ',')) {
            Some(found) => return Err(HeaderKeyError::Bare { found }),
            None => text.to_owned(),
        },
    };
    IdempotencyKey::try_from(text.as_str()).map_err(|e| match e {
        NameError::TooLong { bytes, .. } => HeaderKeyError::TooLong { bytes, max: limits::KEY_BYTES_MAX },
        NameError::Control { code, .. } | NameError::Invisible { code, .. } => {
            HeaderKeyError::Control { code }
        }
        NameError::Blank { .. } => HeaderKeyError::Empty,
    })
}

/// What stands between the quotes; `rest` begins after the first.
fn unquoted(rest: &str) -> Result<String, HeaderKeyError> {
    let mut text = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            None => return Err(HeaderKeyError::Unclosed),
            // Parameters (RFC 8941 §3.1.2) have no meaning here; ignored, they could hide a second key.
            Some('"') if chars.as_str().is_empty() => return Ok(text),
            Some('"') => return Err(HeaderKeyError::Unclosed),
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                _ => return Err(HeaderKeyError::StrayEscape),
            },
            Some(plain) => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(lines: &[&[u8]]) -> Result<Option<String>, HeaderKeyError> {
        let fields = lines.iter().map(|value| ("Idempotency-Key", *value));
        Ok(read(fields)?.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn c68_spellings_of_one_key_are_one_key() {
        for name in ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"] {
            for value in ["abc", "\"abc\"", "  abc ", "\t\"abc\" \t"] {
                let key = read([("host", "x"), (name, value)]).unwrap().unwrap();
                assert_eq!(key.as_str(), "abc", "{name}: {value}");
            }
        }
        assert_eq!(said(&[]), Ok(None));
        assert_eq!(read([("x-idempotency-key", "abc")]), Ok(None));
        assert_eq!(said(&[b"abc", b"\"abc\""]), Ok(Some("abc".to_owned())));
        assert_eq!(said(&[br#""a,\"b\" \\ c ""#]), Ok(Some(r#"a,"b" \ c "#.to_owned())));
        assert_eq!(said(&["клю́ч😀".as_bytes()]), Ok(Some("клю́ч😀".to_owned())));
    }

    #[test]
    fn c68_what_names_no_key_says_why() {
        use HeaderKeyError as E;
        for (lines, wrong) in [
            (&[&b"abc"[..], b"abd"][..], E::Differ),
            (&[b"abc", b"ABC"], E::Differ),
            (&[b"abc", b""], E::Empty),
            (&[b""], E::Empty),
            (&[b" \t "], E::Empty),
            (&[b"\"\""], E::Empty),
            (&["\"\u{200b} \"".as_bytes()], E::Empty),
            (&[b"\xff\xfe"], E::NotUtf8),
            (&[b"a\x00b"], E::Control { code: 0 }),
            (&["\"a\u{85}\"".as_bytes()], E::Control { code: 0x85 }),
            (&[b"abc, abd"], E::Bare { found: ',' }),
            (&[b"abc\""], E::Bare { found: '"' }),
            (&[b"\"abc"], E::Unclosed),
            (&[b"\""], E::Unclosed),
            (&[b"\"abc\\\""], E::Unclosed),
            (&[b"\"abc\", \"abd\""], E::Unclosed),
            (&[b"\"abc\";a=1"], E::Unclosed),
            (&[b"\"a\\nc\""], E::StrayEscape),
        ] {
            assert_eq!(said(lines), Err(wrong), "{lines:?}");
        }
        let long = "k".repeat(limits::KEY_BYTES_MAX);
        assert_eq!(said(&[long.as_bytes()]), Ok(Some(long.clone())));
        assert_eq!(said(&[format!("\"{long}\"").as_bytes()]), Ok(Some(long.clone())), "quotes do not count");
        let refused = said(&[format!("{long}k").as_bytes()]).unwrap_err();
        assert!(
            refused.to_string().contains("513 bytes") && refused.to_string().contains("512"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn any_key_can_be_sent_in_quotes(text in "[^\\p{Cc}]{1,40}", blanks in "[ \t]{0,3}") {
            prop_assume!(IdempotencyKey::try_from(text.as_str()).is_ok());
            let quoted = format!("{blanks}\"{}\"{blanks}", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(said(&[quoted.as_bytes()]), Ok(Some(text.clone())));
            let bare = format!("{blanks}{text}{blanks}");
            if !text.contains(['"', ',']) && text.trim_matches([' ', '\t']) == text {
                prop_assert_eq!(said(&[bare.as_bytes(), quoted.as_bytes()]), Ok(Some(text)));
            }
        }

        #[test]
        fn whatever_comes_is_a_legal_key_or_refused(value in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(Some(key)) = said(&[&value]) {
                prop_assert!(IdempotencyKey::try_from(key.as_str()).is_ok());
                prop_assert!(key.len() <= value.len());
            }
        }
    }
}

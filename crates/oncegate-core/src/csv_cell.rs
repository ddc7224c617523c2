//! Values in a CSV file that a spreadsheet must not take for a formula, and that can be read back unchanged.
//!
//! A spreadsheet computes a cell that begins with `=`, `+`, `-` or `@`, some also with a full-width form of these, and
//! also after a tab or a line's end that it drops (OWASP, "CSV Injection"). Such a value gets a leading `'`, with which
//! spreadsheets open it as text. A value that begins with `'` gets one too, so that reading back takes away exactly
//! what was put there.

use std::borrow::Cow;

/// With what a value begins that needs a `'`.
const TELLING: [char; 12] = ['=', '+', '-', '@', '\t', '\r', '\n', '\'', '＝', '＋', '－', '＠'];

/// Makes a value safe to be opened as a cell.
pub fn escape(value: &str) -> Cow<'_, str> {
    match value.starts_with(TELLING) {
        true => Cow::Owned(format!("'{value}")),
        false => Cow::Borrowed(value),
    }
}

/// Reads back what [`escape`] wrote; any other cell is its own value.
pub fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(value) if escape(value) == cell => value,
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c101_what_would_be_computed_is_text() {
        for value in [
            "=HYPERLINK(\"http://x.example\",\"open\")",
            "+1",
            "-2",
            "@a",
            "\t=1",
            "\r=1",
            "\n=1",
            "＝1+1",
            "＠a",
            "'=1",
            "'",
        ] {
            let cell = escape(value);
            assert!(cell.starts_with('\''), "{value:?}");
            assert_eq!(unescape(&cell), value);
        }
        for value in ["", "ann@example.com", "a=1", " =1", "10"] {
            assert_eq!(escape(value), value);
        }
        assert_eq!(unescape("'tis"), "'tis", "not ours");
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value in "[=+@\\-\t\r'a ]{0,4}|(?s).{0,20}") {
            let cell = escape(&value);
            prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']));
            prop_assert_eq!(unescape(&cell), value.as_str());
        }
    }
}

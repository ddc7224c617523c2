//! Cells of CSV that a spreadsheet takes for text, and that can be read back exactly.

use std::borrow::Cow;

/// What a spreadsheet takes for the begin of a formula, and the mark itself, so that removing one mark is always right.
const MARKED: [char; 7] = ['=', '+', '-', '@', '\t', '\r', '\''];

/// A value as a cell: one that would be taken for a formula gets a leading `'`.
pub fn csv_cell(value: &str) -> Cow<'_, str> {
    match value.starts_with(MARKED) {
        true => Cow::Owned(format!("'{value}")),
        false => Cow::Borrowed(value),
    }
}

/// The value that a cell stands for.
pub fn from_csv_cell(cell: &str) -> &str {
    cell.strip_prefix('\'').unwrap_or(cell)
}

/// A line of cells, quoted as RFC 4180 says, with its CR LF.
pub fn csv_line<S: AsRef<str>>(values: &[S]) -> String {
    let cells = values.iter().map(|value| {
        let cell = csv_cell(value.as_ref());
        match cell.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.into_owned(),
        }
    });
    let mut line = cells.collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_would_be_a_formula_is_text() {
        for (value, cell) in [
            ("=1+1", "'=1+1"),
            ("+4930", "'+4930"),
            ("-", "'-"),
            ("@x", "'@x"),
            ("'a", "''a"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(csv_cell(value), cell);
        }
        assert_eq!(csv_line(&["a,b", "say \"x\"", "=1", "\tz"]), "\"a,b\",\"say \"\"x\"\"\",'=1,'\tz\r\n");
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value in "[=+@'a\t\r-]{0,6}") {
            let cell = csv_cell(&value);
            prop_assert_eq!(from_csv_cell(&cell), &value);
            prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']));
        }
    }
}

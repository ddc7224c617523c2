//! Text that came from anywhere, made fit for a terminal: nothing hidden, nothing that steers it, as wide as there is
//! room (C103).

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Shows what would steer the terminal or stay hidden by its number, e.g. `\u{1b}`.
pub(in crate::cli) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Control characters, and what Unicode calls default-ignorable or bidirectional controls. The joiners U+200C and
/// U+200D stay: scripts and emoji are written with them.
pub(in crate::cli) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'
            | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// JSON for a terminal: the same document, with characters that would steer it written as escapes.
pub(in crate::cli) fn clean_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            let mut units = [0; 2];
            // Hidden characters stand only inside strings, where an escape means the same.
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Columns on a terminal.
pub(in crate::cli) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Cut at its end, with `…`, to at most so many columns.
pub(in crate::cli) fn cut(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    match max {
        0 => String::new(),
        max => format!("{}…", start(text.graphemes(true), max - 1).concat()),
    }
}

/// Cut in the middle: of two keys that begin alike, the end tells them apart.
pub(in crate::cli) fn cut_middle(text: &str, max: usize) -> String {
    if width(text) <= max || max < 5 {
        return cut(text, max);
    }
    let room = max - 1;
    let head = start(text.graphemes(true), room - room / 2).concat();
    let mut tail = start(text.graphemes(true).rev(), room - width(&head));
    tail.reverse();
    format!("{head}…{}", tail.concat())
}

/// As many as fit.
fn start<'a>(graphemes: impl Iterator<Item = &'a str>, max: usize) -> Vec<&'a str> {
    let mut used = 0;
    graphemes
        .take_while(|g| {
            used += width(g);
            used <= max
        })
        .collect()
}

/// Broken into lines at blanks; a word that is too long is broken where it must be.
pub(in crate::cli) fn wrap(text: &str, max: usize) -> Vec<String> {
    let max = max.max(8);
    let mut lines: Vec<String> = vec![];
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word;
        if !line.is_empty() && width(&line) + 1 + width(word) > max {
            lines.push(std::mem::take(&mut line));
        }
        while width(word) > max {
            let head = start(word.graphemes(true), max).concat();
            let (taken, rest) =
                word.split_at(head.len().max(word.graphemes(true).next().map_or(1, str::len)));
            lines.push(taken.to_owned());
            word = rest;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// As one word of a shell's command line; `None` if it could not be typed or pasted safely.
pub(in crate::cli) fn shell_word(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    if text.is_empty() || text.starts_with('-') || text.chars().any(is_hidden) {
        return None;
    }
    match text.chars().all(plain) {
        true => Some(text.to_owned()),
        false => Some(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal_and_nothing_stays_hidden() {
        assert_eq!(clean("\x1b[31mred\x07\u{9b}2J"), r"\u{1b}[31mred\u{7}\u{9b}2J");
        assert_eq!(clean("a\u{202e}b\u{200b}c\nd"), r"a\u{202e}b\u{200b}c\nd");
        assert_eq!(clean("👩‍💻 日本 é"), "👩‍💻 日本 é");
        let json = "{\"a\":\"x\u{9b}\u{202e}\u{e0041}\"}\n";
        let cleaned = clean_json(json);
        assert_eq!(cleaned, "{\"a\":\"x\\u009b\\u202e\\udb40\\udc41\"}\n");
        let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(same(json), same(&cleaned));
    }

    #[test]
    fn text_is_cut_by_columns_not_by_characters() {
        assert_eq!(cut("日本語の鍵", 5), "日本…");
        assert_eq!(cut("日本語の鍵", 10), "日本語の鍵");
        assert_eq!(cut_middle("contact-form:88120001", 11), "conta…20001");
        assert_eq!(cut("👩‍💻👩‍💻👩‍💻", 5), "👩‍💻👩‍💻…");
        for max in 0..12 {
            for text in ["日本語の鍵です", "abcdefghijklmnop", "👩‍💻👩‍💻👩‍💻👩‍💻"]
            {
                assert!(width(&cut(text, max)) <= max, "{text} {max}");
                assert!(width(&cut_middle(text, max)) <= max, "{text} {max}");
            }
        }
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("123456789012", 8), ["12345678", "9012"]);
    }

    #[test]
    fn what_is_to_be_typed_is_quoted() {
        assert_eq!(shell_word("contact-form:8812").unwrap(), "contact-form:8812");
        assert_eq!(shell_word("it's $(rm)").unwrap(), r"'it'\''s $(rm)'");
        assert_eq!(shell_word("-rf"), None);
        assert_eq!(shell_word("a\x1bb"), None);
    }
}

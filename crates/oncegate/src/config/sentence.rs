//! The parser's messages in the words of somebody who writes the file.

use oncegate_core::limits;

/// What is wrong and how to mend it, without the place, which the caller writes in front.
pub(super) fn sentence(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // "… at line 3, column 5" and "line 3 column 5: …" both say again what stands in front.
    let cut = text.find(" at line ").or_else(|| text.find(" (line ")).unwrap_or(text.len());
    let text = match text.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest.trim(),
        None => text[..cut].trim(),
    };
    in_other_words(text).unwrap_or_else(|| text.to_owned())
}

/// Those of its messages that do not say how to mend the mistake. Others are passed on as they are.
fn in_other_words(text: &str) -> Option<String> {
    if let Some(name) = text.strip_prefix("duplicate mapping key: ") {
        let name = name.split(", set ").next().unwrap_or(name);
        return Some(format!("`{name}` stands here twice; keep one of them"));
    }
    if let Some(name) = text.strip_prefix("missing field ") {
        return Some(format!("{name} is missing here; add it"));
    }
    let unknown = text.strip_prefix("unknown field ").or_else(|| text.strip_prefix("unknown variant "));
    if let Some((name, known)) = unknown.and_then(|rest| rest.split_once(", expected one of ")) {
        let nearest = nearest(name.trim_matches('`'), known.split(", "));
        return Some(match nearest {
            Some(meant) => format!("{name} is not known here; did you mean `{meant}`? Known are {known}"),
            None => format!("{name} is not known here; known are {known}"),
        });
    }
    if let Some((_, wanted)) =
        text.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    {
        return Some(format!("this must be {wanted}"));
    }
    // The parser of brackets gives up by itself, at a depth of its own.
    if text.contains("Depth {") || text == "recursion limit exceeded" {
        return Some(format!("this is nested deeper than {} levels", limits::YAML_DEPTH_MAX));
    }
    let wanted = match text {
        "expected mapping start" => "names with values (`name: value`); write `{}` where there are none",
        "expected sequence start" => "a list, e.g. `[one, two]`, or one item per line after `- `",
        "expected string scalar" => "one text, not a list or names with values",
        "invalid u32" | "invalid u64" => "a whole number, e.g. 5",
        "invalid bool" => "`true` or `false`",
        _ if text.starts_with("tabs disallowed") => {
            return Some("indent with spaces; YAML takes no tabs here".to_owned());
        }
        _ if text.starts_with("unclosed bracket") => {
            return Some(format!("{text}; close it, or write one entry per line"));
        }
        _ => return None,
    };
    Some(format!("this must be {wanted}"))
}

/// The known word that was most likely meant, if one is close.
pub(crate) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|word| (distance(written, word), word))
        .min()
        .filter(|(changes, word)| *changes <= word.chars().count().max(3) / 3)
        .map(|(_, word)| word)
}

/// How many characters to add, drop or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_close_or_none() {
        let known = || ["ttl", "retries", "retention"].into_iter();
        for (written, meant) in [
            ("tll", Some("ttl")),
            ("ttl_", Some("ttl")),
            ("retry", None),
            ("retires", Some("retries")),
            ("xyz", None),
        ] {
            assert_eq!(nearest(written, known()), meant, "{written}");
        }
        assert_eq!([distance("", "abc"), distance("kitten", "sitting"), distance("ab", "ba")], [3, 3, 2]);
    }
}

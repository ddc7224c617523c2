//! Slips of the pen that a YAML parser calls by other names: a tab, a blank too few, a template without quotes.

/// What was most likely meant, and where it stands.
pub(super) struct Slip {
    pub(super) line: u64,
    pub(super) column: u64,
    pub(super) message: String,
}

/// Looks at the text around the place where the parser gave up, told as `told`.
pub(super) fn slip(text: &str, line: u64, column: u64, told: &str) -> Option<Slip> {
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    if told.contains("tab") {
        let (down, column) =
            text.lines().skip(index).enumerate().find_map(|(down, line)| Some((down, tab_before(line)?)))?;
        return Some(Slip {
            line: line + down as u64,
            column: column as u64 + 1,
            message: "a tab; indent with blanks".to_owned(),
        });
    }
    let here = text.lines().nth(index)?;
    let before = usize::try_from(column).ok()?.checked_sub(1)?;
    if let Some(start) = braces(here, before) {
        let message = "a value that begins with `{{` must stand in quotes: `\"{{ … }}\"`";
        return Some(Slip { line, column: start as u64 + 1, message: message.to_owned() });
    }
    let (start, name, value) = blank_missing(here)?;
    let message = format!("a blank is missing after the colon: `{name}: {value}`");
    Some(Slip { line, column: start as u64 + 1, message })
}

/// The characters before a tab in the indentation.
fn tab_before(line: &str) -> Option<usize> {
    line.chars().take_while(|c| c.is_whitespace()).position(|c| c == '\t')
}

/// Whether a template without quotes begins there: the parser may point at either brace, or at what stands in them.
fn braces(line: &str, before: usize) -> Option<usize> {
    let chars: Vec<char> = line.chars().collect();
    let begins = |at: usize| chars.get(at..at + 2) == Some(&['{', '{']);
    let value = |at: usize| {
        let named = chars.get(..at).unwrap_or_default().iter().rev().find(|c| !c.is_whitespace());
        matches!(named, None | Some(':' | '-' | '[' | ','))
    };
    [Some(before), before.checked_sub(1)].into_iter().flatten().find(|at| begins(*at) && value(*at))
}

/// `ttl:10m`, which YAML reads as one text.
fn blank_missing(line: &str) -> Option<(usize, &str, &str)> {
    let start = line.len() - line.trim_start_matches([' ', '-']).len();
    let (name, value) = line[start..].split_once(':')?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // Whoever wrote a secret there shall not find it in the log.
    let short = value.len() <= 12 && !name.contains("secret");
    (plain && !value.is_empty() && !value.starts_with(char::is_whitespace)).then_some((
        start,
        name,
        if short { value.trim_end() } else { "…" },
    ))
}

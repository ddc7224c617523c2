//! Every limit of the program stands in docs/limits.md, with the value that it has, and with its reason.
#![expect(clippy::disallowed_methods, reason = "this test reads the repository")]

use std::collections::BTreeMap;
use std::path::Path;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// `5 * 1024 * 1024` as a number.
fn product(expression: &str) -> u64 {
    expression.split('*').map(|factor| factor.trim().replace('_', "").parse::<u64>().unwrap()).product()
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap()).collect();
    groups.join(",")
}

/// A value as the page writes it.
fn shown(name: &str, expression: &str) -> String {
    if let Some(list) = expression.strip_prefix('[').and_then(|e| e.strip_suffix(']')) {
        return list.split(", ").map(|one| shown(name, one)).collect::<Vec<_>>().join(", ");
    }
    if let Some(seconds) = expression.strip_prefix("Duration::from_secs(").and_then(|e| e.strip_suffix(')')) {
        let seconds = product(seconds);
        let fits = |unit: &u64| seconds.is_multiple_of(*unit) && seconds / unit >= 2;
        return match [86_400, 3_600, 60].into_iter().find(fits) {
            Some(86_400) => format!("{} days", grouped(seconds / 86_400)),
            Some(3_600) => format!("{} h", seconds / 3_600),
            Some(unit) => format!("{} min", seconds / unit),
            None => format!("{seconds} s"),
        };
    }
    if let Some(ms) = expression.strip_prefix("Duration::from_millis(").and_then(|e| e.strip_suffix(')')) {
        return format!("{} ms", product(ms));
    }
    let value = product(expression);
    match name.contains("BYTES") {
        true if value.is_multiple_of(1 << 20) => format!("{} MiB", grouped(value >> 20)),
        true if value.is_multiple_of(1_024) && value >= 4_096 => format!("{} KiB", grouped(value >> 10)),
        true => format!("{} bytes", grouped(value)),
        false => grouped(value),
    }
}

fn declared(source: &str) -> BTreeMap<String, String> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("pub const ") else { continue };
        let (name, rest) = rest.split_once(": ").unwrap();
        // A long one goes on in the next line.
        let whole =
            if rest.ends_with(';') { rest.to_owned() } else { format!("{rest} {}", lines[at + 1].trim()) };
        let (_, expression) = whole.trim_end_matches(';').split_once(" = ").unwrap();
        assert!(lines[at - 1].starts_with("///"), "{name} has no reason");
        found.insert(name.to_owned(), shown(name, expression));
    }
    found
}

fn documented(page: &str) -> BTreeMap<String, String> {
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim);
        let name = cells.nth(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let is_limit = name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
        let (value, why) = (cells.next()?, cells.next()?);
        assert!(!is_limit || why.len() > 10, "{name} says nothing");
        is_limit.then(|| (name.to_owned(), value.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn every_limit_is_documented_with_its_value() {
    let declared = declared(&text("crates/oncegate-core/src/limits.rs"));
    assert!(declared.len() > 50, "{} limits were found", declared.len());
    let documented = documented(&text("docs/limits.md"));
    let names: std::collections::BTreeSet<_> = declared.keys().chain(documented.keys()).collect();
    let differ: Vec<_> = names
        .into_iter()
        .filter(|name| declared.get(*name) != documented.get(*name))
        .map(|name| {
            format!("{name}: declared {:?}, documented {:?}", declared.get(name), documented.get(name))
        })
        .collect();
    assert!(differ.is_empty(), "docs/limits.md differs from limits.rs:\n{}", differ.join("\n"));
}

#[test]
fn a_limit_that_is_changed_or_left_out_is_noticed() {
    let source = "/// So.\npub const A_BYTES_MAX: usize = 5 * 1024 * 1024;\n/// So.\npub const B: Duration = Duration::from_secs(90);\n";
    let right = "| `A_BYTES_MAX` | 5 MiB | because of it |\n| `B` | 90 s | because of it |\n";
    assert_eq!(declared(source), documented(right));
    for wrong in
        [right.replace("5 MiB", "6 MiB"), right.replace("`B`", "`C`"), right.lines().next().unwrap().into()]
    {
        assert_ne!(declared(source), documented(&wrong));
    }
}

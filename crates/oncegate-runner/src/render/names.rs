//! What a template names, told without rendering it: a template that can never work is refused when the configuration
//! is read, whichever of its branches a payload would take.

use std::collections::BTreeSet;

use minijinja::Environment;

/// The filters that people use; for the check of the configuration, which offers the nearest one.
pub(crate) const FILTERS: [&str; 40] = [
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "collapse_ws",
    "date",
    "default",
    "dictsort",
    "email",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "number",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "string",
    "text",
    "timestamp",
    "trim",
    "upper",
];

/// The tests that people use: what may stand behind `is`, and inside `select` and its sisters.
pub(crate) const TESTS: [&str; 15] = [
    "defined",
    "endingwith",
    "eq",
    "even",
    "false",
    "in",
    "mapping",
    "ne",
    "none",
    "number",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];

/// What a template names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Variables as they are written, with the members asked of them: `payload.form.id`.
    pub variables: BTreeSet<String>,
    /// Steps that are named in brackets: `put order` of `steps['put order']`.
    pub steps: BTreeSet<String>,
    /// Filters that do not exist.
    pub unknown_filters: BTreeSet<String>,
    /// Tests that do not exist.
    pub unknown_tests: BTreeSet<String>,
    /// Methods that are called: values have none, filters do their work.
    pub methods: BTreeSet<String>,
}

/// Reads them from a template that can be parsed; `variables` are those its parser found undeclared.
pub(super) fn of(
    template: &str,
    variables: impl IntoIterator<Item = String>,
    environment: &Environment<'_>,
) -> Names {
    let mut names = Names::default();
    let mut set = BTreeSet::new();
    for tag in tags(template) {
        read(&tag, &mut names, &mut set);
    }
    let known = |kind: &str, name: &str| {
        let asked = environment.compile_expression(kind).and_then(|e| e.eval(minijinja::context! { name }));
        asked.is_ok_and(|answer| answer.is_true())
    };
    names.unknown_filters.retain(|name| !known("name is filter", name));
    names.unknown_tests.retain(|name| !known("name is test", name));
    let globals: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
    let root = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    names.variables = variables.into_iter().collect();
    // A `set` inside an `if` counts behind it too, which the parser does not see.
    names.variables.retain(|path| !set.contains(&root(path)) && !globals.contains(root(path).as_str()));
    names
}

/// One word of a tag.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Sign(char),
}

/// What stands in `{{ … }}` and `{% … %}`, the latter with a leading `%`.
fn tags(template: &str) -> Vec<Vec<Token<'_>>> {
    let mut tags = vec![];
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let after = rest.get(start + 2..).unwrap_or_default();
        match rest.as_bytes().get(start + 1) {
            Some(b'#') => rest = after.split_once("#}").map_or("", |(_, rest)| rest),
            Some(kind @ (b'{' | b'%')) => {
                let block = *kind == b'%';
                let mut tag: Vec<Token<'_>> = block.then_some(Token::Sign('%')).into_iter().collect();
                rest = words(after, if block { "%}" } else { "}}" }, &mut tag);
                if tag.get(1) == Some(&Token::Word("raw")) {
                    rest = rest.split_once("endraw").map_or("", |(_, rest)| rest);
                }
                tags.push(tag);
            }
            _ => rest = rest.get(start + 1..).unwrap_or_default(),
        }
    }
    tags
}

/// The words up to the tag's end, and what stands behind it.
fn words<'a>(mut rest: &'a str, end: &str, tag: &mut Vec<Token<'a>>) -> &'a str {
    let mut depth = 0_usize;
    loop {
        rest = rest.trim_start();
        if depth == 0
            && let Some(behind) = rest.strip_prefix(end)
        {
            return behind;
        }
        let Some(first) = rest.chars().next() else { return "" };
        let length = match first {
            '\'' | '"' => {
                let length = quoted(rest, first);
                tag.push(Token::Text(rest[1..length].trim_end_matches(first)));
                length
            }
            c if c.is_alphanumeric() || c == '_' => {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                tag.push(Token::Word(&rest[..length]));
                length
            }
            sign => {
                match sign {
                    '{' | '[' | '(' => depth += 1,
                    '}' | ']' | ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                // `{%-` keeps its meaning as a block.
                if !(tag.len() == 1 && tag[0] == Token::Sign('%') && "-+".contains(sign)) {
                    tag.push(Token::Sign(sign));
                }
                sign.len_utf8()
            }
        };
        rest = &rest[length..];
    }
}

/// The length of a text with both of its quotation marks.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn read(tag: &[Token<'_>], names: &mut Names, set: &mut BTreeSet<String>) {
    use Token::{Sign, Text, Word};
    match tag {
        [Sign('%'), Word("filter"), Word(name), ..] => filter(name, &tag[3..], names),
        [Sign('%'), Word("set"), targets @ ..] => {
            let targets = targets.iter().take_while(|token| **token != Sign('='));
            set.extend(targets.filter_map(|token| match token {
                Word(name) => Some((*name).to_owned()),
                _ => None,
            }));
        }
        _ => {}
    }
    for at in 0..tag.len() {
        let member = at > 0 && tag[at - 1] == Sign('.');
        match &tag[at..] {
            [Sign('|'), Word(name), rest @ ..] => filter(name, rest, names),
            [Word("is"), Word("not"), Word(name), ..] | [Word("is"), Word(name), ..] if !member => {
                names.unknown_tests.insert((*name).to_owned());
            }
            [Sign('.'), Word(name), Sign('('), ..] if at > 0 && tag[at - 1] != Word("loop") => {
                names.methods.insert((*name).to_owned());
            }
            [Word("steps"), Sign('['), Text(name), Sign(']'), ..] if !member => {
                names.steps.insert((*name).to_owned());
            }
            _ => {}
        }
    }
}

/// A filter, and the test or filter that its arguments name.
fn filter(name: &str, rest: &[Token<'_>], names: &mut Names) {
    use Token::{Sign, Text};
    names.unknown_filters.insert(name.to_owned());
    match (name, rest) {
        ("select" | "reject", [Sign('('), Text(test), ..])
        | ("selectattr" | "rejectattr", [Sign('('), Text(_), Sign(','), Text(test), ..]) => {
            names.unknown_tests.insert((*test).to_owned());
        }
        ("map", [Sign('('), Text(filter), ..]) => {
            names.unknown_filters.insert((*filter).to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(template: &str) -> Names {
        crate::render::names("here", template).unwrap()
    }

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn variables_are_those_that_nothing_in_the_template_declares() {
        for (template, variables) in [
            ("no template", &[][..]),
            ("{{ pyload.id }}", &["pyload.id"]),
            ("{{ payload.a.b ~ payload['c'] }}", &["payload", "payload.a.b"]),
            ("{% for a in payload.list %}{{ a.b }}{{ loop.index }}{% endfor %}", &["payload.list"]),
            (
                "{% if payload %}{% set a, b = payload.c %}{% endif %}{{ a.x }}{{ b }}",
                &["payload", "payload.c"],
            ),
            ("{% raw %}{{ nothing }}{% endraw %}{# {{ nor.this }} #}", &[]),
            ("{{ range(payload.n) }}{{ dict(a=1) }}", &["payload.n"]),
            ("{{ now() }}", &["now"]),
        ] {
            assert_eq!(names(template).variables, set(variables), "{template}");
        }
    }

    #[test]
    fn filters_tests_and_steps_are_found_wherever_they_stand() {
        for (template, filters, tests, steps) in [
            ("{{ payload.id | uper }}", &["uper"][..], &[][..], &[][..]),
            ("{{ payload.a | upper | trim|default('x | nope') }}", &[], &[], &[]),
            ("{% if payload.no %}{{ payload.x|frist }}{% endif %}", &["frist"], &[], &[]),
            ("{%- filter uper -%}a{% endfilter %}", &["uper"], &[], &[]),
            ("{{ payload.l | map('uper') | list }}", &["uper"], &[], &[]),
            ("{{ payload.l | map(attribute='uper') | list }}", &[], &[], &[]),
            ("{{ payload.l | selectattr('a.b', 'eqq', 'c') | first }}", &[], &["eqq"], &[]),
            ("{{ payload.l | select(\"evn\") }}{{ payload.l | reject('odd') }}", &[], &["evn"], &[]),
            ("{{ payload.a is not definde or payload.is }}", &[], &["definde"], &[]),
            ("{{ payload.a is defined }} is nothing | nothing", &[], &[], &[]),
            ("{{ steps['put order'].json.id }}{{ payload.steps['x'] }}", &[], &[], &["put order"]),
            ("{{ {'a': {'b': payload.c}} | tojson }}{{ 'it\\'s }} | x' }}{{ 1|y }}", &["y"], &[], &[]),
            ("{% raw %}{{ a | nope }}{% endraw %}{{ 1 | nix }}", &["nix"], &[], &[]),
            ("{# {{ a | nope }} #}{ a | b }", &[], &[], &[]),
        ] {
            let named = names(template);
            let found = (named.unknown_filters, named.unknown_tests, named.steps);
            assert_eq!(found, (set(filters), set(tests), set(steps)), "{template}");
        }
    }

    #[test]
    fn methods_are_seen() {
        let named =
            names("{{ payload.a.upper() }}{% for a in payload.b %}{{ loop.cycle(1, 2) }}{% endfor %}.x()");
        assert_eq!(named.methods, set(&["upper"]));
    }

    #[test]
    fn what_is_offered_exists() {
        for filter in FILTERS {
            assert_eq!(names(&format!("{{{{ 1 | {filter} }}}}")).unknown_filters, set(&[]), "{filter}");
        }
        for test in TESTS {
            assert_eq!(names(&format!("{{{{ [] | select('{test}') }}}}")).unknown_tests, set(&[]), "{test}");
        }
    }
}

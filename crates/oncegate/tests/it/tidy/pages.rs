//! What the pages of the documentation promise is compared with the code: links, error codes, calls, members of the
//! configuration, examples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use oncegate::config::{self, Environment};

use super::{File, judged, text};

pub(super) fn links(files: &[File]) -> Vec<String> {
    let known: BTreeSet<&str> = files.iter().map(|f| f.path.as_str()).collect();
    judged(files.iter().filter(|f| f.path.ends_with(".md")), File::all, |file, _, line| {
        let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://")).find_map(|target| {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { joined(dir, path) };
            let folder = format!("{}/", path.trim_end_matches('/'));
            if !known.contains(path.as_str()) && !known.iter().any(|k| k.starts_with(&folder)) {
                return Some(format!("the link `{target}` leads nowhere"));
            }
            let there = anchor.is_empty() || headings(text(files, &path)).contains(anchor);
            (!there).then(|| format!("`{target}` names no heading there"))
        })
    })
}

fn joined(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Headings as the anchors that a Markdown page gives them.
fn headings(markdown: &str) -> BTreeSet<String> {
    let slug = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept: String = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect();
        kept.replace(' ', "-")
    };
    markdown.lines().filter(|line| line.starts_with('#')).map(slug).collect()
}

pub(super) const PROBLEMS: &str = "crates/oncegate/src/http/problem.rs";
/// One page for each code, and the index.
const ERRORS: &str = "docs/errors/";
const INDEX: &str = "docs/errors/README.md";
/// What each page of a code has, in this order: causes, what to type, where to read on.
const PARTS: [&str; 4] = ["\n## Why it happens\n", "\n## How to mend it\n", "\n```sh\n", "\n## Related\n"];

/// The codes with the names of their statuses, as `problem.rs` declares them.
fn codes(files: &[File]) -> BTreeMap<&str, String> {
    let code = |line| {
        let (name, rest) = str::trim(line).split_once(" = ")?;
        let (status, title) = rest.split_once(", \"")?;
        let declared = title.ends_with("\";") && status.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        declared.then(|| (name, status_of(status)))
    };
    text(files, PROBLEMS).lines().filter_map(code).collect()
}

/// `CONFLICT` is 409: the constants of `http::StatusCode` are the reasons that it gives for its numbers.
fn status_of(constant: &str) -> String {
    let said = constant.replace('_', " ");
    let mut all = (400..600).filter_map(|n| reqwest::StatusCode::from_u16(n).ok());
    let found = all.find(|status| status.canonical_reason().is_some_and(|r| r.to_uppercase() == said));
    found.map_or_else(|| format!("no status {constant}"), |status| status.as_u16().to_string())
}

pub(super) fn problems(files: &[File]) -> Vec<String> {
    let codes = codes(files);
    let mut findings = Vec::new();
    for (code, status) in &codes {
        let path = format!("{ERRORS}{code}.md");
        let page = text(files, &path);
        if !page.starts_with(&format!("# `{code}` ({status})\n")) {
            findings.push(format!("{path}:1: begins with \"# `{code}` ({status})\", as {PROBLEMS} has it"));
        }
        let mut rest = page;
        for part in PARTS {
            match rest.split_once(part) {
                // The line's end also begins what may come next.
                Some((before, _)) => rest = &rest[before.len() + part.len() - 1..],
                None => findings.push(format!("{path}:1: lacks `{}` in its place", part.trim())),
            }
        }
        let row = format!("| [`{code}`]({code}.md) | {status} | ");
        if text(files, INDEX).lines().filter(|line| line.starts_with(&row)).count() != 1 {
            findings.push(format!("{INDEX}:1: has one row that begins `{row}`"));
        }
    }
    for file in files.iter().filter(|f| f.path.starts_with(ERRORS) && f.path != INDEX) {
        let name = file.path.trim_start_matches(ERRORS).trim_end_matches(".md");
        if !codes.contains_key(name) {
            findings.push(file.at(1, format!("there is no code `{name}`")));
        }
    }
    let stale = judged(files.iter().filter(|f| f.path == INDEX), File::all, |_, _, line| {
        let code = line.strip_prefix("| [`")?.split('`').next()?;
        (!codes.contains_key(code)).then(|| format!("there is no code `{code}`"))
    });
    findings.extend(stale);
    findings.extend(codes.is_empty().then(|| format!("{PROBLEMS}:1: no codes found")));
    findings
}

pub(super) const ROUTES: &str = "crates/oncegate/src/http/routes.rs";
pub(super) const API: &str = "docs/api.md";

/// The table of every call in the page of the API is the table of routes.
pub(super) fn calls(files: &[File]) -> Vec<String> {
    let route = |line| {
        let (function, rest) = str::trim(line).split_once("(\"/")?;
        let method = match function.rsplit(' ').next()? {
            "get" => "GET",
            "post" | "once" => "POST",
            _ => return None,
        };
        Some(format!("{method} /{}", rest.split('"').next()?))
    };
    let routes: BTreeSet<String> = text(files, ROUTES).lines().filter_map(route).collect();
    let told = |line: &str| {
        let call = line.strip_prefix("| `")?.split('`').next()?;
        (call.starts_with("GET /") || call.starts_with("POST /")).then(|| call.to_owned())
    };
    let told: BTreeSet<String> = text(files, API).lines().filter_map(told).collect();
    let missing = routes.difference(&told).map(|call| format!("{API}:1: no row explains `{call}`"));
    let stale = told.difference(&routes).map(|call| format!("{API}:1: there is no call `{call}`"));
    missing.chain(stale).chain(routes.is_empty().then(|| format!("{ROUTES}:1: no routes found"))).collect()
}

pub(super) const MEMBER_FILES: [&str; 10] = [
    "crates/oncegate/src/config/file.rs",
    "crates/oncegate/src/config/guards.rs",
    "crates/oncegate/src/config/lookup.rs",
    "crates/oncegate/src/config/mail.rs",
    "crates/oncegate/src/config/polls.rs",
    "crates/oncegate/src/config/schedules.rs",
    "crates/oncegate/src/config/steps.rs",
    "crates/oncegate/src/config/targets.rs",
    "crates/oncegate-core/src/webhook/hmac.rs",
    "crates/oncegate-core/src/identity/field.rs",
];
pub(super) const CONFIGURATION: &str = "docs/configuration.md";

/// Members of the structs that read the configuration.
pub(super) fn members(files: &[File]) -> Vec<String> {
    let mut declared = BTreeSet::new();
    for path in MEMBER_FILES {
        let (mut inside, mut renamed) = (false, None);
        for line in text(files, path).lines() {
            let reads =
                line.contains("struct ") && (line.contains("File {") || line.contains("struct Written {"));
            inside = reads || (inside && line != "}");
            let field = line.trim().trim_start_matches("pub(super) ").split_once(": ");
            if let Some((_, rest)) = line.split_once("rename = \"") {
                renamed = rest.split('"').next();
            } else if let (true, Some((name, _))) = (inside, field) {
                declared.insert(renamed.take().unwrap_or(name).to_owned());
            }
        }
    }
    let page = text(files, CONFIGURATION);
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.rsplit('.').next()?.to_owned());
    let rows: BTreeSet<String> = page.lines().filter_map(cell).collect();
    let missing =
        declared.difference(&rows).map(|name| format!("{CONFIGURATION}:1: no row explains `{name}`"));
    let stale =
        rows.difference(&declared).map(|name| format!("{CONFIGURATION}:1: there is no member `{name}`"));
    missing.chain(stale).collect()
}

/// Answers every name with a secret of the strictest form that a provider asks for.
struct AnySecret;

impl Environment for AnySecret {
    fn get(&self, name: &str) -> Option<String> {
        let value = match name.rsplit('_').next() {
            Some("URL") => "https://a.example/",
            Some("KEY") if name.ends_with("PUBLIC_KEY") => PUBLIC_KEY,
            _ => "whsec_MDEyMzQ1Njc4OWFiY2RlZg==",
        };
        Some(value.to_owned())
    }
}

/// That of a sample (testdata/webhooks/sendgrid).
const PUBLIC_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEmbpxYYPaMfPiHJOO/+ig5ZZm8Zv7uBlmE2f2oANTMH/\
    Dq0ym6VFBgxzUcWws4tJTRdlz2B5kxn756JYKyv4ANg==";

/// Examples, and every YAML block of the documentation, are configurations that start.
pub(super) fn configurations(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut check = |file: &File, line: usize, yaml: &str| {
        if let Err(error) = config::parse(yaml, Path::new(&file.path), &AnySecret) {
            findings.push(file.at(line, format!("does not start: {error}")));
        }
    };
    let is_ours = |f: &&File| f.path.starts_with("examples/") || f.path == "deploy/oncegate.yaml";
    for file in files.iter().filter(is_ours).filter(|f| f.path.ends_with(".yaml")) {
        check(file, 1, &file.text);
    }
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        for block in file.text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let line = file.text[..file.text.find(block).unwrap_or(0)].lines().count();
            check(file, line, block);
        }
    }
    findings
}

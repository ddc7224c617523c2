//! House rules that a compiler does not check (ARCHITECTURE.md). Each finding names file, line and rule; each rule
//! is shown a small bad example first, so that a rule which can no longer fail is noticed.
#![expect(clippy::disallowed_methods, reason = "this test reads the repository")]

mod pages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pages::{CONFIGURATION, MEMBER_FILES, PROBLEMS};

/// A file of the repository: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

type Rule = fn(&[File]) -> Vec<String>;
/// Paths and texts that break a rule.
type Bad = Vec<(&'static str, &'static str)>;

/// Files longer than [`FILE_LINES_MAX`], each with its own bound and the reason why it is not two files.
const LONG_FILES: [(&str, usize, &str); 0] = [];
const FILE_LINES_MAX: usize = 500;
const LINE_CHARS_MAX: usize = 120;
/// rustfmt does not break string literals; SQL is read by columns, tests by example.
const TEXT_LINE_CHARS_MAX: usize = 160;

/// This file shows bad examples.
const ME: &str = "crates/oncegate/tests/it/tidy.rs";

/// What our crates may depend on; a border is a design decision (ARCHITECTURE.md, "Crates").
const ARROWS: [(&str, &[&str]); 9] = [
    ("oncegate-core", &[]),
    ("oncegate-connect", &["oncegate-core"]),
    ("oncegate-store", &["oncegate-core"]),
    ("oncegate-testing", &[]),
    ("oncegate-model", &["oncegate-core", "oncegate-store"]),
    ("oncegate-runner", &["oncegate-core", "oncegate-store", "oncegate-connect"]),
    ("oncegate", &["oncegate-core", "oncegate-store", "oncegate-connect", "oncegate-runner"]),
    ("fuzz", &["oncegate"]),
    ("bench", &["oncegate", "oncegate-core", "oncegate-store", "oncegate-connect", "oncegate-runner"]),
];
/// What only tests and the benchmark may depend on.
const TESTING: &str = "oncegate-testing";
/// The core can call nothing that reads, waits or draws lots.
const NOT_IN_THE_CORE: [&str; 6] = ["tokio", "rusqlite", "reqwest", "axum", "getrandom", "rand"];

/// Where time, environment, randomness and files come in; clippy.toml bans the same calls everywhere else.
const EDGES: [(&str, &[&str]); 6] = [
    ("SystemTime::now", &["crates/oncegate-store/src/clock.rs"]),
    ("Instant::now", &["crates/oncegate-store/src/clock.rs"]),
    ("Timestamp::now", &[]),
    ("getrandom::", &["crates/oncegate-runner/src/entropy.rs"]),
    ("env::var", &["crates/oncegate/src/config/secrets.rs", "crates/oncegate-store/src/failpoint.rs"]),
    (
        "fs::",
        &[
            "crates/oncegate/src/config/",
            "crates/oncegate/src/cli/demo",
            "crates/oncegate/src/cli/lab",
            "crates/oncegate-store/src/sqlite/dir.rs",
            "crates/oncegate-store/src/sqlite/disk.rs",
        ],
    ),
];

const LOST: &str = "    lost_claim = CONFLICT, \"Lost\";\n";
const INDEXED: (&str, &str) = ("docs/errors/README.md", "| [`lost_claim`](lost_claim.md) | 409 | Lost. |\n");
const EXPLAINED: &str =
    "# `lost_claim` (409)\n## Why it happens\n## How to mend it\n```sh\na\n```\n## Related\n";

/// Every rule with an example that breaks it.
fn rules() -> Vec<(&'static str, Rule, Bad)> {
    let long: &'static str = Box::leak("//\n".repeat(FILE_LINES_MAX + 1).into_boxed_str());
    let wide: &'static str = Box::leak(format!("//! {}\n", "x".repeat(LINE_CHARS_MAX)).into_boxed_str());
    let member = MEMBER_FILES[0];
    vec![
        ("size", size, vec![("crates/a/src/a.rs", long)]),
        ("size", size, vec![("crates/a/src/a.rs", wide)]),
        ("head", head, vec![("crates/a/src/a.rs", "use b;\n")]),
        ("words", words, vec![("crates/a/src/a.rs", "//! A.\n// TODO: all of it\n")]),
        ("panics", panics, vec![("crates/a/src/a.rs", "//! A.\n\n\n\nlet a = b.unwrap();\n")]),
        ("sql", sql, vec![("crates/a/src/a.rs", "let a = \"SELECT 1\";\n")]),
        ("one writer", one_writer, vec![("crates/a/src/a.rs", "\"UPDATE claims SET processing_state = 1\"")]),
        (
            "arrows",
            arrows,
            vec![("crates/oncegate-core/Cargo.toml", "[dependencies]\ntokio.workspace = true\n")],
        ),
        (
            "arrows",
            arrows,
            vec![("crates/oncegate-store/Cargo.toml", "[dependencies]\noncegate-runner = \"1\"\n")],
        ),
        (
            "arrows",
            arrows,
            vec![("crates/oncegate/Cargo.toml", "[dependencies]\noncegate-testing.workspace = true\n")],
        ),
        ("edges", edges, vec![("crates/a/src/a.rs", "let now = std::time::Instant::now();\n")]),
        ("places", places, vec![("docs/a.md", "see ../shared/cases\n")]),
        ("places", places, vec![("Cargo.lock", "source = \"registry+https://mirror.example/index\"\n")]),
        ("links", pages::links, vec![("docs/a.md", "[b](b.md)\n")]),
        ("links", pages::links, vec![("docs/a.md", "[b](b.md#c)\n"), ("docs/b.md", "# B\n")]),
        ("problems", pages::problems, vec![(PROBLEMS, LOST), INDEXED]),
        ("problems", pages::problems, vec![(PROBLEMS, LOST), ("docs/errors/lost_claim.md", EXPLAINED)]),
        (
            "problems",
            pages::problems,
            vec![(PROBLEMS, LOST), INDEXED, ("docs/errors/lost_claim.md", "# Lost\n")],
        ),
        (
            "problems",
            pages::problems,
            vec![(PROBLEMS, LOST), INDEXED, ("docs/errors/lost_claim.md", "# `lost_claim` (410)\n")],
        ),
        (
            "problems",
            pages::problems,
            vec![
                (PROBLEMS, LOST),
                INDEXED,
                ("docs/errors/lost_claim.md", EXPLAINED),
                ("docs/errors/a.md", ""),
            ],
        ),
        (
            "calls",
            pages::calls,
            vec![(pages::ROUTES, "get(\"/v1/inbox\", READ, a),\n"), (pages::API, "# A\n")],
        ),
        (
            "calls",
            pages::calls,
            vec![
                (pages::ROUTES, "get(\"/v1/inbox\", READ, a),\n"),
                (pages::API, "| `GET /v1/inbox` | |\n| `POST /v1/inbox` | |\n"),
            ],
        ),
        ("failpoints", failpoints, vec![(FAILPOINT, "[&str; 1] = [\n    \"a.b\",\n];")]),
        (
            "members",
            pages::members,
            vec![(member, "struct File {\n    sources: A,\n}\n"), (CONFIGURATION, "")],
        ),
        (
            "members",
            pages::members,
            vec![(member, "struct File {\n}\n"), (CONFIGURATION, "| `sorces` | x |\n")],
        ),
        ("migrations", migrations, vec![("crates/a/migrations/sqlite/0002_b.sql", "")]),
        ("configurations", pages::configurations, vec![("examples/a/oncegate.yaml", "sorces: {}\n")]),
        ("configurations", pages::configurations, vec![("docs/a.md", "```yaml\nsorces: {}\n```\n")]),
        ("testdata", testdata, vec![("crates/a/src/a.rs", "")]),
    ]
}

#[test]
fn the_house_rules_hold() {
    let files = repository();
    assert!(files.len() > 50, "the repository was not found: {} files", files.len());
    let mut done = BTreeSet::new();
    let mut findings = Vec::new();
    for (name, rule, _) in rules() {
        if done.insert(name) {
            findings.extend(rule(&files).into_iter().map(|finding| format!("{finding} [{name}]")));
        }
    }
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn each_rule_can_fail() {
    for (name, rule, bad) in rules() {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let bad: Vec<File> = bad.iter().map(file).collect();
        assert!(!rule(&bad).is_empty(), "{name} does not see that {} is bad:\n{}", bad[0].path, bad[0].text);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file that is, or is about to be, under version control.
fn repository() -> Vec<File> {
    let git = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let paths: Vec<String> = match git {
        Ok(listed) if listed.status.success() => {
            String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
        }
        // A tarball has no history; the same files lie there.
        _ => walk(&root()),
    };
    let read = |path: &String| std::fs::read_to_string(root().join(path)).ok();
    paths.into_iter().filter_map(|path| Some(File { text: read(&path)?, path })).collect()
}

fn walk(dir: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match path.is_dir() {
            true if matches!(name.as_str(), "target" | ".git" | "oncegate-data") => {}
            true => paths.extend(walk(&path)),
            false => paths.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()),
        }
    }
    paths
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs") && self.path != ME
    }

    /// Part of the program, not of its tests.
    fn is_source(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    fn all(&self) -> Vec<(usize, &str)> {
        (1..).zip(self.text.lines()).collect()
    }

    /// The lines before the file's own tests that are not comments.
    fn code(&self) -> Vec<(usize, &str)> {
        let own = self.all().into_iter().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
        own.filter(|(_, line)| !line.trim_start().starts_with("//")).collect()
    }

    fn at(&self, line: usize, rule: impl std::fmt::Display) -> String {
        format!("{}:{line}: {rule}", self.path)
    }
}

/// Files that a `#[cfg(test)]` declares.
fn test_modules(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|f| f.is_source()) {
        let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            if let Some(name) = pair[1].strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                found.insert(format!("{dir}/{name}.rs"));
            }
        }
    }
    found
}

fn program(files: &[File]) -> impl Iterator<Item = &File> {
    let tests = test_modules(files);
    let apart = format!("crates/{TESTING}/");
    files.iter().filter(move |f| f.is_source() && !f.path.starts_with(&apart) && !tests.contains(&f.path))
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|f| f.path == path).map_or("", |f| &f.text)
}

/// One finding per line of which `judge` has something to say.
fn judged<'a>(
    files: impl Iterator<Item = &'a File>,
    lines: impl Fn(&'a File) -> Vec<(usize, &'a str)>,
    judge: impl Fn(&'a File, usize, &'a str) -> Option<String>,
) -> Vec<String> {
    let of = |f: &'a File| {
        lines(f).into_iter().filter_map(|(n, l)| judge(f, n, l).map(|why| f.at(n, why))).collect()
    };
    files.flat_map(|f| -> Vec<String> { of(f) }).collect()
}

fn size(files: &[File]) -> Vec<String> {
    let written = || files.iter().filter(|f| f.is_rust() || f.path == ME || f.path.ends_with(".sql"));
    let lines = judged(written(), File::all, |file, _, line| {
        let text = line.contains('"') || line.ends_with('\\') || !file.is_source();
        let max = if text { TEXT_LINE_CHARS_MAX } else { LINE_CHARS_MAX };
        (line.chars().count() > max).then(|| format!("longer than {max} characters"))
    });
    let long = written().filter_map(|file| {
        let own = LONG_FILES.iter().find(|(path, ..)| *path == file.path);
        let (max, count) = (own.map_or(FILE_LINES_MAX, |(_, max, _)| *max), file.text.lines().count());
        (count > max)
            .then(|| file.at(count, format!("{count} lines; at most {max}, split it by what it decides")))
    });
    lines.into_iter().chain(long).collect()
}

fn head(files: &[File]) -> Vec<String> {
    let bare = |f: &&File| f.is_source() && !f.text.starts_with("//!");
    files.iter().filter(bare).map(|f| f.at(1, "begins without `//!`: say what it decides")).collect()
}

fn words(files: &[File]) -> Vec<String> {
    const WORDS: [&str; 7] = ["todo!", "unimplemented!", "dbg!", "TODO", "FIXME", "XXX", "#[ignore"];
    let written = files.iter().filter(|f| f.is_rust() || f.path.ends_with(".sh") || f.path.ends_with(".sql"));
    judged(written, File::all, |_, _, line| {
        let word = WORDS.iter().find(|word| line.contains(**word))?;
        Some(format!("`{word}`: finish it, or write an issue"))
    })
}

fn panics(files: &[File]) -> Vec<String> {
    judged(program(files), File::code, |file, number, line| {
        let can = line.contains(".unwrap()") || line.contains(".expect(");
        let mut around = file.text.lines().take(number).skip(number.saturating_sub(4));
        let why = around.any(|l| l.contains("// ") || l.contains("reason = "));
        (can && !why).then(|| format!("`{}` without a reason why it cannot fail", line.trim()))
    })
}

fn sql(files: &[File]) -> Vec<String> {
    const WORDS: [&str; 6] =
        ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "CREATE TABLE ", "PRAGMA "];
    // The benchmark measures the databases themselves, too.
    const PLACES: [&str; 5] = [
        "crates/oncegate-store/src/sqlite/",
        "crates/oncegate-store/src/postgres/",
        "crates/oncegate-testing/",
        "bench/src/ceilings.rs",
        "bench/src/seed.rs",
    ];
    let outside = program(files).filter(|f| !PLACES.iter().any(|place| f.path.starts_with(place)));
    judged(outside, File::code, |_, _, line| {
        let found = line.contains('"') && WORDS.iter().any(|word| line.contains(word));
        found.then(|| "SQL stands only in the folders of the two databases, and migrations".to_owned())
    })
}

fn one_writer(files: &[File]) -> Vec<String> {
    // The benchmark's are copies of rows that a gate has written, and no claims of anybody.
    const WRITERS: [&str; 6] = [
        "crates/oncegate-store/src/sqlite/row.rs",
        "crates/oncegate-store/src/sqlite/transition.rs",
        "crates/oncegate-store/src/postgres/columns.rs",
        "crates/oncegate-store/src/postgres/desk_sql.rs",
        "bench/src/ceilings.rs",
        "bench/src/seed.rs",
    ];
    let others = program(files).filter(|f| !WRITERS.contains(&f.path.as_str()));
    judged(others, File::code, |file, number, line| {
        let mut statement =
            file.text.lines().skip(number - 1).take_while(|l| !l.contains("WHERE") || *l == line);
        let sets = line.contains("UPDATE claims") && statement.any(|l| l.contains("processing_state ="));
        (sets || line.contains("INTO claims"))
            .then(|| "only the files of WRITERS write processing_state".to_owned())
    })
}

fn arrows(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path != "Cargo.toml" && f.path.ends_with("Cargo.toml")) {
        let own = file.path.rsplit('/').nth(1).unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == own) else {
            findings.push(file.at(1, "a new crate: say in ARROWS and ARCHITECTURE.md what it may see"));
            continue;
        };
        let mut section = "";
        for (number, line) in file.all() {
            section = if line.starts_with('[') { line } else { section };
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let ours = name == "oncegate" || name.starts_with("oncegate-");
            let for_tests = name == TESTING && (section == "[dev-dependencies]" || own == "bench");
            let turned = section.ends_with("dependencies]")
                && ours
                && name != own
                && !allowed.contains(&name)
                && !for_tests;
            let impure =
                section == "[dependencies]" && own == "oncegate-core" && NOT_IN_THE_CORE.contains(&name);
            if turned || impure {
                findings.push(file.at(number, format!("{own} may not depend on {name}")));
            }
        }
    }
    findings
}

fn edges(files: &[File]) -> Vec<String> {
    // The benchmark measures real time with real files.
    judged(program(files).filter(|f| f.path.starts_with("crates/")), File::code, |file, _, line| {
        let found = |call: &str| {
            line.match_indices(call).any(|(at, _)| call != "fs::" || line[..at].ends_with("std::"))
        };
        let (call, allowed) = EDGES
            .iter()
            .find(|(call, allowed)| found(call) && !allowed.iter().any(|path| file.path.starts_with(path)))?;
        Some(format!("`{call}` belongs to {allowed:?}; take it as an argument"))
    })
}

fn places(files: &[File]) -> Vec<String> {
    // Taken apart, so that this file does not hold what it forbids.
    const HOSTS: [&str; 3] =
        [concat!("index.crates", ".io"), concat!("npmjs", ".org"), concat!("pypi", ".org")];
    const PLACES: [&str; 4] =
        [concat!("/work", "/"), concat!("/home", "/"), concat!("/root", "/"), concat!("../", "shared")];
    const INDEX: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");
    judged(files.iter().filter(|f| f.path != ME), File::all, |file, _, line| {
        let source = line.strip_prefix("source = ").map(|source| source.trim_matches('"'));
        if file.path == "Cargo.lock" && source.is_some_and(|source| source != INDEX) {
            return Some("packages come from the public index, not from a mirror".to_owned());
        }
        // Samples name the public sources that they were made from.
        if file.path.starts_with("testdata/webhooks/") && line.trim_start().starts_with("\"source\":") {
            return None;
        }
        let place = PLACES.iter().chain(&HOSTS).find(|place| line.contains(**place))?;
        Some(format!("`{place}` is a place on somebody's machine or network"))
    })
}

const FAILPOINT: &str = "crates/oncegate-store/src/failpoint.rs";

fn failpoints(files: &[File]) -> Vec<String> {
    let listed = text(files, FAILPOINT).split_once("] = [").and_then(|(_, rest)| rest.split_once("];"));
    let places: Vec<&str> = listed.map_or("", |(list, _)| list).split('"').skip(1).step_by(2).collect();
    let hit =
        |place: &str| program(files).any(|f| f.path != FAILPOINT && f.text.contains(&format!("\"{place}\"")));
    let missed = places.iter().filter(|place| !hit(place));
    let missed = missed.map(|place| format!("{FAILPOINT}:1: nothing ever reaches `{place}`"));
    missed.chain(places.is_empty().then(|| format!("{FAILPOINT}:1: no places found"))).collect()
}

fn migrations(files: &[File]) -> Vec<String> {
    let list = text(files, "crates/oncegate-store/src/sqlite/migrations.rs");
    let mut numbered: Vec<&File> = files.iter().filter(|f| f.path.contains("/migrations/sqlite/")).collect();
    numbered.sort_by(|a, b| a.path.cmp(&b.path));
    let mut findings = Vec::new();
    for (number, file) in (1..).zip(numbered) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if !name.starts_with(&format!("{number:04}_")) || !list.contains(name) {
            findings.push(file.at(
                1,
                format!("migrations are numbered without gaps and listed; this should be {number:04}"),
            ));
        }
    }
    findings
}

fn testdata(files: &[File]) -> Vec<String> {
    const INDEX: &str = "testdata/webhooks/index.json";
    let there = files.iter().any(|f| f.path == INDEX);
    if there { vec![] } else { vec![format!("{INDEX}:1: the samples that the tests use are gone")] }
}

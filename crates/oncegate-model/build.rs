//! Makes the mutants: for each entry of `mutants.rs` the real source text of a rule with one guard taken out, as a
//! module. An entry whose text is not there exactly once stops the build: the list has to follow the rules.
#![expect(
    clippy::disallowed_methods,
    reason = "a build script reads sources and writes to its own directory"
)]

use std::fmt::Write as _;
use std::path::Path;

include!("mutants.rs");

fn main() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oncegate-core/src");
    println!("cargo::rerun-if-changed=mutants.rs");
    let mut modules = String::new();
    let mut rules = String::from("pub const RULES: &[Rules] = &[\n");
    for (number, mutant) in MUTANTS.iter().enumerate() {
        let path = core.join(format!("{}.rs", mutant.file));
        println!("cargo::rerun-if-changed={}", path.display());
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let found = text.matches(mutant.find).count();
        assert!(
            found == 1,
            "mutants.rs, \"{}\": {} holds this text {found} times, not once; the rule has changed, so change the \
             entry with it:\n{}",
            mutant.name,
            path.display(),
            mutant.find,
        );
        let changed = text.replace(mutant.find, mutant.put).replace("crate::", "oncegate_core::");
        // Inner comments cannot stand in a module that is written out.
        let kept = changed.lines().filter(|line| !line.starts_with("//!")).collect::<Vec<_>>().join("\n");
        let functions = match mutant.file {
            "decide" => format!("decide: m{number}::decide, without_record: m{number}::without_record"),
            "finish" => format!("finish: m{number}::finish"),
            "reset" => format!("act: m{number}::act"),
            other => panic!("mutants.rs, \"{}\": no rule comes from {other}.rs", mutant.name),
        };
        // A string cannot fail to be written to.
        let _ = writeln!(modules, "#[allow(warnings, clippy::all)]\npub mod m{number} {{\n{kept}\n}}");
        let _ = writeln!(rules, "    Rules {{ {functions}, ..Rules::CORE }},");
    }
    let out = match std::env::var("OUT_DIR") {
        Ok(out) => Path::new(&out).join("mutants.rs"),
        Err(error) => panic!("cargo sets OUT_DIR: {error}"),
    };
    if let Err(error) = std::fs::write(&out, format!("{modules}{rules}];\n")) {
        panic!("{}: {error}", out.display());
    }
}

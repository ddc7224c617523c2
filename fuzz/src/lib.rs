//! Where a fuzzer begins: the parser's own examples, put into its corpus before it is read.

use std::path::Path;

/// Writes the examples of the parser `name`, each in a file of its own. A corpus without them is worse, not wrong.
pub fn sow(name: &str) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let parser = oncegate::parsers::ALL.iter().find(|parser| parser.name == name);
    let seeds = parser.map_or(&[][..], |parser| parser.seeds);
    for (number, seed) in seeds.iter().enumerate() {
        if let Err(error) = std::fs::write(corpus.join(format!("seed-{number}")), seed) {
            eprintln!("an example is missing in {}: {error}", corpus.display());
        }
    }
}

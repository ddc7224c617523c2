//! `oncegate list --csv FILE`, `--jsonl FILE`: every row that fits, as a file.

use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

use super::super::ending::Failure;
use super::super::term;
use super::super::term::text::clean;
use super::gate::{Asked, Gate};

/// Writes the file, or to stdout for `-`. A file is there as a whole or not at all: a copy that broke off must not be
/// taken for everything.
pub(super) async fn run(
    gate: &Gate,
    format: &str,
    mut query: Vec<(&'static str, Option<String>)>,
    to: &Path,
) -> Result<(), Failure> {
    query.push(("format", Some(format.to_owned())));
    let (path, asked) = (["v1", "claims", "export"], Asked::Get(&query));
    if to == Path::new("-") {
        return gate.file(&path, asked).await;
    }
    let name = clean(&to.display().to_string());
    let wrong = |e: &std::io::Error| Failure::from(format!("{name} cannot be written: {e}"));
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Keys and notes may name people: nobody but its owner may read it.
    let mut file = NamedTempFile::new_in(dir).map_err(|e| wrong(&e))?;
    let mut size = 0;
    gate.lines(&path, asked, |text| {
        size += text.len();
        file.write_all(text.as_bytes()).map_err(|e| wrong(&e))
    })
    .await?;
    file.as_file().sync_all().map_err(|e| wrong(&e))?;
    file.persist(to).map_err(|e| wrong(&e.error))?;
    term::write(&format!("{name}: written, {size} bytes\n"));
    Ok(())
}

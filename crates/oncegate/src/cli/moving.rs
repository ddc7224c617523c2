//! `oncegate move`: an embedded store becomes that of a team.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncegate_core::secret::Secret;
use oncegate_runner::book::Book;
use oncegate_runner::entropy;
use oncegate_store::clock::SystemClock;
use oncegate_store::moving::{Moved, MovedTable, move_store, take_back};
use oncegate_store::postgres::{Limits, Options};

use super::secret_text::SecretText;
use crate::config::ProcessEnvironment;
use crate::place::StoreUrl;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The store to move: `sqlite:DIR`. No gate may run on it.
    #[arg(long, default_value = "sqlite:oncegate-data")]
    from: SecretText,
    /// The empty database: `postgres://…`, or `file:PATH` of a file in which that stands.
    #[arg(long)]
    to: SecretText,
    /// Take a move back: the directory is the store again. Only as long as no node has started on the database.
    #[arg(long)]
    undo: bool,
}

pub(super) async fn run(args: Args) -> Result<(), String> {
    let (from, to) = (directory(&args.from.0)?, database(&args.to.0)?);
    if StoreUrl::shows_a_password(Some(&args.to.0), &ProcessEnvironment) {
        warn(
            "the database's password stands among the arguments, which everybody on this machine can read; write \
             --to file:PATH",
        );
    }
    let options = Options {
        url: to,
        // Never a node's: it does not join.
        node: "move".to_owned(),
        clock: Arc::new(SystemClock::new()),
        simulated: false,
        policies: Arc::new(Book::default()),
        fresh_secret: entropy::bytes(),
        limits: Limits::default(),
    };
    if args.undo {
        take_back(&from, &options).await.map_err(|e| e.to_string())?;
        super::say(format_args!(
            "the move is taken back: {} is the store again. What was copied lies in the database still, and no node \
             starts on it; moving again begins anew",
            from.display()
        ));
        return Ok(());
    }
    let mut head = Some(format!("{:<14} {:>12}  checksum", "table", "rows"));
    let told = |table: &MovedTable| {
        head.take().into_iter().for_each(super::say);
        super::say(format_args!("{:<14} {:>12}  {}", table.name, grouped(table.rows), table.checksum));
    };
    let moved = move_store(&from, &options, told).await.map_err(|e| e.to_string())?;
    super::say(summary(&from, &moved));
    Ok(())
}

fn summary(from: &Path, moved: &Moved) -> String {
    if moved.tables.is_empty() {
        return format!("nothing to do: {} was moved to {} before", from.display(), moved.to);
    }
    let rows: u64 = moved.tables.iter().map(|table| table.rows).sum();
    let replaced = match moved.replaced {
        0 => String::new(),
        n => format!("\n{n} zero characters, which PostgreSQL does not hold, became U+FFFD"),
    };
    format!(
        "moved to {}\n{} rows, read back and compared: the same counts and checksums on both sides{replaced}\n\n\
         {} does not start any more. Start the first node with --store and that database;\n\
         until one has started, `oncegate move --undo` takes this back. When the database has a backup of its\n\
         own, remove the directory: it holds payloads and the store's secret",
        moved.to,
        grouped(rows),
        from.display()
    )
}

/// 1234567 as 1,234,567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn directory(from: &Secret) -> Result<PathBuf, String> {
    match named("--from", from)? {
        // Both stores keep it, for whoever starts the wrong one from another directory.
        StoreUrl::Sqlite(dir) => std::path::absolute(&dir).map_err(|e| format!("{}: {e}", dir.display())),
        StoreUrl::Postgres(_) => {
            Err("--from: only an embedded store is moved; copy a database with pg_dump".to_owned())
        }
    }
}

fn database(to: &Secret) -> Result<Secret, String> {
    match named("--to", to)? {
        StoreUrl::Postgres(url) => Ok(url),
        StoreUrl::Sqlite(_) => Err(
            "--to: name a PostgreSQL database, postgres://user:password@host:5432/database; the way back from one to a \
             directory does not exist"
                .to_owned(),
        ),
    }
}

fn named(flag: &str, url: &Secret) -> Result<StoreUrl, String> {
    StoreUrl::parse(Some(url), None).map_err(|e| e.to_string().replacen("--store", flag, 1))
}

#[expect(clippy::print_stderr, reason = "not part of the answer")]
fn warn(words: &str) {
    eprintln!("oncegate: {words}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_threes() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
    }
}

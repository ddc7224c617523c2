//! `oncegate audit`: what people did, newest first.

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::gate::{Asked, Connection, print_json};
use super::list::Pages;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Only what this person or token did, e.g. `mia` or `token:admin`.
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only this act, e.g. `reset` or `token_made`.
    #[arg(long, value_name = "WHAT")]
    action: Option<String>,
    /// Only what was done to this: a claim's id, an automation, a token.
    #[arg(long, value_name = "WHAT")]
    subject: Option<String>,
    /// Only from then on: a time, or how long ago, e.g. `7d`.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only before then.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Every row as a file, on stdout.
    #[arg(long, value_name = "FORMAT", value_parser = ["csv", "jsonl"], conflicts_with_all = ["limit", "all", "json"])]
    export: Option<String>,
    /// Rows at most.
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Every row, page after page.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let screen = Screen::stdout();
    let query = [
        ("actor", args.actor),
        ("action", args.action),
        ("subject", args.subject),
        ("since", args.since),
        ("until", args.until),
        ("format", args.export.clone()),
    ];
    if args.export.is_some() {
        gate.file(&["v1", "audit"], Asked::Get(&query)).await?;
        return Ok(0);
    }
    let pages = Pages { path: &["v1", "audit"], name: "audit", query: &query };
    let answer = match args.all {
        true => pages.all(&gate).await?,
        false => pages.one(&gate, args.limit, None).await?,
    };
    let rows = answer.body["audit"].as_array().cloned().unwrap_or_default();
    if gate.json {
        print_json(&screen, &answer.text);
        return Ok(0);
    }
    if rows.is_empty() {
        let filtered = query.iter().any(|(_, value)| value.is_some());
        let text = if filtered { "No act fits.\n" } else { "Nobody has done anything yet.\n" };
        term::write(text);
        return Ok(0);
    }
    let columns = [
        Column::new("WHEN (UTC)", Shrink::Never),
        Column::new("WHO", Shrink::End),
        Column::new("WHAT", Shrink::Never),
        Column::new("TO", Shrink::Middle),
        Column::new("WHY", Shrink::End),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
            vec![
                Cell::new(Style::Dim, age::read(&row["at"]).map(age::clock).unwrap_or_default()),
                text("actor").into(),
                Cell::new(Style::Bold, text("action").replace('_', " ")),
                text("subject").into(),
                Cell::new(Style::Dim, text("reason")),
            ]
        })
        .collect();
    term::write(&table(&screen, &columns, &rows));
    Ok(0)
}

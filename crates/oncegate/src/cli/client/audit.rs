//! `oncegate audit`: what people did, newest first.

use serde_json::json;

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::gate::{Connection, print_json};
use super::list::Pages;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
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
    let pages = Pages { path: &["v1", "audit"], name: "audit", query: &[] };
    let (rows, text) = match args.all {
        true => {
            let (rows, _) = pages.all(&gate).await?;
            let text = json!({ "audit": rows, "next_cursor": null }).to_string();
            (rows, text)
        }
        false => {
            let answer = pages.one(&gate, args.limit, None).await?;
            (answer.body["audit"].as_array().cloned().unwrap_or_default(), answer.text)
        }
    };
    if gate.json {
        print_json(&screen, &text);
        return Ok(0);
    }
    if rows.is_empty() {
        term::write("Nobody has done anything yet.\n");
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

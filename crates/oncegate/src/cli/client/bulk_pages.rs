//! `oncegate bulk list` and `show`: how acts on many claims went.

use oncegate_core::time::Timestamp;
use serde_json::Value;

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::filter;
use super::gate::{Connection, print_json};
use super::list::Pages;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Rows at most.
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// Its number, as `oncegate bulk list` shows it.
    id: u64,
    /// What became of each claim.
    #[arg(long)]
    claims: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A count of an answer.
pub(super) fn number(body: &Value, name: &str) -> u64 {
    body[name].as_u64().unwrap_or_default()
}

/// How many it was done to; of an undo, how many were given back what they had.
pub(super) fn acted(body: &Value) -> u64 {
    let name = if body["undoes"].is_null() { "acted" } else { "reversed" };
    number(body, name)
}

/// Those that it was not done to, by reason.
pub(super) fn left(body: &Value) -> &Value {
    let name = if body["undoes"].is_null() { "refused" } else { "kept" };
    &body[name]
}

/// `2 live holder, 1 changed since`; empty if there is none.
pub(super) fn reasons(counts: &Value) -> String {
    let mut by_count: Vec<(&String, u64)> =
        counts.as_object().into_iter().flatten().map(|(why, n)| (why, n.as_u64().unwrap_or(0))).collect();
    by_count.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let words = by_count.iter().map(|(why, n)| format!("{n} {}", clean(why).replace('_', " ")));
    words.collect::<Vec<_>>().join(", ")
}

/// All of them.
pub(super) fn sum(counts: &Value) -> u64 {
    counts.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum()
}

fn word(row: &Value, name: &str) -> String {
    clean(row[name].as_str().unwrap_or_default())
}

fn clock(row: &Value, name: &str) -> String {
    age::read(&row[name]).map(age::clock).unwrap_or_default()
}

/// `mark error`, `undo of 7`.
fn action(row: &Value) -> String {
    match row["undoes"].as_u64() {
        Some(id) => format!("undo of {id}"),
        None => word(row, "action").replace('_', " "),
    }
}

pub(super) async fn list(args: List) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let pages = Pages { path: &["v1", "bulk"], name: "bulk", query: &[] };
    let answer = pages.one(&gate, args.limit, None).await?;
    gate.print(&answer, |screen| {
        let rows = answer.body["bulk"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.is_empty() {
            return "Nothing was done to many claims at once yet.\n".to_owned();
        }
        let columns = [
            Column::right("NO"),
            Column::right("AGE"),
            Column::new("ACT", Shrink::Never),
            Column::new("STATE", Shrink::Never),
            Column::right("DONE"),
            Column::right("OF"),
            Column::new("WHO", Shrink::End),
            Column::new("WHY", Shrink::End),
        ];
        let rows: Vec<Vec<Cell>> = rows.iter().map(|row| line(row, answer.now)).collect();
        table(screen, &columns, &rows)
    });
    Ok(0)
}

fn line(row: &Value, now: Timestamp) -> Vec<Cell> {
    let state = match row["undone_by"].as_u64() {
        Some(id) => format!("undone by {id}"),
        None => word(row, "state"),
    };
    let style = if row["state"] == "running" { Style::Yellow } else { Style::Plain };
    vec![
        Cell::new(Style::Bold, row["bulk_id"].to_string()),
        Cell::new(
            Style::Dim,
            age::read(&row["made_at"]).map(|at| age::words(now.since(at))).unwrap_or_default(),
        ),
        action(row).into(),
        Cell::new(style, state),
        acted(row).to_string().into(),
        number(row, "matched").to_string().into(),
        word(row, "actor").into(),
        Cell::new(Style::Dim, word(row, "reason")),
    ]
}

pub(super) async fn show(args: Show) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let id = args.id.to_string();
    if args.claims {
        let pages = Pages { path: &["v1", "bulk", &id, "claims"], name: "claims", query: &[] };
        let answer = pages.all(&gate).await?;
        let screen = Screen::stdout();
        match gate.json {
            true => print_json(&screen, &answer.text),
            false => term::write(&claims(&screen, &answer.body["claims"])),
        }
        return Ok(0);
    }
    let answer = gate.get(&["v1", "bulk", &id], &[]).await?;
    gate.print(&answer, |screen| facts(screen, &answer.body, &id));
    Ok(0)
}

fn facts(screen: &Screen, row: &Value, id: &str) -> String {
    let mut page = format!(
        "\n  {}  {}\n\n",
        screen.paint(Style::Bold, &format!("bulk {id}  {}", action(row))),
        word(row, "state")
    );
    let mut fact = |name: &str, text: &str| {
        if !text.is_empty() {
            page.push_str(&format!("  {}{text}\n", screen.paint(Style::Dim, &format!("{name:<10}"))));
        }
    };
    fact("done", &format!("{} of {}", acted(row), number(row, "matched")));
    let (why, name) = (reasons(left(row)), if row["undoes"].is_null() { "refused" } else { "kept" });
    fact(name, &why);
    if number(row, "failed") > 0 {
        fact("failed", &number(row, "failed").to_string());
    }
    fact("claims", &filter::words(&row["filter"]));
    fact("why", &word(row, "reason"));
    fact("who", &word(row, "actor"));
    fact("begun", &clock(row, "made_at"));
    fact("finished", &clock(row, "finished_at"));
    if let Some(undone) = row["undone_by"].as_u64() {
        fact("undone by", &format!("bulk {undone}"));
    }
    page.push_str(&format!("\n  Each claim: oncegate bulk show {id} --claims\n"));
    page
}

fn claims(screen: &Screen, rows: &Value) -> String {
    let columns = [
        Column::new("FATE", Shrink::Never),
        Column::new("WHY", Shrink::End),
        Column::new("STATE NOW", Shrink::Never),
        Column::new("AUTOMATION", Shrink::End),
        Column::new("KEY", Shrink::Middle),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let state = word(row, "processing_state");
            vec![
                Cell::new(
                    if row["fate"] == "acted" { Style::Plain } else { Style::Yellow },
                    word(row, "fate"),
                ),
                word(row, "why").replace('_', " ").into(),
                Cell::new(Style::of_state(&state), state),
                word(row, "automation").into(),
                Cell::new(Style::Bold, word(row, "idempotency_key")),
            ]
        })
        .collect();
    match rows.is_empty() {
        true => "It was done to no claim.\n".to_owned(),
        false => table(screen, &columns, &rows),
    }
}

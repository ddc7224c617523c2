//! `oncegate nodes`: the processes that share the gate's store.

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::gate::{Answer, Connection, print_json};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let answer = gate.get(&["v1", "nodes"], &[]).await?;
    let screen = Screen::stdout();
    match gate.json {
        true => print_json(&screen, &answer.text),
        false => term::write(&shown(&screen, &answer)),
    }
    Ok(0)
}

fn shown(screen: &Screen, answer: &Answer) -> String {
    let columns = [
        Column::new("NODE", Shrink::Middle),
        Column::new("STATE", Shrink::Never),
        Column::right("SEEN"),
        Column::right("STARTS"),
        Column::new("VERSION", Shrink::End),
    ];
    let rows: Vec<Vec<Cell>> = answer.body["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
            let seen = age::read(&row["seen_at"]).map(|at| age::words(answer.now.since(at)));
            let (style, state) = match (row["is_me"] == true, row["alive"] == true) {
                (true, _) => (Style::Bold, "answers"),
                (false, true) => (Style::Plain, "alive"),
                (false, false) => (Style::Yellow, "silent"),
            };
            vec![
                Cell::new(Style::Bold, text("name")),
                Cell::new(style, state.to_owned()),
                Cell::new(Style::Dim, seen.unwrap_or_default()),
                row["start"].as_u64().map(|n| n.to_string()).unwrap_or_default().into(),
                text("version").into(),
            ]
        })
        .collect();
    table(screen, &columns, &rows)
}

//! `oncegate automations`: which there are, how they stand, and another name for one.

use serde_json::Value;

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::acts::Why;
use super::gate::{Answer, Connection, print_json};
use super::list::Pages;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give one another name; what was done stays done.
    #[command(
        after_help = "Example:\n  oncegate automations rename welcome-mial welcome-mail --reason 'a typing error'"
    )]
    Rename(Rename),
}

#[derive(Debug, clap::Args)]
struct Rename {
    /// What it is called.
    automation: String,
    /// What it shall be called.
    to: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    if let Some(Verb::Rename(args)) = args.verb {
        return rename(args).await;
    }
    let gate = args.connection.open()?;
    let pages = Pages { path: &["v1", "automations"], name: "automations", query: &[] };
    let answer = pages.all(&gate).await?;
    let screen = Screen::stdout();
    match gate.json {
        true => print_json(&screen, &answer.text),
        false => term::write(&shown(&screen, &answer)),
    }
    Ok(0)
}

async fn rename(args: Rename) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut fields = args.why.fields();
    fields["to"] = args.to.into();
    let answer = gate.act(&["v1", "automations", &args.automation, "rename"], &fields).await?;
    gate.print(&answer, |_| {
        let text = |name: &str| clean(answer.body[name].as_str().unwrap_or_default());
        format!("{}: renamed, was {}\n", text("automation"), text("was"))
    });
    Ok(0)
}

fn shown(screen: &Screen, answer: &Answer) -> String {
    let columns = [
        Column::new("AUTOMATION", Shrink::Middle),
        Column::new("DECLARED", Shrink::Never),
        Column::right("STEPS"),
        Column::right("TTL"),
        Column::right("KEPT"),
        Column::new("PAUSED", Shrink::Never),
        Column::right("SEEN"),
        Column::new("INBOX", Shrink::End),
    ];
    let rows: Vec<Vec<Cell>> = answer.body["automations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
            let ago = |name: &str| {
                age::read(&row[name]).map(|at| age::words(answer.now.since(at))).unwrap_or_default()
            };
            let paused = match ago("paused_at").as_str() {
                "" => String::new(),
                long => format!("for {long}"),
            };
            vec![
                Cell::new(Style::Bold, text("automation")),
                Cell::from(if row["declared"] == true { "yes" } else { "no" }),
                row["steps"].as_u64().filter(|n| *n > 0).map(|n| n.to_string()).unwrap_or_default().into(),
                text("ttl").into(),
                text("retention").into(),
                Cell::new(Style::Yellow, paused),
                Cell::new(Style::Dim, ago("first_seen_at")),
                Cell::new(Style::Red, waiting(&row["inbox"])),
            ]
        })
        .collect();
    match rows.is_empty() {
        true => "No automation has been seen yet.\n".to_owned(),
        false => table(screen, &columns, &rows),
    }
}

/// `error 2, stuck 1`: what of it needs a person.
fn waiting(inbox: &Value) -> String {
    let lists = inbox.as_object().into_iter().flatten();
    let full = lists.filter(|(_, n)| n.as_u64().is_some_and(|n| n > 0));
    full.map(|(list, n)| format!("{} {n}", clean(list))).collect::<Vec<_>>().join(", ")
}

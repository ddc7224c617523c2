//! `oncegate notices`: what a person should know though nothing waits for them.

use serde_json::Value;

use super::super::ending::Failure;
use super::super::term::text::{clean, cut, width, wrap};
use super::super::term::{self, Screen, Style, age};
use super::acts::Why;
use super::gate::{Answer, Connection, print_json};
use super::list::Pages;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Those that were dismissed as well.
    #[arg(long)]
    dismissed: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// It has been read; it comes back if the same happens again after a week.
    #[command(after_help = "Example:\n  oncegate notices dismiss 4 --reason 'the new name is meant'")]
    Dismiss(Dismiss),
}

#[derive(Debug, clap::Args)]
struct Dismiss {
    /// Its number, as `oncegate notices` shows it.
    id: u64,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    if let Some(Verb::Dismiss(args)) = args.verb {
        return dismiss(args).await;
    }
    let gate = args.connection.open()?;
    let query = [("dismissed", args.dismissed.then(|| "true".to_owned()))];
    let pages = Pages { path: &["v1", "notices"], name: "notices", query: &query };
    let answer = pages.all(&gate).await?;
    let screen = Screen::stdout();
    match gate.json {
        true => print_json(&screen, &answer.text),
        false => term::write(&shown(&screen, &answer)),
    }
    Ok(0)
}

async fn dismiss(args: Dismiss) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    // Sent once only: this address takes no key, and a second call would be refused.
    let answer = gate.post(&["v1", "notices", &args.id.to_string(), "dismiss"], &args.why.fields()).await?;
    gate.print(&answer, |_| format!("notice {}: dismissed\n", args.id));
    Ok(0)
}

/// Where sentences begin: after the margin, a number of four columns and a gap.
const INDENT: usize = 8;

/// A notice is a sentence that tells how to mend something: it is read as a whole, so it is no line of a table.
fn shown(screen: &Screen, answer: &Answer) -> String {
    let rows = answer.body["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "There is nothing to know.\n".to_owned();
    }
    let mut page = String::new();
    for row in rows {
        let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
        let mut facts = vec![];
        facts.extend(age::read(&row["last_at"]).map(|at| age::relative(answer.now, at)));
        facts.extend(row["count"].as_u64().filter(|n| *n > 1).map(|n| format!("{n} times")));
        facts.extend(
            (!row["dismissed_at"].is_null()).then(|| format!("dismissed by {}", text("dismissed_by"))),
        );
        let head = format!("{} {}", text("kind").replace('_', " "), about(row));
        let facts = facts.join(", ");
        let head = match screen.width {
            // The sentence below names it in full.
            Some(room) => cut(head.trim_end(), room.saturating_sub(INDENT + 2 + width(&facts))),
            None => head.trim_end().to_owned(),
        };
        page.push_str(&format!(
            "\n  {:>4}  {}  {}\n",
            row["id"].to_string(),
            screen.paint(Style::Bold, &head),
            screen.paint(Style::Dim, &facts)
        ));
        let lines = match screen.width {
            Some(room) => wrap(&text("detail"), room.saturating_sub(INDENT)),
            None => vec![text("detail")],
        };
        page.extend(lines.iter().map(|line| format!("{}{line}\n", " ".repeat(INDENT))));
    }
    let how = "  Read? oncegate notices dismiss NO --reason '…'";
    page.push_str(&format!("\n{}\n", screen.paint(Style::Dim, how)));
    page
}

fn about(row: &Value) -> String {
    match row["subject"].as_str() {
        None | Some("*") => String::new(),
        Some(subject) => clean(subject),
    }
}

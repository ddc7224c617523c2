//! `oncegate list`: claims as a table, or what needs a person as a page.

use std::time::Duration;

use clap::ValueEnum;
use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::gate::{Answer, Connection, Gate, print_json};
use super::trouble::Trouble;
use super::{inbox, watch};

#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// What needs a person: every list on one page, or one of them.
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "all")]
    inbox: Option<Inbox>,
    /// Only claims in this state.
    #[arg(long, value_parser = ["none", "processing", "done", "error"])]
    state: Option<String>,
    /// Only claims of this automation.
    #[arg(long, value_name = "NAME")]
    automation: Option<String>,
    /// Rows at most; on the inbox page, rows of each list [default: 50, on the inbox page 10].
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: Option<u32>,
    /// Every row, page after page.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Show it anew every few seconds, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5", conflicts_with = "json",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Inbox {
    All,
    Stuck,
    Error,
    Mismatch,
    Parked,
    Rejected,
    Late,
}

impl Inbox {
    fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

const ROWS: u32 = 50;
const INBOX_ROWS: usize = 10;
/// What the gate gives on one page.
const PAGE_ROWS_MAX: u32 = 500;

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    match args.watch {
        Some(seconds) => {
            watch::run(Duration::from_secs(seconds), async |screen| page(&gate, &args, screen).await).await
        }
        None => {
            let screen = Screen::stdout();
            let page = page(&gate, &args, &screen).await?;
            match gate.json {
                true => print_json(&screen, &page),
                false => term::write(&page),
            }
            Ok(0)
        }
    }
}

async fn page(gate: &Gate, args: &Args, screen: &Screen) -> Result<String, Failure> {
    if args.inbox == Some(Inbox::All) {
        if args.state.is_some() {
            return Err(Failure::usage("--state picks rows of one list; name it, e.g. --inbox error"));
        }
        let rows = if args.all { usize::MAX } else { args.limit.map_or(INBOX_ROWS, |n| n as usize) };
        return inbox::page(gate, args.automation.as_deref(), rows, screen).await;
    }
    let rejected = args.inbox == Some(Inbox::Rejected);
    if rejected && (args.state.is_some() || args.automation.is_some()) {
        return Err(Failure::usage(
            "rejected deliveries are no claims: --state and --automation do not apply",
        ));
    }
    let (path, name) = match rejected {
        true => (["v1", "rejected"], "rejected"),
        false => (["v1", "claims"], "claims"),
    };
    let query = [
        ("inbox", args.inbox.filter(|_| !rejected).map(Inbox::word)),
        ("state", args.state.clone()),
        ("automation", args.automation.clone()),
    ];
    let pages = Pages { path: &path, name, query: &query };
    if args.all {
        let (rows, now) = pages.all(gate).await?;
        return Ok(match gate.json {
            true => json!({ name: rows, "next_cursor": null }).to_string(),
            false => shown(screen, &rows, now, rejected, false),
        });
    }
    let answer = pages.one(gate, args.limit.unwrap_or(ROWS), None).await?;
    if gate.json {
        return Ok(answer.text);
    }
    let rows = answer.body[name].as_array().cloned().unwrap_or_default();
    Ok(shown(screen, &rows, answer.now, rejected, !answer.body["next_cursor"].is_null()))
}

/// A listing call, page after page.
pub(super) struct Pages<'a> {
    pub(super) path: &'a [&'a str],
    /// The member that holds the rows.
    pub(super) name: &'a str,
    pub(super) query: &'a [(&'a str, Option<String>)],
}

impl Pages<'_> {
    pub(super) async fn one(&self, gate: &Gate, limit: u32, cursor: Option<&str>) -> Result<Answer, Trouble> {
        let mut query = self.query.to_vec();
        query.push(("limit", Some(limit.to_string())));
        query.push(("cursor", cursor.map(str::to_owned)));
        gate.get(self.path, &query).await
    }

    /// Every row, and the store's clock at the last page.
    pub(super) async fn all(&self, gate: &Gate) -> Result<(Vec<Value>, Timestamp), Trouble> {
        let (mut rows, mut cursor) = (vec![], None);
        loop {
            let mut answer = self.one(gate, PAGE_ROWS_MAX, cursor.as_deref()).await?;
            if let Some(page) = answer.body[self.name].as_array_mut() {
                rows.append(page);
            }
            match answer.body["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok((rows, answer.now)),
            }
        }
    }
}

fn shown(screen: &Screen, rows: &[Value], now: Timestamp, rejected: bool, more: bool) -> String {
    if rows.is_empty() {
        return if rejected { "No delivery is rejected.\n" } else { "No claim fits.\n" }.to_owned();
    }
    let mut page = if rejected { deliveries(screen, rows, now) } else { claims(screen, rows, now) };
    if more {
        page.push_str(&screen.paint(Style::Dim, "  There are more: --all shows every row, --limit so many."));
        page.push('\n');
    }
    page
}

/// When what is shown of a claim came about.
pub(super) fn since(claim: &Value) -> Option<Timestamp> {
    let name = match claim["processing_state"].as_str() {
        Some("processing") => "processing_started_at",
        Some("done") => "done_at",
        _ => "updated_at",
    };
    age::read(&claim[name]).or_else(|| age::read(&claim["updated_at"]))
}

/// Why it is as it is, in one line; empty if there is nothing to say.
pub(super) fn note(claim: &Value, now: Timestamp) -> String {
    let text = |name: &str| claim[name].as_str().map(clean).unwrap_or_default();
    let mut parts = vec![];
    if claim["dismissed"] == true {
        parts.push("dismissed".to_owned());
    }
    match text("parked").as_str() {
        "" => {}
        parked => parts.push(parked.replace('_', " ")),
    }
    if text("error_cause") == "outcome_unknown" {
        parts.push("outcome unknown".to_owned());
    }
    // Before the note: if something is cut, the note can spare it.
    if let Some(due) = age::read(&claim["due_at"]) {
        parts.push(match due > now {
            true => format!("due {}", age::relative(now, due)),
            false => "due now".to_owned(),
        });
    }
    match text("note").as_str() {
        "" => {}
        note => parts.push(note.to_owned()),
    }
    parts.join("; ")
}

fn claims(screen: &Screen, rows: &[Value], now: Timestamp) -> String {
    const ID_FROM: usize = 140;
    let mut columns = vec![
        Column::right("AGE"),
        Column::new("STATE", Shrink::Never),
        Column::new("AUTOMATION", Shrink::End),
        Column::new("KEY", Shrink::Middle),
        Column::new("NOTE", Shrink::End),
    ];
    let with_id = screen.width.is_none_or(|width| width >= ID_FROM);
    if with_id {
        columns.insert(4, Column::new("CLAIM", Shrink::Never));
    }
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|claim| {
            let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
            let state = text("processing_state");
            let old = since(claim).map(|at| age::words(now.since(at))).unwrap_or_default();
            let mut cells = vec![
                Cell::new(Style::Dim, old),
                Cell::new(Style::of_state(&state), state),
                text("automation").into(),
                Cell::new(Style::Bold, text("idempotency_key")),
                Cell::new(Style::Dim, note(claim, now)),
            ];
            if with_id {
                cells.insert(4, Cell::new(Style::Dim, text("claim_id")));
            }
            cells
        })
        .collect();
    table(screen, &columns, &rows)
}

fn deliveries(screen: &Screen, rows: &[Value], now: Timestamp) -> String {
    let columns = [
        Column::right("AGE"),
        Column::right("NO"),
        Column::new("SOURCE", Shrink::End),
        Column::new("VERDICT", Shrink::Never),
        Column::new("REASON", Shrink::End),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
            let old = age::read(&row["received_at"]).map(|at| age::words(now.since(at))).unwrap_or_default();
            vec![
                Cell::new(Style::Dim, old),
                Cell::new(Style::Bold, row["id"].to_string()),
                text("source").into(),
                text("verdict").into(),
                Cell::new(Style::Dim, text("reason")),
            ]
        })
        .collect();
    table(screen, &columns, &rows)
}

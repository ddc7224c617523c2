//! `oncegate list`: claims as a table, or what needs a person as a page.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style, age};
use super::filter::Filters;
use super::gate::{Answer, Connection, Gate, print_json};
use super::trouble::Trouble;
use super::{export, groups, inbox, watch};

#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// What needs a person: every list on one page, or one of them.
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "all")]
    inbox: Option<Inbox>,
    #[command(flatten)]
    filters: Filters,
    /// Which come first, by the time they were made [default: newest].
    #[arg(long, value_parser = ["newest", "oldest"], help_heading = "What is shown")]
    order: Option<String>,
    /// Rows at most; on the inbox page, rows of each list [default: 50, on the inbox page 10].
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=500),
          help_heading = "What is shown")]
    limit: Option<u32>,
    /// Every row, page after page.
    #[arg(long, conflicts_with = "limit", help_heading = "What is shown")]
    all: bool,
    /// How many of each automation, by the time they have stood in their state.
    #[arg(long, conflicts_with_all = ["order", "limit", "all"], help_heading = "What is shown")]
    group: bool,
    /// Every row as CSV, safe in spreadsheets, to this file; `-` is stdout.
    #[arg(long, value_name = "FILE", help_heading = "What is shown",
          conflicts_with_all = ["order", "limit", "all", "group", "json", "watch"])]
    csv: Option<PathBuf>,
    /// Every row as JSON lines, to this file; `-` is stdout.
    #[arg(long, value_name = "FILE", help_heading = "What is shown",
          conflicts_with_all = ["csv", "order", "limit", "all", "group", "json", "watch"])]
    jsonl: Option<PathBuf>,
    /// Show it anew every few seconds, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5", conflicts_with = "json",
          value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "What is shown")]
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
    for (format, to) in [("csv", &args.csv), ("jsonl", &args.jsonl)] {
        if let Some(to) = to {
            let list = args.claims_list()?;
            export::run(&gate, format, args.filters.query(list.as_deref()), to).await?;
            return Ok(0);
        }
    }
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

impl Args {
    /// The list of the inbox, where claims are counted or exported: one that has claims.
    fn claims_list(&self) -> Result<Option<String>, Failure> {
        match self.inbox {
            Some(Inbox::All) => Err(Failure::usage("name the list of the inbox, e.g. --inbox error")),
            Some(Inbox::Rejected) => Err(Failure::usage("rejected deliveries are no claims")
                .hint("oncegate list --inbox rejected --all --json has all of them")),
            list => Ok(list.map(Inbox::word)),
        }
    }
}

async fn page(gate: &Gate, args: &Args, screen: &Screen) -> Result<String, Failure> {
    if args.group {
        let list = args.claims_list()?;
        let answer = groups::ask(gate, args.filters.query(list.as_deref())).await?;
        return Ok(match gate.json {
            true => answer.text,
            false => groups::shown(screen, &answer),
        });
    }
    if args.inbox == Some(Inbox::All) {
        if args.filters.state.is_some() || args.order.is_some() {
            return Err(Failure::usage(
                "--state and --order pick rows of one list; name it, e.g. --inbox error",
            ));
        }
        let rows = if args.all { usize::MAX } else { args.limit.map_or(INBOX_ROWS, |n| n as usize) };
        return inbox::page(gate, &args.filters, rows, screen).await;
    }
    let rejected = args.inbox == Some(Inbox::Rejected);
    if rejected && (args.filters.automation.is_some() || args.filters.only_claims() || args.order.is_some()) {
        return Err(Failure::usage(
            "rejected deliveries are no claims: filters and --order do not apply to them",
        ));
    }
    let (path, name, query) = match rejected {
        true => (["v1", "rejected"], "rejected", vec![]),
        false => {
            let mut query = args.filters.query(args.inbox.map(Inbox::word).as_deref());
            query.push(("order", args.order.clone()));
            (["v1", "claims"], "claims", query)
        }
    };
    let pages = Pages { path: &path, name, query: &query };
    let mut answer = match args.all {
        true => pages.all(gate).await?,
        false => pages.one(gate, args.limit.unwrap_or(ROWS), None).await?,
    };
    // Webhooks that were set aside at the door are parked as well, and are no claims.
    let beside = match args.inbox {
        Some(Inbox::Parked) if !args.filters.only_claims() => {
            let rows = inbox::parked_deliveries(gate, args.filters.automation.as_deref()).await?;
            Some(rows).filter(|rows| !rows.is_empty())
        }
        _ => None,
    };
    if gate.json {
        return Ok(match beside {
            None => answer.text,
            Some(rows) => {
                answer.body["parked_deliveries"] = rows.into();
                answer.body.to_string()
            }
        });
    }
    let rows = answer.body[name].as_array().cloned().unwrap_or_default();
    let mut page = match (rows.is_empty(), &beside) {
        (true, Some(_)) => String::new(),
        _ => shown(screen, &rows, answer.now, rejected, &answer.body),
    };
    if let Some(rows) = beside {
        let head = "  Webhooks that were set aside; none of them takes a key:";
        page.push_str(&format!("{}\n", screen.paint(Style::Dim, head)));
        page.push_str(&deliveries(screen, &rows, answer.now));
    }
    Ok(page)
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

    /// Every row on one page, as if pages had no end; with the store's clock at the last one.
    pub(super) async fn all(&self, gate: &Gate) -> Result<Answer, Trouble> {
        let (rows, now) = self.first(gate, usize::MAX).await?;
        let body = json!({ self.name: rows, "next_cursor": null });
        Ok(Answer { text: body.to_string(), body, now })
    }

    /// The first so many rows, and the store's clock at the last page.
    pub(super) async fn first(&self, gate: &Gate, max: usize) -> Result<(Vec<Value>, Timestamp), Trouble> {
        let (mut rows, mut cursor) = (vec![], None);
        loop {
            let left = u32::try_from(max - rows.len()).unwrap_or(u32::MAX).clamp(1, PAGE_ROWS_MAX);
            let mut answer = self.one(gate, left, cursor.as_deref()).await?;
            if let Some(page) = answer.body[self.name].as_array_mut() {
                rows.append(page);
            }
            match answer.body["next_cursor"].as_str() {
                // A page may end before it is full, because it has looked at enough.
                Some(next) if rows.len() < max => cursor = Some(next.to_owned()),
                _ => {
                    rows.truncate(max);
                    return Ok((rows, answer.now));
                }
            }
        }
    }
}

fn shown(screen: &Screen, rows: &[Value], now: Timestamp, rejected: bool, answer: &Value) -> String {
    let more = !answer["next_cursor"].is_null();
    if let Some(until) = age::read(&answer["searched_until"]).filter(|_| rows.is_empty() && more) {
        return format!(
            "No claim fits as far as was looked, to {} UTC: --all looks at all.\n",
            age::clock(until)
        );
    }
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
        Column::new("TAG", Shrink::End),
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
                text("tag").into(),
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

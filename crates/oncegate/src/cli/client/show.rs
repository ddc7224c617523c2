//! `oncegate show`: one claim with its whole story, or one delivery with its body.

use oncegate_core::time::Timestamp;
use oncegate_store::api::step_of;
use serde_json::Value;

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::{clean, width, wrap};
use super::super::term::{Screen, Style, age};
use super::gate::Connection;
use super::list::since;
use super::target::Target;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    target: Option<Target>,
    /// Show a webhook delivery with its body instead of a claim.
    #[arg(long, value_name = "NO", conflicts_with = "words")]
    delivery: Option<u64>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let answer = match (&args.target, args.delivery) {
        (_, Some(number)) => {
            let answer = gate.get(&["v1", "rejected", &number.to_string()], &[]).await?;
            gate.print(&answer, |screen| delivery(screen, &answer.body, answer.now));
            return Ok(0);
        }
        (Some(target), None) => gate.get(&["v1", "claims", &target.id(&gate).await?], &[]).await?,
        (None, None) => {
            return Err(Failure::usage(
                "name a claim by its id, or by an automation and a key; or pass --delivery NO",
            ));
        }
    };
    gate.print(&answer, |screen| claim(screen, &answer.body, answer.now));
    Ok(0)
}

/// A name and what it is, e.g. `record   crm:ann@example.com`; long texts go on below.
fn fact(page: &mut String, screen: &Screen, name: &str, text: &str) {
    const NAMES: usize = 13;
    if text.is_empty() {
        return;
    }
    let lines = match screen.width {
        Some(width) => wrap(text, width.saturating_sub(NAMES + 2)),
        None => vec![text.to_owned()],
    };
    for (i, line) in lines.iter().enumerate() {
        let name = if i == 0 { format!("{name:<NAMES$}") } else { " ".repeat(NAMES) };
        page.push_str(&format!("  {}{line}\n", screen.paint(Style::Dim, &name)));
    }
}

fn title(page: &mut String, screen: &Screen, text: &str) {
    page.push_str(&format!("\n  {}\n", screen.paint(Style::Bold, text)));
}

fn claim(screen: &Screen, claim: &Value, now: Timestamp) -> String {
    let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
    let when = |name: &str| match age::read(&claim[name]) {
        Some(at) => format!("{} UTC, {}", age::clock(at), age::relative(now, at)),
        None => String::new(),
    };
    let state = text("processing_state");
    let mut page =
        format!("\n  {}  {}\n", text("automation"), screen.paint(Style::Bold, &text("idempotency_key")));
    let mut line = vec![screen.paint(Style::of_state(&state), &state)];
    if let Some(at) = since(claim) {
        line.push(format!("since {}", age::words(now.since(at))));
    }
    line.push(format!("attempt {}", claim["attempt"]));
    if let Some(list) = claim["inbox"].as_str() {
        line.push(format!("in the inbox: {}", clean(list)));
    }
    if claim["dismissed"] == true {
        line.push("dismissed".into());
    }
    page.push_str(&format!("  {}\n\n", line.join(" · ")));
    fact(&mut page, screen, "note", &text("note"));
    fact(&mut page, screen, "cause", &text("error_cause").replace('_', " "));
    fact(&mut page, screen, "due", &when("due_at"));
    fact(&mut page, screen, "held by", &text("holder"));
    fact(&mut page, screen, "parked", &text("parked").replace('_', " "));
    fact(&mut page, screen, "repeat of", &word(&claim["repeat_of"]["idempotency_key"]));
    fact(&mut page, screen, "hint", &text("hint"));
    fact(&mut page, screen, "record", &text("record"));
    if let Some(earlier) = neighbour(&claim["waits_for"]) {
        fact(&mut page, screen, "waits for", &format!("{earlier}, which came earlier on this record"));
    }
    if let Some(newer) = neighbour(&claim["overtaken_by"]) {
        fact(
            &mut page,
            screen,
            "overtaken by",
            &format!("{newer}, which came later and has written this record"),
        );
    }
    fact(&mut page, screen, "run", &text("run_url"));
    fact(&mut page, screen, "started", &when("processing_started_at"));
    fact(&mut page, screen, "done", &when("done_at"));
    fact(&mut page, screen, "remembered", &when("remembered_until"));
    fact(&mut page, screen, "created", &when("created_at"));
    fact(&mut page, screen, "retries", &retries(claim));
    fact(&mut page, screen, "stopped", &stops(&claim["stopped"], now));
    fact(&mut page, screen, "result", &json(&claim["result"]));
    fact(&mut page, screen, "payload", &json(&claim["payload"]));
    fact(&mut page, screen, "claim", &text("claim_id"));
    steps(&mut page, screen, claim);
    deliveries(&mut page, screen, claim);
    timeline(&mut page, screen, claim);
    page
}

/// Another claim of the same record, e.g. `form:2 of welcome mail`.
pub(super) fn neighbour(of: &Value) -> Option<String> {
    let (key, automation) = (of["idempotency_key"].as_str()?, of["automation"].as_str()?);
    Some(format!("{} of {}", clean(key), clean(automation)))
}

fn retries(claim: &Value) -> String {
    let count = |name: &str| claim[name].as_u64().unwrap_or(0);
    let mut parts = vec![];
    for (n, what) in
        [(count("retries_used"), "after an error"), (count("stale_retries_used"), "after silence")]
    {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    parts.join(", ")
}

/// How often somebody else wanted to run it too.
fn stops(stopped: &Value, now: Timestamp) -> String {
    let Some(count) = stopped["count"].as_u64().filter(|n| *n > 0) else { return String::new() };
    let times = if count == 1 { "time" } else { "times" };
    match age::read(&stopped["last"]) {
        Some(last) => format!("{count} {times}, the last {}", age::relative(now, last)),
        None => format!("{count} {times}"),
    }
}

fn json(value: &Value) -> String {
    const SHOWN: usize = 2_000;
    let text = if value.is_null() { String::new() } else { clean(&value.to_string()) };
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}… (all of it: --json)", &text[..at]),
        None => text,
    }
}

/// Each call that went out, and the steps that were not started.
fn steps(page: &mut String, screen: &Screen, claim: &Value) {
    let Some(steps) = claim["steps"].as_array().filter(|steps| !steps.is_empty()) else { return };
    title(page, screen, "STEPS");
    let columns = [
        Column::new("STEP", Shrink::End),
        Column::new("OUTCOME", Shrink::Never),
        Column::new("SENT", Shrink::Never),
        Column::right("STATUS"),
        Column::new("TARGET", Shrink::End),
    ];
    let calls = claim["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut rows, mut notes) = (vec![], vec![]);
    for step in steps {
        let is_of_step = |call: &&Value| {
            let (name, step) = (call["step"].as_str(), step["step"].as_str());
            name == step || name.map(step_of) == step
        };
        let of_step: Vec<&Value> = calls.iter().filter(is_of_step).collect();
        if of_step.is_empty() {
            rows.push(vec![word(&step["step"]).into(), word(&step["outcome"]).replace('_', " ").into()]);
            notes.push(String::new());
        }
        for call in of_step {
            // Nothing was sent by a wait or a review, so nothing can have succeeded.
            let word_of = match (call["target"].as_str(), step["outcome"].as_str()) {
                (Some("wait"), Some("succeeded")) => Value::from("waited"),
                (Some("review"), Some("succeeded")) if call["note"].is_null() => Value::from("approved"),
                (Some("review"), Some("succeeded")) => Value::from("asked"),
                (Some("wait" | "review"), _) => step["outcome"].clone(),
                _ => call["outcome"].clone(),
            };
            rows.push(vec![
                word(&call["step"]).into(),
                Cell::new(outcome(&word_of), word(&word_of).replace('_', " ")),
                Cell::new(Style::Dim, age::read(&call["sent_at"]).map(age::clock).unwrap_or_default()),
                call["status"].as_u64().map(|n| n.to_string()).unwrap_or_default().into(),
                word(&call["target"]).into(),
            ]);
            notes.push(word(&call["note"]));
        }
    }
    noted(page, screen, &columns, &rows, &notes);
}

/// A table, each row with its note below it: notes are read as a whole.
fn noted(page: &mut String, screen: &Screen, columns: &[Column], rows: &[Vec<Cell>], notes: &[String]) {
    let lines = table(screen, columns, rows);
    let mut lines = lines.lines();
    page.extend(lines.next().map(|head| format!("{head}\n")));
    let mut said = "";
    for (line, note) in lines.zip(notes) {
        page.push_str(&format!("{line}\n"));
        let again = !note.is_empty() && note == said;
        below(page, screen, if again { "the same as before" } else { note }, 6);
        said = if note.is_empty() { said } else { note };
    }
}

fn below(page: &mut String, screen: &Screen, note: &str, indent: usize) {
    if note.is_empty() {
        return;
    }
    let lines = match screen.width {
        Some(width) => wrap(note, width.saturating_sub(indent)),
        None => vec![note.to_owned()],
    };
    for line in lines {
        page.push_str(&format!("{}{}\n", " ".repeat(indent), screen.paint(Style::Dim, &line)));
    }
}

fn outcome(value: &Value) -> Style {
    match value.as_str() {
        Some("succeeded" | "waited") => Style::Green,
        Some("failed") => Style::Red,
        _ => Style::Yellow,
    }
}

fn word(value: &Value) -> String {
    clean(value.as_str().unwrap_or_default())
}

fn deliveries(page: &mut String, screen: &Screen, claim: &Value) {
    let Some(rows) = claim["deliveries"].as_array().filter(|rows| !rows.is_empty()) else { return };
    title(page, screen, "DELIVERIES");
    let columns = [
        Column::right("NO"),
        Column::new("RECEIVED", Shrink::Never),
        Column::new("SOURCE", Shrink::End),
        Column::new("VERDICT", Shrink::Never),
        Column::new("DELIVERY ID", Shrink::Middle),
        Column::right("REPEATS"),
    ];
    let notes: Vec<String> = rows.iter().map(|row| word(&row["reason"])).collect();
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            vec![
                row["id"].to_string().into(),
                Cell::new(Style::Dim, age::read(&row["received_at"]).map(age::clock).unwrap_or_default()),
                word(&row["source"]).into(),
                word(&row["verdict"]).replace('_', " ").into(),
                word(&row["delivery_id"]).into(),
                row["repeats"].as_u64().filter(|n| *n > 0).map(|n| n.to_string()).unwrap_or_default().into(),
            ]
        })
        .collect();
    noted(page, screen, &columns, &rows, &notes);
}

/// What happened, oldest first, under the day on which it did.
fn timeline(page: &mut String, screen: &Screen, claim: &Value) {
    let Some(rows) = claim["history"].as_array().filter(|rows| !rows.is_empty()) else { return };
    title(page, screen, "TIMELINE (UTC)");
    let whats: Vec<String> = rows
        .iter()
        .map(|row| {
            let what = format!("{} {}", word(&row["kind"]), word(&row["reason"]));
            let attempt = row["attempt"].as_u64().filter(|n| *n > 0);
            let attempt = attempt.map(|n| format!(", attempt {n}")).unwrap_or_default();
            format!("{}{attempt}", what.trim_end().replace('_', " "))
        })
        .collect();
    let room = whats.iter().map(|what| width(what)).max().unwrap_or(0);
    let (mut day, mut said) = (String::new(), String::new());
    for (row, what) in rows.iter().zip(&whats) {
        let when = age::read(&row["at"]).map(age::clock).unwrap_or_default();
        let (date, time) = when.split_once(' ').unwrap_or_default();
        if date != day {
            date.clone_into(&mut day);
            page.push_str(&format!("  {}\n", screen.paint(Style::Dim, date)));
        }
        let style = match row["kind"].as_str() {
            Some("done") => Style::Green,
            Some("error" | "late") => Style::Red,
            Some("stop") => Style::Dim,
            _ => Style::Plain,
        };
        let blank = " ".repeat(room.saturating_sub(width(what)) + 2);
        let who = screen.paint(Style::Dim, &word(&row["actor"]));
        page.push_str(&format!("    {time}  {}{blank}{who}\n", screen.paint(style, what)));
        let note = word(&row["note"]);
        let again = !note.is_empty() && note == said;
        below(page, screen, if again { "the same as before" } else { &note }, 14);
        said = if note.is_empty() { said } else { note };
    }
}

fn delivery(screen: &Screen, row: &Value, now: Timestamp) -> String {
    let text = |name: &str| word(&row[name]);
    let when = |name: &str| match age::read(&row[name]) {
        Some(at) => format!("{} UTC, {}", age::clock(at), age::relative(now, at)),
        None => String::new(),
    };
    let mut page = format!("\n  delivery {}  {}\n\n", row["id"], screen.paint(Style::Bold, &text("verdict")));
    fact(&mut page, screen, "reason", &text("reason"));
    fact(&mut page, screen, "source", &text("source"));
    fact(&mut page, screen, "automation", &text("automation"));
    fact(&mut page, screen, "received", &when("received_at"));
    fact(&mut page, screen, "settled", &when("settled_at"));
    if let Some(repeats) = row["repeats"].as_u64().filter(|n| *n > 0) {
        fact(&mut page, screen, "repeats", &format!("{repeats}, the last {}", when("last_at")));
    }
    title(&mut page, screen, if row["body_base64"].is_null() { "BODY" } else { "BODY (base64)" });
    let body = row["body"].as_str().or_else(|| row["body_base64"].as_str()).unwrap_or_default();
    // A body's own lines stay lines; everything else in it is shown as what it is.
    for line in body.lines() {
        page.push_str(&format!("  {}\n", clean(line)));
    }
    page
}

//! `oncegate sources`: where each is reached, what proves its senders, and what came to it lately; and what runs by
//! the clock, and when; and what is asked for news, and how far it was read.

use serde_json::Value;

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::{clean, cut};
use super::super::term::{self, Screen, Style, age};
use super::gate::{Answer, Connection, print_json};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// One of them, with what came to it lately.
    source: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut path = vec!["v1", "sources"];
    path.extend(args.source.as_deref());
    let answer = gate.get(&path, &[]).await?;
    let screen = Screen::stdout();
    match (gate.json, &args.source) {
        (true, _) => print_json(&screen, &answer.text),
        (false, None) => term::write(&list(&screen, &answer)),
        (false, Some(_)) if answer.body["runs"].is_string() => {
            term::write(&schedule(&screen, &answer));
        }
        (false, Some(_)) if answer.body["every"].is_string() => term::write(&poll(&screen, &answer)),
        (false, Some(_)) => term::write(&one(&screen, &answer)),
    }
    Ok(0)
}

fn text(row: &Value, name: &str) -> String {
    clean(row[name].as_str().unwrap_or_default())
}

fn ago(answer: &Answer, at: &Value) -> String {
    age::read(at).map(|at| age::words(answer.now.since(at))).unwrap_or_default()
}

/// `3 accepted, 1 duplicate`.
fn seen(row: &Value) -> String {
    let counts = row["seen"].as_object().into_iter().flatten();
    let told: Vec<String> = counts.map(|(verdict, n)| format!("{n} {}", verdict.replace('_', " "))).collect();
    told.join(", ")
}

fn proof(row: &Value) -> Cell {
    match row["signed"] == true {
        true => Cell::from("signature"),
        false => Cell::new(Style::Yellow, "unsigned"),
    }
}

fn hints(row: &Value) -> impl Iterator<Item = String> {
    row["hints"].as_array().into_iter().flatten().filter_map(Value::as_str).map(clean)
}

fn list(screen: &Screen, answer: &Answer) -> String {
    let rows = |name: &str| answer.body[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let pages: Vec<String> = [
        (!rows("sources").is_empty()).then(|| webhooks(screen, answer, rows("sources"))),
        (!rows("schedules").is_empty()).then(|| schedules(screen, answer, rows("schedules"))),
        (!rows("polls").is_empty()).then(|| polls(screen, answer, rows("polls"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    match pages.is_empty() {
        true => "  No sources are declared; add one to oncegate.yaml under `sources`.\n".to_owned(),
        false => pages.join("\n"),
    }
}

/// `2026-11-01 01:30`, as a clock of its zone shows it.
fn local(slot: &Value) -> String {
    text(slot, "local").replace('T', " ").get(..16).unwrap_or_default().to_owned()
}

/// The same with the zone's name.
fn shown(slot: &Value) -> String {
    format!("{} {}", local(slot), text(slot, "zone"))
}

/// The same in UTC.
fn utc(slot: &Value) -> String {
    let instant = text(slot, "instant");
    format!("{}Z", instant.get(..16).unwrap_or_default())
}

fn schedules(screen: &Screen, answer: &Answer, rows: &[Value]) -> String {
    let columns = [
        Column::new("SCHEDULE", Shrink::Never),
        Column::new("WHEN", Shrink::End),
        Column::new("RUNS", Shrink::End),
        Column::right("LAST"),
        Column::new("NEXT", Shrink::Never),
        Column::new("UTC", Shrink::Never),
    ];
    let cells = |row: &Value| {
        vec![
            Cell::new(Style::Bold, text(row, "source")),
            text(row, "runs").into(),
            text(row, "automation").into(),
            Cell::new(Style::Dim, ago(answer, &row["last"]["slot"]["instant"])),
            local(&row["next"][0]).into(),
            Cell::new(Style::Dim, utc(&row["next"][0])),
        ]
    };
    table(screen, &columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn schedule(screen: &Screen, answer: &Answer) -> String {
    let row = &answer.body;
    let mut page = format!("  {}\n", screen.paint(Style::Bold, &text(row, "source")));
    let mut line = |word: &str, told: String| {
        page.push_str(&format!("  {}{told}\n", screen.paint(Style::Dim, &format!("{word:<10}"))));
    };
    line("when", text(row, "runs"));
    line("runs", text(row, "automation"));
    let last = &row["last"];
    if !last.is_null() {
        let claim = match last["claim_id"].as_str() {
            Some(id) => format!("claim {}", clean(id)),
            None => "its claim is forgotten".to_owned(),
        };
        line("last", format!("{} ({claim})", shown(&last["slot"])));
    }
    if !row["waiting"].is_null() {
        line("waiting", format!("{}, until the last run is over", shown(&row["waiting"])));
    }
    for (n, slot) in row["next"].as_array().into_iter().flatten().enumerate() {
        let word = if n == 0 { "next" } else { "" };
        line(word, format!("{}  {}", shown(slot), screen.paint(Style::Dim, &utc(slot))));
    }
    page
}

fn polls(screen: &Screen, answer: &Answer, rows: &[Value]) -> String {
    let columns = [
        Column::new("POLL", Shrink::Never),
        Column::new("ASKS", Shrink::Middle),
        Column::new("EVERY", Shrink::Never),
        Column::new("RUNS", Shrink::End),
        Column::right("LAST"),
        Column::new("READ UP TO", Shrink::Never),
    ];
    let cells = |row: &Value| {
        vec![
            Cell::new(Style::Bold, text(row, "source")),
            text(row, "url").into(),
            text(row, "every").into(),
            text(row, "automation").into(),
            Cell::new(Style::Dim, ago(answer, &row["last_at"])),
            text(row, "cursor").into(),
        ]
    };
    let mut page = table(screen, &columns, &rows.iter().map(cells).collect::<Vec<_>>());
    for row in rows {
        if let Some(told) = failing(answer, row) {
            let name = screen.paint(Style::Red, &text(row, "source"));
            page.push_str(&format!("  {name}: {told}\n"));
        }
    }
    page
}

/// `failed 3 times in a row, the last 10 s ago: crm.example.com answered 401; …`.
fn failing(answer: &Answer, row: &Value) -> Option<String> {
    let failing = row["failing"].as_object()?;
    let reason = clean(failing["reason"].as_str().unwrap_or_default());
    let last = ago(answer, &failing["last_at"]);
    Some(match failing["in_a_row"].as_u64() {
        Some(1) => format!("failed {last} ago: {reason}"),
        n => format!("failed {} times in a row, the last {last} ago: {reason}", n.unwrap_or_default()),
    })
}

fn poll(screen: &Screen, answer: &Answer) -> String {
    let row = &answer.body;
    let mut page = format!("  {}\n", screen.paint(Style::Bold, &text(row, "source")));
    let mut line = |style: Style, word: &str, told: String| {
        page.push_str(&format!("  {}{told}\n", screen.paint(style, &format!("{word:<12}"))));
    };
    line(Style::Dim, "asks", format!("{}, every {}", text(row, "url"), text(row, "every")));
    line(Style::Dim, "runs", text(row, "automation"));
    if row["cursor"].is_string() {
        line(Style::Dim, "began at", text(row, "starts_from"));
        line(Style::Dim, "read up to", text(row, "cursor"));
    }
    let brought = &row["last_brought"];
    if !brought.is_null() {
        let older = match brought["older"].as_u64() {
            Some(older) if older > 0 => format!(", {older} from before it began"),
            _ => String::new(),
        };
        let told = format!(
            "{} ago: {} items on {} pages, {} new{older}",
            ago(answer, &row["last_at"]),
            brought["items"],
            brought["pages"],
            brought["new"]
        );
        line(Style::Dim, "last", told);
    }
    if let Some(told) = failing(answer, row) {
        line(Style::Red, "failing", told);
    }
    match row["under_way"] == true {
        true => line(Style::Dim, "next", "one is under way".to_owned()),
        false => line(Style::Dim, "next", text(row, "next_at")),
    }
    page
}

fn webhooks(screen: &Screen, answer: &Answer, rows: &[Value]) -> String {
    let columns = [
        Column::new("SOURCE", Shrink::Never),
        Column::new("PROVIDER", Shrink::Never),
        Column::new("PROVED BY", Shrink::Never),
        Column::new("RUNS", Shrink::End),
        Column::right("LAST"),
        Column::new("SEEN", Shrink::End),
    ];
    let cells = |row: &Value| {
        vec![
            Cell::new(Style::Bold, text(row, "source")),
            text(row, "provider").into(),
            proof(row),
            text(row, "automation").into(),
            Cell::new(Style::Dim, ago(answer, &row["last_at"])),
            seen(row).into(),
        ]
    };
    let mut page = table(screen, &columns, &rows.iter().map(cells).collect::<Vec<_>>());
    for row in rows.iter().filter(|row| !row["last_at"].is_null()) {
        for hint in hints(row) {
            let name = screen.paint(Style::Yellow, &text(row, "source"));
            page.push_str(&format!("  {name}: {hint}\n"));
        }
    }
    page
}

fn one(screen: &Screen, answer: &Answer) -> String {
    let row = &answer.body;
    let dim = |word: &str| screen.paint(Style::Dim, &format!("{word:<10}"));
    let proved = match row["signed"] == true {
        true => "proved by their signature".to_owned(),
        false => screen.paint(Style::Yellow, "not proved: whoever knows the secret is believed"),
    };
    let mut page = format!(
        "  {}\n  {}{}\n  {}{}, {proved}\n  {}{}\n",
        screen.paint(Style::Bold, &text(row, "source")),
        dim("address"),
        text(row, "address"),
        dim("senders"),
        text(row, "provider"),
        dim("runs"),
        text(row, "automation"),
    );
    if !row["last_at"].is_null() {
        page.push_str(&format!(
            "  {}{}, the last {} ago\n",
            dim("seen"),
            seen(row),
            ago(answer, &row["last_at"])
        ));
    }
    for hint in hints(row) {
        page.push_str(&format!("  {}{hint}\n", screen.paint(Style::Yellow, &format!("{:<10}", "hint"))));
    }
    let came = row["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
    if came.is_empty() {
        return page;
    }
    let columns = [
        Column::right("NO"),
        Column::right("CAME"),
        Column::new("VERDICT", Shrink::End),
        Column::new("BODY", Shrink::End),
    ];
    let cells = |sample: &Value| {
        let verdicts: Vec<&str> =
            sample["verdicts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let verdict = match verdicts.as_slice() {
            [one] => (*one).to_owned(),
            many => format!("{} events: {}", many.len(), many.join(", ")),
        };
        let body = sample["body"].as_str().unwrap_or("(no text)");
        let body: String = clean(&cut(body, 400)).split_whitespace().collect::<Vec<_>>().join(" ");
        vec![
            Cell::from(sample["number"].to_string()),
            Cell::new(Style::Dim, ago(answer, &sample["received_at"])),
            Cell::from(clean(&verdict.replace('_', " "))),
            Cell::from(body),
        ]
    };
    page.push('\n');
    page.push_str(&table(screen, &columns, &came.iter().map(cells).collect::<Vec<_>>()));
    page.push_str(&format!(
        "  What key each would get: oncegate key preview --source {} --recent NO\n",
        text(row, "source")
    ));
    page
}

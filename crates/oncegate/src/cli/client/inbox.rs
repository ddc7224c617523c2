//! `oncegate list --inbox`: what needs a person, on one page: how much, how old, and the command that goes on.

use oncegate_core::inbox::InboxList;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::Aside;
use serde_json::{Map, Value};

use super::super::ending::Failure;
use super::super::term::text::{clean, cut, cut_middle, width};
use super::super::term::{Screen, Style, age};
use super::filter::Filters;
use super::gate::Gate;
use super::list::{Pages, note, since};
use super::{groups, target};

/// One list with its rows, oldest first.
struct List {
    list: InboxList,
    count: usize,
    rows: Vec<Value>,
}

/// The whole page, or the whole as JSON if the gate's JSON was asked for: the counts, and each list's oldest rows.
pub(super) async fn page(
    gate: &Gate,
    filters: &Filters,
    max: usize,
    screen: &Screen,
) -> Result<String, Failure> {
    let counts = gate.get(&["v1", "inbox"], &[]).await?;
    let automation = filters.automation.as_deref();
    let filtered = automation.is_some() || filters.only_claims();
    let mut lists = vec![];
    for list in InboxList::ALL {
        let count = usize::try_from(counts.body[list.as_str()].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        // A list that is empty for all is empty for one.
        if count == 0 {
            lists.push(List { list, count, rows: vec![] });
            continue;
        }
        let deliveries = match list {
            _ if filters.only_claims() => vec![],
            InboxList::Rejected => deliveries(gate, None, automation).await?,
            InboxList::Parked => parked_deliveries(gate, automation).await?,
            _ => vec![],
        };
        let (mut rows, of_claims) = match list {
            InboxList::Rejected => (vec![], 0),
            _ => {
                let mut query = filters.query(Some(list.as_str()));
                let of_claims = if filtered {
                    groups::ask(gate, query.clone()).await?.body["total"].as_u64()
                } else {
                    None
                };
                query.push(("order", Some("oldest".to_owned())));
                let pages = Pages { path: &["v1", "claims"], name: "claims", query: &query };
                let (rows, _) = pages.first(gate, max).await?;
                (rows, usize::try_from(of_claims.unwrap_or(0)).unwrap_or(usize::MAX))
            }
        };
        let count = if filtered { of_claims + deliveries.len() } else { count };
        rows.extend(deliveries);
        rows.sort_by_key(stands_since);
        // What comes in between two calls is told, too.
        let count = count.max(rows.len());
        rows.truncate(max);
        lists.push(List { list, count, rows });
    }
    Ok(match gate.json {
        true => json(&lists),
        false => shown(&gate.name(), filters, &lists, counts.now, screen),
    })
}

/// Webhooks that were set aside at the door.
pub(super) async fn parked_deliveries(gate: &Gate, automation: Option<&str>) -> Result<Vec<Value>, Failure> {
    deliveries(gate, Some("parked"), automation).await
}

async fn deliveries(
    gate: &Gate,
    list: Option<&str>,
    automation: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let query = [("list", list.map(str::to_owned))];
    let pages = Pages { path: &["v1", "rejected"], name: "rejected", query: &query };
    let (mut rows, _) = pages.first(gate, usize::MAX).await?;
    rows.retain(|row| automation.is_none_or(|name| row["automation"] == name.trim().to_lowercase()));
    Ok(rows)
}

/// A delivery, which has no state, waits since it came.
fn stands_since(row: &Value) -> Option<Timestamp> {
    match row["processing_state"].is_null() {
        true => age::read(&row["received_at"]),
        false => since(row),
    }
}

fn json(lists: &[List]) -> String {
    let counts: Map<String, Value> =
        lists.iter().map(|l| (l.list.as_str().to_owned(), l.count.into())).collect();
    let mut page = Map::from_iter([("counts".to_owned(), Value::from(counts))]);
    page.extend(lists.iter().map(|l| (l.list.as_str().to_owned(), Value::from(l.rows.clone()))));
    Value::from(page).to_string()
}

/// What a list is, and what to do with what stands in it.
fn meaning(list: InboxList) -> &'static str {
    match list {
        InboxList::Stuck => "went silent past its TTL: look, then reset or dismiss",
        InboxList::Error => "failed: what is due runs again, the rest waits for you",
        InboxList::Mismatch => "one key came with two payloads: compare them, then dismiss",
        InboxList::Parked => "held back: it runs only if somebody starts it",
        InboxList::Rejected => "webhooks that could not run: mend the source, then release",
        InboxList::Late => "finished after it was taken over: look for a double effect",
    }
}

fn shown(gate: &str, filters: &Filters, lists: &[List], now: Timestamp, screen: &Screen) -> String {
    let clock = format!("{} UTC", age::clock(now));
    if lists.iter().all(|list| list.count == 0) {
        let calm = screen.paint(Style::Green, "Nothing needs a person.");
        return format!("  {calm} {}\n", screen.paint(Style::Dim, &format!("{gate}, {clock}")));
    }
    let room = screen.columns();
    let head = width("  oncegate inbox  ") + width(gate);
    let mut page = format!(
        "\n  {}  {}",
        screen.paint(Style::Bold, "oncegate inbox"),
        screen.paint(Style::Dim, &cut(gate, room.saturating_sub(width("  oncegate inbox  "))))
    );
    // A narrow window keeps what cannot be read from any other clock.
    if let Some(gap) = room.checked_sub(head + width(&clock)).filter(|gap| *gap >= 2) {
        page.push_str(&format!("{}{}", " ".repeat(gap), screen.paint(Style::Dim, &clock)));
    }
    let words: Vec<String> = lists.iter().map(|l| format!("{} {}", l.list.as_str(), l.count)).collect();
    let gap = if width(&words.join("    ")) + 2 <= room { "    " } else { "  " };
    let painted: Vec<String> = lists
        .iter()
        .zip(&words)
        .map(|(list, words)| screen.paint(if list.count == 0 { Style::Dim } else { Style::Bold }, words))
        .collect();
    page.push_str(&format!("\n\n  {}\n", painted.join(gap)));
    for list in lists.iter().filter(|list| list.count > 0) {
        section(&mut page, filters, list, now, screen);
    }
    page
}

fn section(page: &mut String, filters: &Filters, list: &List, now: Timestamp, screen: &Screen) {
    // In a pipe nothing is cut.
    let room = screen.width.unwrap_or(usize::MAX);
    let name = list.list.as_str().to_uppercase();
    let meaning = cut(meaning(list.list), room.saturating_sub(4 + name.len()));
    page.push_str(&format!(
        "\n  {}  {}\n",
        screen.paint(style(list.list), &name),
        screen.paint(Style::Dim, &meaning)
    ));
    let rows: Vec<Row> = list.rows.iter().map(|row| Row::new(list.list, row, now, room)).collect();
    let names = rows.iter().map(|row| width(&row.name)).max().unwrap_or(0).min(room / 3);
    for row in &rows {
        let key_room = room.saturating_sub(INDENT + names + 2);
        let name = cut(&row.name, names);
        let blank = " ".repeat(names - width(&name) + 2);
        let key = screen.paint(Style::Bold, &cut_middle(&row.key, key_room));
        page.push_str(&format!("  {:>7}  {name}{blank}{key}\n", row.age));
        let line = |page: &mut String, style, text: &str| {
            let text = cut(text, room.saturating_sub(INDENT));
            page.push_str(&format!("{}{}\n", " ".repeat(INDENT), screen.paint(style, &text)));
        };
        if !row.note.is_empty() {
            line(page, Style::Dim, &row.note);
        }
        line(page, if row.next.starts_with('→') { Style::Cyan } else { Style::Dim }, &row.next);
    }
    let left = list.count.saturating_sub(rows.len());
    if left > 0 {
        // Rejected deliveries have no filters.
        let typed = if list.list == InboxList::Rejected { String::new() } else { filters.typed() };
        let more = format!("{left} more: oncegate list --inbox {}{typed} --all", list.list.as_str());
        page.push_str(&format!("{}{}\n", " ".repeat(INDENT), screen.paint(Style::Dim, &more)));
    }
}

/// Where names begin: after the margin, an age of seven columns and a gap.
const INDENT: usize = 11;

fn style(list: InboxList) -> Style {
    match list {
        InboxList::Stuck | InboxList::Error | InboxList::Late => Style::Red,
        InboxList::Mismatch | InboxList::Parked | InboxList::Rejected => Style::Yellow,
    }
}

/// One thing that needs a person.
struct Row {
    age: String,
    name: String,
    key: String,
    note: String,
    /// The command to type, or what to wait for.
    next: String,
}

impl Row {
    fn new(list: InboxList, row: &Value, now: Timestamp, room: usize) -> Self {
        let text = |name: &str| clean(row[name].as_str().unwrap_or_default());
        if row["processing_state"].is_null() {
            let id = &row["id"];
            let next = match row["verdict"].as_str() {
                Some("rejected") if list == InboxList::Rejected => {
                    format!("→ oncegate release {id} --reason '…'")
                }
                _ => format!("→ oncegate show --delivery {id}"),
            };
            return Self {
                age: age::read(&row["received_at"]).map(|at| age::words(now.since(at))).unwrap_or_default(),
                name: text("source"),
                key: match list {
                    InboxList::Rejected => format!("delivery {id}, {}", text("verdict")),
                    _ => {
                        let verdict = text("verdict");
                        let aside = Aside::parse(&verdict).map(Aside::described);
                        format!("delivery {id}, {}", aside.unwrap_or(&verdict))
                    }
                },
                note: text("reason"),
                next,
            };
        }
        Self {
            age: since(row).map(|at| age::words(now.since(at))).unwrap_or_default(),
            name: text("automation"),
            key: text("idempotency_key"),
            note: note(row, now),
            next: next(list, row, now, room),
        }
    }
}

fn next(list: InboxList, row: &Value, now: Timestamp, room: usize) -> String {
    let act = |verb: &str| {
        let rest = format!("→ oncegate {verb}  --reason '…'");
        let words = target::words(row, room.saturating_sub(INDENT + width(&rest)));
        format!("→ oncegate {verb} {words} --reason '…'")
    };
    let look = || {
        let words = target::words(row, room.saturating_sub(INDENT + width("→ oncegate show ")));
        format!("→ oncegate show {words}")
    };
    let due = age::read(&row["due_at"]);
    match list {
        InboxList::Error if due.is_some_and(|due| due > now) => "nothing to do before that".into(),
        InboxList::Error if due.is_some() => "→ its caller may claim it again now".into(),
        // Whoever resets it unseen may double it.
        InboxList::Error
            if matches!(row["error_cause"].as_str(), Some("outcome_unknown" | "restored" | "stale")) =>
        {
            look()
        }
        InboxList::Stuck => look(),
        // A reset alone would leave it waiting for the next delivery.
        InboxList::Error if row["own_steps"] == true => act("run-now"),
        InboxList::Error => act("reset"),
        InboxList::Mismatch | InboxList::Late => look(),
        InboxList::Parked => match (row["parked"].as_str(), row["run_url"].as_str()) {
            (Some("needs_replay"), Some(url)) => format!("→ replay its run: {}", clean(url)),
            (Some("reset"), _) => act("run-now"),
            (Some("review"), _) => format!("{}, or decline", act("approve")),
            (Some("needs_replay"), None) => "→ replay its run where it came from, or dismiss it".into(),
            _ => look(),
        },
        InboxList::Rejected => String::new(),
    }
}

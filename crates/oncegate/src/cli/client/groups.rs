//! `oncegate list --group`: how many of each automation, by the time they have stood in their state.

use std::collections::BTreeMap;

use oncegate_core::time::Timestamp;
use serde_json::Value;

use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{Screen, Style, age};
use super::gate::{Answer, Gate};
use super::trouble::Trouble;

/// As the gate names them, youngest first.
const AGES: [&str; 5] = ["<1h", "1h-1d", "1d-7d", "7d-30d", ">30d"];

/// Counts what fits.
pub(super) async fn ask(
    gate: &Gate,
    mut query: Vec<(&'static str, Option<String>)>,
) -> Result<Answer, Trouble> {
    query.push(("by", Some("automation,age".to_owned())));
    gate.get(&["v1", "claims", "groups"], &query).await
}

/// One automation.
#[derive(Default)]
struct Line {
    by_age: [u64; AGES.len()],
    total: u64,
    oldest: Option<Timestamp>,
}

impl Line {
    fn add(&mut self, group: &Value) {
        let count = group["count"].as_u64().unwrap_or(0);
        if let Some(at) = AGES.iter().position(|age| group["age"] == **age) {
            self.by_age[at] += count;
        }
        self.total += count;
        let at = age::read(&group["oldest_at"]);
        self.oldest = [self.oldest, at].into_iter().flatten().min();
    }

    fn cells(&self, name: Cell, now: Timestamp) -> Vec<Cell> {
        let number = |n: &u64| if *n == 0 { String::new() } else { n.to_string() };
        let mut cells = vec![name];
        cells.extend(self.by_age.iter().map(|n| number(n).into()));
        cells.push(Cell::new(Style::Bold, number(&self.total)));
        let oldest = self.oldest.map(|at| age::words(now.since(at))).unwrap_or_default();
        cells.push(Cell::new(Style::Dim, oldest));
        cells
    }
}

/// An automation a line, the fullest first, and all of them below.
pub(super) fn shown(screen: &Screen, answer: &Answer) -> String {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    let mut all = Line::default();
    for group in answer.body["groups"].as_array().into_iter().flatten() {
        lines.entry(clean(group["automation"].as_str().unwrap_or_default())).or_default().add(group);
        all.add(group);
    }
    if lines.is_empty() {
        return "No claim fits.\n".to_owned();
    }
    let mut lines: Vec<(String, Line)> = lines.into_iter().collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.total));
    let mut rows: Vec<Vec<Cell>> =
        lines.iter().map(|(name, line)| line.cells(name.as_str().into(), answer.now)).collect();
    if lines.len() > 1 {
        rows.push(all.cells(Cell::new(Style::Dim, "all"), answer.now));
    }
    let mut columns = vec![Column::new("AUTOMATION", Shrink::Middle)];
    columns.extend(AGES.map(Column::right));
    columns.extend([Column::right("TOTAL"), Column::right("OLDEST")]);
    let mut page = table(screen, &columns, &rows);
    if let Some(until) = age::read(&answer.body["counted_until"]) {
        let note =
            format!("  Only those made after {} UTC are counted: name an automation.", age::clock(until));
        page.push_str(&format!("{}\n", screen.paint(Style::Dim, &note)));
    }
    page
}

//! The demo's last page: the table, where its numbers come from, and the verdict. Fits into 80 columns.

use std::fmt::Write;

use super::books::{Books, Row};

/// The page, to be printed as it is.
pub(super) fn show(books: &Books, seconds: f64) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut page, books, seconds);
    page
}

const RULE: usize = 76;

fn write(page: &mut String, books: &Books, seconds: f64) -> std::fmt::Result {
    let rule = "─".repeat(RULE);
    writeln!(page, "\n  {rule}")?;
    writeln!(
        page,
        "  {:<25}{:>6}{:>7}{:>10}{:>10}{:>9}  state",
        "scenario", "sent", "acked", "attempts", "requests", "effects"
    )?;
    writeln!(page, "  {rule}")?;
    for Row { scenario, sent, acknowledged, attempts, requests, effects, state } in &books.rows {
        writeln!(
            page,
            "  {scenario:<25}{sent:>6}{acknowledged:>7}{attempts:>10}{requests:>10}{effects:>9}  {state}"
        )?;
    }
    writeln!(page, "  {rule}")?;
    writeln!(page, "  sent, acked         deliveries, and the 200s for them: the sender's file")?;
    writeln!(page, "  attempts            calls, or runs allowed to a caller: the gate's audit")?;
    writeln!(page, "  requests, effects   what came, and what it counted: the receiver's file")?;
    for note in &books.notes {
        writeln!(page, "\n  Note. {note}.")?;
    }
    if books.disagreements.is_empty() {
        let events = books.rows.len();
        let effects: u64 = books.rows.iter().map(|row| row.effects).sum();
        writeln!(
            page,
            "\n  The receiver's file and the gate's audit agree: {events} events, {effects} effects."
        )?;
        return writeln!(page, "  Nothing lost, nothing doubled, in {seconds:.1} s.");
    }
    writeln!(page, "\n  NOT AS IT MUST BE")?;
    books.disagreements.iter().try_for_each(|what| writeln!(page, "  - {what}"))
}

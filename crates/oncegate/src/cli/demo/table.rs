//! The demo's last page: the table, where its numbers come from, and the verdict. Fits into 80 columns.

use std::fmt::Write;
use std::io::IsTerminal;

use super::books::{Books, Row};
use crate::config::{Environment, ProcessEnvironment};

/// The page, to be printed as it is.
pub(super) fn show(books: &Books, seconds: f64) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut page, books, seconds, Emphasis::for_stdout());
    page
}

/// What matters is bright on a terminal. It says nothing that the words do not say.
#[derive(Clone, Copy)]
struct Emphasis(bool);

impl Emphasis {
    fn for_stdout() -> Self {
        let wanted = ProcessEnvironment.get("NO_COLOR").is_none_or(|value| value.is_empty());
        Self(wanted && std::io::stdout().is_terminal())
    }

    fn on(self, text: &str) -> String {
        if self.0 { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const RULE: usize = 76;

fn write(page: &mut String, books: &Books, seconds: f64, bright: Emphasis) -> std::fmt::Result {
    let rule = "─".repeat(RULE);
    writeln!(page, "\n  {rule}")?;
    writeln!(
        page,
        "  {:<25}{:>6}{:>7}{:>10}{:>10}{}  state",
        "scenario",
        "sent",
        "acked",
        "attempts",
        "requests",
        bright.on(&format!("{:>9}", "effects"))
    )?;
    writeln!(page, "  {rule}")?;
    for Row { scenario, sent, acknowledged, attempts, requests, effects, state } in &books.rows {
        let effects = bright.on(&format!("{effects:>9}"));
        writeln!(
            page,
            "  {scenario:<25}{sent:>6}{acknowledged:>7}{attempts:>10}{requests:>10}{effects}  {state}"
        )?;
    }
    writeln!(page, "  {rule}")?;
    let agree = books.disagreements.is_empty();
    if agree {
        let events = books.rows.len();
        let effects: u64 = books.rows.iter().map(|row| row.effects).sum();
        let verdict = format!("{events} events, {effects} effects");
        writeln!(page, "  The receiver's file and the gate's history agree: {}.", bright.on(&verdict))?;
        writeln!(page, "  Nothing lost, nothing doubled, in {seconds:.1} s.")?;
    } else {
        writeln!(page, "  {}", bright.on("NOT AS IT MUST BE"))?;
        books.disagreements.iter().try_for_each(|what| writeln!(page, "  - {what}"))?;
    }
    for note in &books.notes {
        writeln!(page, "\n  Note. {note}.")?;
    }
    writeln!(page, "\n  sent, acked         deliveries, and the 200s for them: the sender's file")?;
    writeln!(page, "  attempts            calls, or runs allowed to a caller: the gate's history")?;
    writeln!(page, "  requests, effects   what came, and what it counted: the receiver's file")?;
    if agree { writeln!(page, "\n  Next: oncegate serve") } else { Ok(()) }
}

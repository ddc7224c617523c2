//! Kills per window, and what became of the events that were on their way.

use std::collections::BTreeMap;
use std::fmt::Write;

/// One window's line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) kills: u64,
    pub(crate) events: u64,
    /// Counted by the receivers.
    pub(crate) effects: u64,
    /// Shown to a person with an unknown outcome, whether or not it happened.
    pub(crate) asked: u64,
    pub(crate) doubled: u64,
    pub(crate) lost: u64,
}

/// All windows, in the order in which they were first met.
#[derive(Debug, Default)]
pub(crate) struct Report(pub(crate) BTreeMap<(usize, &'static str), Line>);

/// The order of the lines: an event's way through the gate, then what comes from outside.
const ORDER: [&str; 15] = [
    "admit.before_commit",
    "admit.committed",
    "admit.acknowledging",
    "run.before_commit",
    "run.committed",
    "step.before_commit",
    "step.written",
    "receiver_holds",
    "step.answered",
    "answer.before_commit",
    "answer.committed",
    "done.before_commit",
    "done.committed",
    "random",
    "acknowledged_5ms",
];

impl Report {
    pub(crate) fn line(&mut self, window: &'static str) -> &mut Line {
        let place = ORDER.iter().position(|name| *name == window).unwrap_or(ORDER.len());
        self.0.entry((place, window)).or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for ((_, window), line) in &other.0 {
            let sum = self.line(window);
            sum.kills += line.kills;
            sum.events += line.events;
            sum.effects += line.effects;
            sum.asked += line.asked;
            sum.doubled += line.doubled;
            sum.lost += line.lost;
        }
    }

    pub(crate) fn total(&self) -> Line {
        let mut total = Self::default();
        for line in self.0.values() {
            let mut one = Self::default();
            *one.line("all") = *line;
            total.add(&one);
        }
        *total.line("all")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = String::new();
        let named = self.0.iter().map(|((_, window), line)| (*window, *line));
        for (window, line) in named.chain([("all", self.total())]) {
            let Line { kills, events, effects, asked, doubled, lost } = line;
            writeln!(
                rows,
                "{window:<20} | {kills:>5} | {events:>6} | {effects:>7} | {asked:>11} | {doubled:>7} | {lost:>4}"
            )?;
        }
        writeln!(f, "window               | kills | events | effects | to a person | doubled | lost")?;
        write!(f, "{rows}")
    }
}

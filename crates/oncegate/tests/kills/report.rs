//! Kills per window, and what became of the events that were on their way.

use std::collections::BTreeMap;
use std::fmt::Write;

use oncegate_store::failpoint::PLACES;

/// One window's line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) kills: u64,
    /// Those of them at whose moment some event was accepted and not finished.
    pub(crate) in_flight: u64,
    pub(crate) events: u64,
    /// Effects that were meant.
    pub(crate) meant: u64,
    /// Effects that the receivers counted.
    pub(crate) effects: u64,
    /// Events that came before a person.
    pub(crate) asked: u64,
    pub(crate) doubled: u64,
    pub(crate) lost: u64,
}

/// All windows, in the order of an event's way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report(BTreeMap<(usize, &'static str), Line>);

/// What is no failpoint: where the kill comes from outside.
pub(crate) const STARTING: &str = "starting";
pub(crate) const HOLDS: &str = "receiver_holds";
pub(crate) const RANDOM: &str = "random";
pub(crate) const ACKNOWLEDGED: &str = "acknowledged_5ms";

/// The order of the lines: an event's way through the gate, then what comes from outside.
pub(crate) fn windows() -> impl Iterator<Item = &'static str> {
    PLACES.into_iter().chain([HOLDS, STARTING, RANDOM, ACKNOWLEDGED])
}

impl Report {
    pub(crate) fn line(&mut self, window: &'static str) -> &mut Line {
        let place = windows().position(|name| name == window).unwrap_or(usize::MAX);
        self.0.entry((place, window)).or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for ((_, window), line) in &other.0 {
            let sum = self.line(window);
            sum.kills += line.kills;
            sum.in_flight += line.in_flight;
            sum.events += line.events;
            sum.meant += line.meant;
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

/// As a table of Markdown, so that it can be kept.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = String::new();
        let named = self.0.iter().map(|((_, window), line)| (*window, *line));
        for (window, line) in named.chain([("all", self.total())]) {
            let Line { kills, in_flight, events, meant, effects, asked, doubled, lost } = line;
            writeln!(
                rows,
                "| {window:<20} | {kills:>6} | {in_flight:>9} | {events:>6} | {meant:>7} | {effects:>7} | \
                 {asked:>11} | {doubled:>7} | {lost:>4} |"
            )?;
        }
        writeln!(
            f,
            "| window               |  kills | in flight | events |   meant | effects | to a person | doubled | lost |"
        )?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")?;
        write!(f, "{rows}")
    }
}

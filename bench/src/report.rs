//! The figures as a page of documentation has them.

use std::fmt::Write;
use std::path::Path;

use crate::rows::{BYTES_MOST, P99_MOST, Results, Row, WANTED, Wanted, p50, p99, rate};
use crate::seed::Size;

/// What stands between which marks of a page.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Claims,
    Flows,
}

impl Part {
    const fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Claims => ("<!-- made by the benchmark: begin -->", "<!-- made by the benchmark: end -->"),
            Self::Flows => (
                "<!-- made by the benchmark of flows: begin -->",
                "<!-- made by the benchmark of flows: end -->",
            ),
        }
    }
}

/// The tables in Markdown; `how` says with what they were made.
pub(crate) fn tables(results: &Results, existing: u64, size: Option<Size>, how: &str) -> String {
    let mut text =
        format!("{how}\n\n| what | per second | p50 ms | p99 ms |\n| --- | ---: | ---: | ---: |\n");
    for row in Row::ALL {
        let what = row.what(existing);
        // Writing to a String cannot fail, here and below.
        let _ = match (results.median(row, rate), results.median(row, p50), results.median(row, p99)) {
            (Some(rate), Some(p50), Some(p99)) => {
                writeln!(text, "| {what} | {rate:.0} | {p50:.2} | {p99:.2} |")
            }
            _ => {
                let why = results.missing(row).unwrap_or_default();
                writeln!(text, "| {what} | not measured: {why} | | |")
            }
        };
    }
    text.push_str("\n| wanted | at least | stretch | measured (least to most) | |\n| --- | ---: | ---: | ---: | --- |\n");
    for Wanted { of, to, least, stretch } in WANTED {
        let what = format!("{} / {}", of.what(existing), to.what(existing));
        let stretch_told = stretch.map(|s| format!("{s:.2}")).unwrap_or_default();
        let (measured, fate) = match results.ratio(of, to, rate) {
            None => ("not measured".to_owned(), ""),
            Some([low, middle, high]) => (
                format!("{middle:.2} ({low:.2} to {high:.2})"),
                match middle {
                    _ if stretch.is_some_and(|s| middle >= s) => "stretch met",
                    _ if middle >= least => "met",
                    _ => "missed",
                },
            ),
        };
        let _ = writeln!(text, "| {what} | {least:.2} | {stretch_told} | {measured} | {fate} |");
    }
    if let Some([low, middle, high]) = results.ratio(Row::Claims, Row::Empty, p99) {
        let fate = if middle <= P99_MOST { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "| p99 of claims / empty handler, at most | {P99_MOST:.2} | | {middle:.2} ({low:.2} to {high:.2}) | {fate} |"
        );
    }
    if let Some(Size { claims, bytes_each }) = size {
        let fate = if bytes_each <= BYTES_MOST { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "| bytes a done claim, all tables and indexes, at most | {BYTES_MOST:.0} | | {bytes_each:.0} (of {claims}) | {fate} |"
        );
    }
    text
}

/// Puts the tables between the marks of a page.
pub(crate) fn write(page: &Path, part: Part, tables: &str) -> Result<(), String> {
    let (begins, ends) = part.marks();
    let text = std::fs::read_to_string(page).map_err(|e| format!("{}: {e}", page.display()))?;
    let marks = text.find(begins).zip(text.find(ends)).filter(|(begin, end)| begin < end);
    let (begin, end) =
        marks.ok_or_else(|| format!("{} lacks the line {begins} or {ends}", page.display()))?;
    let written = format!("{}{begins}\n\n{}\n\n{}", &text[..begin], tables.trim_end(), &text[end..]);
    std::fs::write(page, written).map_err(|e| format!("{}: {e}", page.display()))
}

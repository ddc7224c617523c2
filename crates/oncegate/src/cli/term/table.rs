//! Tables without lines: columns as wide as their texts, shrunk until they fit.

use super::text::{cut, cut_middle, width};
use super::{Screen, Style};

/// What a column may do if there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Shrink {
    /// Stays whole.
    Never,
    /// Loses its end.
    End,
    /// Loses its middle.
    Middle,
}

/// A column's head and manners.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column {
    pub(in crate::cli) title: &'static str,
    pub(in crate::cli) shrink: Shrink,
    /// Numbers and ages stand at the right.
    pub(in crate::cli) right: bool,
}

impl Column {
    pub(in crate::cli) const fn new(title: &'static str, shrink: Shrink) -> Self {
        Self { title, shrink, right: false }
    }

    pub(in crate::cli) const fn right(title: &'static str) -> Self {
        Self { title, shrink: Shrink::Never, right: true }
    }
}

/// One cell; its text is clean already.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(in crate::cli) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Style::Plain, text)
    }
}

const MARGIN: &str = "  ";
const GAP: &str = "  ";
/// A column that shrinks keeps so many columns, or its title's.
const NARROWEST: usize = 6;

/// The table as text, a line per row. Columns in which no row says anything are left out.
pub(in crate::cli) fn table(screen: &Screen, columns: &[Column], rows: &[Vec<Cell>]) -> String {
    let said = |i: usize| rows.iter().any(|row| row.get(i).is_some_and(|cell| !cell.text.is_empty()));
    let shown: Vec<usize> = (0..columns.len()).filter(|i| said(*i)).collect();
    let widths = widths(screen.width, columns, rows, &shown);
    let mut page = String::new();
    let heads: Vec<Cell> = columns.iter().map(|c| Cell::new(Style::Dim, c.title)).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = MARGIN.to_owned();
        for (at, (i, room)) in shown.iter().zip(&widths).enumerate() {
            let Some(cell) = row.get(*i) else { continue };
            let text = match columns[*i].shrink {
                Shrink::Middle => cut_middle(&cell.text, *room),
                Shrink::Never | Shrink::End => cut(&cell.text, *room),
            };
            let blank = " ".repeat(room.saturating_sub(width(&text)));
            let last = at + 1 == shown.len();
            let painted = screen.paint(cell.style, &text);
            match columns[*i].right {
                true => line.extend([blank.as_str(), painted.as_str()]),
                false => line.extend([painted.as_str(), if last { "" } else { &blank }]),
            }
            line.push_str(if last { "" } else { GAP });
        }
        page.push_str(line.trim_end());
        page.push('\n');
    }
    page
}

fn widths(screen: Option<usize>, columns: &[Column], rows: &[Vec<Cell>], shown: &[usize]) -> Vec<usize> {
    let natural = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| width(&cell.text));
        cells.chain([width(columns[i].title)]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = shown.iter().map(|i| natural(*i)).collect();
    let Some(screen) = screen else { return widths };
    let gaps = MARGIN.len() + GAP.len() * shown.len().saturating_sub(1);
    let room = screen.saturating_sub(gaps);
    while widths.iter().sum::<usize>() > room {
        let widest = (0..shown.len())
            .filter(|at| columns[shown[*at]].shrink != Shrink::Never)
            .filter(|at| widths[*at] > NARROWEST.max(width(columns[shown[*at]].title)))
            .max_by_key(|at| widths[*at]);
        match widest {
            Some(at) => widths[at] -= 1,
            None => break,
        }
    }
    widths
}

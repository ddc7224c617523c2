//! What people see: how wide it may be, whether it may be coloured, and words for ages.

pub(super) mod age;
pub(super) mod table;
pub(super) mod text;

use std::io::{IsTerminal, Write};

use crate::config::{Environment, ProcessEnvironment};

/// Where the text goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Columns; `None` if nobody's window has to be kept to, as in a pipe.
    pub(super) width: Option<usize>,
    /// Lines of the window.
    pub(super) height: Option<usize>,
    colour: bool,
    pub(super) terminal: bool,
}

impl Screen {
    /// `COLUMNS` comes before the window's own width; `NO_COLOR` and `TERM=dumb` switch colours off.
    pub(super) fn stdout() -> Self {
        let set = |name| ProcessEnvironment.get(name).filter(|value| !value.is_empty());
        let number = |name| set(name).and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
        let terminal = std::io::stdout().is_terminal();
        let window = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
        let sized = |n: u16| Some(usize::from(n)).filter(|n| *n > 0);
        Self {
            width: number("COLUMNS").or_else(|| window.and_then(|w| sized(w.ws_col))),
            height: number("LINES").or_else(|| window.and_then(|w| sized(w.ws_row))),
            colour: terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb"),
            terminal,
        }
    }

    /// The same with fewer columns, for what is set in.
    pub(super) fn narrower(self, by: usize) -> Self {
        Self { width: self.width.map(|width| width.saturating_sub(by)), ..self }
    }

    /// Columns to lay a page out for, where it needs some number.
    pub(super) fn columns(&self) -> usize {
        self.width.unwrap_or(100)
    }

    /// Text in a style. It says nothing that the words do not say.
    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
            Style::Cyan => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// How text looks on a terminal that has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Plain,
    Dim,
    Bold,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Style {
    /// For a `processing_state`.
    pub(super) fn of_state(state: &str) -> Self {
        match state {
            "error" => Self::Red,
            "processing" => Self::Yellow,
            "done" => Self::Green,
            _ => Self::Plain,
        }
    }
}

/// Writes to stdout. A closed pipe ends quietly, as it does for other tools.
pub(super) fn write(text: &str) {
    write_whole(text);
}

/// The same, and whether anybody still reads.
pub(super) fn write_whole(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Writes to stderr as it is: what is asked of who sits there, and what goes away again.
pub(super) fn aside(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Tells something on stderr while a command goes on.
#[expect(clippy::print_stderr, reason = "messages go to stderr, so that stdout stays what was asked for")]
pub(super) fn tell(message: impl std::fmt::Display) {
    eprintln!("oncegate: {message}");
}

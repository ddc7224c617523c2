//! `--watch`: one page, shown anew until somebody ends it. A gate that is away for a moment does not end it.

use std::time::Duration;

use super::super::ending::{Exit, Failure};
use super::super::term::text::clean;
use super::super::term::{self, Screen, Style};

/// Shows what `page` makes, every so often. On a terminal each page takes the place of the last one, cut to the
/// window; elsewhere they follow each other.
pub(super) async fn run(
    every: Duration,
    page: impl AsyncFn(&Screen) -> Result<String, Failure>,
) -> Result<u8, Failure> {
    loop {
        // The window may have another size by now.
        let screen = Screen::stdout();
        let shown = match page(&screen).await {
            Ok(shown) => shown,
            Err(failure) if failure.exit == Exit::Unreachable => {
                let again = format!("  Trying again every {} s.", every.as_secs());
                let first = failure.message.lines().next().unwrap_or_default();
                format!(
                    "\n  {}\n{}\n",
                    screen.paint(Style::Red, &clean(first)),
                    screen.paint(Style::Dim, &again)
                )
            }
            Err(failure) => return Err(failure),
        };
        match screen.terminal {
            // Home, the page with the rest of each old line cleared, then everything below: nothing flickers.
            true => term::write(&format!("\x1b[H{}\x1b[J", fit(&shown, &screen).replace('\n', "\x1b[K\n"))),
            false if !term::write_whole(&shown) => return Ok(0),
            false => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// As much as the window holds; what is left out is said.
fn fit(page: &str, screen: &Screen) -> String {
    let Some(height) = screen.height.filter(|height| *height > 3) else { return page.to_owned() };
    let lines: Vec<&str> = page.lines().collect();
    if lines.len() < height {
        return page.to_owned();
    }
    let kept = height - 2;
    let left = format!("  … {} more lines: a taller window, or --limit", lines.len() - kept);
    format!("{}\n{}\n", lines[..kept].join("\n"), screen.paint(Style::Dim, &left))
}

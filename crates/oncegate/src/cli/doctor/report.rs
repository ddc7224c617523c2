//! What a check found, for people and for programs.

use std::fmt::Write;

use serde_json::json;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Ok,
    /// It works; somebody should look at it.
    Warn,
    /// Effects may be lost or doubled, or the gate cannot work.
    Problem,
    /// There is nothing to check, or no way to.
    Skipped,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Problem => "problem",
            Self::Skipped => "skipped",
        }
    }

    /// SGR parameters (ECMA-48): green, yellow, bold red, dim.
    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Warn => "33",
            Self::Problem => "1;31",
            Self::Skipped => "2",
        }
    }
}

/// One check's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) mark: Mark,
    pub(super) said: String,
    /// How to mend it.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, said: impl Into<String>) -> Self {
        Self { check, mark: Mark::Ok, said: said.into(), mend: None }
    }

    pub(super) fn skipped(check: &'static str, said: impl Into<String>) -> Self {
        Self { check, mark: Mark::Skipped, said: said.into(), mend: None }
    }

    pub(super) fn warn(check: &'static str, said: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, mark: Mark::Warn, said: said.into(), mend: Some(mend.into()) }
    }

    pub(super) fn problem(check: &'static str, said: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, mark: Mark::Problem, said: said.into(), mend: Some(mend.into()) }
    }
}

pub(super) fn text(findings: &[Finding], coloured: bool) -> String {
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or_default();
    let mut text = String::from("\n");
    for Finding { check, mark, said, mend } in findings {
        let word = format!("{:<7}", mark.word());
        let word = match coloured {
            true => format!("\x1b[{}m{word}\x1b[0m", mark.colour()),
            false => word,
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {word}  {check:<width$}  {said}");
        if let Some(mend) = mend {
            let _ = writeln!(text, "  {:7}  {:width$}  → {mend}", "", "");
        }
    }
    let count = |mark| findings.iter().filter(|f| f.mark == mark).count();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let _ = write!(
        text,
        "\n  {}: {} ok, {}, {}, {} skipped",
        plural(findings.len(), "check"),
        count(Mark::Ok),
        plural(count(Mark::Warn), "warning"),
        plural(count(Mark::Problem), "problem"),
        count(Mark::Skipped),
    );
    text
}

pub(super) fn json(findings: &[Finding]) -> String {
    let checks: Vec<_> = findings
        .iter()
        .map(|f| json!({ "check": f.check, "mark": f.mark.word(), "said": f.said, "mend": f.mend }))
        .collect();
    let problems = findings.iter().filter(|f| f.mark == Mark::Problem).count();
    json!({ "version": env!("CARGO_PKG_VERSION"), "problems": problems, "checks": checks }).to_string()
}

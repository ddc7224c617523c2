//! The program's verbs as people and scripts use them: the real binary against a real gate.
#![expect(clippy::disallowed_methods, reason = "commands are given files and an environment")]

mod acting;
mod exits;
mod granting;
mod hostile;
mod keys;
mod many;
mod naming;
mod offline;
mod once;
mod once_away;
mod pages;
mod picking;
mod repeating;

use std::process::{Child, Command, Output, Stdio};

use crate::harness::{ADMIN, Gate};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_oncegate");

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// What stdout says, of a command that must succeed.
    #[track_caller]
    pub(super) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!(self.err, "", "messages come only if there is something to tell");
        self.out
    }

    /// What stderr says, of a command that must fail so.
    #[track_caller]
    pub(super) fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "stdout is for what was asked for");
        assert!(self.err.starts_with("oncegate: ") || self.err.starts_with("error: "), "{}", self.err);
        assert!(!self.err.contains(ADMIN), "a token is shown");
        self.err
    }
}

/// A command with nothing of this machine in its environment but the path. The proxies lead nowhere: a call to one's
/// own machine must not go through them.
pub(super) fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).args(arguments).stdin(Stdio::null());
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command
}

/// A command of somebody who has set up everything: a token, 80 columns.
pub(super) fn command(gate: &Gate, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    command.env("ONCEGATE_URL", gate.api.base()).env("ONCEGATE_TOKEN", ADMIN);
    command.env("USER", "ann").env("COLUMNS", "80");
    command
}

pub(super) fn ended(mut command: Command) -> Ran {
    command.output().unwrap().into()
}

/// Runs a command of a gate to its end.
pub(super) fn run(gate: &Gate, arguments: &[&str]) -> Ran {
    ended(command(gate, arguments))
}

/// Starts a command whose output is read later.
pub(super) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(super) fn wait(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

/// Ids and secrets differ from run to run: 32 hexadecimal digits become `ID`.
pub(super) fn without_ids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len());
        out.push_str(before);
        out.push_str(if end == 32 { "ID" } else { &from[..end] });
        rest = &from[end..];
    }
    out + rest
}

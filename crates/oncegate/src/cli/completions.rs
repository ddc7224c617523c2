//! `oncegate completions`: what a shell needs to complete verbs and flags.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// For which shell.
    shell: Shell,
}

pub(super) fn run(args: &Args, mut program: Command) {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut program, "oncegate", &mut script);
    // A closed pipe ends quietly.
    let _ = std::io::stdout().write_all(&script);
}

//! The program's verbs. What a person reads goes to stdout, what the machine has to tell to stderr.

mod check;
mod demo;
mod doctor;
mod lab;
mod logs;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A self-hosted gate that makes business automations run once.
#[derive(Debug, Parser)]
#[command(name = "oncegate", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gate.
    Serve(serve::Args),
    /// Check a configuration without starting anything.
    Check(check::Args),
    /// Look whether the gate, its disk, its clock and its configuration are well; changes nothing.
    Doctor(doctor::Args),
    /// See one webhook become one effect while the gate is killed under it (a few seconds).
    Demo(demo::Args),
    /// Parts of the demo and of the tests: a receiver that counts, a sender that repeats.
    #[command(hide = true)]
    Lab(lab::Args),
}

/// Runs the program. Exit status 0: done; 1: it failed, stderr says why; 2: the command line is wrong.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&format!("cannot start: {e}")),
    };
    let ended = runtime.block_on(async {
        match cli.verb {
            Verb::Serve(args) => serve::run(args).await,
            Verb::Check(args) => check::run(&args),
            Verb::Doctor(args) => doctor::run(&args).await,
            Verb::Demo(args) => demo::run(args).await,
            Verb::Lab(args) => lab::run(args).await,
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a command that failed")]
fn fail(message: &str) -> ExitCode {
    eprintln!("oncegate: {message}");
    ExitCode::FAILURE
}

/// Prints a line for people. A closed pipe ends quietly, as it does for other tools.
fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

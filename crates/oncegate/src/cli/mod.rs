//! The program's verbs. What a person reads goes to stdout, what the machine has to tell to stderr.

mod backup;
mod check;
mod demo;
mod doctor;
mod lab;
mod logs;
mod restore;
mod serve;
mod upgrade;

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
    /// Copy the store to a file, while it is in use or not.
    Backup(backup::Args),
    /// Make a backup the store again, in recovery: nothing runs until a person ends it.
    Restore(restore::Args),
    /// Look at, or end, the recovery after a restore.
    #[command(subcommand)]
    Recovery(restore::Recovery),
    /// Bring the file of an earlier version to this one's form, after copying it.
    Upgrade(upgrade::Args),
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
        let ended = match cli.verb {
            Verb::Serve(args) => serve::run(args).await,
            Verb::Check(args) => check::run(&args),
            Verb::Backup(args) => backup::run(args).await,
            Verb::Restore(args) => restore::run(args).await,
            Verb::Recovery(verb) => restore::recovery(verb).await,
            Verb::Upgrade(args) => match upgrade::run(args).await {
                (0, told) => {
                    say(told);
                    Ok(())
                }
                (status, told) => return Err((status, told)),
            },
            Verb::Doctor(args) => doctor::run(&args).await,
            Verb::Demo(args) => demo::run(args).await,
            Verb::Lab(args) => lab::run(args).await,
        };
        ended.map_err(|message| (FAILED, message))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, message)) => {
            fail(&message);
            ExitCode::from(status)
        }
    }
}

/// The exit status of what failed; a verb that has others says so in its help.
const FAILED: u8 = 1;

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

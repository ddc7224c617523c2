//! The program's verbs. What a person reads goes to stdout, what the machine has to tell to stderr.

mod backup;
mod check;
mod client;
mod completions;
mod demo;
mod doctor;
mod ending;
mod help;
mod key;
mod lab;
mod logs;
mod moving;
mod restore;
mod secret_text;
mod serve;
mod store_args;
mod term;
mod upgrade;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use ending::{Exit, Failure};

/// A self-hosted gate that makes business automations run once.
#[derive(Debug, Parser)]
#[command(name = "oncegate", version, about, disable_help_subcommand = true, after_help = Exit::TABLE)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gate.
    #[command(after_help = "Example:\n  oncegate serve --config oncegate.yaml --data oncegate-data")]
    Serve(serve::Args),
    /// Check a configuration without starting anything.
    #[command(after_help = "Example:\n  oncegate check --config oncegate.yaml")]
    Check(check::Args),
    /// Copy the store to a file, while it is in use or not.
    #[command(after_help = "Example:\n  oncegate backup --to /mnt/backup/oncegate.db")]
    Backup(backup::Args),
    /// Make a backup the store again; then a person ends the recovery.
    #[command(
        after_help = "Example:\n  oncegate restore backups/oncegate-20260105T030412Z.db --data oncegate-new"
    )]
    Restore(restore::Args),
    /// Look at, or end, the recovery after a restore.
    #[command(after_help = "Example:\n  oncegate recovery end --reason 'looked through the lists'")]
    #[command(subcommand)]
    Recovery(restore::Recovery),
    /// Move an embedded store into an empty PostgreSQL database.
    #[command(
        after_help = "Example:\n  oncegate move --from sqlite:oncegate-data --to file:/etc/oncegate/store"
    )]
    Move(moving::Args),
    /// Bring an earlier version's file to this one's form.
    #[command(after_help = "Example:\n  oncegate upgrade --check")]
    Upgrade(upgrade::Args),
    /// Look whether gate, disk, clock and configuration are well.
    #[command(after_help = "Example:\n  oncegate doctor --config oncegate.yaml")]
    Doctor(doctor::Args),
    #[command(flatten)]
    Client(Box<client::Verb>),
    /// What key a sample would get.
    #[command(after_help = "Example:\n  oncegate key preview --source contact-form sample.json")]
    Key(key::Args),
    /// See one webhook become one effect though the gate is killed.
    #[command(after_help = "Example:\n  oncegate demo")]
    Demo(demo::Args),
    /// Print what a shell needs to complete verbs and flags.
    #[command(
        after_help = "Example:\n  oncegate completions bash > ~/.local/share/bash-completion/completions/oncegate"
    )]
    Completions(completions::Args),
    /// Parts of the demo and of the tests: a receiver that counts, a sender that repeats.
    #[command(hide = true)]
    Lab(lab::Args),
}

/// Runs the program. Its exit status is one of `oncegate --help`, or that of the command it ran.
pub fn main() -> ExitCode {
    let mut command = help::grouped(Cli::command());
    let parsed = Cli::from_arg_matches(&command.get_matches_mut());
    let cli = parsed.unwrap_or_else(|e| e.format(&mut command).exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&Failure::from(format!("cannot start: {e}"))),
    };
    match runtime.block_on(run(cli.verb)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => fail(&failure),
    }
}

async fn run(verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Client(verb) => return client::run(*verb).await,
        Verb::Key(args) => return key::run(args).await,
        Verb::Completions(args) => completions::run(&args, Cli::command()),
        Verb::Serve(args) => serve::run(args).await?,
        Verb::Check(args) => check::run(&args)?,
        Verb::Backup(args) => backup::run(args).await?,
        Verb::Restore(args) => restore::run(args).await?,
        Verb::Recovery(verb) => restore::recovery(verb).await?,
        Verb::Move(args) => moving::run(args).await?,
        Verb::Upgrade(args) => return upgrade::run(args).await,
        Verb::Doctor(args) => doctor::run(&args).await?,
        Verb::Demo(args) => demo::run(args).await?,
        Verb::Lab(args) => lab::run(args).await?,
    }
    Ok(0)
}

#[expect(clippy::print_stderr, reason = "the last word of a command that failed")]
fn fail(failure: &Failure) -> ExitCode {
    eprintln!("oncegate: {}", failure.message);
    ExitCode::from(failure.exit as u8)
}
/// Prints a line for people. A closed pipe ends quietly, as it does for other tools.
fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

//! `oncegate doctor`: is everything well that the gate rests on? Reads and times, changes nothing; works beside a
//! running gate and without one.

mod checks;
mod database;
mod look;
mod public;
mod report;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;

use report::{Finding, Mark};

use super::store_args::StoreArgs;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; without it, `oncegate.yaml` is looked at if it is there.
    #[arg(long, env = "ONCEGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Where the gate answers; if named, it must [default: http://127.0.0.1:7480].
    #[arg(long, env = "ONCEGATE_URL")]
    url: Option<String>,
    /// Also asks whether the gate is reached at its public_url, by its name, over TLS, and whether it is this one.
    /// Stores nothing.
    #[arg(long)]
    public: bool,
    /// One JSON document instead of lines for people.
    #[arg(long)]
    json: bool,
}

/// What a look at the machine and its files found.
struct Seen {
    place: Place,
    /// Whether the machine says that its clock is kept right by somebody; `None` if it cannot be asked.
    synchronised: Option<bool>,
    files: Option<u64>,
    configuration: look::Configuration,
    gate: look::Gate,
    /// Where that was asked for.
    public: Option<public::Public>,
}

/// Where the store lies.
enum Place {
    Directory(Box<look::Directory>),
    Database(database::Seen),
}

/// Every check, in the order in which they are shown.
fn findings(seen: &Seen) -> Vec<Finding> {
    let mut findings = vec![
        checks::gate(&seen.gate),
        checks::configuration(&seen.configuration),
        checks::public_url(&seen.configuration),
    ];
    findings.extend(seen.public.iter().flat_map(public::findings));
    match &seen.place {
        Place::Directory(seen) => findings.extend([
            checks::file_system(&seen.disk),
            checks::space(&seen.disk),
            checks::permissions(&seen.disk),
            checks::sync(&seen.disk),
            checks::durability(&seen.store),
            checks::schema(&seen.store),
            checks::store(&seen.store),
            checks::integrity(&seen.store),
        ]),
        Place::Database(seen) => findings.extend(database::findings(seen)),
    }
    findings.push(checks::clock_source(seen.synchronised));
    if let Place::Directory(seen) = &seen.place {
        findings.extend([checks::clock_and_store(&seen.clock), checks::backup(&seen.backup)]);
    }
    findings.push(checks::open_files(seen.files));
    findings
}

/// Exit status 1 if there is a problem; a warning is none.
pub(super) async fn run(args: &Args) -> Result<(), String> {
    let seen = look::look(args).await?;
    let findings = findings(&seen);
    match args.json {
        true => super::say(report::json(&findings)),
        false => super::say(report::text(&findings, std::io::stdout().is_terminal())),
    }
    match findings.iter().filter(|f| f.mark == Mark::Problem).count() {
        0 => Ok(()),
        1 => Err("one problem".to_owned()),
        n => Err(format!("{n} problems")),
    }
}

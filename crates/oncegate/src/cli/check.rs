//! `oncegate check`: is the configuration right?

use std::path::PathBuf;

use oncegate_core::policy::in_words;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::SecretPlace;
use oncegate_store::clock::{Clock, SystemClock};

use super::term::table::{Cell, Column, Shrink, table};
use super::term::text::clean;
use super::term::{Screen, Style};
use crate::app;
use crate::config::{self, Config, Declared, Polling, ProcessEnvironment, Source, Timed};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(long, env = "ONCEGATE_CONFIG", default_value = "oncegate.yaml")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let config = config::load(&args.config, &ProcessEnvironment).map_err(|e| e.to_string())?;
    app::caller(&config).map_err(|e| format!("{}: {e}", args.config.display()))?;
    super::say(format_args!(
        "{}: fine. {} source(s), {} automation(s){}.",
        args.config.display(),
        config.all().map(Declared::all_sources).sum::<usize>(),
        config.all().map(|d| d.automations.len()).sum::<usize>(),
        match config.workspaces.len() {
            0 => String::new(),
            n => format!(" in {} workspaces", n + 1),
        }
    ));
    let now = SystemClock::new().read().wall;
    for page in [sources(&config), schedules(&config, now), polls(&config)].into_iter().flatten() {
        super::say(format_args!("\n{}", page.trim_end()));
    }
    Ok(())
}

/// What a sender that signs nothing has to put behind the address.
fn shows(source: &Source) -> String {
    match (source.provider.signs(), &source.trust.secret_in) {
        (true, _) | (false, Some(SecretPlace::Header(_))) => String::new(),
        (false, None) => "?k=SECRET".to_owned(),
        (false, Some(SecretPlace::Query(name))) => format!("?{name}=SECRET"),
        (false, Some(SecretPlace::Path)) => "/SECRET".to_owned(),
    }
}

/// What all workspaces declare of one kind, named as in addresses, in that order.
fn named<'a, T: 'a, I: Iterator<Item = (&'a String, &'a T)>>(
    config: &'a Config,
    of: fn(&'a Declared) -> I,
) -> Vec<(String, &'a T)> {
    let others = config.workspaces.iter().flat_map(|(workspace, declared)| {
        of(declared).map(move |(name, one)| (format!("{workspace}/{name}"), one))
    });
    let mut all: Vec<_> = of(&config.default).map(|(name, one)| (name.clone(), one)).chain(others).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// When each schedule runs next.
fn schedules(config: &Config, now: Timestamp) -> Option<String> {
    let row = |(name, timed): (String, &Timed)| {
        let rhythm = &timed.schedule.rhythm;
        let next = rhythm.after(now).take(NEXT).map(|slot| slot.local.replacen('T', " ", 1));
        vec![
            Cell::from(clean(&name)),
            Cell::from(rhythm.to_string()),
            Cell::from(clean(timed.automation.as_str())),
            Cell::from(next.collect::<Vec<_>>().join(", ")),
        ]
    };
    let rows: Vec<Vec<Cell>> =
        named(config, |declared| declared.schedules.iter()).into_iter().map(row).collect();
    let columns = [
        Column::new("SCHEDULE", Shrink::Never),
        Column::new("WHEN", Shrink::End),
        Column::new("RUNS", Shrink::End),
        Column::new("NEXT", Shrink::End),
    ];
    (!rows.is_empty()).then(|| table(&Screen::stdout(), &columns, &rows))
}

/// Whom each poll asks.
fn polls(config: &Config) -> Option<String> {
    let row = |(name, polling): (String, &Polling)| {
        vec![
            Cell::from(clean(&name)),
            Cell::from(clean(&polling.call.shown())),
            Cell::from(in_words(polling.poll.every)),
            Cell::from(clean(polling.source.automation.as_str())),
        ]
    };
    let rows: Vec<Vec<Cell>> = named(config, |declared| declared.polls.iter()).into_iter().map(row).collect();
    let columns = [
        Column::new("POLL", Shrink::Never),
        Column::new("ASKS", Shrink::Middle),
        Column::new("EVERY", Shrink::Never),
        Column::new("RUNS", Shrink::End),
    ];
    (!rows.is_empty()).then(|| table(&Screen::stdout(), &columns, &rows))
}

/// How many of the next slots are told of a schedule.
const NEXT: usize = 3;

/// Where each source is reached, and what proves its senders.
fn sources(config: &Config) -> Option<String> {
    let begins = config.public_url.as_deref().unwrap_or("https://YOUR-HOST");
    let all = named(config, |declared| declared.sources.iter());
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .map(|(name, source)| {
            let (style, proof) = match (source.provider.signs(), &source.trust.secret_in) {
                (true, _) => (Style::Plain, "signed".to_owned()),
                (false, None) => (Style::Yellow, "unsigned: shows its secret".to_owned()),
                (false, Some(place)) => (Style::Yellow, format!("unsigned: shows its secret in {place}")),
            };
            vec![
                Cell::from(clean(&format!("{begins}/in/{name}{}", shows(source)))),
                Cell::from(source.provider.name()),
                Cell::from(clean(source.automation.as_str())),
                Cell::new(style, clean(&proof)),
            ]
        })
        .collect();
    let columns = [
        Column::new("ADDRESS", Shrink::Middle),
        Column::new("PROVIDER", Shrink::Never),
        Column::new("RUNS", Shrink::End),
        Column::new("PROVED BY", Shrink::End),
    ];
    (!rows.is_empty()).then(|| table(&Screen::stdout(), &columns, &rows))
}

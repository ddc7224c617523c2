//! `oncegate check`: is the configuration right?

use std::path::PathBuf;

use oncegate_core::webhook::SecretPlace;

use super::term::table::{Cell, Column, Shrink, table};
use super::term::text::clean;
use super::term::{Screen, Style};
use crate::app;
use crate::config::{self, Config, ProcessEnvironment, Source};

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
        config.all().map(|d| d.sources.len()).sum::<usize>(),
        config.all().map(|d| d.automations.len()).sum::<usize>(),
        match config.workspaces.len() {
            0 => String::new(),
            n => format!(" in {} workspaces", n + 1),
        }
    ));
    if let Some(sources) = sources(&config) {
        super::say(format_args!("\n{}", sources.trim_end()));
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

/// Where each source is reached, and what proves its senders.
fn sources(config: &Config) -> Option<String> {
    let begins = config.public_url.as_deref().unwrap_or("https://YOUR-HOST");
    let others = config.workspaces.iter().flat_map(|(workspace, declared)| {
        declared.sources.iter().map(move |(name, source)| (format!("{workspace}/{name}"), source))
    });
    let mut all: Vec<(String, &Source)> =
        config.default.sources.iter().map(|(name, source)| (name.clone(), source)).chain(others).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
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

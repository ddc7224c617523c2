//! The log: to stderr, as text or as JSON, and without what it is about. Nobody's keys, records, notes or payloads are
//! in it, nor tokens; what happened to a claim is in its history.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For collectors: one object a line.
    Json,
}

/// Begins to log, for the whole process.
///
/// # Errors
/// The filter cannot be read.
pub(super) fn start(filter: &str, format: Format) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("--log: {e}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
    // The message of a panic may quote a key or a payload: its place must do.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a fault in oncegate; please report it with this place and the version");
    }));
    Ok(())
}

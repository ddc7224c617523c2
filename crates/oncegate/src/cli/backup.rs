//! `oncegate backup`: one consistent copy of the store, whether or not a gate runs on it.

use std::path::PathBuf;

use oncegate_store::clock::{Clock, SystemClock};
use oncegate_store::sqlite::{BackupDir, Source, back_up};

use super::store_args::StoreArgs;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The file to write, which must not be there yet [default: a new one in DATA/backups].
    #[arg(long)]
    to: Option<PathBuf>,
}

pub(super) async fn run(args: Args) -> Result<(), String> {
    let now = SystemClock::new().read().wall;
    let data = args.store.directory("back it up with pg_dump, or your provider's backups")?;
    let target = args.to.unwrap_or_else(|| BackupDir::of_data(&data).next(now));
    let source = Source::of_data(&data);
    // Only read, by a connection of its own: a gate that runs on it is not in the way.
    let made = tokio::task::spawn_blocking(move || back_up(&source, &target, now)).await;
    let made = made.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    super::say(format_args!(
        "{}: {} claims, {} bytes, checked; it holds payloads and the store's secret, keep it like a password file",
        made.path.display(),
        made.claims,
        made.bytes
    ));
    Ok(())
}

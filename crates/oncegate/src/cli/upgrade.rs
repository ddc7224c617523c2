//! `oncegate upgrade`: what this version would change in a store's file, and changing it.

use oncegate_store::StoreError;
use oncegate_store::clock::{Clock, SystemClock};
use oncegate_store::sqlite::{self, Schema};

use super::ending::{Exit, Failure};
use super::store_args::StoreArgs;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Only say what would be done, and change nothing; a gate may be running. Exit status 0: nothing to do;
    /// 3: an upgrade would be made; 4: there is no store; 5: a newer version wrote it; 1: it is damaged, or there is no
    /// room for the copy.
    #[arg(long)]
    check: bool,
}

/// There is something to do; the answer of a command that was asked, not its failure.
const WOULD_UPGRADE: u8 = 3;

/// The exit status.
pub(super) async fn run(args: Args) -> Result<u8, Failure> {
    let now = SystemClock::new().read().wall;
    let instead = "the first node of a newer version brings it up to date as it starts; `oncegate doctor` says how it \
                   stands";
    let data = args.store.directory(instead)?;
    let dir = data.clone();
    let looked = tokio::task::spawn_blocking(move || match args.check {
        true => sqlite::check(&dir),
        false => sqlite::upgrade(&dir, true, now),
    });
    match looked.await {
        Ok(Ok(Some(schema))) => told(&schema, args.check),
        Ok(Ok(None)) => {
            let message = format!("{}: there is no store; `serve` makes one", data.display());
            Err(Failure::new(Exit::NotFound, message))
        }
        Ok(Err(error @ StoreError::Newer { .. })) => Err(Failure::new(Exit::Refused, error.to_string())),
        Ok(Err(error)) => Err(error.to_string().into()),
        Err(error) => Err(error.to_string().into()),
    }
}

fn told(schema: &Schema, check: bool) -> Result<u8, Failure> {
    let Schema { found, known, .. } = schema;
    let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let (status, told) = match (schema.needs_upgrade(), check) {
        (false, _) => (0, format!("schema {found}, which is this version's; whole; nothing to do")),
        (true, false) => (0, format!("upgraded from schema {found} to {known}; a copy lies in `backups`")),
        (true, true) => {
            let free = schema.free.map(|free| format!(", {} MiB are", mib(free))).unwrap_or_default();
            let text = format!(
                "schema {found}, this version knows {known}: whole; it would be copied and then upgraded at the next \
                 start, or by `oncegate upgrade`; {} MiB must be free{free}",
                mib(schema.needed())
            );
            if !schema.has_room() {
                return Err(text.into());
            }
            (WOULD_UPGRADE, text)
        }
    };
    super::say(told);
    Ok(status)
}

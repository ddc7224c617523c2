//! `oncegate restore` and `oncegate recovery`: a backup becomes a store in recovery, and a person ends it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use oncegate_runner::book::Book;
use oncegate_runner::entropy;
use oncegate_store::clock::{Clock, SystemClock};
use oncegate_store::postgres;
use oncegate_store::sqlite::{self, Options, SqliteStore};
use oncegate_store::{Store, StoreError};

use super::store_args::StoreArgs;
use crate::place::StoreUrl;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The backup.
    backup: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Set the store that is there aside, into a folder beside it. Nothing is deleted.
    #[arg(long)]
    replace: bool,
    /// Accept a data directory that does not survive a restart of the machine or container.
    #[arg(long, env = "ONCEGATE_EPHEMERAL")]
    ephemeral: bool,
}

pub(super) async fn run(args: Args) -> Result<(), String> {
    let now = SystemClock::new().read().wall;
    let data =
        args.store.directory("restore the database by its own means, pg_restore or your provider's")?;
    let dir = data.clone();
    let restored = tokio::task::spawn_blocking(move || {
        sqlite::restore(&args.backup, &dir, args.replace, args.ephemeral, now)
    });
    let restored = restored.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    if let Some(folder) = &restored.set_aside {
        super::say(format_args!("the store that was there lies in {} now", folder.display()));
    }
    let gap = restored.recovery.gap;
    super::say(format_args!(
        "restored from a backup of {}; {} claims were open then and are errors now: outcome unknown\n\
         The store is in recovery: nothing runs until you have looked and said, while no gate runs on it,\n  \
         oncegate recovery end --data {} --reason WHY",
        gap.backup_at,
        restored.recovery.open_claims,
        data.display()
    ));
    Ok(())
}

#[derive(Debug, Subcommand)]
pub(super) enum Recovery {
    /// Put a PostgreSQL store that was brought back by its own means (e.g. pg_restore) into recovery, before the first
    /// node starts on it.
    Begin {
        #[command(flatten)]
        place: Place,
        /// Where it comes from, for the audit.
        #[arg(long, default_value = "a backup of the database")]
        from: String,
        /// The backup was made during a recovery: begin another one.
        #[arg(long)]
        again: bool,
    },
    /// Say whether the store is in recovery.
    Show(Place),
    /// End the recovery: work may run again. What is parked stays parked.
    End {
        #[command(flatten)]
        place: Place,
        /// Why now.
        #[arg(long)]
        reason: String,
        /// Who you are, for the audit.
        #[arg(long, env = "USER", default_value = "somebody")]
        by: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Place {
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn recovery(verb: Recovery) -> Result<(), String> {
    let place = match &verb {
        Recovery::Show(place) | Recovery::End { place, .. } => place,
        Recovery::Begin { place, from, again } => return begin(place, from, *again).await,
    };
    // Its nodes run in a recovery too, and answer.
    let instead =
        "ask one of its nodes: GET /v1/recovery, POST /v1/recovery/end with `reason` and an admin's token";
    let data = place.store.directory(instead)?;
    if !data.is_dir() {
        return Err(format!("{}: there is no such directory", data.display()));
    }
    let options = Options {
        clock: Arc::new(SystemClock::new()),
        policies: Arc::new(Book::default()),
        fresh_secret: entropy::bytes(),
        ephemeral: true,
        max_bytes: None,
    };
    let store = SqliteStore::open(&data, &options).map_err(|e| match e {
        StoreError::Locked { .. } => format!(
            "a gate runs on {}; ask it: GET /v1/recovery, POST /v1/recovery/end with `reason` and an admin's token",
            data.display()
        ),
        other => other.to_string(),
    })?;
    let told = match &verb {
        // Answered above.
        Recovery::Begin { .. } => Ok(String::new()),
        Recovery::Show(_) => store.recovery().await.map(|found| match found {
            Some(found) => format!(
                "in recovery since {}: restored from a backup of {}, {} claims were open then",
                found.gap.restored_at, found.gap.backup_at, found.open_claims
            ),
            None => "not in recovery".to_owned(),
        }),
        Recovery::End { reason, by, .. } => {
            let ended = store.end_recovery(reason.clone(), format!("{by} (command line)")).await;
            ended.map(|ended| match ended {
                true => "the recovery is ended; what is parked stays parked until you run or dismiss it"
                    .to_owned(),
                false => "the store is in no recovery; nothing was changed".to_owned(),
            })
        }
    };
    store.close().await;
    super::say(told.map_err(|e| e.to_string())?);
    Ok(())
}

/// An embedded store is restored by `oncegate restore`, which begins its recovery.
async fn begin(place: &Place, from: &str, again: bool) -> Result<(), String> {
    let StoreUrl::Postgres(url) = place.store.url()? else {
        return Err(
            "an embedded store is put into recovery by `oncegate restore`; name a PostgreSQL store with \
            --store (docs/postgresql.md)"
                .to_owned(),
        );
    };
    let options = postgres::Options {
        url,
        node: "recovery".to_owned(),
        clock: Arc::new(SystemClock::new()),
        simulated: false,
        policies: Arc::new(Book::default()),
        fresh_secret: entropy::bytes(),
        limits: postgres::Limits::default(),
    };
    let recovery = postgres::recover(&options, from, again).await.map_err(|e| e.to_string())?;
    super::say(format!(
        "in recovery: the database is as it was at {}; {} claims were open then and are errors now. Nothing runs until \
         a person ends the recovery: start a node, look through the lists, then POST /v1/recovery/end",
        recovery.gap.backup_at, recovery.open_claims
    ));
    Ok(())
}

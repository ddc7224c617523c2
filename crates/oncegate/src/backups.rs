//! Backups by the running gate: every night by itself, and when an admin asks. A backup that fails is told and tried
//! again; it never stops the gate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncegate_core::time::Timestamp;
use oncegate_store::StoreError;
use oncegate_store::clock::Clock;
use oncegate_store::sqlite::{BackupDir, Made, Source, back_up, newest, nightly_due};
use serde::Serialize;
use tokio::sync::watch;

/// What is declared about backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether the gate makes them by itself.
    pub enabled: bool,
    /// Where to; `None`: `backups` in the data directory.
    pub directory: Option<PathBuf>,
    /// At which time of day, UTC.
    pub at: Duration,
    /// How many are kept, at least 1.
    pub keep: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { enabled: true, directory: None, at: Duration::from_secs(3 * 3600), keep: 14 }
    }
}

/// How backups stand.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Whether the gate makes them by itself.
    pub nightly: bool,
    /// Where they lie.
    pub directory: PathBuf,
    /// When the last good one was begun.
    pub last_success_at: Option<Timestamp>,
    /// When the last try failed, if no good one came since.
    pub last_failure_at: Option<Timestamp>,
    /// Why.
    pub last_failure: Option<String>,
    /// When the next one is due; `None` if the gate makes none by itself.
    pub next_at: Option<Timestamp>,
}

/// Makes backups, one at a time.
#[derive(Debug)]
pub struct Backups {
    source: Source,
    directory: BackupDir,
    plan: Plan,
    clock: Arc<dyn Clock>,
    /// By how much this run of the gate comes later than the declared time.
    spread: Duration,
    /// From which the first night is counted, if there is no backup yet.
    began: Timestamp,
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    last_success: Option<Timestamp>,
    last_failure: Option<(Timestamp, String)>,
}

/// A team's gates, all at one time by default, do not all begin at once.
const SPREAD_MAX: Duration = Duration::from_secs(600);
/// How often the time of day is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// After a failure: a full disk does not get better by trying at once.
const AGAIN: Duration = Duration::from_secs(1800);

impl Backups {
    /// Of the store in `data`, which was made at `began`; `random` spreads the gates of a team.
    pub fn new(data: &Path, plan: Plan, clock: Arc<dyn Clock>, began: Timestamp, random: u32) -> Self {
        let directory = match &plan.directory {
            Some(path) => BackupDir::new(path.clone()),
            None => BackupDir::of_data(data),
        };
        let state = State { last_success: newest(&directory), last_failure: None };
        Self {
            source: Source::of_data(data),
            directory,
            plan,
            clock,
            spread: SPREAD_MAX.mul_f64(f64::from(random) / f64::from(u32::MAX)),
            began,
            state: state.into(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How they stand; `next_at` in the past means that one is being made, or made up for.
    pub fn standing(&self) -> Standing {
        let state = self.state();
        Standing {
            nightly: self.plan.enabled,
            directory: self.directory.path().to_owned(),
            last_success_at: state.last_success,
            last_failure_at: state.last_failure.as_ref().map(|(at, _)| *at),
            last_failure: state.last_failure.as_ref().map(|(_, why)| why.clone()),
            next_at: self.plan.enabled.then(|| self.next(&state)),
        }
    }

    fn next(&self, state: &State) -> Timestamp {
        let now = self.clock.read().wall;
        // One that is dated ahead, by a clock that was wrong, must not keep the next one away for ever.
        let last = state.last_success.unwrap_or(self.began).min(now);
        let next = nightly_due(last, self.plan.at, self.spread);
        match &state.last_failure {
            Some((failed, _)) => next.max(failed.after(AGAIN)),
            None => next,
        }
    }

    /// Makes one, now, and removes what is more than is kept.
    ///
    /// # Errors
    /// There is no room, the database is damaged, or a file cannot be written. What is there stays.
    pub async fn make(self: &Arc<Self>) -> Result<Made, StoreError> {
        let _turn = self.turn.lock().await;
        let now = self.clock.read().wall;
        let this = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || {
            let made = back_up(&this.source, &this.directory.next(now), now)?;
            let gone = this.directory.rotate(this.plan.keep, &made);
            Ok::<_, StoreError>((made, gone.len()))
        });
        let made =
            made.await.unwrap_or_else(|e| Err(StoreError::Database(format!("the backup panicked: {e}"))));
        let mut state = self.state();
        match made {
            Ok((made, gone)) => {
                tracing::info!(path = %made.path.display(), bytes = made.bytes, removed = gone, "a backup was made");
                *state = State { last_success: Some(now), last_failure: None };
                Ok(made)
            }
            Err(error) => {
                tracing::error!(%error, "a backup failed");
                state.last_failure = Some((now, error.to_string()));
                Err(error)
            }
        }
    }

    /// Every night, until it is told to stop.
    pub async fn nightly(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        if !self.plan.enabled {
            return;
        }
        while !*stopped.borrow() {
            let due = self.next(&self.state()) <= self.clock.read().wall;
            if due {
                // It is in the log and in what is shown; the gate goes on.
                let _ = self.make().await;
            }
            tokio::select! {
                () = self.clock.sleep(LOOK) => {}
                _ = stopped.changed() => return,
            }
        }
    }
}

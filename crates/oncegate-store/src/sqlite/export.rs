//! All claims that fit a filter, as they stand at one moment. Each export has a connection of its own: a slow taker
//! keeps nobody else from reading.

use std::path::PathBuf;
use std::sync::Arc;

use oncegate_core::key::Workspace;
use oncegate_core::limits;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use super::store::Shared;
use super::transition::judged;
use super::{readers, row, search};
use crate::StoreError;
use crate::api::ClaimView;
use crate::people::Export;
use crate::search::Filter;

pub(super) struct Exports {
    path: PathBuf,
    free: Arc<Semaphore>,
}

impl Exports {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, free: Arc::new(Semaphore::new(limits::EXPORTS_AT_A_TIME_MAX)) }
    }

    pub(super) fn start(
        &self,
        workspace: Workspace,
        filter: Filter,
        shared: Arc<Shared>,
    ) -> Result<Export, StoreError> {
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| StoreError::Busy)?;
        let mut db = readers::connect(&self.path)?;
        let (rows, taken) = mpsc::channel(limits::EXPORT_ROWS_AHEAD);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = send(&mut db, workspace, &filter, &shared, &rows) {
                let _ = rows.blocking_send(Err(error));
            }
            drop(permit);
        });
        Ok(taken)
    }
}

fn send(
    db: &mut Connection,
    workspace: Workspace,
    filter: &Filter,
    shared: &Shared,
    rows: &mpsc::Sender<Result<ClaimView, StoreError>>,
) -> Result<(), StoreError> {
    let now = shared.now();
    let ends = shared.clock.read().monotonic + limits::EXPORT_TIME_MAX;
    // One statement sees one moment, whatever is written while it is read.
    search::walk(db, workspace, filter, now, (row::COLUMNS, u32::MAX), |r| match row::read(r) {
        // Whoever takes a row now and then would hold that moment, and the log with all that came after it, for ever.
        Ok(_) if shared.clock.read().monotonic >= ends => Err(StoreError::Database(format!(
            "an export was not taken within {} minutes",
            limits::EXPORT_TIME_MAX.as_secs() / 60
        ))),
        Ok(stored) => Ok(rows.blocking_send(Ok(judged(stored, now, shared.boot))).is_ok()),
        Err(error) => {
            tracing::error!(%error, "a claim is left out of an export");
            Ok(true)
        }
    })?;
    Ok(())
}

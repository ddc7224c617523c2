//! All claims that fit a filter, as they stand at one moment. Each export has a connection of its own, beside those of
//! the pool: a slow taker keeps nobody else from reading or writing.

use std::sync::Arc;

use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::time::millis;
use tokio::sync::mpsc::{self, Sender};

use super::connection::{Connection, portal};
use super::error::Fault;
use super::row::{self, judged};
use super::search::Conditions;
use super::store::Shared;
use crate::StoreError;
use crate::api::ClaimView;
use crate::people::Export;
use crate::search::Filter;

pub(super) async fn start(
    shared: &Arc<Shared>,
    workspace: Workspace,
    filter: Filter,
) -> Result<Export, StoreError> {
    let permit = Arc::clone(&shared.exports).try_acquire_owned().map_err(|_| StoreError::Busy)?;
    let db = shared.reader().await.map_err(|fault| shared.failed(fault))?;
    let (rows, taken) = mpsc::channel(limits::EXPORT_ROWS_AHEAD);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if let Err(fault) = send(&shared, db, workspace, &filter, &rows).await {
            let _ = rows.send(Err(shared.failed(fault))).await;
        }
        drop(permit);
    });
    Ok(taken)
}

async fn send(
    shared: &Shared,
    db: Connection,
    workspace: Workspace,
    filter: &Filter,
    rows: &Sender<Result<ClaimView, StoreError>>,
) -> Result<(), Fault> {
    let now = shared.ask_time(&db).await?;
    let ends = shared.clock.read().monotonic + limits::EXPORT_TIME_MAX;
    // The pool makes another one in its place; this one is closed at the end.
    let mut db = db.leave()?;
    let db = db.build_transaction().read_only(true).start().await?;
    // What a single call may take is no measure for this: a reader on a slow line takes minutes, and the largest order
    // by sorting. A reader that takes nothing at all is cut off by the database.
    let longest = millis(limits::EXPORT_TIME_MAX);
    let bounds = format!(
        "SET LOCAL statement_timeout = {longest}; SET LOCAL idle_in_transaction_session_timeout = {longest}"
    );
    db.batch_execute(&bounds).await?;
    let of = Conditions::of(workspace, filter, now);
    // One statement sees one moment, whatever is written while it is read.
    let portal = portal(&db, &of.every(row::COLUMNS, None), &of.params()).await?;
    let ahead = i32::try_from(limits::EXPORT_ROWS_AHEAD).unwrap_or(i32::MAX);
    loop {
        let some = db.query_portal(&portal, ahead).await?;
        for r in &some {
            // Whoever takes a row now and then would hold that moment, and all that was overwritten since, for ever.
            if shared.clock.read().monotonic >= ends {
                return Err(StoreError::Database(format!(
                    "an export was not taken within {} minutes",
                    limits::EXPORT_TIME_MAX.as_secs() / 60
                ))
                .into());
            }
            match row::read(r) {
                Ok(stored) => {
                    if rows.send(Ok(judged(stored, now, shared.boot))).await.is_err() {
                        return Ok(());
                    }
                }
                Err(error) => tracing::error!(?error, "a claim is left out of an export"),
            }
        }
        if some.len() < limits::EXPORT_ROWS_AHEAD {
            return Ok(());
        }
    }
}

//! Whose turn it is on a record.

use async_trait::async_trait;
use oncegate_core::claim::State;
use oncegate_core::key::ClaimRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::{self, Stored};
use super::store::SqliteStore;
use crate::StoreError;
use crate::in_line::{InLine, Neighbour, Neighbours, neighbour};

/// What goes before a claim: earlier claims `e` of the same record that hold it, are queued, or back off. A paused
/// automation keeps its own events waiting, not those of others.
macro_rules! earlier {
    ($workspace:literal, $record:literal, $id:literal) => {
        concat!(
            " FROM claims e JOIN automations ea ON ea.id = e.automation_id WHERE e.workspace_id = ",
            $workspace,
            " AND e.record = ",
            $record,
            " AND e.record IS NOT NULL AND e.flow = 1 AND e.processing_state <> 'done' AND e.id < ",
            $id,
            " AND ea.paused_at IS NULL AND (e.record_hash IS NOT NULL \
             OR (e.due_at IS NOT NULL AND e.processing_state <> 'processing'))"
        )
    };
}
pub(super) use earlier;

#[async_trait]
impl InLine for SqliteStore {
    async fn neighbours(&self, id: ClaimRef) -> Result<Neighbours, StoreError> {
        self.readers.read(move |db| neighbours(db, id)).await
    }
}

pub(super) fn earlier_waits(db: &Connection, stored: &Stored) -> Result<bool, StoreError> {
    let view = &stored.view;
    let Some(record) = &view.claim.record else { return Ok(false) };
    Ok(db
        .prepare_cached(concat!("SELECT EXISTS (SELECT 1", earlier!("?1", "?2", "?3"), ")"))?
        .query_row(params![view.workspace.0, record.as_str(), stored.row], |r| r.get(0))?)
}

pub(super) fn neighbours(db: &Connection, id: ClaimRef) -> Result<Neighbours, StoreError> {
    let Some(stored) = row::load(db, id)? else { return Ok(Neighbours::default()) };
    let claim = &stored.view.claim;
    let (Some(record), false) = (&claim.record, matches!(claim.state, State::Done { .. })) else {
        return Ok(Neighbours::default());
    };
    let params = params![id.workspace.0, record.as_str(), stored.row];
    let read = |r: &Row<'_>| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?));
    let found = |sql| -> Result<Option<Neighbour>, StoreError> {
        let found = db.prepare_cached(sql)?.query_row(params, read).optional()?;
        found.map(|(automation, key)| neighbour(&automation, &key)).transpose()
    };
    let waits = claim.flow && !matches!(claim.state, State::Processing(_));
    let earlier =
        concat!("SELECT ea.name, e.idempotency_key", earlier!("?1", "?2", "?3"), " ORDER BY e.id LIMIT 1");
    Ok(Neighbours {
        waits_for: if waits { found(earlier)? } else { None },
        overtaken_by: found(
            "SELECT a.name, c.idempotency_key FROM claims c JOIN automations a ON a.id = c.automation_id \
             WHERE c.workspace_id = ?1 AND c.record = ?2 AND c.id > ?3 AND c.processing_state = 'done' \
             ORDER BY c.id DESC LIMIT 1",
        )?,
    })
}

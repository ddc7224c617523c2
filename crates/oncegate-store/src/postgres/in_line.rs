//! Whose turn it is on a record.

use async_trait::async_trait;
use oncegate_core::claim::State;
use oncegate_core::key::ClaimRef;

use super::connection::Connection;
use super::context::{Context, read};
use super::error::Fault;
use super::queries::{load, row_opt};
use super::row::Stored;
use super::store::PgStore;
use crate::StoreError;
use crate::in_line::{InLine, Neighbours, neighbour};

/// What goes before a claim: earlier claims `e` of the same record that hold it, are queued, or back off. A paused
/// automation keeps its own events waiting, not those of others.
macro_rules! earlier {
    ($workspace:literal, $record:literal, $position:literal) => {
        concat!(
            " FROM claims e JOIN automations ea ON ea.workspace_id = e.workspace_id AND ea.id = e.automation_id \
             WHERE e.workspace_id = ",
            $workspace,
            " AND e.record = ",
            $record,
            " AND e.record IS NOT NULL AND e.flow AND e.processing_state <> 'done' AND e.position < ",
            $position,
            " AND ea.paused_at IS NULL AND (e.record_hash IS NOT NULL \
             OR (e.due_at IS NOT NULL AND e.processing_state <> 'processing'))"
        )
    };
}
pub(super) use earlier;

#[async_trait]
impl InLine for PgStore {
    async fn neighbours(&self, id: ClaimRef) -> Result<Neighbours, StoreError> {
        read!(self, |db| neighbours(&db, id).await)
    }
}

impl Context<'_> {
    pub(super) async fn earlier_waits(&self, stored: &Stored) -> Result<bool, Fault> {
        let view = &stored.view;
        let Some(record) = &view.claim.record else { return Ok(false) };
        let sql = concat!("SELECT EXISTS (SELECT 1", earlier!("$1", "$2", "$3"), ")");
        Ok(self.query_one(sql, &[&view.workspace.0, &record.as_str(), &view.row]).await?.get(0))
    }
}

async fn neighbours(db: &Connection, id: ClaimRef) -> Result<Neighbours, Fault> {
    let Some(Stored { view, .. }) = load(db, id).await? else { return Ok(Neighbours::default()) };
    let claim = &view.claim;
    let (Some(record), false) = (&claim.record, matches!(claim.state, State::Done { .. })) else {
        return Ok(Neighbours::default());
    };
    let found = async |sql: &str| -> Result<_, Fault> {
        let found = row_opt(db, sql, &[&id.workspace.0, &record.as_str(), &view.row]).await?;
        Ok(found.map(|r| neighbour(r.get(0), r.get(1))).transpose()?)
    };
    let waits = claim.flow && !matches!(claim.state, State::Processing(_));
    let earlier = concat!(
        "SELECT ea.name, e.idempotency_key",
        earlier!("$1", "$2", "$3"),
        " ORDER BY e.position LIMIT 1"
    );
    Ok(Neighbours {
        waits_for: if waits { found(earlier).await? } else { None },
        overtaken_by: found(
            "SELECT a.name, c.idempotency_key FROM claims c \
             JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
             WHERE c.workspace_id = $1 AND c.record = $2 AND c.position > $3 AND c.processing_state = 'done' \
             ORDER BY c.position DESC LIMIT 1",
        )
        .await?,
    })
}

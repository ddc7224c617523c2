//! Everything that is kept of a claim or a delivery, and forgetting it.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::person::Person;
use rusqlite::{Connection, params};

use super::row::{self, Extra};
use super::store::{Shared, SqliteStore};
use super::transition::{Context, judged};
use super::writer::Manner;
use super::{audit, intake, queries};
use crate::StoreError;
use crate::person::{ClaimDossier, Dossier, Forget, Forgotten, Place, Privacy};
use crate::transition::forget;

fn page(
    db: &Connection,
    shared: &Shared,
    workspace: Workspace,
    who: Option<&Person>,
    from: Place,
) -> Result<(Vec<Dossier>, Option<Place>), StoreError> {
    let rows = limits::DOSSIERS_PER_QUERY;
    match from {
        Place::Claims(after) => {
            let (claims, next) = claims(db, workspace, after, rows)?;
            let mut found = vec![];
            for id in claims {
                // One bad row never stops an export; the log names it.
                match claim(db, shared, id) {
                    Ok(Some(dossier)) if who.is_none_or(|who| dossier.names(who)) => {
                        found.push(Dossier::Claim(Box::new(dossier)));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::error!(%error, "a claim is left out of an export"),
                }
            }
            Ok((found, Some(next.map_or(Place::Deliveries(0), Place::Claims))))
        }
        Place::Deliveries(after) => {
            let (mut found, next) = intake::loose_deliveries(db, workspace, after, rows)?;
            found.retain(|row| who.is_none_or(|who| row.names(who)));
            let found = found.into_iter().map(|row| Dossier::Delivery(Box::new(row))).collect();
            Ok((found, next.map(Place::Deliveries)))
        }
    }
}

/// The workspace's claims among the `rows` after one, and the last row looked at.
fn claims(
    db: &Connection,
    workspace: Workspace,
    after: i64,
    rows: u32,
) -> Result<(Vec<ClaimRef>, Option<i64>), StoreError> {
    let mut statement = db
        .prepare_cached("SELECT id, claim_id, workspace_id FROM claims WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    let (mut found, mut last) = (vec![], None);
    let mut looked_at = statement.query(params![after, rows])?;
    while let Some(r) = looked_at.next()? {
        last = Some(r.get(0)?);
        if r.get::<_, i64>(2)? == workspace.0 {
            found.push(ClaimRef { workspace, id: oncegate_core::key::ClaimId(r.get(1)?) });
        }
    }
    Ok((found, last))
}

fn claim(db: &Connection, shared: &Shared, id: ClaimRef) -> Result<Option<ClaimDossier>, StoreError> {
    let (Some(stored), Some(work)) = (row::load(db, id)?, queries::work(db, id)?) else { return Ok(None) };
    Ok(Some(ClaimDossier {
        view: judged(stored, shared.now(), shared.boot),
        work,
        history: queries::history(db, id)?,
        deliveries: intake::whole_deliveries(db, id)?,
    }))
}

impl Context<'_> {
    fn forget(&self, workspace: Workspace, items: &[Forget]) -> Result<Vec<Forgotten>, StoreError> {
        // What goes is overwritten in the file, not only unlinked. Only here: it costs a write per page.
        self.db.pragma_update(None, "secure_delete", true)?;
        let forgotten = items
            .iter()
            .map(|item| match item {
                Forget::Claim(id) => self.forget_claim(*id),
                Forget::Delivery(id) => self.forget_delivery(workspace, *id),
            })
            .collect();
        self.db.pragma_update(None, "secure_delete", false)?;
        forgotten
    }

    /// The row goes with all that hangs on it, and comes back with nothing of it but hash, state and dates: history
    /// cannot be rewritten, only go with its claim.
    fn forget_claim(&self, id: ClaimRef) -> Result<Forgotten, StoreError> {
        let Some(stored) = row::load(self.db, id)? else { return Ok(Forgotten::Nothing) };
        let Some(left) = forget::left_of(stored.view.claim) else { return Ok(Forgotten::Live) };
        let key = forget::key(id.id)?;
        self.db.execute("DELETE FROM deliveries WHERE claim_id = ?1", [&id.id.0[..]])?;
        self.db.execute("DELETE FROM claims WHERE id = ?1", [stored.row])?;
        let place = (id.workspace, stored.automation_id, &key);
        let row = row::insert(self.db, self.secret, place, &left, &Extra::default(), self.now)?;
        // Nothing is left to run it from, neither by our runner nor by a tool that would be called back.
        self.db.execute(
            "UPDATE claims SET payload_removed_at = ?2 WHERE id = ?1",
            params![row, self.now.wall.as_millis()],
        )?;
        self.forget_answers(id)?;
        Ok(Forgotten::Yes)
    }

    /// Answers that are kept for a repeat, and filters that were asked for by a value: a repeat is still known as one,
    /// and claims that are acted on were settled when it began.
    fn forget_answers(&self, id: ClaimRef) -> Result<(), StoreError> {
        let workspace = id.workspace.0;
        self.db.execute(
            "UPDATE api_requests SET answer = NULL WHERE workspace_id = ?1 AND answer IS NOT NULL \
             AND (instr(answer, ?2) > 0 OR instr(answer, '\"filter\"') > 0)",
            params![workspace, id.id.to_string()],
        )?;
        self.db.execute(
            "UPDATE bulk_acts SET filter = json_remove(filter, '$.q', '$.record', '$.run_id') WHERE workspace_id = ?1",
            [workspace],
        )?;
        Ok(())
    }

    fn forget_delivery(&self, workspace: Workspace, id: i64) -> Result<Forgotten, StoreError> {
        // What was told of its sender names somebody, too.
        self.db.execute(
            "DELETE FROM notices WHERE workspace_id = ?2 AND kind = 'sender_limit' AND subject = \
             (SELECT automation FROM deliveries WHERE id = ?1 AND workspace_id = ?2 AND parked = 'sender')",
            params![id, workspace.0],
        )?;
        let gone = self.db.execute(
            "DELETE FROM deliveries WHERE id = ?1 AND workspace_id = ?2",
            params![id, workspace.0],
        )?;
        Ok(if gone > 0 { Forgotten::Yes } else { Forgotten::Nothing })
    }
}

#[async_trait]
impl Privacy for SqliteStore {
    async fn dossiers(
        &self,
        workspace: Workspace,
        who: Option<Arc<Person>>,
        from: Place,
    ) -> Result<(Vec<Dossier>, Option<Place>), StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| page(db, &shared, workspace, who.as_deref(), from)).await
    }

    async fn audit_naming(&self, workspace: Workspace, who: Arc<Person>) -> Result<u64, StoreError> {
        self.readers.read(move |db| audit::naming(db, workspace, &who)).await
    }

    async fn forget(&self, workspace: Workspace, items: Vec<Forget>) -> Result<Vec<Forgotten>, StoreError> {
        self.transact(Manner::TELLING, move |cx| cx.forget(workspace, &items)).await
    }
}

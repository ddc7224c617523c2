//! Everything that is kept of one claim or delivery, for exports; and forgetting it.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::claim::State;
use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::person::Person;
use oncegate_core::time::Now;
use serde_json::Value;

use super::connection::Connection;
use super::context::{Context, transact};
use super::error::Fault;
use super::row::{self, Extra, judged};
use super::store::{PgStore, Shared, read};
use super::{intake, queries};
use crate::StoreError;
use crate::person::{ClaimDossier, Dossier, Forget, Forgotten, Place, Privacy};
use crate::transition::forget;

/// What the database holds at one moment: a dossier is read by several statements, and what one of them no longer sees
/// another must not have seen. Dropped before its end, the connection is closed, and so in no transaction.
struct Moment(Option<Connection>);

impl Moment {
    async fn of(db: Connection) -> Result<Self, Fault> {
        let this = Self(Some(db));
        this.db()?.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        Ok(this)
    }

    fn db(&self) -> Result<&Connection, Fault> {
        self.0.as_ref().ok_or_else(|| StoreError::Closed.into())
    }

    /// Gives the connection back to the pool.
    async fn end(mut self) -> Result<(), Fault> {
        self.db()?.batch_execute("COMMIT").await?;
        drop(self.0.take());
        Ok(())
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if let Some(db) = self.0.take() {
            db.close();
        }
    }
}

async fn page(
    db: &Connection,
    (shared, now): (&Shared, Now),
    workspace: Workspace,
    who: Option<&Person>,
    from: Place,
) -> Result<(Vec<Dossier>, Option<Place>), Fault> {
    let rows = limits::DOSSIERS_PER_QUERY;
    match from {
        Place::Claims(after) => {
            let (claims, next) = claims(db, workspace, after, rows).await?;
            let mut found = vec![];
            for id in claims {
                match claim(db, (shared, now), id).await {
                    Ok(Some(dossier)) if who.is_none_or(|who| dossier.names(who)) => {
                        found.push(Dossier::Claim(Box::new(dossier)));
                    }
                    Ok(_) => {}
                    // One bad row never stops an export; the log names it. A database that is away does.
                    Err(Fault::Failed(error @ StoreError::Inconsistent(_))) => {
                        tracing::error!(%error, "a claim is left out of an export");
                    }
                    Err(fault) => return Err(fault),
                }
            }
            Ok((found, Some(next.map_or(Place::Deliveries(0), Place::Claims))))
        }
        Place::Deliveries(after) => {
            let (mut found, next) = intake::loose_deliveries(db, workspace, after, rows).await?;
            found.retain(|row| who.is_none_or(|who| row.names(who)));
            let found = found.into_iter().map(|row| Dossier::Delivery(Box::new(row))).collect();
            Ok((found, next.map(Place::Deliveries)))
        }
    }
}

/// The workspace's claims after a position, and the last one's.
async fn claims(
    db: &Connection,
    workspace: Workspace,
    after: i64,
    rows: u32,
) -> Result<(Vec<ClaimRef>, Option<i64>), Fault> {
    let found = queries::rows(
        db,
        "SELECT position, claim_id FROM claims WHERE workspace_id = $1 AND position > $2 \
         ORDER BY position LIMIT $3",
        &[&workspace.0, &after, &i64::from(rows)],
    )
    .await?;
    let last = found.last().map(|r| r.get(0));
    let claims = found.iter().map(|r| Ok(ClaimRef { workspace, id: row::claim_id(r.get(1))? }));
    Ok((claims.collect::<Result<_, Fault>>()?, last))
}

async fn claim(
    db: &Connection,
    (shared, now): (&Shared, Now),
    id: ClaimRef,
) -> Result<Option<ClaimDossier>, Fault> {
    let Some(stored) = queries::load(db, id).await? else { return Ok(None) };
    let Some(work) = queries::work(db, id).await? else { return Ok(None) };
    Ok(Some(ClaimDossier {
        view: judged(stored, now, shared.boot),
        work,
        history: queries::history(db, id).await?,
        deliveries: intake::whole_deliveries(db, id).await?,
    }))
}

/// Rows of the audit that are looked at in one go.
const AUDIT_ROWS: i64 = 1_000;

/// Rows of the audit whose texts name somebody.
async fn audit_naming(db: &Connection, workspace: Workspace, who: &Person) -> Result<u64, Fault> {
    let (mut found, mut after) = (0, 0_i64);
    loop {
        let rows = queries::rows(
            db,
            "SELECT id, actor, subject, reason, detail FROM audit WHERE workspace_id = $1 AND id > $2 \
             ORDER BY id LIMIT $3",
            &[&workspace.0, &after, &AUDIT_ROWS],
        )
        .await?;
        for r in &rows {
            let names =
                |column: usize| r.get::<_, Option<&str>>(column).is_some_and(|text| who.is_named_in(text));
            found += u64::from((1..=4).any(names));
        }
        match rows.last() {
            Some(last) => after = last.get(0),
            None => return Ok(found),
        }
    }
}

/// A filter of a bulk act without what was asked for by a value; `None`: there was none.
fn without_values(filter: &str) -> Option<String> {
    let mut filter: Value = serde_json::from_str(filter).ok()?;
    let members = filter.as_object_mut()?;
    let before = members.len();
    members.retain(|name, _| !["q", "record", "run_id"].contains(&name.as_str()));
    (members.len() < before).then(|| filter.to_string())
}

impl Context<'_> {
    async fn forget(&self, workspace: Workspace, items: &[Forget]) -> Result<Vec<Forgotten>, Fault> {
        self.lock_all(workspace, items).await?;
        let mut forgotten = Vec::with_capacity(items.len());
        for item in items {
            forgotten.push(match item {
                Forget::Claim(id) if id.workspace != workspace => Forgotten::Nothing,
                Forget::Claim(id) => self.forget_claim(*id).await?,
                Forget::Delivery(id) => self.forget_delivery(workspace, *id).await?,
            });
        }
        Ok(forgotten)
    }

    /// In the order of their positions, so that two who forget the same do not wait for each other. A claim that is
    /// taken at this moment is waited for, and then is live; one that is asked for waits, and then finds what is left.
    async fn lock_all(&self, workspace: Workspace, items: &[Forget]) -> Result<(), Fault> {
        let ids: Vec<&[u8]> = items
            .iter()
            .filter_map(|item| match item {
                Forget::Claim(id) => Some(&id.id.0[..]),
                Forget::Delivery(_) => None,
            })
            .collect();
        self.query(
            "SELECT 1 FROM claims WHERE workspace_id = $1 AND claim_id = ANY($2::bytea[]) \
             ORDER BY position FOR UPDATE",
            &[&workspace.0, &ids],
        )
        .await?;
        Ok(())
    }

    /// All that hangs on it goes, and of the row nothing stays but hash, state and dates. It is overwritten in its
    /// place, not made anew: its version goes on, so that nobody who read it before can write over it.
    async fn forget_claim(&self, id: ClaimRef) -> Result<Forgotten, Fault> {
        let Some(stored) = self.lock(id).await? else { return Ok(Forgotten::Nothing) };
        let Some(left) = forget::left_of(stored.view.claim.clone()) else { return Ok(Forgotten::Live) };
        let key = forget::key(id.id)?;
        for table in ["deliveries", "payloads", "history", "step_calls", "bulk_rows"] {
            let sql = format!("DELETE FROM {table} WHERE workspace_id = $1 AND claim_id = $2");
            self.execute(&sql, &[&id.workspace.0, &&id.id.0[..]]).await?;
        }
        self.swap(&stored, &left, &Extra::default()).await?;
        // A claim that was done at once keeps what tells its own run from another.
        let run_id = match &left.state {
            State::Done { at_claim: Some(at_claim), .. } => Some(at_claim.run_id.as_str()),
            State::None { .. } | State::Processing(_) | State::Done { .. } | State::Error { .. } => None,
        };
        // That the payload was removed says that nothing is left to run it from, neither for our runner nor for a tool
        // that would be called back.
        self.execute(
            "UPDATE claims SET idempotency_key = $3, run_id = $4, run_url = NULL, result = NULL, tag = NULL, \
             stops = 0, first_stop_at = NULL, last_stop_at = NULL, payload_removed_at = $5 \
             WHERE workspace_id = $1 AND claim_id = $2",
            &[&id.workspace.0, &&id.id.0[..], &key.as_str(), &run_id, &self.now.wall.as_millis()],
        )
        .await?;
        self.forget_answers(id).await?;
        Ok(Forgotten::Yes)
    }

    /// Answers that are kept for a repeat, and filters that were asked for by a value: a repeat is still known as one,
    /// and claims that are acted on were settled when it began.
    async fn forget_answers(&self, id: ClaimRef) -> Result<(), Fault> {
        let workspace = id.workspace.0;
        self.execute(
            "UPDATE api_requests SET answer = NULL WHERE workspace_id = $1 AND answer IS NOT NULL \
             AND (strpos(answer, $2) > 0 OR strpos(answer, '\"filter\"') > 0)",
            &[&workspace, &id.id.to_string()],
        )
        .await?;
        let filters = self
            .query("SELECT id, filter FROM bulk_acts WHERE workspace_id = $1 ORDER BY id", &[&workspace])
            .await?;
        for r in &filters {
            if let Some(filter) = without_values(r.get(1)) {
                self.execute(
                    "UPDATE bulk_acts SET filter = $3 WHERE workspace_id = $1 AND id = $2",
                    &[&workspace, &r.get::<_, i64>(0), &filter],
                )
                .await?;
            }
        }
        Ok(())
    }

    async fn forget_delivery(&self, workspace: Workspace, id: i64) -> Result<Forgotten, Fault> {
        // What was told of its sender names somebody, too.
        let told = "DELETE FROM notices WHERE workspace_id = $1 AND kind = 'sender_limit' AND subject = \
            (SELECT automation FROM deliveries WHERE workspace_id = $1 AND id = $2 AND parked = 'sender')";
        self.execute(told, &[&workspace.0, &id]).await?;
        let gone = self
            .execute("DELETE FROM deliveries WHERE workspace_id = $1 AND id = $2", &[&workspace.0, &id])
            .await?;
        Ok(if gone > 0 { Forgotten::Yes } else { Forgotten::Nothing })
    }
}

#[async_trait]
impl Privacy for PgStore {
    async fn dossiers(
        &self,
        workspace: Workspace,
        who: Option<Arc<Person>>,
        from: Place,
    ) -> Result<(Vec<Dossier>, Option<Place>), StoreError> {
        read!(self, |db| {
            // Before the moment begins: it may have to tick the clock.
            let now = self.shared.ask_time(&db).await?;
            let moment = Moment::of(db).await?;
            let page = page(moment.db()?, (&self.shared, now), workspace, who.as_deref(), from).await?;
            moment.end().await?;
            Ok(page)
        })
    }

    async fn audit_naming(&self, workspace: Workspace, who: Arc<Person>) -> Result<u64, StoreError> {
        read!(self, |db| audit_naming(&db, workspace, &who).await)
    }

    async fn forget(&self, workspace: Workspace, items: Vec<Forget>) -> Result<Vec<Forgotten>, StoreError> {
        transact!(&self.shared, |cx| cx.forget(workspace, &items).await)
    }
}

//! Tools that are called back: whose turn it is, decided by the core, written before the hook is called.

use async_trait::async_trait;
use oncegate_core::claim::Claim;
use oncegate_core::decide::RunReason;
use oncegate_core::key::ClaimRef;
use oncegate_core::nudge::{self, Verdict};
use oncegate_core::time::Now;
use rusqlite::{Connection, OptionalExtension, params};

use super::queries;
use super::row::{self, Extra};
use super::store::SqliteStore;
use super::transition::{Context, Place};
use super::writer::Manner;
use crate::api::Due;
use crate::nudges::{ACTOR, Nudge, Nudged, Nudges, as_its_caller};
use crate::transition::Line;
use crate::{Store, StoreError};

#[async_trait]
impl Nudges for SqliteStore {
    async fn due_nudges(&self, limit: u32) -> Result<Vec<Due>, StoreError> {
        let now = Store::now(self);
        self.readers.read(move |db| due(db, now, limit)).await
    }

    async fn nudge(&self, id: ClaimRef) -> Result<Nudge, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.nudge(id)).await
    }

    async fn nudge_failed(&self, id: ClaimRef, note: String) -> Result<(), StoreError> {
        self.transact(Manner::TELLING, move |cx| cx.nudge_failed(id, &note)).await
    }
}

impl Context<'_> {
    pub(super) fn nudge(&self, id: ClaimRef) -> Result<Nudge, StoreError> {
        let Some(stored) = row::load(self.db, id)? else { return Ok(Nudge::Over) };
        let policy = self.policies.policy(id.workspace, &stored.view.automation);
        let place = Place {
            workspace: id.workspace,
            automation_id: stored.automation_id,
            standing: self.standing(stored.automation_id)?,
            automation: stored.view.automation.clone(),
            key: stored.view.key.clone(),
        };
        let call = as_its_caller(id);
        let (holder, facts) = self.facts((id, &place), Some(&stored), None, &call, &policy)?;
        let loaded = crate::transition::claim::Loaded {
            record_holder: holder.as_ref().map(|s| &s.view.claim),
            ..facts
        };
        let write = |claim: &Claim, line: Option<Line<'static>>| -> Result<(), StoreError> {
            self.update(&stored, claim, &Extra::default(), None, ACTOR)?;
            line.map_or(Ok(()), |line| self.history(stored.row, &line, ACTOR))
        };
        let line = |kind, reason, note| Line { kind, reason, attempt: stored.view.claim.attempt, note };
        match nudge::nudge(&loaded.facts(), &policy, self.now) {
            Verdict::Wait => Ok(Nudge::Wait),
            Verdict::Over(claim) => {
                if let Some(claim) = claim.filter(|claim| *claim != stored.view.claim) {
                    write(&claim, None)?;
                }
                Ok(Nudge::Over)
            }
            Verdict::GiveUp(claim, why) => {
                write(&claim, Some(line("retrigger_given_up", None, Some(why.into()))))?;
                Ok(Nudge::Over)
            }
            Verdict::Send(claim, reason) => {
                write(&claim, Some(line("retriggered", Some(reason.as_str()), None)))?;
                Ok(Nudge::Send(Box::new(self.nudged(
                    id,
                    &place,
                    stored.row,
                    &claim,
                    stored.view.run_url,
                    reason,
                )?)))
            }
        }
    }

    fn nudged(
        &self,
        id: ClaimRef,
        place: &Place,
        row: i64,
        claim: &Claim,
        run_url: Option<String>,
        reason: RunReason,
    ) -> Result<Nudged, StoreError> {
        let payload = self
            .db
            .prepare_cached("SELECT json FROM payloads WHERE claim_row = ?1")?
            .query_row([row], |r| r.get(0))
            .optional()?;
        Ok(Nudged {
            id,
            automation: place.automation.clone(),
            key: place.key.clone(),
            record: claim.record.clone(),
            run_url,
            payload,
            attempt: claim.attempt,
            reason,
            unanswered: claim.nudge.map_or(0, |nudge| nudge.unanswered),
        })
    }

    fn nudge_failed(&self, id: ClaimRef, note: &str) -> Result<(), StoreError> {
        let Some(stored) = row::load(self.db, id)? else { return Ok(()) };
        let note = Some(note.into());
        let line = Line { kind: "retrigger_failed", reason: None, attempt: stored.view.claim.attempt, note };
        self.history(stored.row, &line, ACTOR)
    }
}

pub(super) fn due(db: &Connection, now: Now, limit: u32) -> Result<Vec<Due>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT c.workspace_id, c.claim_id, a.name, 0 FROM claims c JOIN automations a ON a.id = c.automation_id \
         WHERE c.nudge_at <= ?1 AND a.paused_at IS NULL ORDER BY c.nudge_at LIMIT ?2",
    )?;
    queries::due_rows(statement.query(params![now.wall.as_millis(), limit])?)
}

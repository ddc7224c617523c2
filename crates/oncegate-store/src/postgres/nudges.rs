//! Tools that are called back: whose turn it is, decided by the core, written before the hook is called.

use async_trait::async_trait;
use oncegate_core::claim::Claim;
use oncegate_core::decide::RunReason;
use oncegate_core::key::ClaimRef;
use oncegate_core::nudge::{self, Verdict};
use oncegate_core::time::Now;

use super::connection::Connection;
use super::context::{Context, transact};
use super::error::Fault;
use super::queries;
use super::row::{Extra, Stored};
use super::store::{PgStore, read};
use super::transition::Place;
use crate::StoreError;
use crate::api::Due;
use crate::nudges::{ACTOR, Nudge, Nudged, Nudges, as_its_caller};
use crate::transition::Line;
use crate::transition::claim::Loaded;

#[async_trait]
impl Nudges for PgStore {
    async fn due_nudges(&self, limit: u32) -> Result<Vec<Due>, StoreError> {
        if self.shared.is_superseded() {
            return Ok(vec![]);
        }
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            due(&db, now, limit).await
        })
    }

    async fn nudge(&self, id: ClaimRef) -> Result<Nudge, StoreError> {
        if self.shared.is_superseded() {
            return Err(StoreError::Closed);
        }
        transact!(&self.shared, |cx| cx.nudge(id).await)
    }

    async fn nudge_failed(&self, id: ClaimRef, note: String) -> Result<(), StoreError> {
        transact!(&self.shared, |cx| cx.nudge_failed(id, &note).await)
    }
}

impl Context<'_> {
    /// Of nodes that nudge one claim at once, the first puts off its turn, and the others, which wait for its row,
    /// find that it has not come.
    async fn nudge(&self, id: ClaimRef) -> Result<Nudge, Fault> {
        let Some(stored) = self.lock(id).await? else { return Ok(Nudge::Over) };
        let policy = self.shared.policies.policy(id.workspace, &stored.view.automation);
        let place = Place {
            workspace: id.workspace,
            automation_id: stored.automation_id,
            automation: stored.view.automation.clone(),
            key: stored.view.key.clone(),
        };
        let call = as_its_caller(id);
        let (holder, facts) = self.facts((id, &place), Some(&stored), None, &call, &policy).await?;
        let loaded = Loaded { record_holder: holder.as_ref().map(|s| &s.view.claim), ..facts };
        let line = |kind, reason, note| Line { kind, reason, attempt: stored.view.claim.attempt, note };
        match nudge::nudge(&loaded.facts(), &policy, self.now) {
            Verdict::Wait => Ok(Nudge::Wait),
            Verdict::Over(claim) => {
                if let Some(claim) = claim.filter(|claim| *claim != stored.view.claim) {
                    self.write_nudge(&stored, &claim, None).await?;
                }
                Ok(Nudge::Over)
            }
            Verdict::GiveUp(claim, why) => {
                let line = line("retrigger_given_up", None, Some(why.into()));
                self.write_nudge(&stored, &claim, Some(line)).await?;
                Ok(Nudge::Over)
            }
            Verdict::Send(claim, reason) => {
                let line = line("retriggered", Some(reason.as_str()), None);
                self.write_nudge(&stored, &claim, Some(line)).await?;
                let run_url = stored.view.run_url.clone();
                Ok(Nudge::Send(Box::new(self.nudged(id, &place, &claim, run_url, reason).await?)))
            }
        }
    }

    async fn write_nudge(&self, stored: &Stored, claim: &Claim, line: Option<Line<'_>>) -> Result<(), Fault> {
        self.update(stored, claim, &Extra::default(), None, ACTOR).await?;
        match line {
            Some(line) => self.history(stored.view.at(), &line, ACTOR).await,
            None => Ok(()),
        }
    }

    async fn nudged(
        &self,
        id: ClaimRef,
        place: &Place,
        claim: &Claim,
        run_url: Option<String>,
        reason: RunReason,
    ) -> Result<Nudged, Fault> {
        let payload = self
            .query_opt(
                "SELECT json FROM payloads WHERE workspace_id = $1 AND claim_id = $2",
                &[&id.workspace.0, &&id.id.0[..]],
            )
            .await?;
        Ok(Nudged {
            id,
            automation: place.automation.clone(),
            key: place.key.clone(),
            record: claim.record.clone(),
            run_url,
            payload: payload.map(|r| r.get(0)),
            attempt: claim.attempt,
            reason,
            unanswered: claim.nudge.map_or(0, |nudge| nudge.unanswered),
        })
    }

    /// Locked, so that no line is written about a claim that is forgotten, or goes, at this moment.
    async fn nudge_failed(&self, id: ClaimRef, note: &str) -> Result<(), Fault> {
        let Some(stored) = self.lock(id).await? else { return Ok(()) };
        let note = Some(note.into());
        let line = Line { kind: "retrigger_failed", reason: None, attempt: stored.view.claim.attempt, note };
        self.history(id, &line, ACTOR).await
    }
}

/// Candidates, over all workspaces; each is then decided in a transaction of its own workspace.
async fn due(db: &Connection, now: Now, limit: u32) -> Result<Vec<Due>, Fault> {
    let found = queries::rows(
        db,
        "SELECT c.workspace_id, c.claim_id, a.name FROM claims c \
         JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
         WHERE c.nudge_at <= $1 AND c.nudge_at IS NOT NULL AND a.paused_at IS NULL \
         ORDER BY c.nudge_at LIMIT $2",
        &[&now.wall.as_millis(), &i64::from(limit)],
    )
    .await?;
    queries::due_rows(&found)
}

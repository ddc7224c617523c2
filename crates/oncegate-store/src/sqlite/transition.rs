//! The only writer of `processing_state`: loads the facts, asks the core, writes what it says, with history and
//! audit, in the transaction that the writer opened.

use std::sync::Arc;

use oncegate_core::claim::{Boot, Claim, Holder, Lease, State};
use oncegate_core::decide::{
    self, Decision, Facts, FlagSeen, Hold, RecordHolder, Start, StopReason, Verdict,
};
use oncegate_core::finish::{self, Answer, Call};
use oncegate_core::inbox;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, StoreSecret, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Now;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

use super::row::{self, Extra, Stored};
use crate::StoreError;
use crate::api::{ClaimCall, ClaimView, Claimed, FinishCall, PolicyBook, Target};

/// What every transition needs besides the connection.
pub(super) struct Context<'a> {
    pub(super) db: &'a Connection,
    pub(super) secret: &'a StoreSecret,
    pub(super) policies: &'a Arc<dyn PolicyBook>,
    pub(super) now: Now,
    pub(super) boot: Boot,
    pub(super) clock_is_doubtful: bool,
}

/// Where a new claim would go.
struct Place {
    workspace: Workspace,
    automation_id: i64,
    automation: AutomationName,
    key: IdempotencyKey,
}

impl Context<'_> {
    /// Decides a claim. `None`: a claim named by id does not exist.
    pub(super) fn claim(&self, call: &ClaimCall) -> Result<Option<Claimed>, StoreError> {
        let (id, place, stored) = match &call.target {
            Target::Key { workspace, automation, key } => {
                let automation_id = self.automation(*workspace, automation)?;
                let id = self.secret.claim_id(*workspace, automation_id, key);
                let id = ClaimRef { workspace: *workspace, id };
                let stored = row::load(self.db, id)?;
                let (automation, key) = (automation.clone(), key.clone());
                (id, Place { workspace: *workspace, automation_id, automation, key }, stored)
            }
            Target::Id(id) => {
                let Some(stored) = row::load(self.db, *id)? else { return Ok(None) };
                let (automation, key) = (stored.view.automation.clone(), stored.view.key.clone());
                let place =
                    Place { workspace: id.workspace, automation_id: stored.automation_id, automation, key };
                (*id, place, Some(stored))
            }
        };
        let policy = self.policies.policy(place.workspace, &place.automation);
        let facts = self.facts(id, &place, stored.as_ref(), call, policy.loop_limit.within)?;
        let Verdict { decision, mut changes } = decide::decide(&facts, &call.request, &policy, self.now);

        let starts = matches!(decision, Decision::Run(reason) if reason != decide::RunReason::SameRun);
        if let (true, Some(stored), Some(claim)) = (starts, &stored, &mut changes.claim)
            && super::steps::give_up_in_flight(self.db, stored.row, self.now)?
        {
            claim.progress.unknown = true;
        }
        if let Some(taken) = changes.record_taken_from {
            self.take_record(ClaimRef { workspace: place.workspace, id: taken }, &place, &call.actor)?;
        }
        let row = match (&changes.claim, &stored) {
            (Some(claim), Some(stored)) => {
                let extra = Extra { run_url: call.run_url.as_deref(), ..Extra::default() };
                row::update(self.db, self.secret, stored, claim, &extra, self.now)?;
                Some(stored.row)
            }
            (Some(claim), None) => {
                let extra = Extra { run_url: call.run_url.as_deref(), ..Extra::default() };
                let at = (place.workspace, place.automation_id, &place.key);
                Some(row::insert(self.db, self.secret, at, claim, &extra, self.now)?)
            }
            (None, Some(stored)) => Some(stored.row),
            (None, None) => None,
        };
        if let Some(row) = row {
            // A payload is kept with the fingerprint that later ones are compared to, or not at all; that of a call
            // that was stopped for its payload is not the one meant.
            let mismatch = matches!(decision, Decision::Stop { reason: StopReason::PayloadMismatch, .. });
            let meant = changes.claim.is_some() && !mismatch;
            if let (true, Some(payload)) = (meant, &call.payload) {
                let replace = changes.corrected || facts_replaced(&decision);
                self.keep_payload(row, payload, replace)?;
            }
            let attempt =
                changes.claim.as_ref().or(stored.as_ref().map(|s| &s.view.claim)).map_or(0, |c| c.attempt);
            if changes.corrected {
                self.history(row, "reset", Some("correction"), attempt, &call.actor, None)?;
            }
            self.write_decision(row, &decision, changes.claim.is_some(), attempt, stored.as_ref(), call)?;
        }
        if changes.first_run
            && let Some(claim) = &changes.claim
            && let Some(record) = &claim.record
        {
            let hash = self.secret.record_hash(place.workspace, record);
            self.db
                .prepare_cached(
                    "INSERT INTO record_runs (record_hash, automation_id, at, claim_id, attempt) \
                     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    &hash[..],
                    place.automation_id,
                    self.now.wall.as_millis(),
                    &id.id.0[..],
                    claim.attempt
                ])?;
        }
        if changes.went_stale {
            self.db
                .prepare_cached("UPDATE automations SET stale_streak = stale_streak + 1 WHERE id = ?1")?
                .execute([place.automation_id])?;
        }
        self.keep_retention_end(id, &facts, stored.as_ref(), starts)?;
        let view = match row {
            Some(_) => self.view(id)?,
            None => None,
        };
        let token = match (&decision, &view) {
            (Decision::Run(_), Some(view)) => Some(self.secret.token(id, view.claim.fence())),
            _ => None,
        };
        let changed = changes.claim.is_some();
        Ok(Some(Claimed { decision, view, changed, id, token, now: self.now }))
    }

    fn facts(
        &self,
        id: ClaimRef,
        place: &Place,
        stored: Option<&Stored>,
        call: &ClaimCall,
        loop_window: Duration,
    ) -> Result<Facts, StoreError> {
        let claim = stored.map(|s| s.view.claim.clone());
        let record = call.request.record.as_ref().or(claim.as_ref().and_then(|c| c.record.as_ref()));
        let may_be_pruned = claim.as_ref().is_none_or(|c| matches!(c.state, State::None { .. }));
        let pruned_done_at = match may_be_pruned {
            false => None,
            true => self
                .db
                .prepare_cached("SELECT done_at FROM pruned WHERE claim_id = ?1")?
                .query_row([&id.id.0[..]], |r| r.get(0))
                .optional()?
                .map(row::ts),
        };
        let (paused, stale_streak): (bool, u32) = self
            .db
            .prepare_cached("SELECT paused_at IS NOT NULL, stale_streak FROM automations WHERE id = ?1")?
            .query_row([place.automation_id], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let (record_holder, first_runs_of_record) = match record {
            None => (None, 0),
            Some(record) => {
                let hash = self.secret.record_hash(place.workspace, record);
                let until = self.now.wall;
                let window = (until.before(loop_window).as_millis(), until.as_millis());
                (
                    self.record_holder(place.workspace, &hash, id)?,
                    self.db
                        .prepare_cached(
                            "SELECT count(*) FROM record_runs WHERE record_hash = ?1 AND automation_id = ?2 \
                             AND at > ?3 AND at <= ?4",
                        )?
                        .query_row(params![&hash[..], place.automation_id, window.0, window.1], |r| {
                            r.get(0)
                        })?,
                )
            }
        };
        Ok(Facts {
            id: id.id,
            clock_is_doubtful: self.clock_is_doubtful,
            run_id_is_constant: self.run_id_is_constant(place.workspace, call, claim.as_ref())?,
            claim,
            pruned_done_at,
            record_holder,
            hold: paused.then_some(Hold::Paused),
            first_runs_of_record,
            flag: FlagSeen::Clear,
            stale_streak,
            boot: self.boot,
        })
    }

    /// A key that is seen again after its retention is told so when it starts, however long it is held back before.
    fn keep_retention_end(
        &self,
        id: ClaimRef,
        facts: &Facts,
        stored: Option<&Stored>,
        starts: bool,
    ) -> Result<(), StoreError> {
        if starts {
            if facts.pruned_done_at.is_some() {
                self.db.prepare_cached("DELETE FROM pruned WHERE claim_id = ?1")?.execute([&id.id.0[..]])?;
            }
            return Ok(());
        }
        match stored.map(|s| &s.view.claim.state) {
            Some(State::Done { at, retain_until }) if *retain_until <= self.now.wall => {
                super::upkeep::remember_pruned(self.db, &id.id.0, at.as_millis(), self.now)
            }
            _ => Ok(()),
        }
    }

    fn record_holder(
        &self,
        workspace: Workspace,
        record_hash: &[u8; 16],
        except: ClaimRef,
    ) -> Result<Option<RecordHolder>, StoreError> {
        let sql =
            format!("{} WHERE c.workspace_id = ?1 AND c.record_hash = ?2 AND c.claim_id <> ?3", row::SELECT);
        let stored = self
            .db
            .prepare_cached(&sql)?
            .query_row(params![workspace.0, &record_hash[..], &except.id.0[..]], |r| Ok(row::read(r)))
            .optional()?
            .transpose()?;
        Ok(stored.and_then(|s| match s.view.claim.state {
            State::Processing(lease) => Some(RecordHolder { id: s.view.claim.id, lease }),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        }))
    }

    /// Only asked where it can matter: a live claim repeated under its own run id.
    fn run_id_is_constant(
        &self,
        workspace: Workspace,
        call: &ClaimCall,
        claim: Option<&Claim>,
    ) -> Result<bool, StoreError> {
        let (Some(run_id), Some(Claim { state: State::Processing(Lease { .. }), id, .. })) =
            (decide::run_id_of(&call.request), claim)
        else {
            return Ok(false);
        };
        let an_hour_ago = self.now.wall.before(Duration::from_secs(3600)).as_millis();
        Ok(self
            .db
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM claims WHERE run_id = ?1 AND claim_id <> ?2 \
                 AND coalesce(done_at, error_at) < ?3 AND workspace_id = ?4)",
            )?
            .query_row(params![run_id.as_str(), &id.0[..], an_hour_ago, workspace.0], |r| r.get(0))?)
    }

    fn take_record(&self, from: ClaimRef, by: &Place, actor: &str) -> Result<(), StoreError> {
        let Some(stored) = row::load(self.db, from)? else { return Ok(()) };
        let claim = stored.view.claim.clone().with_record_taken();
        row::update(self.db, self.secret, &stored, &claim, &Extra::default(), self.now)?;
        let note = format!("record taken by {} of {} at {}", by.key, by.automation, self.now.wall);
        self.history(stored.row, "record_taken", None, claim.attempt, actor, Some(&note))
    }

    fn write_decision(
        &self,
        row: i64,
        decision: &Decision,
        changed: bool,
        attempt: u32,
        before: Option<&Stored>,
        call: &ClaimCall,
    ) -> Result<(), StoreError> {
        let actor = &call.actor;
        let by_runner = matches!(call.request.start, Start::Now(Holder::Runner { .. }));
        match decision {
            Decision::Run(reason) => self.history(row, "run", Some(reason.as_str()), attempt, actor, None),
            Decision::Queued(reason) if changed => {
                self.history(row, "queued", Some(reason.as_str()), attempt, actor, None)
            }
            // It waits already: this delivery is one too many.
            Decision::Queued(_) => self.count_stop(row, before, StopReason::InProgress, attempt, actor, None),
            // The runner asking again whether its own work may start is no refusal of anybody.
            Decision::Stop { reason, .. } if by_runner && *reason != StopReason::NeedsReview => Ok(()),
            Decision::Stop { .. } if call.again => Ok(()),
            Decision::Stop { reason, note, .. } => {
                self.count_stop(row, before, *reason, attempt, actor, note.as_deref())
            }
        }
    }

    /// Every refusal is counted; so that a loop cannot fill the disk, only the first have a row.
    fn count_stop(
        &self,
        row: i64,
        before: Option<&Stored>,
        reason: StopReason,
        attempt: u32,
        actor: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "UPDATE claims SET stops = stops + 1, first_stop_at = coalesce(first_stop_at, ?2), \
                 last_stop_at = ?2 WHERE id = ?1",
            )?
            .execute(params![row, self.now.wall.as_millis()])?;
        if before.is_none_or(|s| s.view.stops < u64::from(limits::STOP_HISTORY_ROWS_MAX)) {
            self.history(row, "stop", Some(reason.as_str()), attempt, actor, note)?;
        }
        Ok(())
    }

    /// Done, error, heartbeat, defer, hand back.
    pub(super) fn finish(&self, call: &FinishCall) -> Result<Option<(Answer, ClaimView)>, StoreError> {
        let Some(stored) = row::load(self.db, call.id)? else { return Ok(None) };
        let policy = self.policies.policy(call.id.workspace, &stored.view.automation);
        let before = &stored.view.claim;
        let finished = finish::finish(before, call.fence, &call.call, &policy, self.now, call.jitter);
        if let Some(claim) = &finished.claim {
            let extra = Extra { result: call.result.as_deref(), ..Extra::default() };
            row::update(self.db, self.secret, &stored, claim, &extra, self.now)?;
        }
        self.write_finish(&stored, &finished, call)?;
        let view = self.view(call.id)?.ok_or_else(|| gone(call.id))?;
        Ok(Some((finished.answer, view)))
    }

    fn write_finish(
        &self,
        stored: &Stored,
        finished: &finish::Finished,
        call: &FinishCall,
    ) -> Result<(), StoreError> {
        let said = match &call.call {
            Call::Done => "done",
            Call::Error { .. } => "error",
            Call::Heartbeat => "heartbeat",
            Call::Defer { .. } => "defer",
            Call::HandBack => "hand_back",
            Call::HandOver => "hand_over",
        };
        match finished.answer {
            Answer::LostClaim => {
                let note = format!(
                    "{said} with the token of attempt {}, which no longer holds: finished late, check for a double effect",
                    call.fence.attempt
                );
                self.late(stored.row, said, call.fence.attempt, &call.actor, &note)
            }
            // A heartbeat every minute is no event in the life of a claim; the lease shows it.
            Answer::Accepted if call.call == Call::Heartbeat => Ok(()),
            Answer::Accepted => {
                if call.call == Call::Done {
                    self.db
                        .prepare_cached(
                            "UPDATE automations SET stale_streak = 0 WHERE id = ?1 AND stale_streak <> 0",
                        )?
                        .execute([stored.automation_id])?;
                }
                let note = match &call.call {
                    Call::Error { note, .. } | Call::Defer { note, .. } => Some(note.as_str()),
                    Call::Done | Call::Heartbeat | Call::HandBack | Call::HandOver => None,
                };
                let reason = match finished.claim.as_ref().map(|c| &c.state) {
                    Some(State::Error { cause, due, .. }) => Some(match due {
                        Some(_) => "retry_due",
                        None => cause.as_str(),
                    }),
                    _ => None,
                };
                self.history(stored.row, said, reason, call.fence.attempt, &call.actor, note)
            }
            Answer::Unchanged | Answer::AlreadyDone | Answer::NotProcessing => Ok(()),
        }
    }

    /// The number of an automation; a new name makes a new one.
    pub(super) fn automation(&self, workspace: Workspace, name: &AutomationName) -> Result<i64, StoreError> {
        let known = super::queries::automation(self.db, workspace, name)?;
        if let Some(id) = known {
            return Ok(id);
        }
        let made = self.db.execute(
            "INSERT INTO automations (workspace_id, name, created_at) SELECT id, ?2, ?3 FROM workspaces \
             WHERE id = ?1 AND deleted_at IS NULL",
            params![workspace.0, name.as_str(), self.now.wall.as_millis()],
        )?;
        if made == 0 {
            return Err(StoreError::Inconsistent(format!("there is no workspace {}", workspace.0)));
        }
        Ok(self.db.last_insert_rowid())
    }

    pub(super) fn view(&self, id: ClaimRef) -> Result<Option<ClaimView>, StoreError> {
        Ok(row::load(self.db, id)?.map(|s| judged(s, self.now, self.boot)))
    }

    pub(super) fn keep_payload(
        &self,
        row: i64,
        payload: &crate::api::Payload,
        replace: bool,
    ) -> Result<(), StoreError> {
        let sql = match replace {
            true => {
                "INSERT OR REPLACE INTO payloads (claim_row, body, json, stored_at) VALUES (?1, ?2, ?3, ?4)"
            }
            false => {
                "INSERT OR IGNORE INTO payloads (claim_row, body, json, stored_at) VALUES (?1, ?2, ?3, ?4)"
            }
        };
        self.db.prepare_cached(sql)?.execute(params![
            row,
            payload.body,
            payload.json,
            self.now.wall.as_millis()
        ])?;
        Ok(())
    }

    pub(super) fn history(
        &self,
        row: i64,
        kind: &str,
        reason: Option<&str>,
        attempt: u32,
        actor: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO history (claim_row, at, kind, reason, attempt, actor, note) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![row, self.now.wall.as_millis(), kind, reason, attempt, actor, note])?;
        Ok(())
    }

    /// Somebody called who no longer holds the claim. The first ones have a row; a loop cannot fill the disk.
    pub(super) fn late(
        &self,
        row: i64,
        said: &str,
        attempt: u32,
        actor: &str,
        note: &str,
    ) -> Result<(), StoreError> {
        let rows: u32 = self
            .db
            .prepare_cached("SELECT count(*) FROM history WHERE claim_row = ?1 AND kind = 'late'")?
            .query_row([row], |r| r.get(0))?;
        if rows >= limits::STOP_HISTORY_ROWS_MAX {
            return Ok(());
        }
        self.history(row, "late", Some(said), attempt, actor, Some(note))
    }

    pub(super) fn audit(
        &self,
        workspace: Workspace,
        actor: &str,
        action: &str,
        subject: &str,
        reason: &str,
        detail: Option<&str>,
    ) -> Result<(), StoreError> {
        self.db.execute(
            "INSERT INTO audit (workspace_id, at, actor, action, subject, reason, detail) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![workspace.0, self.now.wall.as_millis(), actor, action, subject, reason, detail],
        )?;
        Ok(())
    }
}

/// A key seen again after its retention brings its own payload; the old one is no longer meant.
fn facts_replaced(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::Run(decide::RunReason::FirstAfterRetention)
            | Decision::Queued(decide::RunReason::FirstAfterRetention)
    )
}

pub(super) fn gone(id: ClaimRef) -> StoreError {
    StoreError::Inconsistent(format!("claim {id} vanished within its own transaction"))
}

/// The view with the list it stands in.
pub(super) fn judged(stored: Stored, now: Now, boot: Boot) -> ClaimView {
    let mut view = stored.view;
    view.inbox = inbox::list_of(&view.claim, now, boot);
    view
}

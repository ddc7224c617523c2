//! The only writer of `processing_state`: loads what a transition wants to know and writes what it says, with history
//! and audit, in the transaction that the writer opened. What that is stands in [`crate::transition`].

use std::sync::Arc;

use oncegate_core::claim::Boot;
use oncegate_core::decide::Decision;
use oncegate_core::finish::Answer;
use oncegate_core::inbox;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, RunId, StoreSecret, Workspace};
use oncegate_core::limits;
use oncegate_core::policy::Policy;
use oncegate_core::recovery::Restores;
use oncegate_core::time::{Now, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::automations::Standing;
use super::family::Above;
use super::in_line;
use super::row::{self, Extra, Stored};
use super::written;
use crate::StoreError;
use crate::api::{ClaimCall, ClaimView, Claimed, FinishCall, Payload, PolicyBook, Target};
use crate::observer::{self, Journal};
use crate::transition::claim::{self, Keep, Loaded, Pruned};
use crate::transition::notice;
use crate::transition::{Line, Rules, family, finish};

/// What every transition needs besides the connection.
pub(super) struct Context<'a> {
    pub(super) db: &'a Connection,
    pub(super) secret: &'a StoreSecret,
    pub(super) policies: &'a Arc<dyn PolicyBook>,
    pub(super) now: Now,
    pub(super) boot: Boot,
    pub(super) clock_is_doubtful: bool,
    pub(super) restores: &'a Arc<Restores>,
    pub(super) recovering: bool,
    /// What to tell whoever counts, once this is committed.
    pub(super) journal: &'a Journal,
}

/// Where a new claim would go.
pub(super) struct Place {
    pub(super) workspace: Workspace,
    pub(super) automation_id: i64,
    pub(super) standing: Standing,
    pub(super) automation: AutomationName,
    pub(super) key: IdempotencyKey,
}

impl Context<'_> {
    /// Decides a claim. `None`: a claim named by id does not exist.
    pub(super) fn claim(&self, call: &ClaimCall) -> Result<Option<Claimed>, StoreError> {
        let Ok(above) = self.above(call)? else { return Ok(None) };
        let mut made = None;
        let (id, place, stored) = match &call.target {
            Target::Key { workspace, automation, key } => {
                let (automation_id, standing) =
                    self.automation_of_claim(*workspace, automation, &mut made)?;
                let id = self.secret.claim_id(*workspace, automation_id, key);
                let id = ClaimRef { workspace: *workspace, id };
                let stored = row::load(self.db, id)?;
                let (workspace, automation, key) = (*workspace, automation.clone(), key.clone());
                (id, Place { workspace, automation_id, standing, automation, key }, stored)
            }
            Target::Id(id) => {
                let Some(stored) = row::load(self.db, *id)? else { return Ok(None) };
                let (automation, key) = (stored.view.automation.clone(), stored.view.key.clone());
                let (workspace, automation_id) = (id.workspace, stored.automation_id);
                let standing = self.standing(automation_id)?;
                (*id, Place { workspace, automation_id, standing, automation, key }, Some(stored))
            }
        };
        let policy = self.policies.policy(place.workspace, &place.automation);
        let mut inherited = None;
        if let Some(above) = &above {
            let call = inherited.insert(call.clone());
            family::inherit(call, stored.as_ref().map(|s| &s.view.claim), &above.parent.view.claim);
        }
        let call = inherited.as_ref().unwrap_or(call);
        let (holder, facts) = self.facts((id, &place), stored.as_ref(), above.as_ref(), call, &policy)?;
        let loaded = Loaded { record_holder: holder.as_ref().map(|s| &s.view.claim), ..facts };
        let name = || format!("{} of {}", place.key, place.automation);
        let mut writes = claim::claim(&Rules::CORE, &loaded, call, name, &policy, self.now);

        if let (true, Some(stored)) = (writes.give_up_steps, &stored)
            && self.give_up_in_flight(stored.row)?
        {
            writes.steps_were_given_up();
        }
        if let (Some((claim, line)), Some(holder)) = (&writes.record_taken, &holder) {
            self.update(holder, claim, &Extra::default(), Some(id.id), &call.actor)?;
            self.history(holder.row, line, &call.actor)?;
        }
        let extra = Extra { run_url: call.run_url.as_deref(), ..Extra::default() };
        let row = match (&writes.claim, &stored) {
            (Some(claim), Some(stored)) => {
                self.update(stored, claim, &extra, None, &call.actor)?;
                Some(stored.row)
            }
            (Some(claim), None) => {
                let at = (place.workspace, place.automation_id, &place.key);
                Some(row::insert(self.db, self.secret, at, claim, &extra, self.now)?)
            }
            (None, Some(stored)) => Some(stored.row),
            (None, None) => None,
        };
        let mut payload_is_back = false;
        if let Some(row) = row {
            if let Some(payload) = &call.payload {
                payload_is_back = self.keep_payload(row, payload, writes.payload)?;
            }
            if writes.stopped {
                self.count_stop(row)?;
            }
            for line in &writes.lines {
                self.history(row, line, &call.actor)?;
            }
        }
        self.write_around(id, &place, &writes)?;
        let notices = notice::of_claim(&place.automation, made.as_ref(), &loaded, &writes);
        // One call is noticed once, however often it looks while it waits.
        for n in notices.iter().filter(|_| !call.again) {
            self.notice(place.workspace, n.kind, &n.subject, &n.detail)?;
        }
        let original = loaded.repeat_of;
        let changed = writes.claim.is_some();
        let (decision, stopped) = (writes.decision, writes.stopped);
        // What was written need not be read again.
        let after = match (writes.claim, stored) {
            (Some(claim), Some(stored)) => Some(stored.updated(claim, &extra, self.now)),
            (Some(claim), None) => row.map(|row| {
                let at = (place.workspace, place.automation_id, place.automation, place.key);
                written::inserted(row, at, claim, &extra, self.now)
            }),
            (None, stored) => stored,
        };
        let view = after.map(|after| {
            let mut view = judged(after, self.now, self.boot);
            if stopped {
                view.stops += 1;
                view.first_stop_at = view.first_stop_at.or(Some(self.now.wall));
                view.last_stop_at = Some(self.now.wall);
            }
            view.payload_removed_at = view.payload_removed_at.filter(|_| !payload_is_back);
            if let (Some(repeated), Some(original)) = (view.claim.repeat_of, original)
                && repeated == original.id
            {
                view.repeat_of = Some(original.key);
            }
            view
        });
        self.as_written(view.as_ref())?;
        let token = match (&decision, &view) {
            (Decision::Run(_), Some(view)) => Some(self.secret.token(id, view.claim.fence())),
            _ => None,
        };
        if let Some(counts) = observer::decided(call, &decision, changed) {
            self.journal.note(counts);
        }
        let note = notice::told(&notices);
        Ok(Some(Claimed { decision, view, changed, id, token, note, now: self.now }))
    }

    /// What was found, and the row that holds the record.
    pub(super) fn facts<'s>(
        &'s self,
        (id, place): (ClaimRef, &Place),
        stored: Option<&'s Stored>,
        above: Option<&Above>,
        call: &ClaimCall,
        policy: &Policy,
    ) -> Result<(Option<Stored>, Loaded<'s>), StoreError> {
        let claim = stored.map(|s| &s.view.claim);
        let wanted = claim::wanted(&call.request, claim);
        let pruned_done_at = match wanted.pruned {
            false => None,
            true => self
                .db
                .prepare_cached("SELECT done_at FROM pruned WHERE claim_id = ?1")?
                .query_row([&id.id.0[..]], |r| r.get(0))
                .optional()?
                .map(row::ts),
        };
        let Standing { paused, stale_streak } = place.standing;
        let mut parent = above.map(|above| above.tie.clone());
        let (holder, first_runs_of_record) = match wanted.record {
            None => (None, 0),
            Some(record) => {
                let hash = self.secret.record_hash(place.workspace, record);
                let until = self.now.wall;
                let window = (until.before(policy.loop_limit.within).as_millis(), until.as_millis());
                let mut holder = self.record_holder(place.workspace, &hash, id)?;
                // What its parent, or the parent's own, holds is shared; with the one other that shares it, nothing is.
                if let (Some(above), Some(tie)) = (above, &mut parent)
                    && holder.as_ref().is_some_and(|holder| above.contains(holder))
                {
                    tie.shares_record = true;
                    holder = self.sharing_sibling(above, record, id.id)?;
                }
                (
                    holder,
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
        let run_id_is_constant = match wanted.run_id {
            None => false,
            Some(run_id) => self.run_id_is_constant(place.workspace, run_id, id)?,
        };
        let earlier_waits = match stored {
            Some(stored) if wanted.order => in_line::earlier_waits(self.db, stored)?,
            _ => false,
        };
        let repeat_of = self.original(wanted.repeat, (id, place), stored)?;
        let loaded = Loaded {
            id: id.id,
            claim,
            stops: stored.map_or(0, |s| s.view.stops),
            pruned_done_at,
            record_holder: None,
            first_runs_of_record,
            earlier_waits,
            repeat_of,
            paused,
            stale_streak,
            run_id_is_constant,
            clock_is_doubtful: self.clock_is_doubtful,
            parent,
            boot: self.boot,
            restores: self.restores,
            recovering: self.recovering,
        };
        Ok((holder, loaded))
    }

    fn record_holder(
        &self,
        workspace: Workspace,
        record_hash: &[u8; 16],
        except: ClaimRef,
    ) -> Result<Option<Stored>, StoreError> {
        let sql =
            format!("{} WHERE c.workspace_id = ?1 AND c.record_hash = ?2 AND c.claim_id <> ?3", *row::SELECT);
        self.db
            .prepare_cached(&sql)?
            .query_row(params![workspace.0, &record_hash[..], &except.id.0[..]], |r| Ok(row::read(r)))
            .optional()?
            .transpose()
    }

    fn run_id_is_constant(
        &self,
        workspace: Workspace,
        run_id: &RunId,
        except: ClaimRef,
    ) -> Result<bool, StoreError> {
        let before = claim::run_id_horizon(self.now).as_millis();
        Ok(self
            .db
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM (SELECT workspace_id, claim_id, coalesce(done_at, error_at) AS ended \
                 FROM claims WHERE run_id = ?1 ORDER BY id LIMIT ?5) \
                 WHERE claim_id <> ?2 AND ended < ?3 AND workspace_id = ?4)",
            )?
            .query_row(
                params![
                    run_id.as_str(),
                    &except.id.0[..],
                    before,
                    workspace.0,
                    limits::RUN_ID_CLAIMS_READ_MAX
                ],
                |r| r.get(0),
            )?)
    }

    /// What is remembered beside the claim: of its record, its automation, its key.
    fn write_around(
        &self,
        id: ClaimRef,
        place: &Place,
        writes: &claim::Writes<'_>,
    ) -> Result<(), StoreError> {
        if let (true, Some(claim)) = (writes.first_run, &writes.claim)
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
        if writes.went_stale {
            self.db
                .prepare_cached("UPDATE automations SET stale_streak = stale_streak + 1 WHERE id = ?1")?
                .execute([place.automation_id])?;
        }
        match writes.pruned {
            Pruned::Stays => Ok(()),
            Pruned::Goes => {
                self.db.prepare_cached("DELETE FROM pruned WHERE claim_id = ?1")?.execute([&id.id.0[..]])?;
                Ok(())
            }
            Pruned::Comes(done_at) => {
                super::upkeep::remember_pruned(self.db, &id.id.0, done_at.as_millis(), self.now)
            }
        }
    }

    fn count_stop(&self, row: i64) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "UPDATE claims SET stops = stops + 1, first_stop_at = coalesce(first_stop_at, ?2), \
                 last_stop_at = ?2 WHERE id = ?1",
            )?
            .execute(params![row, self.now.wall.as_millis()])?;
        Ok(())
    }

    /// Done, error, heartbeat, defer, hand back.
    pub(super) fn finish(&self, call: &FinishCall) -> Result<Option<(Answer, ClaimView)>, StoreError> {
        let Some(stored) = row::load(self.db, call.id)? else { return Ok(None) };
        let policy = self.policies.policy(call.id.workspace, &stored.view.automation);
        let writes = finish::finish(&Rules::CORE, &stored.view.claim, call, &policy, self.now);
        let extra = Extra { result: call.result.as_deref(), ..Extra::default() };
        if let Some(claim) = &writes.claim {
            self.update(&stored, claim, &extra, None, &call.actor)?;
        }
        if writes.ends_stale_streak {
            self.db
                .prepare_cached(
                    "UPDATE automations SET stale_streak = 0 WHERE id = ?1 AND stale_streak <> 0",
                )?
                .execute([stored.automation_id])?;
        }
        match &writes.line {
            Some(line) if writes.late => self.late(stored.row, line, &call.actor)?,
            Some(line) => self.history(stored.row, line, &call.actor)?,
            None => {}
        }
        self.journal.note(observer::finished(&call.call, writes.answer));
        let after = match writes.claim {
            Some(claim) => stored.updated(claim, &extra, self.now),
            None => stored,
        };
        let view = judged(after, self.now, self.boot);
        self.as_written(Some(&view))?;
        Ok(Some((writes.answer, view)))
    }

    pub(super) fn view(&self, id: ClaimRef) -> Result<Option<ClaimView>, StoreError> {
        Ok(row::load(self.db, id)?.map(|s| judged(s, self.now, self.boot)))
    }

    /// In a build for tests: what callers are told is what the store would read.
    fn as_written(&self, view: Option<&ClaimView>) -> Result<(), StoreError> {
        if cfg!(debug_assertions)
            && let Some(view) = view
        {
            let read = self.view(view.at())?;
            assert_eq!(
                format!("{:?}", Some(view)),
                format!("{:?}", read.as_ref()),
                "another row was written"
            );
        }
        Ok(())
    }

    /// Whether it is written.
    fn keep_payload(&self, row: i64, payload: &Payload, keep: Keep) -> Result<bool, StoreError> {
        let sql = match keep {
            Keep::Not => return Ok(false),
            Keep::Instead => {
                "INSERT OR REPLACE INTO payloads (claim_row, body, json, stored_at) VALUES (?1, ?2, ?3, ?4)"
            }
            Keep::First => {
                "INSERT OR IGNORE INTO payloads (claim_row, body, json, stored_at) VALUES (?1, ?2, ?3, ?4)"
            }
        };
        let written = self.db.prepare_cached(sql)?.execute(params![
            row,
            payload.body,
            payload.json,
            self.now.wall.as_millis()
        ])?;
        Ok(written > 0)
    }

    pub(super) fn history(&self, row: i64, line: &Line<'_>, actor: &str) -> Result<(), StoreError> {
        self.history_at(row, self.now.wall, line, actor)
    }

    /// The same, of what happened a moment ago.
    pub(super) fn history_at(
        &self,
        row: i64,
        at: Timestamp,
        line: &Line<'_>,
        actor: &str,
    ) -> Result<(), StoreError> {
        let Line { kind, reason, attempt, note } = line;
        self.db
            .prepare_cached(
                "INSERT INTO history (claim_row, at, kind, reason, attempt, actor, note) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![row, at.as_millis(), kind, reason, attempt, actor, note.as_deref()])?;
        Ok(())
    }

    /// Somebody called who no longer holds the claim. The first ones have a row; a loop cannot fill the disk.
    pub(super) fn late(&self, row: i64, line: &Line<'_>, actor: &str) -> Result<(), StoreError> {
        let rows: u32 = self
            .db
            .prepare_cached("SELECT count(*) FROM history WHERE claim_row = ?1 AND kind = 'late'")?
            .query_row([row], |r| r.get(0))?;
        if rows >= limits::STOP_HISTORY_ROWS_MAX {
            return Ok(());
        }
        self.history(row, line, actor)
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

pub(super) fn gone(id: ClaimRef) -> StoreError {
    StoreError::Inconsistent(format!("claim {id} vanished within its own transaction"))
}

/// The view with the list it stands in.
pub(super) fn judged(stored: Stored, now: Now, boot: Boot) -> ClaimView {
    let mut view = stored.view;
    view.inbox = inbox::list_of(&view.claim, now, boot);
    view
}

//! The only writer of `processing_state` on PostgreSQL: loads what a transition wants to know and writes what it says,
//! with history and audit, in one transaction. What that is stands in [`crate::transition`].

use oncegate_core::claim::Holder;
use oncegate_core::decide::{Decision, Start};
use oncegate_core::finish::Answer;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, RunId, Workspace};
use oncegate_core::limits;
use oncegate_core::policy::{Finish, Policy};

use super::context::Context;
use super::error::Fault;
use super::family::Above;
use super::row::{self, Columns, Extra, Stored, judged, storable};
use crate::StoreError;
use crate::api::{ClaimCall, ClaimView, Claimed, FinishCall, Target};
use crate::observer;
use crate::transition::claim::{self, Loaded, Pruned};
use crate::transition::notice::{self};
use crate::transition::{Rules, family, finish};

/// Where a new claim would go.
pub(super) struct Place {
    pub(super) workspace: Workspace,
    pub(super) automation_id: i64,
    pub(super) automation: AutomationName,
    pub(super) key: IdempotencyKey,
}

impl Context<'_> {
    /// Loads one claim, and keeps others from changing it until the end of the transaction. Another workspace's is not
    /// there.
    pub(super) async fn lock(&self, claim: ClaimRef) -> Result<Option<Stored>, Fault> {
        let sql = format!("{} WHERE c.workspace_id = $1 AND c.claim_id = $2 FOR UPDATE OF c", *row::SELECT);
        self.query_opt(&sql, &[&claim.workspace.0, &&claim.id.0[..]])
            .await?
            .as_ref()
            .map(row::read)
            .transpose()
    }

    /// Loads one claim as it is; whoever writes it compares its version.
    pub(super) async fn load(&self, claim: ClaimRef) -> Result<Option<Stored>, Fault> {
        let sql = format!("{} WHERE c.workspace_id = $1 AND c.claim_id = $2", *row::SELECT);
        self.query_opt(&sql, &[&claim.workspace.0, &&claim.id.0[..]])
            .await?
            .as_ref()
            .map(row::read)
            .transpose()
    }

    /// Decides a claim. `None`: a claim named by id does not exist, or its parent's token no longer holds.
    pub(super) async fn claim(&self, call: &ClaimCall) -> Result<Option<Claimed>, Fault> {
        if let Start::Now(Holder::Runner { .. }) = &call.request.start {
            self.still_me().await?;
        }
        let Ok(above) = self.above(call).await? else { return Ok(None) };
        let mut made = None;
        let (id, place, stored) = match &call.target {
            Target::Key { workspace, automation, key } => {
                let automation_id = self.automation_of_claim(*workspace, automation, &mut made).await?;
                let id = self.shared.secret.claim_id(*workspace, automation_id, key);
                let id = ClaimRef { workspace: *workspace, id };
                let stored = self.lock(id).await?;
                let (automation, key) = (automation.clone(), key.clone());
                (id, Place { workspace: *workspace, automation_id, automation, key }, stored)
            }
            Target::Id(id) => {
                let Some(stored) = self.lock(*id).await? else { return Ok(None) };
                let (automation, key) = (stored.view.automation.clone(), stored.view.key.clone());
                let place =
                    Place { workspace: id.workspace, automation_id: stored.automation_id, automation, key };
                (*id, place, Some(stored))
            }
        };
        let policy = self.shared.policies.policy(place.workspace, &place.automation);
        let mut inherited = None;
        if let Some(above) = &above {
            let call = inherited.insert(call.clone());
            family::inherit(call, stored.as_ref().map(|s| &s.view.claim), &above.parent.view.claim);
        }
        let call = inherited.as_ref().unwrap_or(call);
        let (holder, facts) =
            self.facts((id, &place), stored.as_ref(), above.as_ref(), call, &policy).await?;
        let loaded = Loaded { record_holder: holder.as_ref().map(|s| &s.view.claim), ..facts };
        let name = || format!("{} of {}", place.key, place.automation);
        let mut writes = claim::claim(&Rules::CORE, &loaded, call, name, &policy, self.now);

        if writes.give_up_steps && stored.is_some() && self.give_up_in_flight(id).await? {
            writes.steps_were_given_up();
        }
        if let (Some((claim, line)), Some(holder)) = (&writes.record_taken, &holder) {
            self.update(holder, claim, &Extra::default(), Some(id.id), &call.actor).await?;
            self.history(holder.view.at(), line, &call.actor).await?;
        }
        let extra = Extra { run_url: call.run_url.as_deref(), ..Extra::default() };
        let exists = match (&writes.claim, &stored) {
            (Some(claim), Some(stored)) => {
                self.update(stored, claim, &extra, None, &call.actor).await?;
                true
            }
            (Some(claim), None) => {
                self.insert(&place, claim, &extra).await?;
                true
            }
            (None, stored) => stored.is_some(),
        };
        if exists {
            if let Some(payload) = &call.payload {
                self.keep_payload(id, payload, writes.payload).await?;
            }
            if writes.stopped {
                self.count_stop(id).await?;
            }
            for line in &writes.lines {
                self.history(id, line, &call.actor).await?;
            }
        }
        self.write_around(id, &place, &writes).await?;
        let notices = notice::of_claim(&place.automation, made.as_ref(), &loaded, &writes);
        // One call is noticed once, however often it looks while it waits.
        for n in notices.iter().filter(|_| !call.again) {
            self.notice(place.workspace, n.kind, &n.subject, &n.detail).await?;
        }
        let changed = writes.claim.is_some();
        let decision = writes.decision;
        let view = if exists { self.view(id).await? } else { None };
        let token = match (&decision, &view) {
            (Decision::Run(_), Some(view)) => Some(self.shared.secret.token(id, view.claim.fence())),
            _ => None,
        };
        if let Some(counts) = observer::decided(call, &decision, changed) {
            self.journal.note(counts);
        }
        let note = notice::told(&notices);
        Ok(Some(Claimed { decision, view, changed, id, token, note, now: self.now }))
    }

    /// A process that stood still while another started under its name takes no work: what it took would look like an
    /// attempt of an earlier start, and be resumed while it is at it.
    async fn still_me(&self) -> Result<(), Fault> {
        let (number, start) = self.shared.node;
        let sql = "SELECT 1 FROM nodes WHERE number = $1 AND start = $2";
        match self.query_opt(sql, &[&number, &start]).await? {
            Some(_) => Ok(()),
            None => Err(Fault::Failed(StoreError::Closed)),
        }
    }

    /// What was found, and the row that holds the record.
    pub(super) async fn facts<'s>(
        &'s self,
        (id, place): (ClaimRef, &Place),
        stored: Option<&'s Stored>,
        above: Option<&Above>,
        call: &ClaimCall,
        policy: &Policy,
    ) -> Result<(Option<Stored>, Loaded<'s>), Fault> {
        let claim = stored.map(|s| &s.view.claim);
        let wanted = claim::wanted(&call.request, claim);
        let workspace = place.workspace.0;
        let of_automation = self
            .query_one(
                "SELECT paused_at IS NOT NULL, stale_streak, \
                 (SELECT done_at FROM pruned WHERE workspace_id = $1 AND claim_id = $3) \
                 FROM automations WHERE workspace_id = $1 AND id = $2",
                &[&workspace, &place.automation_id, &&id.id.0[..]],
            )
            .await?;
        let pruned_done_at: Option<i64> = of_automation.get(2);
        let mut parent = above.map(|above| above.tie.clone());
        let (holder, first_runs_of_record) = match wanted.record {
            None => (None, 0),
            Some(record) => {
                let hash = self.shared.secret.record_hash(place.workspace, record);
                let until = self.now.wall;
                let from = until.before(policy.loop_limit.within);
                let mut holder = self.record_holder(place.workspace, &hash, id).await?;
                // What its parent, or the parent's own, holds is shared; with the one other that shares it, nothing is.
                if let (Some(above), Some(tie)) = (above, &mut parent)
                    && holder.as_ref().is_some_and(|holder| above.contains(holder))
                {
                    tie.shares_record = true;
                    holder = self.sharing_sibling(above, record, id.id).await?;
                }
                // Whoever is done at its claim holds no record, so nothing else has the runs of one counted in turn.
                if policy.finish == Finish::AtClaim {
                    self.hold_automation(place).await?;
                }
                let runs: i64 = self
                    .query_one(
                        "SELECT count(*) FROM record_runs WHERE workspace_id = $1 AND record_hash = $2 \
                         AND automation_id = $3 AND at > $4 AND at <= $5",
                        &[
                            &workspace,
                            &&hash[..],
                            &place.automation_id,
                            &from.as_millis(),
                            &until.as_millis(),
                        ],
                    )
                    .await?
                    .get(0);
                (holder, u32::try_from(runs).unwrap_or(u32::MAX))
            }
        };
        let run_id_is_constant = match wanted.run_id {
            None => false,
            Some(run_id) => self.run_id_is_constant(place.workspace, run_id, id).await?,
        };
        let earlier_waits = match stored {
            Some(stored) if wanted.order => self.earlier_waits(stored).await?,
            _ => false,
        };
        let repeat_of = self.original(wanted.repeat, (id, place), stored).await?;
        let stale_streak: i32 = of_automation.get(1);
        let loaded = Loaded {
            id: id.id,
            claim,
            stops: stored.map_or(0, |s| s.view.stops),
            pruned_done_at: pruned_done_at.filter(|_| wanted.pruned).map(row::ts),
            record_holder: None,
            first_runs_of_record,
            paused: of_automation.get(0),
            stale_streak: stale_streak.unsigned_abs(),
            run_id_is_constant,
            clock_is_doubtful: self.clock_is_doubtful,
            parent,
            boot: self.boot,
            restores: &self.shared.restores,
            recovering: self.recovering,
            earlier_waits,
            repeat_of,
        };
        Ok((holder, loaded))
    }

    /// Who holds a record, as it is: it is taken only if its version is still the same then, and if two find it free,
    /// the unique index tells them apart.
    async fn record_holder(
        &self,
        workspace: Workspace,
        record_hash: &[u8; 16],
        except: ClaimRef,
    ) -> Result<Option<Stored>, Fault> {
        let sql =
            format!("{} WHERE c.workspace_id = $1 AND c.record_hash = $2 AND c.claim_id <> $3", *row::SELECT);
        let of = self.query_opt(&sql, &[&workspace.0, &&record_hash[..], &&except.id.0[..]]).await?;
        of.as_ref().map(row::read).transpose()
    }

    async fn run_id_is_constant(
        &self,
        workspace: Workspace,
        run_id: &RunId,
        except: ClaimRef,
    ) -> Result<bool, Fault> {
        let before = claim::run_id_horizon(self.now).as_millis();
        let read_at_most = i64::from(limits::RUN_ID_CLAIMS_READ_MAX);
        let found = self
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM (SELECT claim_id, coalesce(done_at, error_at) AS ended \
                 FROM claims WHERE workspace_id = $1 AND run_id = $2 ORDER BY position LIMIT $5) c \
                 WHERE claim_id <> $3 AND ended < $4)",
                &[&workspace.0, &run_id.as_str(), &&except.id.0[..], &before, &read_at_most],
            )
            .await?;
        Ok(found.get(0))
    }

    /// What is remembered beside the claim: of its record, its automation, its key.
    async fn write_around(
        &self,
        id: ClaimRef,
        place: &Place,
        writes: &claim::Writes<'_>,
    ) -> Result<(), Fault> {
        let (workspace, now) = (place.workspace.0, self.now.wall.as_millis());
        if let (true, Some(claim)) = (writes.first_run, &writes.claim)
            && let Some(record) = &claim.record
        {
            let hash = self.shared.secret.record_hash(place.workspace, record);
            let attempt = i64::from(claim.attempt);
            self.execute(
                "INSERT INTO record_runs (workspace_id, record_hash, automation_id, at, claim_id, attempt) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
                &[&workspace, &&hash[..], &place.automation_id, &now, &&id.id.0[..], &attempt],
            )
            .await?;
        }
        if writes.went_stale {
            self.execute(
                "UPDATE automations SET stale_streak = stale_streak + 1 WHERE workspace_id = $1 AND id = $2",
                &[&workspace, &place.automation_id],
            )
            .await?;
        }
        match writes.pruned {
            Pruned::Stays => Ok(()),
            Pruned::Goes => {
                self.execute(
                    "DELETE FROM pruned WHERE workspace_id = $1 AND claim_id = $2",
                    &[&workspace, &&id.id.0[..]],
                )
                .await?;
                Ok(())
            }
            Pruned::Comes(done_at) => self.remember_pruned(id, done_at).await,
        }
    }

    /// Leaves the hash of a key and when it was done.
    pub(super) async fn remember_pruned(
        &self,
        id: ClaimRef,
        done_at: oncegate_core::time::Timestamp,
    ) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO pruned (workspace_id, claim_id, done_at, pruned_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (workspace_id, claim_id) \
             DO UPDATE SET done_at = excluded.done_at, pruned_at = excluded.pruned_at",
            &[&id.workspace.0, &&id.id.0[..], &done_at.as_millis(), &self.now.wall.as_millis()],
        )
        .await?;
        Ok(())
    }

    async fn count_stop(&self, id: ClaimRef) -> Result<(), Fault> {
        self.execute(
            "UPDATE claims SET stops = stops + 1, first_stop_at = coalesce(first_stop_at, $3), last_stop_at = $3 \
             WHERE workspace_id = $1 AND claim_id = $2",
            &[&id.workspace.0, &&id.id.0[..], &self.now.wall.as_millis()],
        )
        .await?;
        Ok(())
    }

    /// Makes a claim's row, unless another transaction made it in the meantime: then everything is looked at again.
    async fn insert(
        &self,
        place: &Place,
        claim: &oncegate_core::claim::Claim,
        extra: &Extra<'_>,
    ) -> Result<(), Fault> {
        let columns = Columns::of(&self.shared.secret, place.workspace, claim);
        let (id, key, now) = (&claim.id.0[..], place.key.as_str(), self.now.wall.as_millis());
        let run_url = extra.run_url.map(storable);
        let rest: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&place.workspace.0, &id, &place.automation_id, &key, &run_url, &extra.result, &now];
        let params: Vec<_> = columns.values().into_iter().chain(rest).collect();
        match self.query_opt(&row::INSERT, &params).await? {
            Some(_) => Ok(()),
            None => Err(Fault::Again("the same key was claimed at the same time".into())),
        }
    }

    /// Replaces a claim's row alone; see [`Context::update`].
    pub(super) async fn swap(
        &self,
        stored: &Stored,
        claim: &oncegate_core::claim::Claim,
        extra: &Extra<'_>,
    ) -> Result<(), Fault> {
        let workspace = stored.view.workspace;
        let columns = Columns::of(&self.shared.secret, workspace, claim);
        let (id, now) = (&claim.id.0[..], self.now.wall.as_millis());
        let (run_url, result) = (extra.run_url.map(storable), extra.result.map(storable));
        let rest: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&workspace.0, &id, &stored.version, &run_url, &result, &now];
        let params: Vec<_> = columns.values().into_iter().chain(rest).collect();
        match self.execute(&row::UPDATE, &params).await? {
            1 => Ok(()),
            _ => Err(Fault::Again(format!("claim {} was changed by another node", claim.id))),
        }
    }

    /// Done, error, heartbeat, defer, hand back.
    pub(super) async fn finish(&self, call: &FinishCall) -> Result<Option<(Answer, ClaimView)>, Fault> {
        let Some(stored) = self.lock(call.id).await? else { return Ok(None) };
        let policy = self.shared.policies.policy(call.id.workspace, &stored.view.automation);
        let writes = finish::finish(&Rules::CORE, &stored.view.claim, call, &policy, self.now);
        if let Some(claim) = &writes.claim {
            let extra = Extra { result: call.result.as_deref(), ..Extra::default() };
            self.update(&stored, claim, &extra, None, &call.actor).await?;
        }
        if writes.ends_stale_streak {
            self.execute(
                "UPDATE automations SET stale_streak = 0 WHERE workspace_id = $1 AND id = $2 AND stale_streak <> 0",
                &[&call.id.workspace.0, &stored.automation_id],
            )
            .await?;
        }
        match &writes.line {
            Some(line) if writes.late => self.late(call.id, line, &call.actor).await?,
            Some(line) => self.history(call.id, line, &call.actor).await?,
            None => {}
        }
        self.journal.note(observer::finished(&call.call, writes.answer));
        let view = self.view(call.id).await?.ok_or_else(|| gone(call.id))?;
        Ok(Some((writes.answer, view)))
    }

    pub(super) async fn view(&self, id: ClaimRef) -> Result<Option<ClaimView>, Fault> {
        Ok(self.load(id).await?.map(|s| judged(s, self.now, self.boot)))
    }
}

pub(super) fn gone(id: ClaimRef) -> StoreError {
    StoreError::Inconsistent(format!("claim {id} vanished within its own transaction"))
}

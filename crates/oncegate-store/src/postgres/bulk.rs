//! Acts on many claims. Which ones is settled in the transaction that begins the act; each further transaction acts on
//! some of them, exactly as a single act would, and notes what became of each. A crash between two loses nothing, and
//! nodes that go on with one act at once take turns: each holds the act's row while it is at work.

use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::reset::Refusal;
use oncegate_core::undo::undo;

use super::bulk_rows;
use super::connection::Connection;
use super::context::Context;
use super::error::Fault;
use super::row::{self, Extra, Stored, storable};
use super::search::Conditions;
use super::store::Shared;
use super::transition::gone;
use crate::StoreError;
use crate::api::{ActCall, ClaimView};
use crate::bulk::{BulkAct, BulkCall, BulkCount, BulkRow, BulkStep, Bulked, Undone};
use crate::observer;
use crate::search::Filter;
use crate::transition::bulk::{
    Fate, Kept, has_no_runner, lacks_payload, single, why, without_values, would_refuse,
};
use crate::transition::{Line, Rules, act};

/// Claims fetched at a time while they are counted.
const FETCHED: i32 = 500;

/// What an act would do if it began now; nothing is written.
pub(super) async fn count(
    shared: &Shared,
    mut db: Connection,
    workspace: Workspace,
    bulk: &BulkAct,
    filter: &Filter,
) -> Result<BulkCount, Fault> {
    let now = shared.ask_time(&db).await?;
    let mut count = BulkCount::default();
    let max = u64::from(limits::BULK_ROWS_MAX);
    let of = Conditions::of(workspace, filter, now);
    let db = db.snapshot().await?;
    let sql = of.every(row::COLUMNS, Some(limits::BULK_ROWS_MAX + 1));
    let portal = db.portal(&sql, &of.params()).await?;
    loop {
        let some = db.query_portal(&portal, FETCHED).await?;
        for r in &some {
            if count.matched == max {
                count.too_many = true;
                return Ok(count);
            }
            count.matched += 1;
            let refused = match row::read(r) {
                Err(_) => Some("unreadable"),
                Ok(stored) => {
                    let policy = shared.policies.policy(workspace, &stored.view.automation);
                    would_refuse(bulk, &stored.view, &policy, now, shared.boot)
                }
            };
            match refused {
                None => count.would_act += 1,
                Some(why) => *count.would_refuse.entry(why.to_owned()).or_default() += 1,
            }
        }
        if some.len() < FETCHED as usize {
            return Ok(count);
        }
    }
}

/// An act that goes on.
struct Open {
    act: BulkAct,
    actor: String,
    /// For the history of its claims.
    note: String,
    reason: String,
}

impl Context<'_> {
    /// Settles which claims are meant, if there are as many as were counted: all of them are noted by one statement,
    /// so as they stood at one moment.
    pub(super) async fn begin_bulk(&self, call: &BulkCall) -> Result<Bulked, Fault> {
        let workspace = call.workspace.0;
        self.savepoint().await?;
        let at = self.now.wall.as_millis();
        let (act, expect) = (serde_json::json!(call.act).to_string(), i64::try_from(call.expect));
        let expect = expect.unwrap_or(i64::MAX);
        let id: i64 = self
            .query_one(
                "INSERT INTO bulk_acts (workspace_id, token_id, act, filter, reason, actor, matched, made_at, \
                 finished_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id",
                &[
                    &workspace,
                    &call.token_id,
                    &act,
                    &storable(&call.told),
                    &storable(&call.reason),
                    &storable(&call.actor),
                    &expect,
                    &at,
                    &(expect == 0).then_some(at),
                ],
            )
            .await?
            .get(0);
        let of = Conditions::of(call.workspace, &call.filter, self.now);
        let columns = format!("c.workspace_id, {id}::bigint, c.position, c.claim_id, c.version");
        let sql = format!(
            "INSERT INTO bulk_rows (workspace_id, bulk_id, position, claim_id, version) {}",
            of.every(&columns, Some(limits::BULK_ROWS_MAX + 1))
        );
        let meant = self.execute_once(&sql, &of.params()).await?;
        if meant > u64::from(limits::BULK_ROWS_MAX) {
            self.undo().await?;
            return Ok(Bulked::TooMany);
        }
        if meant != call.expect {
            self.undo().await?;
            return Ok(Bulked::CountChanged(meant));
        }
        self.keep().await?;
        let action = format!("bulk_{}", call.act.as_str());
        let detail = format!("{meant} claims: {}", without_values(&call.told));
        let subject = format!("bulk {id}");
        self.audit(call.workspace, &call.actor, &action, &subject, &call.reason, Some(&detail)).await?;
        Ok(Bulked::Begun(self.noted(call.workspace, id).await?))
    }

    /// Begins to take an act back: what it acted on, as it left it. Of two that ask for it at once, the unique index
    /// lets one begin, and the other looks again and finds it.
    pub(super) async fn begin_undo(
        &self,
        (workspace, of): (Workspace, i64),
        reason: &str,
        actor: &str,
        token_id: i64,
    ) -> Result<Undone, Fault> {
        // Held, so that nobody forgets what its claims were before while that is copied.
        let sql = "SELECT 1 FROM bulk_acts WHERE workspace_id = $1 AND id = $2 FOR UPDATE";
        if self.query_opt(sql, &[&workspace.0, &of]).await?.is_none() {
            return Ok(Undone::NotFound);
        }
        let bulk = self.noted(workspace, of).await?;
        if let Some(by) = bulk.undone_by {
            return Ok(Undone::Before(self.noted(workspace, by).await?));
        }
        let Some(finished) = bulk.finished_at else { return Ok(Undone::Running) };
        if bulk.undoes.is_some() {
            return Ok(Undone::IsUndo);
        }
        if finished < self.now.wall.before(limits::BULK_UNDO_KEPT_FOR) {
            return Ok(Undone::TooOld);
        }
        // What it would give back may have run since the backup, and would run again.
        if self.shared.restores.gaps.iter().any(|gap| finished <= gap.restored_at) {
            return Ok(Undone::Restored);
        }
        let (at, matched) = (self.now.wall.as_millis(), bulk.count("acted"));
        let id: i64 = self
            .query_one(
                "INSERT INTO bulk_acts (workspace_id, token_id, act, filter, reason, actor, matched, made_at, \
                 finished_at, undoes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
                &[
                    &workspace.0,
                    &token_id,
                    &serde_json::json!(BulkAct::Undo).to_string(),
                    &serde_json::json!({ "bulk_id": of }).to_string(),
                    &storable(reason),
                    &storable(actor),
                    &i64::try_from(matched).unwrap_or(i64::MAX),
                    &at,
                    &(matched == 0).then_some(at),
                    &of,
                ],
            )
            .await?
            .get(0);
        // What it was before goes along: the undo needs it, and so would nobody else.
        self.execute(
            "INSERT INTO bulk_rows (workspace_id, bulk_id, position, claim_id, version, before) \
             SELECT workspace_id, $2::bigint, position, claim_id, made, before FROM bulk_rows \
             WHERE workspace_id = $1 AND bulk_id = $3 AND fate = 'acted'",
            &[&workspace.0, &id, &of],
        )
        .await?;
        let detail = format!("bulk {id}");
        self.audit(workspace, actor, "bulk_undo", &format!("bulk {of}"), reason, Some(&detail)).await?;
        Ok(Undone::Begun(self.noted(workspace, id).await?))
    }

    /// Gives some claims of an act their turn. Another node that goes on with it at the same time waits here, and then
    /// takes those that come after.
    pub(super) async fn step_bulk(
        &self,
        (workspace, bulk): (Workspace, i64),
        rows: u32,
    ) -> Result<BulkStep, Fault> {
        let mut changed = Vec::new();
        let sql = "SELECT id, act, reason, actor FROM bulk_acts \
            WHERE workspace_id = $1 AND id = $2 AND finished_at IS NULL FOR UPDATE";
        let Some(open) = self.query_opt(sql, &[&workspace.0, &bulk]).await? else {
            return Ok(BulkStep { changed });
        };
        let reason: String = open.get("reason");
        let note = format!("{reason} (bulk {bulk})");
        let open = Open { act: bulk_rows::act(&open)?, actor: open.get("actor"), note, reason };
        let turn = self
            .query(
                "SELECT position, version, before, claim_id FROM bulk_rows \
                 WHERE workspace_id = $1 AND bulk_id = $2 AND fate IS NULL ORDER BY position LIMIT $3",
                &[&workspace.0, &bulk, &i64::from(rows)],
            )
            .await?;
        for r in &turn {
            let (position, version, before) = (r.get::<_, i64>(0), r.get(1), r.get::<_, Option<&str>>(2));
            let id = ClaimRef { workspace, id: row::claim_id(r.get(3))? };
            self.savepoint().await?;
            let fate = self.alone(self.one_of_many(&open, id, version, before).await).await?;
            let (word, why, kept) = match fate {
                Ok((Fate::Acted(view), kept)) => {
                    changed.push(*view);
                    ("acted", None, kept)
                }
                Ok((Fate::Refused(why), _)) => ("refused", Some(why), None),
                Ok((Fate::Changed, _)) => ("changed", Some("changed_since"), None),
                Err(error) => {
                    tracing::error!(claim = %id, %error, "a claim of a bulk act failed");
                    ("failed", Some("unreadable"), None)
                }
            };
            self.execute(
                "UPDATE bulk_rows SET fate = $4::text, why = $5, before = $6, made = CASE $4::text WHEN 'acted' THEN \
                 (SELECT version FROM claims WHERE workspace_id = $1 AND claim_id = $7) END \
                 WHERE workspace_id = $1 AND bulk_id = $2 AND position = $3",
                &[&workspace.0, &bulk, &position, &word, &why, &kept, &&id.id.0[..]],
            )
            .await?;
        }
        if turn.len() < rows as usize {
            self.execute(
                "UPDATE bulk_acts SET finished_at = $3 WHERE workspace_id = $1 AND id = $2",
                &[&workspace.0, &bulk, &self.now.wall.as_millis()],
            )
            .await?;
        }
        Ok(BulkStep { changed })
    }

    async fn one_of_many(
        &self,
        bulk: &Open,
        id: ClaimRef,
        version: i64,
        before: Option<&str>,
    ) -> Result<(Fate, Option<String>), Fault> {
        let Some(stored) = self.lock(id).await? else { return Ok((Fate::Changed, None)) };
        if stored.version != version {
            return Ok((Fate::Changed, None));
        }
        let view = &stored.view;
        let kept = Some(Kept::of(view));
        let policy = self.shared.policies.policy(id.workspace, &view.automation);
        if has_no_runner(&bulk.act, &view.claim, &policy) {
            return Ok((Fate::Refused("no_runner"), None));
        }
        if let Some(act) = single(&bulk.act, &bulk.reason) {
            let call = ActCall { id, act, reason: bulk.note.clone(), actor: bulk.actor.clone() };
            let mut writes = match act::act(&Rules::CORE, &view.claim, &call, &policy, self.now, self.boot) {
                Ok(writes) => writes,
                Err(refusal) => return Ok((Fate::Refused(why(&refusal)), None)),
            };
            if lacks_payload(&call.act, view, &policy) {
                return Ok((Fate::Refused(why(&Refusal::PayloadRemoved)), None));
            }
            if writes.give_up_steps && self.give_up_in_flight(id).await? {
                writes.steps_were_given_up();
            }
            self.update(&stored, &writes.claim, &Extra::default(), None, &bulk.actor).await?;
            self.history(id, &writes.line, &bulk.actor).await?;
            self.journal.note(observer::acted(&call.act));
        }
        let line = |kind, note: String| Line {
            kind,
            reason: Some(view.claim.processing_state().as_str()),
            attempt: view.claim.attempt,
            note: Some(note.into()),
        };
        let now = match &bulk.act {
            BulkAct::Tag { tag } if view.tag == *tag => return Ok((Fate::Refused("nothing_to_do"), None)),
            BulkAct::Tag { tag } => {
                let told = format!("{}: {}", tag.as_deref().unwrap_or("no tag"), bulk.note);
                self.history(id, &line("tag", told), &bulk.actor).await?;
                self.filed(id, tag.as_deref()).await?
            }
            BulkAct::MarkError { tag } => self.filed(id, Some(tag)).await?,
            BulkAct::Undo => {
                if !self.give_back(&stored, before, &bulk.actor).await? {
                    return Ok((Fate::Refused(why(&Refusal::PayloadRemoved)), None));
                }
                self.history(id, &line("undo", bulk.note.clone()), &bulk.actor).await?;
                self.current(id).await?
            }
            BulkAct::Reset { .. } | BulkAct::RunNow | BulkAct::MarkDone | BulkAct::Dismiss => {
                self.current(id).await?
            }
        };
        let kept = kept.filter(|_| bulk.act != BulkAct::Undo);
        Ok((Fate::Acted(Box::new(now)), kept))
    }

    /// `false`: it would be started again, and there is nothing left to start it with.
    async fn give_back(&self, stored: &Stored, before: Option<&str>, actor: &str) -> Result<bool, Fault> {
        let kept = Kept::read(before)?;
        if let Some(claim) = undo(&stored.view.claim, &kept.claim, self.now) {
            if kept.claim.comes_due() && stored.view.payload_removed_at.is_some() {
                return Ok(false);
            }
            let extra = Extra { result: kept.result.as_deref(), ..Extra::default() };
            self.update(stored, &claim, &extra, None, actor).await?;
        }
        self.filed(stored.view.at(), kept.tag.as_deref()).await?;
        Ok(true)
    }

    /// An act that is there.
    async fn noted(&self, workspace: Workspace, id: i64) -> Result<Box<BulkRow>, Fault> {
        let sql = format!("{} AND k.id = $2", bulk_rows::SELECT);
        let found = self.query_opt(&sql, &[&workspace.0, &id]).await?.ok_or_else(|| {
            StoreError::Inconsistent(format!("bulk act {id} vanished within its own transaction"))
        })?;
        let fates = self.query(bulk_rows::FATES, &[&workspace.0, &vec![id]]).await?;
        Ok(Box::new(bulk_rows::read(&found, &mut bulk_rows::fates(&fates))?))
    }

    async fn current(&self, id: ClaimRef) -> Result<ClaimView, Fault> {
        Ok(self.view(id).await?.ok_or_else(|| gone(id))?)
    }
}

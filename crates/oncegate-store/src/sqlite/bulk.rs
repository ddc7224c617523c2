//! Acts on many claims. Which ones is settled in the transaction that begins the act; each further transaction acts on
//! some of them, exactly as a single act would, and notes what became of each. A crash between two loses nothing.

use std::collections::BTreeMap;

use oncegate_core::key::{ClaimId, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::reset::Refusal;
use oncegate_core::undo::undo;
use rusqlite::params;

use super::bulk_rows;
use super::row::{self, Extra, Stored};
use super::search;
use super::transition::{Context, judged};
use crate::StoreError;
use crate::api::{ActCall, ClaimView};
use crate::bulk::{BulkAct, BulkCall, BulkCount, BulkRow, BulkStep, Bulked, Undone};
use crate::observer;
use crate::search::Filter;
use crate::transition::bulk::{
    Fate, Kept, has_no_runner, lacks_payload, single, why, without_values, would_refuse,
};
use crate::transition::{Line, Rules, act};

impl Context<'_> {
    /// What an act would do if it began now; nothing is written.
    pub(super) fn count_bulk(
        &self,
        workspace: Workspace,
        bulk: &BulkAct,
        filter: &Filter,
    ) -> Result<BulkCount, StoreError> {
        let mut count = BulkCount::default();
        let max = u64::from(limits::BULK_ROWS_MAX);
        search::walk(self.db, workspace, filter, self.now, (row::COLUMNS, u32::MAX), |r| {
            if count.matched == max {
                count.too_many = true;
                return Ok(false);
            }
            count.matched += 1;
            let refused = match row::read(r) {
                Err(_) => Some("unreadable"),
                Ok(stored) => {
                    let policy = self.policies.policy(workspace, &stored.view.automation);
                    would_refuse(bulk, &stored.view, &policy, self.now, self.boot)
                }
            };
            match refused {
                None => count.would_act += 1,
                Some(why) => *count.would_refuse.entry(why.to_owned()).or_default() += 1,
            }
            Ok(true)
        })?;
        Ok(count)
    }

    /// Settles which claims are meant, if there are as many as were counted.
    pub(super) fn begin_bulk(&self, call: &BulkCall) -> Result<Bulked, StoreError> {
        let (mut meant, mut too_many) = (Vec::new(), false);
        let max = limits::BULK_ROWS_MAX as usize;
        search::walk(self.db, call.workspace, &call.filter, self.now, ("c.version", u32::MAX), |r| {
            too_many = meant.len() == max;
            if !too_many {
                meant.push((r.get::<_, i64>("position")?, r.get::<_, i64>("version")?));
            }
            Ok(!too_many)
        })?;
        if too_many {
            return Ok(Bulked::TooMany);
        }
        if meant.len() as u64 != call.expect {
            return Ok(Bulked::CountChanged(meant.len() as u64));
        }
        let at = self.now.wall.as_millis();
        let told = serde_json::json!(call.act).to_string();
        self.db.execute(
            "INSERT INTO bulk_acts (workspace_id, token_id, act, filter, reason, actor, matched, made_at, finished_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                call.workspace.0,
                call.token_id,
                told,
                call.told,
                call.reason,
                call.actor,
                meant.len() as i64,
                at,
                meant.is_empty().then_some(at),
            ],
        )?;
        let id = self.db.last_insert_rowid();
        let mut note = self
            .db
            .prepare_cached("INSERT INTO bulk_rows (bulk_id, claim_row, version) VALUES (?1, ?2, ?3)")?;
        for (row, version) in &meant {
            note.execute(params![id, row, version])?;
        }
        let action = format!("bulk_{}", call.act.as_str());
        let detail = format!("{} claims: {}", meant.len(), without_values(&call.told));
        self.audit(call.workspace, &call.actor, &action, &format!("bulk {id}"), &call.reason, Some(&detail))?;
        Ok(Bulked::Begun(self.noted(call.workspace, id)?))
    }

    /// Begins to take an act back: what it acted on, as it left it.
    pub(super) fn begin_undo(
        &self,
        (workspace, of): (Workspace, i64),
        reason: &str,
        actor: &str,
        token_id: i64,
    ) -> Result<Undone, StoreError> {
        let Some(bulk) = bulk_rows::one(self.db, workspace, of)? else { return Ok(Undone::NotFound) };
        if let Some(by) = bulk.undone_by {
            return Ok(Undone::Before(self.noted(workspace, by)?));
        }
        let Some(finished) = bulk.finished_at else { return Ok(Undone::Running) };
        if bulk.undoes.is_some() {
            return Ok(Undone::IsUndo);
        }
        if finished < self.now.wall.before(limits::BULK_UNDO_KEPT_FOR) {
            return Ok(Undone::TooOld);
        }
        // What it would give back may have run since the backup, and would run again.
        if self.restores.gaps.iter().any(|gap| finished <= gap.restored_at) {
            return Ok(Undone::Restored);
        }
        let (at, matched) = (self.now.wall.as_millis(), bulk.count("acted"));
        let told = serde_json::json!(BulkAct::Undo).to_string();
        let filter = serde_json::json!({ "bulk_id": of }).to_string();
        self.db.execute(
            "INSERT INTO bulk_acts \
             (workspace_id, token_id, act, filter, reason, actor, matched, made_at, finished_at, undoes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                workspace.0,
                token_id,
                told,
                filter,
                reason,
                actor,
                i64::try_from(matched).unwrap_or(i64::MAX),
                at,
                (matched == 0).then_some(at),
                of,
            ],
        )?;
        let id = self.db.last_insert_rowid();
        // What it was before goes along: the undo needs it, and so would nobody else.
        self.db.execute(
            "INSERT INTO bulk_rows (bulk_id, claim_row, version, before) \
             SELECT ?1, claim_row, made, before FROM bulk_rows WHERE bulk_id = ?2 AND fate = 'acted'",
            params![id, of],
        )?;
        self.audit(
            workspace,
            actor,
            "bulk_undo",
            &format!("bulk {of}"),
            reason,
            Some(&format!("bulk {id}")),
        )?;
        Ok(Undone::Begun(self.noted(workspace, id)?))
    }

    /// Gives some claims of the oldest act that is not finished their turn. `None`: there is none.
    pub(super) fn step_bulk(&self, rows: u32) -> Result<Option<BulkStep>, StoreError> {
        let Some(bulk) = bulk_rows::oldest_open(self.db)? else { return Ok(None) };
        let mut left = self.db.prepare_cached(
            "SELECT r.claim_row, r.version, r.before, c.claim_id FROM bulk_rows r JOIN claims c ON c.id = r.claim_row \
             WHERE r.bulk_id = ?1 AND r.fate IS NULL ORDER BY r.claim_row LIMIT ?2",
        )?;
        let turn: Vec<(i64, i64, Option<String>, [u8; 16])> = left
            .query_map(params![bulk.id, rows], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
            .collect::<Result<_, _>>()?;
        let note = format!("{} (bulk {})", bulk.reason, bulk.id);
        let mut changed = Vec::new();
        for (row, version, before, id) in &turn {
            let id = ClaimRef { workspace: bulk.workspace, id: ClaimId(*id) };
            let fate = self.alone(|| self.one_of_many(&bulk, id, *version, before.as_deref(), &note))?;
            let (word, why, kept) = match fate {
                Ok((Fate::Acted(view), kept)) => {
                    changed.push(*view);
                    ("acted", None, kept)
                }
                Ok((Fate::Refused(why), _)) => ("refused", Some(why.to_owned()), None),
                Ok((Fate::Changed, _)) => ("changed", Some("changed_since".to_owned()), None),
                Err(error) => {
                    tracing::error!(claim = %id, %error, "a claim of a bulk act failed");
                    ("failed", Some("unreadable".to_owned()), None)
                }
            };
            self.db
                .prepare_cached(
                    "UPDATE bulk_rows SET fate = ?3, why = ?4, before = ?5, \
                     made = CASE ?3 WHEN 'acted' THEN (SELECT version FROM claims WHERE id = ?2) END \
                     WHERE bulk_id = ?1 AND claim_row = ?2",
                )?
                .execute(params![bulk.id, row, word, why, kept])?;
        }
        if turn.len() < rows as usize {
            self.db.execute(
                "UPDATE bulk_acts SET finished_at = ?2 WHERE id = ?1",
                params![bulk.id, self.now.wall.as_millis()],
            )?;
        }
        Ok(Some(BulkStep { changed }))
    }

    fn one_of_many(
        &self,
        bulk: &bulk_rows::Open,
        id: ClaimRef,
        version: i64,
        before: Option<&str>,
        note: &str,
    ) -> Result<(Fate, Option<String>), StoreError> {
        let Some(stored) = row::load(self.db, id)? else { return Ok((Fate::Changed, None)) };
        if stored.version != version {
            return Ok((Fate::Changed, None));
        }
        let view = &stored.view;
        let kept = Some(Kept::of(view));
        let policy = self.policies.policy(id.workspace, &view.automation);
        if has_no_runner(&bulk.act, &view.claim, &policy) {
            return Ok((Fate::Refused("no_runner"), None));
        }
        if let Some(act) = single(&bulk.act, &bulk.reason) {
            let call = ActCall { id, act, reason: note.to_owned(), actor: bulk.actor.clone() };
            let mut writes = match act::act(&Rules::CORE, &view.claim, &call, &policy, self.now, self.boot) {
                Ok(writes) => writes,
                Err(refusal) => return Ok((Fate::Refused(why(&refusal)), None)),
            };
            if lacks_payload(&call.act, view, &policy) {
                return Ok((Fate::Refused(why(&Refusal::PayloadRemoved)), None));
            }
            if writes.give_up_steps && self.give_up_in_flight(stored.row)? {
                writes.steps_were_given_up();
            }
            self.update(&stored, &writes.claim, &Extra::default(), None, &bulk.actor)?;
            self.history(stored.row, &writes.line, &bulk.actor)?;
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
                let told = format!("{}: {note}", tag.as_deref().unwrap_or("no tag"));
                self.history(stored.row, &line("tag", told), &bulk.actor)?;
                self.filed(id, tag.as_deref())?
            }
            BulkAct::MarkError { tag } => self.filed(id, Some(tag))?,
            BulkAct::Undo => {
                if !self.give_back(&stored, before, &bulk.actor)? {
                    return Ok((Fate::Refused(why(&Refusal::PayloadRemoved)), None));
                }
                self.history(stored.row, &line("undo", note.to_owned()), &bulk.actor)?;
                self.current(id)?
            }
            BulkAct::Reset { .. } | BulkAct::RunNow | BulkAct::MarkDone | BulkAct::Dismiss => {
                self.current(id)?
            }
        };
        let kept = kept.filter(|_| bulk.act != BulkAct::Undo);
        Ok((Fate::Acted(Box::new(now)), kept))
    }

    /// `false`: it would be started again, and there is nothing left to start it with.
    fn give_back(&self, stored: &Stored, before: Option<&str>, actor: &str) -> Result<bool, StoreError> {
        let kept = Kept::read(before)?;
        if let Some(claim) = undo(&stored.view.claim, &kept.claim, self.now) {
            if kept.claim.comes_due() && stored.view.payload_removed_at.is_some() {
                return Ok(false);
            }
            let extra = Extra { result: kept.result.as_deref(), ..Extra::default() };
            self.update(stored, &claim, &extra, None, actor)?;
        }
        self.filed(stored.view.at(), kept.tag.as_deref())?;
        Ok(true)
    }

    /// An act that is there.
    fn noted(&self, workspace: Workspace, id: i64) -> Result<Box<BulkRow>, StoreError> {
        bulk_rows::one(self.db, workspace, id)?.map(Box::new).ok_or_else(|| {
            StoreError::Inconsistent(format!("bulk act {id} vanished within its own transaction"))
        })
    }

    fn current(&self, id: ClaimRef) -> Result<ClaimView, StoreError> {
        let stored = row::load(self.db, id)?.ok_or_else(|| super::transition::gone(id))?;
        Ok(judged(stored, self.now, self.boot))
    }
}

/// Fates and reasons, counted.
pub(super) type Fates = BTreeMap<(String, String), u64>;

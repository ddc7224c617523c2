//! Claims that work for the holders of others: whom they belong to, and what is written about them when those move.

use oncegate_core::claim::{Claim, Parent, State};
use oncegate_core::key::{ClaimId, ClaimRef, RecordName};
use oncegate_core::limits;
use rusqlite::{OptionalExtension, params};

use super::row::{self, Extra, Stored};
use super::transition::Context;
use crate::StoreError;
use crate::api::ClaimCall;
use crate::transition::family;

/// The claim above a new one, and those above that.
pub(super) struct Above {
    pub(super) parent: Stored,
    pub(super) tie: Parent,
    line: Vec<ClaimId>,
}

impl Above {
    pub(super) fn contains(&self, claim: &Stored) -> bool {
        self.line.contains(&claim.view.claim.id)
    }
}

impl Context<'_> {
    /// Replaces a claim's row, and those of the claims that were made for its holder. `but` is decided by itself.
    pub(super) fn update(
        &self,
        stored: &Stored,
        claim: &Claim,
        extra: &Extra<'_>,
        but: Option<ClaimId>,
        actor: &str,
    ) -> Result<(), StoreError> {
        row::update(self.db, self.secret, stored, claim, extra, self.now)?;
        let before = &stored.view.claim;
        if !matches!(before.state, State::Processing(_)) {
            return Ok(());
        }
        for child in self.live_children(stored)? {
            if but == Some(child.view.claim.id) {
                continue;
            }
            let name = || format!("{} of {}", stored.view.key, stored.view.automation);
            let news = family::follow(before, claim, &child.view.claim, name, self.now);
            if let Some((after, line)) = news {
                // A child that names itself above would be its own; the chain has an end, as each was there before.
                self.update(&child, &after, &Extra::default(), but, actor)?;
                if let Some(line) = &line {
                    self.history(child.row, line, actor)?;
                }
            }
        }
        Ok(())
    }

    fn live_children(&self, parent: &Stored) -> Result<Vec<Stored>, StoreError> {
        let sql = format!(
            "{} WHERE c.workspace_id = ?1 AND c.parent = ?2 AND c.parent IS NOT NULL ORDER BY c.id",
            *row::SELECT
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let (workspace, id) = (parent.view.workspace, parent.view.claim.id);
        let mut rows = statement.query(params![workspace.0, &id.0[..]])?;
        let mut children = Vec::new();
        while let Some(r) = rows.next()? {
            match row::read(r) {
                Ok(child) => children.push(child),
                // What happened to the parent must be written down, whatever is the matter with a child.
                Err(error) => tracing::error!(%error, "a claim does not hear of its parent"),
            }
        }
        Ok(children)
    }

    /// The parent whose token the call shows. `Err(())` within: it holds no longer.
    pub(super) fn above(&self, call: &ClaimCall) -> Result<Result<Option<Above>, ()>, StoreError> {
        let Some((at, fence)) = call.parent else { return Ok(Ok(None)) };
        let Some(parent) = row::load(self.db, at)? else { return Ok(Err(())) };
        let Some(tie) = family::tie(&parent.view.claim, fence, self.now, self.boot) else {
            return Ok(Err(()));
        };
        let mut line = vec![at.id];
        let mut next = family::above(&parent.view.claim);
        while let Some(id) = next {
            if line.contains(&id) || line.len() >= limits::PARENTS_MAX {
                return Ok(Err(()));
            }
            line.push(id);
            let above = row::load(self.db, ClaimRef { workspace: at.workspace, id })?;
            next = above.and_then(|above| family::above(&above.view.claim));
        }
        Ok(Ok(Some(Above { parent, tie, line })))
    }

    /// The live child of the same parent that shares this record already.
    pub(super) fn sharing_sibling(
        &self,
        above: &Above,
        record: &RecordName,
        but: ClaimId,
    ) -> Result<Option<Stored>, StoreError> {
        let sql = format!(
            "{} WHERE c.workspace_id = ?1 AND c.parent = ?2 AND c.parent IS NOT NULL AND c.record = ?3 \
             AND c.record_hash IS NULL AND c.claim_id <> ?4 ORDER BY c.id LIMIT 1",
            *row::SELECT
        );
        let parent = &above.parent.view;
        let of = params![parent.workspace.0, &parent.claim.id.0[..], record.as_str(), &but.0[..]];
        self.db.prepare_cached(&sql)?.query_row(of, |r| Ok(row::read(r))).optional()?.transpose()
    }
}

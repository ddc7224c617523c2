//! Claims that work for the holders of others: whom they belong to, and what is written about them when those move.
//!
//! A child is made under its parent's lock, and a parent's row is replaced before its children are read: so whichever
//! of the two transactions comes first, the other sees what it wrote.

use std::future::Future;
use std::pin::Pin;

use oncegate_core::claim::{Claim, Parent, State};
use oncegate_core::key::{ClaimId, ClaimRef, RecordName};
use oncegate_core::limits;

use super::context::Context;
use super::error::Fault;
use super::row::{self, Extra, Stored};
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
        self.line.contains(&claim.id())
    }
}

impl Context<'_> {
    /// Replaces a claim's row, and those of the claims that were made for its holder. `but` is decided by itself.
    pub(super) fn update<'f>(
        &'f self,
        stored: &'f Stored,
        claim: &'f Claim,
        extra: &'f Extra<'f>,
        but: Option<ClaimId>,
        actor: &'f str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'f>> {
        Box::pin(async move {
            self.swap(stored, claim, extra).await?;
            let before = &stored.view.claim;
            if !matches!(before.state, State::Processing(_)) {
                return Ok(());
            }
            for child in self.live_children(stored).await? {
                if but == Some(child.id()) {
                    continue;
                }
                let name = || format!("{} of {}", stored.view.key, stored.view.automation);
                let news = family::follow(before, claim, &child.view.claim, name, self.now);
                if let Some((after, line)) = news {
                    // A child that names itself above would be its own; the chain has an end, as each was there before.
                    self.update(&child, &after, &Extra::default(), but, actor).await?;
                    if let Some(line) = &line {
                        self.history(child.view.at(), line, actor).await?;
                    }
                }
            }
            Ok(())
        })
    }

    async fn live_children(&self, parent: &Stored) -> Result<Vec<Stored>, Fault> {
        let sql = format!(
            "{} WHERE c.workspace_id = $1 AND c.parent = $2 ORDER BY c.position FOR UPDATE OF c",
            *row::SELECT
        );
        let rows = self.query(&sql, &[&parent.view.workspace.0, &&parent.id().0[..]]).await?;
        let mut children = Vec::with_capacity(rows.len());
        for r in &rows {
            match row::read(r) {
                Ok(child) => children.push(child),
                // What happened to the parent must be written down, whatever is the matter with a child.
                Err(Fault::Failed(error @ StoreError::Inconsistent(_))) => {
                    tracing::error!(%error, "a claim does not hear of its parent");
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(children)
    }

    /// The parent whose token the call shows, locked. `Err(())` within: it holds no longer.
    pub(super) async fn above(&self, call: &ClaimCall) -> Result<Result<Option<Above>, ()>, Fault> {
        let Some((at, fence)) = call.parent else { return Ok(Ok(None)) };
        let Some(parent) = self.lock(at).await? else { return Ok(Err(())) };
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
            let above = self.load(ClaimRef { workspace: at.workspace, id }).await?;
            next = above.and_then(|above| family::above(&above.view.claim));
        }
        Ok(Ok(Some(Above { parent, tie, line })))
    }

    /// The live child of the same parent that shares this record already.
    pub(super) async fn sharing_sibling(
        &self,
        above: &Above,
        record: &RecordName,
        but: ClaimId,
    ) -> Result<Option<Stored>, Fault> {
        let sql = format!(
            "{} WHERE c.workspace_id = $1 AND c.parent = $2 AND c.record = $3 AND c.record_hash IS NULL \
             AND c.claim_id <> $4 ORDER BY c.position LIMIT 1",
            *row::SELECT
        );
        let parent = &above.parent;
        let of = self
            .query_opt(&sql, &[&parent.view.workspace.0, &&parent.id().0[..], &record.as_str(), &&but.0[..]])
            .await?;
        of.as_ref().map(row::read).transpose()
    }
}

//! An attempt that is taken together with what it does first.

use oncegate_core::decide::Decision;
use rusqlite::OptionalExtension;

use super::SqliteStore;
use super::transition::Context;
use super::writer::Manner;
use crate::StoreError;
use crate::api::{Begun, ClaimCall, ClaimRef, First, Opened, Opening};

impl SqliteStore {
    pub(super) async fn begin_together(
        &self,
        call: ClaimCall,
        first: First,
    ) -> Result<Option<Begun>, StoreError> {
        let (before, after) = match first.opening {
            Opening::Step(_) => ("step.before_commit", "step.written"),
            Opening::Word(_) => ("defer.before_commit", "defer.committed"),
        };
        // It takes something new: on a full disk nothing is begun.
        let manner = Manner::ASKING.killed_at("run.before_commit", "run.committed").killed_at(before, after);
        self.stops.counted(first.opening.id()).await;
        let begun = self.transact_now(manner, move |cx| cx.begin_run(&call, &first)).await?;
        begun.iter().for_each(|begun| self.stops.saw(&begun.claimed.decision));
        Ok(begun)
    }
}

impl Context<'_> {
    fn begin_run(&self, call: &ClaimCall, first: &First) -> Result<Option<Begun>, StoreError> {
        let as_it_was = self.version(first.opening.id())? == Some(first.version);
        let Some(claimed) = self.claim(call)? else { return Ok(None) };
        let begins = as_it_was
            && matches!(claimed.decision, Decision::Run(_))
            && claimed.view.as_ref().is_some_and(|view| view.claim.fence() == first.opening.fence());
        let opened = match &first.opening {
            _ if !begins => None,
            Opening::Step(begin) => self.begin_step(begin)?.map(Opened::Step),
            Opening::Word(word) => {
                self.finish(word)?.map(|(answer, view)| Opened::Word(answer, Box::new(view)))
            }
        };
        Ok(Some(Begun { claimed, opened }))
    }

    fn version(&self, id: ClaimRef) -> Result<Option<i64>, StoreError> {
        Ok(self
            .db
            .prepare_cached("SELECT version FROM claims WHERE claim_id = ?1 AND workspace_id = ?2")?
            .query_row(rusqlite::params![&id.id.0[..], id.workspace.0], |r| r.get(0))
            .optional()?)
    }
}

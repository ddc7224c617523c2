//! Many claims in one transaction, each with a savepoint of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use oncegate_core::claim::Holder;
use oncegate_core::decide::{Decision, Start};

use super::context::Context;
use super::error::Fault;
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, Target};

impl Context<'_> {
    /// An item that loses against another node has the whole batch tried again: its lock is the transaction's, and the
    /// items before it may be why the other one waits. Batches with the same keys in another order would go on to end
    /// one another, so one that has lost (`lost`) takes its turn.
    pub(super) async fn claim_batch(
        &self,
        calls: &[ClaimCall],
        lost: bool,
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, Fault> {
        if lost {
            self.take_turn(calls).await?;
        }
        let mut running = HashSet::new();
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let mut call = call.clone();
            // A second item of one batch is another effect under the same name, never the repeat of a lost answer.
            let name = match &call.target {
                Target::Key { workspace, automation, key } => {
                    Some((*workspace, automation.clone(), key.clone()))
                }
                Target::Id(_) => None,
            };
            if name.as_ref().is_some_and(|name| running.contains(name))
                && let Start::Now(Holder::Caller { run_id }) = &mut call.request.start
            {
                *run_id = None;
            }
            self.savepoint().await?;
            let answer = self.alone(self.claim(&call).await).await?;
            if let (Ok(Some(Claimed { decision: Decision::Run(_), .. })), Some(name)) = (&answer, name) {
                running.insert(name);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Waits until no other batch that takes turns is at work on the same automations.
    async fn take_turn(&self, calls: &[ClaimCall]) -> Result<(), Fault> {
        let mut automations: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
        for call in calls {
            if let Target::Key { workspace, automation, .. } = &call.target {
                automations.entry(workspace.0).or_default().insert(automation.as_str());
            }
        }
        for (workspace, names) in automations {
            let names: Vec<&str> = names.into_iter().collect();
            let sql = "SELECT 1 FROM automations WHERE workspace_id = $1 AND name = ANY($2::text[]) \
                ORDER BY id FOR UPDATE";
            self.query(sql, &[&workspace, &names]).await?;
        }
        Ok(())
    }

    /// Undoes what was written since [`Context::savepoint`] if it failed, and nothing else. The outer error is one that
    /// ends the transaction.
    pub(super) async fn alone<T>(&self, done: Result<T, Fault>) -> Result<Result<T, StoreError>, Fault> {
        match done {
            Ok(done) => {
                self.keep().await?;
                Ok(Ok(done))
            }
            // A bad row is its own trouble; a full disk or a database that went away is everybody's.
            Err(Fault::Failed(error @ StoreError::Inconsistent(_))) => {
                self.undo().await?;
                Ok(Err(error))
            }
            Err(fault) => Err(fault),
        }
    }
}

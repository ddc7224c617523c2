//! Many claims in one transaction, each with a savepoint of its own.

use std::collections::HashSet;

use oncegate_core::claim::Holder;
use oncegate_core::decide::{Decision, Start};

use super::transition::Context;
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, Target};

impl Context<'_> {
    pub(super) fn claim_batch(
        &self,
        calls: &[ClaimCall],
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError> {
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
            let answer = self.alone(|| self.claim(&call))?;
            if let (Ok(Some(Claimed { decision: Decision::Run(_), .. })), Some(name)) = (&answer, name) {
                running.insert(name);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Undoes what `work` wrote if it fails, and nothing else. The outer error is one that fails the transaction.
    pub(super) fn alone<T>(
        &self,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, StoreError> {
        self.db.execute_batch("SAVEPOINT alone")?;
        let done = work();
        match &done {
            Ok(_) => self.db.execute_batch("RELEASE alone")?,
            // A bad row is its own trouble; a full disk or a broken file is everybody's.
            Err(StoreError::Inconsistent(_)) => self.db.execute_batch("ROLLBACK TO alone; RELEASE alone")?,
            Err(error) => return Err(error.clone()),
        }
        Ok(done)
    }
}

//! What this node knows of the others on the same store. On a store that one process owns there are none, and nothing
//! is asked.

use std::sync::{Arc, PoisonError, RwLock};

use oncegate_core::key::{AutomationName, Workspace};
use oncegate_store::StoreError;
use oncegate_store::api::{ClaimCall, Target};
use oncegate_store::nodes::Abilities;

use crate::gatekeeper::Gatekeeper;

/// The other nodes that are alive, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    others: RwLock<Arc<Abilities>>,
}

impl Cluster {
    /// What they can do, all together.
    pub(crate) fn others(&self) -> Arc<Abilities> {
        Arc::clone(&self.others.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Gatekeeper {
    /// Tells the store what this node can do, and looks what the others can. To be called once everything is declared
    /// and before anything runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn hello(&self) -> Result<(), StoreError> {
        self.store().hello(self.book().abilities()).await?;
        self.look_round().await
    }

    /// Looks again what the other nodes can do.
    pub(crate) async fn look_round(&self) -> Result<(), StoreError> {
        if self.store().is_shared() {
            let others = Arc::new(self.store().elsewhere().await?);
            *self.cluster().others.write().unwrap_or_else(PoisonError::into_inner) = others;
        }
        Ok(())
    }

    /// Whether this node, or another that is alive, can do the work of an automation.
    pub fn somebody_runs(&self, workspace: Workspace, automation: &AutomationName) -> bool {
        let others = self.cluster().others();
        self.runs(workspace, automation) || others.runs.contains(&(workspace, automation.clone()))
    }

    /// Whether an automation is not declared here, but on another node that is alive: this one must not judge its
    /// claims by its own defaults.
    pub fn is_of_another(&self, workspace: Workspace, automation: &AutomationName) -> bool {
        let others = self.cluster().others();
        !others.declares.is_empty()
            && others.declares.contains(&(workspace, automation.clone()))
            && !self.book().declares(workspace, automation)
    }

    /// Refuses a claim that another node should judge. Its caller comes again, and may reach that one; a default
    /// policy in place of the declared one could run an effect twice.
    ///
    /// # Errors
    /// The automation is another node's.
    pub(crate) fn judges(&self, call: &ClaimCall) -> Result<(), StoreError> {
        match &call.target {
            Target::Key { workspace, automation, .. } if self.is_of_another(*workspace, automation) => {
                Err(StoreError::Refused(format!(
                    "the automation `{automation}` is declared on another node of this store and not on this one, \
                     which does not judge it by defaults; send the call again, and give every node the same \
                     oncegate.yaml"
                )))
            }
            Target::Key { .. } | Target::Id(_) => Ok(()),
        }
    }

    /// Automations with work that is due and that no node can run.
    pub(crate) async fn stranded(&self) -> Result<Vec<(Workspace, AutomationName)>, StoreError> {
        self.look_round().await?;
        let mut runnable = self.book().abilities().runs;
        runnable.extend(self.cluster().others().runs.iter().cloned());
        self.store().stranded(runnable).await
    }
}

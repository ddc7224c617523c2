//! The one node of this store: the process that owns its directory.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};

use super::queries;
use super::store::{Shared, SqliteStore};
use crate::nodes::{Abilities, Names, NodeRow, Nodes};
use crate::{Store, StoreError};

impl Shared {
    /// What this process can run, once it has said so.
    pub(super) fn runs(&self) -> Option<Arc<Names>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Nodes for SqliteStore {
    async fn hello(&self, can: Abilities) -> Result<(), StoreError> {
        *self.shared.runs.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(can.runs));
        Ok(())
    }

    async fn elsewhere(&self) -> Result<Abilities, StoreError> {
        Ok(Abilities::default())
    }

    async fn stranded(&self, runnable: Names) -> Result<Vec<(Workspace, AutomationName)>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| queries::stranded(db, shared.now(), shared.boot, &runnable)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        Ok(vec![NodeRow {
            name: "local".into(),
            start: self.shared.boot.start,
            seen_at: Store::now(self).wall,
            alive: true,
            version: env!("CARGO_PKG_VERSION").into(),
            is_me: true,
        }])
    }
}

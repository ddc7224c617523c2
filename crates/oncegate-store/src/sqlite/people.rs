//! The contract's part for people and their scripts, in terms of the writer, the readers and the transitions.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};

use super::store::SqliteStore;
use super::writer::Manner;
use super::{automations, requests};
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, Page};
use crate::people::{AutomationRow, Known, Once, People, Request, Write, Wrote};

#[async_trait]
impl People for SqliteStore {
    async fn write(&self, write: Write, once: Option<Once>) -> Result<Wrote, StoreError> {
        let manner = match &write {
            Write::Release(_) => Manner::ASKING.killed_at("admit.before_commit", "admit.committed"),
            // A leaked token is ended, whether or not somebody waits to hear of it.
            Write::RevokeToken { .. } => Manner::TELLING,
            _ => Manner::ASKING,
        };
        self.transact(manner, move |cx| cx.write_once(&write, once.as_ref())).await
    }

    async fn known_request(&self, request: Request) -> Result<Option<Known>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| requests::known(db, &request, shared.now())).await
    }

    async fn automations(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<AutomationRow>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| automations::list(db, workspace, only.as_deref(), before, limit, shared.now()))
            .await
    }

    async fn claim_batch(
        &self,
        calls: Vec<ClaimCall>,
    ) -> Result<Vec<Result<Claimed, StoreError>>, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.claim_batch(&calls)).await
    }
}

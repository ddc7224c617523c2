//! The contract's part for people and their scripts, in terms of the writer, the readers and the transitions.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};

use super::store::SqliteStore;
use super::writer::Manner;
use super::{automations, bulk_rows, queries, requests, search};
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, HistoryRow, Page};
use crate::bulk::{BulkAct, BulkClaim, BulkCount, BulkRow, BulkStep};
use crate::people::{AutomationRow, Export, Known, Once, People, Request, Write, Wrote};
use crate::search::{By, Filter, Found, Groups};

#[async_trait]
impl People for SqliteStore {
    async fn write(&self, write: Write, once: Option<Once>) -> Result<Wrote, StoreError> {
        let manner = match &write {
            Write::Release(_) => Manner::ASKING.killed_at("admit.before_commit", "admit.committed"),
            // A leaked token is ended, whether or not somebody waits to hear of it.
            Write::RevokeToken { .. } => Manner::TELLING,
            // What people do to mend things goes on when the disk is nearly full.
            Write::Act { .. } | Write::SetPaused { .. } | Write::UndoBulk { .. } => Manner::URGENT,
            Write::Tag { .. } | Write::Rename { .. } | Write::Bulk(_) | Write::AddToken(_) => Manner::ASKING,
        };
        self.transact(manner, move |cx| cx.write_once(&write, once.as_ref())).await
    }

    async fn known_request(&self, request: Request) -> Result<Option<Known>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| requests::known(db, &request, shared.now())).await
    }

    async fn search(&self, workspace: Workspace, filter: Filter) -> Result<Found, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| search::search(db, workspace, &filter, shared.now(), shared.boot)).await
    }

    async fn export(&self, workspace: Workspace, filter: Filter) -> Result<Export, StoreError> {
        // What it shows is complete up to now.
        let _ = self.stops.count().await;
        self.exports.start(workspace, filter, Arc::clone(&self.shared))
    }

    async fn history_page(
        &self,
        id: ClaimRef,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<HistoryRow>, StoreError> {
        self.readers.read(move |db| queries::history_page(db, id, after, limit)).await
    }

    async fn groups(&self, workspace: Workspace, filter: Filter, by: By) -> Result<Groups, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| search::groups(db, workspace, &filter, by, shared.now())).await
    }

    async fn count_bulk(
        &self,
        workspace: Workspace,
        act: BulkAct,
        filter: Filter,
    ) -> Result<BulkCount, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| shared.context(db).count_bulk(workspace, &act, &filter)).await
    }

    async fn step_bulk(&self, rows: u32) -> Result<Option<BulkStep>, StoreError> {
        let manner = Manner::URGENT.killed_at("bulk.before_commit", "bulk.committed");
        self.transact(manner, move |cx| cx.step_bulk(rows)).await
    }

    async fn bulk(&self, workspace: Workspace, id: i64) -> Result<Option<BulkRow>, StoreError> {
        self.readers.read(move |db| bulk_rows::one(db, workspace, id)).await
    }

    async fn bulks(
        &self,
        workspace: Workspace,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkRow>, StoreError> {
        self.readers.read(move |db| bulk_rows::list(db, workspace, before, limit)).await
    }

    async fn bulk_claims(
        &self,
        workspace: Workspace,
        id: i64,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkClaim>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| bulk_rows::claims(db, (workspace, id), after, limit, shared.now(), shared.boot))
            .await
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
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.claim_batch(&calls)).await
    }
}

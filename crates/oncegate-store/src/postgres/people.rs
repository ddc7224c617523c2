//! What comes in through the API from people and their scripts, in terms of transactions and reads.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};

use super::context::transact;
use super::store::{PgStore, read};
use super::{automations, bulk, bulk_rows, export, queries, requests, search};
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, HistoryRow, Page};
use crate::bulk::{BulkAct, BulkClaim, BulkCount, BulkRow, BulkStep};
use crate::people::{AutomationRow, Export, Known, Once, People, Request, Write, Wrote};
use crate::search::{By, Filter, Found, Groups};

#[async_trait]
impl People for PgStore {
    async fn write(&self, write: Write, once: Option<Once>) -> Result<Wrote, StoreError> {
        transact!(&self.shared, |cx| cx.write_once(&write, once.as_ref()).await)
    }

    async fn known_request(&self, request: Request) -> Result<Option<Known>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            requests::known(&db, &request, now).await
        })
    }

    async fn search(&self, workspace: Workspace, filter: Filter) -> Result<Found, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            search::search(db, workspace, &filter, now, self.shared.boot).await
        })
    }

    async fn export(&self, workspace: Workspace, filter: Filter) -> Result<Export, StoreError> {
        export::start(&self.shared, workspace, filter).await
    }

    async fn history_page(
        &self,
        id: ClaimRef,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<HistoryRow>, StoreError> {
        read!(self, |db| queries::history_page(&db, id, after, limit).await)
    }

    async fn groups(&self, workspace: Workspace, filter: Filter, by: By) -> Result<Groups, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            search::groups(db, workspace, &filter, by, now).await
        })
    }

    async fn count_bulk(
        &self,
        workspace: Workspace,
        act: BulkAct,
        filter: Filter,
    ) -> Result<BulkCount, StoreError> {
        read!(self, |db| bulk::count(&self.shared, db, workspace, &act, &filter).await)
    }

    async fn step_bulk(&self, rows: u32) -> Result<Option<BulkStep>, StoreError> {
        if self.shared.is_superseded() {
            return Ok(None);
        }
        // Looked for over all workspaces, and then taken in a transaction of its own.
        match read!(self, |db| bulk_rows::oldest_open(&db).await)? {
            Some(open) => transact!(&self.shared, |cx| cx.step_bulk(open, rows).await).map(Some),
            None => Ok(None),
        }
    }

    async fn bulk(&self, workspace: Workspace, id: i64) -> Result<Option<BulkRow>, StoreError> {
        read!(self, |db| bulk_rows::one(&db, workspace, id).await)
    }

    async fn bulks(
        &self,
        workspace: Workspace,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkRow>, StoreError> {
        read!(self, |db| bulk_rows::list(&db, workspace, before, limit).await)
    }

    async fn bulk_claims(
        &self,
        workspace: Workspace,
        id: i64,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkClaim>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            bulk_rows::claims(&db, (workspace, id), after, limit, now, self.shared.boot).await
        })
    }

    async fn automations(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<AutomationRow>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            automations::list(&db, workspace, only.as_deref(), before, limit, now).await
        })
    }

    async fn claim_batch(
        &self,
        calls: Vec<ClaimCall>,
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError> {
        if self.shared.is_superseded() {
            return Err(StoreError::Closed);
        }
        // All that is kept from one try to the next: that there was one.
        let tried = AtomicBool::new(false);
        transact!(&self.shared, |cx| cx.claim_batch(&calls, tried.swap(true, Ordering::Relaxed)).await)
    }
}

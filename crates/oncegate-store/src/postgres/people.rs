//! What comes in through the API from people and their scripts.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};

use super::store::PgStore;
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, HistoryRow, Page};
use crate::bulk::{BulkAct, BulkClaim, BulkCount, BulkRow, BulkStep};
use crate::people::{AutomationRow, Export, Known, Once, People, Request, Write, Wrote};
use crate::search::{By, Filter, Found, Groups};

#[async_trait]
impl People for PgStore {
    async fn write(&self, _write: Write, _once: Option<Once>) -> Result<Wrote, StoreError> {
        Err(super::not_yet())
    }

    async fn known_request(&self, _request: Request) -> Result<Option<Known>, StoreError> {
        Err(super::not_yet())
    }

    async fn search(&self, _workspace: Workspace, _filter: Filter) -> Result<Found, StoreError> {
        Err(super::not_yet())
    }

    async fn export(&self, _workspace: Workspace, _filter: Filter) -> Result<Export, StoreError> {
        Err(super::not_yet())
    }

    async fn history_page(
        &self,
        _id: ClaimRef,
        _after: Option<i64>,
        _limit: u32,
    ) -> Result<Page<HistoryRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn groups(&self, _workspace: Workspace, _filter: Filter, _by: By) -> Result<Groups, StoreError> {
        Err(super::not_yet())
    }

    async fn count_bulk(
        &self,
        _workspace: Workspace,
        _act: BulkAct,
        _filter: Filter,
    ) -> Result<BulkCount, StoreError> {
        Err(super::not_yet())
    }

    async fn step_bulk(&self, _rows: u32) -> Result<Option<BulkStep>, StoreError> {
        Err(super::not_yet())
    }

    async fn bulk(&self, _workspace: Workspace, _id: i64) -> Result<Option<BulkRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn bulks(
        &self,
        _workspace: Workspace,
        _before: Option<i64>,
        _limit: u32,
    ) -> Result<Page<BulkRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn bulk_claims(
        &self,
        _workspace: Workspace,
        _id: i64,
        _after: Option<i64>,
        _limit: u32,
    ) -> Result<Page<BulkClaim>, StoreError> {
        Err(super::not_yet())
    }

    async fn automations(
        &self,
        _workspace: Workspace,
        _only: Option<Vec<AutomationName>>,
        _before: Option<i64>,
        _limit: u32,
    ) -> Result<Page<AutomationRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn claim_batch(
        &self,
        _calls: Vec<ClaimCall>,
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError> {
        Err(super::not_yet())
    }
}

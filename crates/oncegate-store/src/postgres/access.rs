//! Who may call: workspaces, tokens, the audit.

use async_trait::async_trait;
use oncegate_core::access::WorkspaceName;
use oncegate_core::key::Workspace;
use oncegate_core::time::Timestamp;

use super::store::PgStore;
use crate::StoreError;
use crate::access::{
    Access, ApiToken, AuditFilter, Declared, Deed, DeleteWorkspace, Deleted, NewToken, Preset, Revoked,
    WorkspaceRow,
};
use crate::api::{AuditRow, Page};

#[async_trait]
impl Access for PgStore {
    async fn token_by_hash(&self, _hash: [u8; 32]) -> Result<Option<ApiToken>, StoreError> {
        Err(super::not_yet())
    }

    async fn tokens(&self, _workspace: Workspace) -> Result<Vec<ApiToken>, StoreError> {
        Err(super::not_yet())
    }

    async fn add_token(&self, _token: NewToken) -> Result<Option<i64>, StoreError> {
        Err(super::not_yet())
    }

    async fn preset_token(&self, _token: NewToken) -> Result<Preset, StoreError> {
        Err(super::not_yet())
    }

    async fn revoke_token(
        &self,
        _workspace: Workspace,
        _id: i64,
        _although_last: bool,
        _reason: String,
        _actor: String,
    ) -> Result<Revoked, StoreError> {
        Err(super::not_yet())
    }

    async fn touch_tokens(&self, _used: Vec<(i64, Timestamp)>) -> Result<(), StoreError> {
        Err(super::not_yet())
    }

    async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn add_workspace(
        &self,
        _name: WorkspaceName,
        _actor: String,
    ) -> Result<(Workspace, bool), StoreError> {
        Err(super::not_yet())
    }

    async fn delete_workspace(&self, _call: DeleteWorkspace) -> Result<Deleted, StoreError> {
        Err(super::not_yet())
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        Err(super::not_yet())
    }

    async fn audit_of(
        &self,
        _workspace: Workspace,
        _filter: AuditFilter,
    ) -> Result<Page<AuditRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn note_deeds(&self, _workspace: Workspace, _deeds: Vec<Deed>) -> Result<(), StoreError> {
        Err(super::not_yet())
    }

    async fn note_declared(
        &self,
        _workspace: Workspace,
        _declared: Declared,
    ) -> Result<Vec<String>, StoreError> {
        Err(super::not_yet())
    }
}

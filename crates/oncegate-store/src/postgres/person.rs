//! Everything that is kept of one claim or delivery, for exports; and forgetting it.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::key::Workspace;
use oncegate_core::person::Person;

use super::store::PgStore;
use crate::StoreError;
use crate::person::{Dossier, Forget, Forgotten, Place, Privacy};

#[async_trait]
impl Privacy for PgStore {
    async fn dossiers(
        &self,
        _workspace: Workspace,
        _who: Option<Arc<Person>>,
        _from: Place,
    ) -> Result<(Vec<Dossier>, Option<Place>), StoreError> {
        Err(super::not_yet())
    }

    async fn audit_naming(&self, _workspace: Workspace, _who: Arc<Person>) -> Result<u64, StoreError> {
        Err(super::not_yet())
    }

    async fn forget(&self, _workspace: Workspace, _items: Vec<Forget>) -> Result<Vec<Forgotten>, StoreError> {
        Err(super::not_yet())
    }
}

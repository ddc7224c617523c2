//! Tools that are called back: whose turn it is, decided by the core, written before the hook is called.

use async_trait::async_trait;
use oncegate_core::key::ClaimRef;

use super::store::PgStore;
use crate::StoreError;
use crate::api::Due;
use crate::nudges::{Nudge, Nudges};

#[async_trait]
impl Nudges for PgStore {
    async fn due_nudges(&self, _limit: u32) -> Result<Vec<Due>, StoreError> {
        Err(super::not_yet())
    }

    async fn nudge(&self, _id: ClaimRef) -> Result<Nudge, StoreError> {
        Err(super::not_yet())
    }

    async fn nudge_failed(&self, _id: ClaimRef, _note: String) -> Result<(), StoreError> {
        Err(super::not_yet())
    }
}

//! What a store does by itself: forgetting; and how a recovery ends.

use super::context::Context;
use super::error::Fault;
use super::store::PgStore;
use crate::StoreError;

pub(super) async fn reap(_store: &PgStore, _limit: u32) -> Result<u64, StoreError> {
    Err(super::not_yet())
}

pub(super) async fn end_recovery(_cx: &Context<'_>, _reason: &str, _actor: &str) -> Result<bool, Fault> {
    Err(super::not_yet().into())
}

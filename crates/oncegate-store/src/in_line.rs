//! Who goes before a claim on its record, and who went past it (DESIGN §6: events of one record run in order of
//! arrival, and after the final error of one the later go on).

use std::time::Duration;

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey};
use serde::Serialize;

use crate::StoreError;

/// How long the store keeps what waits its turn from the runner; then it is decided once more whether it must wait.
/// Whoever goes before it rings the runner at its end; this is for bells that nobody heard, and for the SLA.
pub(crate) const UNSEEN: Duration = Duration::from_secs(300);

/// Another claim of the same record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Its automation.
    pub automation: AutomationName,
    /// Its key.
    pub idempotency_key: IdempotencyKey,
}

/// What stands before and behind a claim that oncegate runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The first earlier one that has yet to run, or to run again.
    pub waits_for: Option<Neighbour>,
    /// The newest later one that is done, while this one is not: to run it now writes what is older over what is newer.
    pub overtaken_by: Option<Neighbour>,
}

/// What a store tells about the order on a record.
#[async_trait]
pub trait InLine {
    /// Of a claim that is not done and names a record; of any other there is nothing to tell.
    async fn neighbours(&self, id: ClaimRef) -> Result<Neighbours, StoreError>;
}

pub(crate) fn neighbour(automation: &str, key: &str) -> Result<Neighbour, StoreError> {
    let unreadable = |what: &str| StoreError::Inconsistent(format!("{what} of a claim cannot be read"));
    Ok(Neighbour {
        automation: AutomationName::try_from(automation).map_err(|_| unreadable("the automation"))?,
        idempotency_key: IdempotencyKey::try_from(key).map_err(|_| unreadable("the key"))?,
    })
}

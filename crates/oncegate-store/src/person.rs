//! Everything that is kept of one claim or delivery, for exports; and forgetting it.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::person::Person;

use crate::StoreError;
use crate::api::{ClaimView, DeliveryRow, HistoryRow, Work};

/// Everything that is kept of one thing.
#[derive(Clone, Debug)]
pub enum Dossier {
    /// A claim.
    Claim(Box<ClaimDossier>),
    /// A delivery that belongs to no claim.
    Delivery(Box<DeliveryRow>),
}

/// Everything that is kept of one claim.
#[derive(Clone, Debug)]
pub struct ClaimDossier {
    /// The claim.
    pub view: ClaimView,
    /// Its payload, and what its steps sent and were answered.
    pub work: Work,
    /// What happened to it, oldest first.
    pub history: Vec<HistoryRow>,
    /// Its deliveries with their bodies, oldest first.
    pub deliveries: Vec<DeliveryRow>,
}

/// Where a reading of dossiers goes on: claims come first, then deliveries without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After this row of the claims; 0 begins.
    Claims(i64),
    /// After this row of the deliveries.
    Deliveries(i64),
}

impl Place {
    /// Where a reading begins.
    pub const START: Self = Self::Claims(0);
}

/// What is to be forgotten in one transaction.
#[derive(Clone, Debug)]
pub enum Forget {
    /// A claim.
    Claim(ClaimRef),
    /// A delivery without one.
    Delivery(i64),
}

/// What became of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing is left of it but its keyed hash, its state and dates.
    Yes,
    /// It is live: it waits or runs.
    Live,
    /// There is none.
    Nothing,
}

/// The part of the contract that is about the data of persons.
#[async_trait]
pub trait Privacy: Send + Sync {
    /// Dossiers of a workspace, oldest first; only those that name `who`, if somebody is asked about. A bounded number
    /// of rows is looked at; the second answer is where to go on, `None` at the end.
    async fn dossiers(
        &self,
        workspace: Workspace,
        who: Option<Arc<Person>>,
        from: Place,
    ) -> Result<(Vec<Dossier>, Option<Place>), StoreError>;
    /// How many rows of the audit name somebody in a reason or a detail. They stay: the audit is append-only.
    async fn audit_naming(&self, workspace: Workspace, who: Arc<Person>) -> Result<u64, StoreError>;
    /// Forgets what is done, in error or dismissed: payload, key, record, results, history, deliveries. The claim stays
    /// as a hash with its state, so that the same event, should it come again, does not run again. One answer per item.
    async fn forget(&self, workspace: Workspace, items: Vec<Forget>) -> Result<Vec<Forgotten>, StoreError>;
}

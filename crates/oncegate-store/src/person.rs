//! Everything that is kept of one claim or delivery, for exports; and forgetting it.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::claim::State;
use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::person::Person;

use crate::StoreError;
use crate::api::{ClaimView, DeliveryRow, HistoryRow, StepCall, Work};

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

impl ClaimDossier {
    /// Whether anything in it names somebody.
    pub(crate) fn names(&self, who: &Person) -> bool {
        let Self { view, work, history, deliveries } = self;
        let text = |text: Option<&str>| text.is_some_and(|text| who.is_named_in(text));
        let note = match &view.claim.state {
            State::Error { note, .. } => Some(note.as_str()),
            State::None { .. } | State::Processing(_) | State::Done { .. } => None,
        };
        let answered = |call: &StepCall| {
            call.answer.as_deref().is_some_and(|body| who.is_in_body(body))
                || text(call.note.as_deref())
                || text(Some(&call.target))
        };
        let payload = work.payload.as_ref();
        text(Some(view.key.as_str()))
            || text(view.claim.record.as_ref().map(|r| r.as_str()))
            || text(view.run_url.as_deref())
            || text(note)
            || view.result.as_ref().is_some_and(|result| who.is_in_body(result.as_bytes()))
            || payload.is_some_and(|p| who.is_in_body(p.json.as_bytes()) || who.is_in_body(&p.body))
            || work.steps.iter().any(answered)
            || history.iter().any(|h| text(h.note.as_deref()) || text(Some(&h.actor)))
            || deliveries.iter().any(|row| row.names(who))
    }
}

impl DeliveryRow {
    /// Whether anything in it names somebody.
    pub(crate) fn names(&self, who: &Person) -> bool {
        self.body.as_deref().is_some_and(|body| who.is_in_body(body))
            || self.headers.as_deref().is_some_and(|headers| who.is_named_in(headers))
            || self.reason.as_deref().is_some_and(|reason| who.is_named_in(reason))
    }
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

//! What a run sends first, made ready before its attempt is taken: both are one transaction then. And what its target
//! has no room for is told to wait in the one that takes it.

use oncegate_core::finish::Call;
use oncegate_core::key::ClaimRef;
use oncegate_core::token::Fence;
use oncegate_store::StoreError;
use oncegate_store::api::{First, Opening, Work};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use crate::flow::{Flow, Step};
use crate::request::{Outgoing, payload_of};
use crate::sending::{Cleared, What};
use crate::stepping::Run;
use crate::waiting::holds;
use crate::worker::{Attempt, Worker, hands_over, word};

/// A run that begins as it is expected to.
pub(crate) struct Planned {
    pub(crate) work: Work,
    /// What it was made from.
    pub(crate) flow: Arc<Flow>,
    pub(crate) payload: Value,
    pub(crate) first: First,
    /// `None`: it waits.
    pub(crate) ready: Option<Ready>,
}

/// A call that goes out once it is written down.
pub(crate) struct Ready {
    pub(crate) outgoing: Outgoing,
    pub(crate) cleared: Cleared,
    pub(crate) target: String,
}

impl Worker {
    /// What the next attempt of a claim does first, if that is a call, and none was made for it yet. Whatever is not as
    /// simple is found out once it runs.
    pub(crate) async fn plan(&self, id: ClaimRef) -> Result<Option<Planned>, StoreError> {
        let store = self.gate.store();
        // Only a store of this process alone writes both at once.
        if store.is_shared() {
            return Ok(None);
        }
        let Some(work) = store.work(id).await? else { return Ok(None) };
        let declared = self.gate.book().automation(id.workspace, &work.automation);
        let Some(flow) = declared.flow.filter(|_| work.steps.is_empty() && work.payload.is_some()) else {
            return Ok(None);
        };
        let (Some(step), Ok(payload)) = (flow.steps.first(), payload_of(&work)) else { return Ok(None) };
        if step.for_each.is_some() || step.action.sends_nothing() || hands_over(step) {
            return Ok(None);
        }
        let fence = Fence { attempt: work.claim.attempt + 1, generation: work.claim.generation };
        let attempt = Attempt {
            id,
            fence,
            claim: work.claim.clone(),
            token: store.secret().token(id, fence),
            ttl: Duration::ZERO,
            waits_until: work.claim.open_since.after(declared.policy.sla),
        };
        let (outgoing, payload) = match self.first_request(&attempt, &work, payload, &flow, step) {
            (Some(outgoing), payload) => (outgoing, payload),
            (None, _) => return Ok(None),
        };
        let (opening, ready) = match self.clear(&attempt, step, 1, &outgoing).await {
            Ok(cleared) => {
                let begin = self.begin_of(&attempt, step, &outgoing, What::Effect);
                let target = begin.target.clone();
                (Opening::Step(begin), Some(Ready { outgoing, cleared, target }))
            }
            Err(waits @ Call::Defer { .. }) => (Opening::Word(word(&attempt, waits, None)), None),
            Err(_) => return Ok(None),
        };
        let first = First { version: work.version, opening };
        Ok(Some(Planned { work, flow, payload, first, ready }))
    }

    /// `None`: it is not meant for this event, or cannot be made of it.
    fn first_request(
        &self,
        attempt: &Attempt,
        work: &Work,
        payload: Value,
        flow: &Flow,
        step: &Step,
    ) -> (Option<Outgoing>, Value) {
        let run = Run::new(attempt, work, payload, flow, vec![]);
        let world = run.world(self);
        let outgoing = match holds(step, &world) {
            Ok(true) => self.request(step, work, &world, attempt).ok(),
            Ok(false) | Err(_) => None,
        };
        (outgoing, run.payload)
    }
}

//! The attempts that this process works on, and how they are handed back when it stops.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncegate_core::claim::{Holder, Lease, State};
use oncegate_core::finish::Call;
use oncegate_core::key::ClaimRef;
use oncegate_core::token::Fence;
use oncegate_store::StoreError;
use oncegate_store::api::{FinishCall, Store};

use crate::entropy;
use crate::worker::ACTOR;

/// The attempts in this process, so that a shutdown can hand back what is left.
#[derive(Debug, Default)]
pub(crate) struct HeldAttempts(Mutex<HashMap<ClaimRef, Fence>>);

impl HeldAttempts {
    pub(crate) fn hold(&self, id: ClaimRef, fence: Fence) -> Held<'_> {
        self.lock().insert(id, fence);
        Held { all: self, id }
    }

    /// Everything that is held.
    pub(crate) fn all(&self) -> Vec<(ClaimRef, Fence)> {
        self.lock().iter().map(|(id, fence)| (*id, *fence)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimRef, Fence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Held<'a> {
    all: &'a HeldAttempts,
    id: ClaimRef,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

/// Hands an attempt back at shutdown: due at once, no retry spent.
///
/// Only what this process works on itself: a hook that has taken the work goes on with it, and a wait that the target
/// asked for stays one. Both survive a restart as they are.
pub(crate) async fn hand_back(store: &dyn Store, id: ClaimRef, fence: Fence) -> Result<(), StoreError> {
    let state = store.show(id).await?.map(|view| view.claim.state);
    let Some(State::Processing(Lease { holder: Holder::Runner { .. }, deferred_until: None, .. })) = state
    else {
        return Ok(());
    };
    let call = FinishCall {
        id,
        fence,
        call: Call::HandBack,
        jitter: entropy::jitter(),
        result: None,
        actor: ACTOR.into(),
    };
    store.finish(call).await.map(|_| ())
}

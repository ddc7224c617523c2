//! How many bytes of bodies may lie in memory at once: a limit per body does not help against many bodies.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One request's part of the bytes in flight. Held until the request has ended, and by whatever works on its body.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Semaphore>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Share {
    pub(crate) fn new(budget: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { budget: Arc::clone(budget), taken: Mutex::new(None) })
    }

    /// Takes this many bytes more, if they are left. Never waits: who waits for memory holds some.
    #[must_use]
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.budget).try_acquire_many_owned(bytes) else { return false };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.as_mut() {
            Some(taken) => taken.merge(more),
            None => *taken = Some(more),
        }
        true
    }
}

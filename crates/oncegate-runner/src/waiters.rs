//! Who waits for a claim or a record to be finished, within this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use oncegate_core::key::{ClaimRef, RecordName, Workspace};
use tokio::sync::Notify;

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// Somebody finishes it.
    Claim(ClaimRef),
    Record(Workspace, RecordName),
    /// A person takes it away from the worker that is on it.
    Attempt(ClaimRef),
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<Subject, Weak<Notify>>>,
}

impl Waiters {
    /// The bell of one subject; it exists for as long as somebody holds it.
    pub(crate) fn bell(&self, subject: Subject) -> Arc<Notify> {
        let mut waiting = self.lock();
        if let Some(bell) = waiting.get(&subject).and_then(Weak::upgrade) {
            return bell;
        }
        // Those that nobody holds any more go when the map would grow.
        if waiting.len() == waiting.capacity() {
            waiting.retain(|_, bell| bell.strong_count() > 0);
        }
        let bell = Arc::new(Notify::new());
        waiting.insert(subject, Arc::downgrade(&bell));
        bell
    }

    pub(crate) fn ring(&self, subject: &Subject) {
        if let Some(bell) = self.lock().get(subject).and_then(Weak::upgrade) {
            bell.notify_waiters();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Subject, Weak<Notify>>> {
        self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

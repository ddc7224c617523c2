//! Who waits for the [`super::desk`], and when a statement begins.
//!
//! A statement costs the server some time however few claims are in it, so it pays to let them gather while another
//! one is under way; and a processor that waits for a disk could have served somebody. So of each workspace one
//! statement is under way as long as anybody waits, and a second one as soon as enough wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncegate_core::key::Workspace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::desk::Waiting;
use crate::StoreError;

/// Statements of one workspace under way at the same time: one is written while the other waits for the disk.
const SEATS: usize = 2;
/// So many waiting claims are worth a statement while another one is under way.
const WORTH: usize = 24;
/// Most claims in one statement: bounds how long the first of them waits for the last.
const GROUP_MAX: usize = 256;
/// Most bytes of payloads in one statement; a larger payload goes alone.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Most calls waiting; beyond it callers are told to come back (503).
const WAITING_MAX: usize = 8_192;

/// The queues of all workspaces.
pub(super) struct Queues {
    all: Mutex<All>,
    /// Connections that may be used for this at the same time.
    connections: Arc<Semaphore>,
}

#[derive(Default)]
struct All {
    of: HashMap<Workspace, Queue>,
    waiting: usize,
}

/// While anybody waits in it, somebody has a seat at it.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    seats: usize,
}

impl Queues {
    pub(super) fn new(connections: usize) -> Self {
        Self { all: Mutex::default(), connections: Arc::new(Semaphore::new(connections)) }
    }

    /// Queues up; a seat has to be taken if one is given.
    pub(super) fn join(self: &Arc<Self>, one: Waiting) -> Result<Option<Seat>, StoreError> {
        let workspace = one.workspace();
        let mut all = self.lock();
        if all.waiting >= WAITING_MAX {
            return Err(StoreError::Busy);
        }
        all.waiting += 1;
        let queue = all.of.entry(workspace).or_default();
        queue.waiting.push_back(one);
        if queue.seats > 0 && (queue.seats >= SEATS || queue.waiting.len() < WORTH) {
            return Ok(None);
        }
        queue.seats += 1;
        drop(all);
        Ok(Some(Seat { queues: Arc::clone(self), workspace, taken: true }))
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // No call out of here is made while it is held, so nothing is half done in it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    /// Who goes next; `None`: the seat is given up.
    fn next(&mut self, workspace: Workspace) -> Option<Vec<Waiting>> {
        let queue = self.of.get_mut(&workspace)?;
        if queue.waiting.is_empty() || (queue.seats > 1 && queue.waiting.len() < WORTH) {
            self.leave(workspace);
            return None;
        }
        let (mut group, mut bytes) = (Vec::with_capacity(queue.waiting.len().min(GROUP_MAX)), 0);
        while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            let Some(one) = queue.waiting.pop_front() else { break };
            bytes += one.size();
            group.push(one);
        }
        self.waiting -= group.len();
        Some(group)
    }

    /// Whoever waits without anybody to serve them is sent away: that is only so where serving them panicked.
    fn leave(&mut self, workspace: Workspace) {
        let Some(queue) = self.of.get_mut(&workspace) else { return };
        queue.seats -= 1;
        if queue.seats == 0 {
            self.waiting -= queue.waiting.len();
            self.of.remove(&workspace);
        }
    }
}

/// Serves one workspace.
pub(super) struct Seat {
    queues: Arc<Queues>,
    workspace: Workspace,
    taken: bool,
}

impl Seat {
    pub(super) fn workspace(&self) -> Workspace {
        self.workspace
    }

    /// Those that go together next, and their place at the database, to be kept until they have been served. `None`:
    /// the seat is given up.
    pub(super) async fn next(&mut self) -> Option<(Vec<Waiting>, OwnedSemaphorePermit)> {
        // Closed by nobody.
        let place = Arc::clone(&self.queues.connections).acquire_owned().await.ok()?;
        // Whoever was read from its socket in the same moment comes along.
        tokio::task::yield_now().await;
        match self.queues.lock().next(self.workspace) {
            Some(group) => Some((group, place)),
            None => {
                self.taken = false;
                None
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.taken {
            self.queues.lock().leave(self.workspace);
        }
    }
}

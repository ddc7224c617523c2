//! The one writer: a thread that takes what is waiting, writes all of it in one transaction, and answers after the
//! commit. Many claims, one fsync.

use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::checkpoints::Checkpoints;
use super::room::Room;
use crate::StoreError;
use crate::clock::Clock;
use crate::failpoint;
use crate::observer::Journal;

/// Most calls in one transaction: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 256;
/// Most calls waiting; beyond it callers are told to come back (503).
const QUEUE_MAX: usize = 8_192;

/// One call on its way through the writer.
trait Job: Send {
    /// The caller hung up before its turn and nothing is to be done for it any more.
    fn is_abandoned(&self) -> bool;
    /// May use the room that is kept free.
    fn is_urgent(&self) -> bool;
    /// Does the work inside the open transaction. May be called again if the whole transaction was rolled back.
    fn apply(&mut self, db: &Connection) -> Result<(), StoreError>;
    /// Answers: with what `apply` found, or with the error that undid it.
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
    /// Where a test may kill the process around this call's commit.
    fn places(&self) -> Places;
}

struct Call<T, F> {
    work: F,
    found: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
    manner: Manner,
}

/// Names before a commit and after it, of each thing that a call does.
type Places = [Option<(&'static str, &'static str)>; 2];

/// How a call goes through the writer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// Where a test may kill the process around its commit.
    places: Places,
    /// It tells what has happened already, so it counts even if whoever told it does not wait for the answer.
    is_news: bool,
    /// It may use the room that is kept free: it finishes what was taken, or makes room, and takes nothing new.
    is_urgent: bool,
}

impl Manner {
    /// Asks for something: whoever hangs up before it is done gets nothing done.
    pub(super) const ASKING: Self = Self { places: [None; 2], is_news: false, is_urgent: false };
    /// Asks for something that must be possible on a full disk too.
    pub(super) const URGENT: Self = Self { is_urgent: true, ..Self::ASKING };
    /// Tells what has happened: written, come what may.
    pub(super) const TELLING: Self = Self { places: [None; 2], is_news: true, is_urgent: true };

    /// Tells what can be told later, if there is no room for it.
    pub(super) const COUNTING: Self = Self { is_news: true, ..Self::ASKING };

    /// The same, with places to be killed at.
    pub(super) const fn killed_at(self, before: &'static str, after: &'static str) -> Self {
        Self { places: [Some((before, after)), self.places[0]], ..self }
    }
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: Fn(&Connection) -> Result<T, StoreError> + Send,
{
    fn is_abandoned(&self) -> bool {
        !self.manner.is_news && self.reply.is_closed()
    }

    fn is_urgent(&self) -> bool {
        self.manner.is_urgent
    }

    fn apply(&mut self, db: &Connection) -> Result<(), StoreError> {
        self.found = Some((self.work)(db)?);
        Ok(())
    }

    fn answer(self: Box<Self>, fate: Result<(), StoreError>) {
        let answer = match (fate, self.found) {
            (Ok(()), Some(found)) => Ok(found),
            (Ok(()), None) => Err(StoreError::Closed),
            (Err(e), _) => Err(e),
        };
        // A caller that hung up meanwhile has its effect in the store; `same_run` is for that.
        let _ = self.reply.send(answer);
    }

    fn places(&self) -> Places {
        self.manner.places
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    queue: std::sync::Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: std::sync::Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(
        (connection, checkpoints): (Connection, Checkpoints),
        room: Room,
        clock: Arc<dyn Clock>,
        journal: Arc<Journal>,
    ) -> Result<Self, StoreError> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || Desk { connection, checkpoints, room, clock, journal }.run(jobs))
            .map_err(|e| StoreError::Database(e.to_string()))?;
        Ok(Self { queue: Some(queue).into(), thread: Some(thread).into() })
    }

    /// Runs `work` in the next transaction and answers once that is committed.
    pub(super) async fn write<T, F>(&self, manner: Manner, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let queue = lock(&self.queue).clone().ok_or(StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        queue.try_send(Box::new(Call { work, found: None, reply, manner })).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Finishes what is queued and stops.
    pub(super) async fn close(self: &Arc<Self>) {
        lock(&self.queue).take();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// A store that is dropped without being closed still finishes before it lets go of its directory.
impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.queue).take();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the writer's thread works with.
struct Desk {
    connection: Connection,
    /// Behind the connection, so that it is dropped after it.
    checkpoints: Checkpoints,
    room: Room,
    clock: Arc<dyn Clock>,
    journal: Arc<Journal>,
}

impl Desk {
    fn run(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
            // What runs must still be finished when nothing new can be taken.
            if let Err(error) = self.room.for_new_work(&self.connection) {
                let (urgent, new): (Vec<_>, Vec<_>) = batch.into_iter().partition(|job| job.is_urgent());
                for job in new {
                    self.journal.failed(&error);
                    job.answer(Err(error.clone()));
                }
                batch = urgent;
            }
            if batch.is_empty() {
                continue;
            }
            match self.guarded(&mut batch) {
                Ok(()) => batch.into_iter().for_each(|job| job.answer(Ok(()))),
                Err(error) if batch.len() == 1 => {
                    batch.into_iter().for_each(|job| self.alone(job, Some(error.clone())));
                }
                // One bad call must not fail its neighbours: each again, by itself.
                Err(_) => batch.into_iter().for_each(|job| self.alone(job, None)),
            }
        }
        let Self { mut connection, checkpoints, .. } = self;
        checkpoints.end(&mut connection);
    }

    /// Tries one call by itself, unless that has been done and `failed`; and, if it is urgent and there is no room,
    /// once more with the room that was held for it.
    fn alone(&mut self, job: Box<dyn Job>, failed: Option<StoreError>) {
        let mut job = [job];
        let mut fate = match failed {
            Some(error) => Err(error),
            None => self.guarded(&mut job),
        };
        if matches!(fate, Err(StoreError::Full(_))) && job[0].is_urgent() && self.room.give_up_reserve() {
            fate = self.guarded(&mut job);
        }
        let [job] = job;
        job.answer(fate.inspect_err(|error| self.journal.failed(error)));
    }

    /// A fault in one call must not end the writer, and with it the gate.
    fn guarded(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let committed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.commit(batch)));
        let fate = committed.unwrap_or_else(|_| {
            Err(StoreError::Inconsistent("a call panicked; its transaction was undone".into()))
        });
        fate.inspect_err(|_| self.journal.undone())
    }

    fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let begun = self.clock.read().monotonic;
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut calls = 0;
        // Asked here, after the wait for the transaction, so that "before its turn" means what it says.
        for job in batch.iter_mut().filter(|job| !job.is_abandoned()) {
            job.apply(&tx)?;
            calls += 1;
        }
        for (before, _) in batch.iter().flat_map(|job| job.places()).flatten() {
            failpoint::hit(before);
        }
        tx.commit()?;
        self.journal.committed(calls, self.clock.read().monotonic.saturating_sub(begun));
        for (_, after) in batch.iter().flat_map(|job| job.places()).flatten() {
            failpoint::hit(after);
        }
        Ok(())
    }
}

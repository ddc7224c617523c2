//! The use-cases of the gate: what the API, the webhook intake and the runner call. It adds to the store only what
//! happens within a process: waking those who wait, and the runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncegate_core::decide::{Decision, StopReason};
use oncegate_core::finish::Answer;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_store::api::{
    ActCall, Acted, AdmitCall, Admitted, Begun, ClaimCall, ClaimView, Claimed, FinishCall, First, Opened,
    StepEnd, Store,
};
use oncegate_store::bulk::{Bulked, Undone};
use oncegate_store::clock::Clock;
use oncegate_store::people::{Once, Write, Written, Wrote};
use oncegate_store::positions::Advance;
use oncegate_store::{StoreError, failpoint};
use tokio::sync::Notify;

use crate::book::Book;
use crate::cluster::Cluster;
use crate::targets::{Declared, Targets};
use crate::waiters::{Subject, Waiters};

/// What every way in calls.
pub struct Gatekeeper {
    store: Arc<dyn Store>,
    book: Arc<Book>,
    clock: Arc<dyn Clock>,
    waiters: Waiters,
    /// Rung when there may be new work.
    work: Notify,
    /// Rung when an act on many claims begins.
    bulk: Notify,
    at_work: AtomicUsize,
    cluster: Cluster,
    targets: Arc<Targets>,
}

/// One claim that the runner works on.
pub(crate) struct AtWork(Arc<Gatekeeper>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gatekeeper {
    /// A gatekeeper of one store.
    pub fn new(store: Arc<dyn Store>, book: Arc<Book>, clock: Arc<dyn Clock>, targets: Declared) -> Self {
        Self {
            store,
            book,
            targets: Arc::new(Targets::new(targets, Arc::clone(&clock))),
            clock,
            waiters: Waiters::default(),
            work: Notify::new(),
            bulk: Notify::new(),
            at_work: AtomicUsize::new(0),
            cluster: Cluster::default(),
        }
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What is declared.
    pub fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Whether oncegate itself can do the work of an automation.
    pub fn runs(&self, workspace: Workspace, automation: &AutomationName) -> bool {
        self.book.automation(workspace, automation).flow.is_some()
    }

    /// What the other nodes can do.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What is known of those who are called.
    pub fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// Where time comes from.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Rung when a person did something to a claim; its worker may have lost it.
    pub(crate) fn acted_on(&self, id: ClaimRef) -> Arc<Notify> {
        self.waiters.bell(Subject::Attempt(id))
    }

    pub(crate) fn bulk(&self) -> &Notify {
        &self.bulk
    }

    /// How many claims the runner works on at this moment.
    pub fn at_work(&self) -> usize {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Counts one claim as worked on until the answer is dropped.
    pub(crate) fn begin_work(self: &Arc<Self>) -> AtWork {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        AtWork(Arc::clone(self))
    }

    pub(crate) fn work(&self) -> &Notify {
        &self.work
    }

    /// Decides a claim, and once more when its holder finishes or `wait` is over, if somebody else is on it.
    ///
    /// A dropped future claims nothing.
    ///
    /// # Errors
    /// The store's; nothing was claimed.
    pub async fn claim(&self, mut call: ClaimCall, wait: Duration) -> Result<Option<Claimed>, StoreError> {
        self.judges(&call)?;
        if wait.is_zero() {
            let claimed = self.store.claim(call).await?;
            claimed.iter().for_each(|claimed| self.after_claim(claimed));
            return Ok(claimed);
        }
        let deadline = self.clock.read().monotonic + wait;
        let mut bell: Option<(Subject, Arc<Notify>)> = None;
        loop {
            // Listened to from before the decision, so that no ring between the two is missed.
            let mut rung = bell.as_ref().map(|(_, bell)| Box::pin(Arc::clone(bell).notified_owned()));
            if let Some(rung) = &mut rung {
                rung.as_mut().enable();
            }
            let Some(claimed) = self.store.claim(call.clone()).await? else { return Ok(None) };
            let left = deadline.saturating_sub(self.clock.read().monotonic);
            let Some((subject, lease_left)) = waits_for(&claimed).filter(|_| !left.is_zero()) else {
                self.after_claim(&claimed);
                return Ok(Some(claimed));
            };
            // One call is one stop, however often it looks while it waits.
            call.again = true;
            match rung.filter(|_| bell.as_ref().is_some_and(|(heard, _)| *heard == subject)) {
                Some(rung) => tokio::select! {
                    () = rung => {}
                    // A holder that goes silent rings nothing; its lease ends by itself.
                    () = self.clock.sleep(left.min(lease_left)) => {}
                    () = self.moved_elsewhere(&claimed) => {}
                },
                // Now that it is known whom to listen to, it must be looked at once more.
                None => bell = Some((subject.clone(), self.waiters.bell(subject))),
            }
        }
    }

    /// Returns once a claim that is waited for may have moved without a bell: where others share the store, it is
    /// looked at from time to time.
    async fn moved_elsewhere(&self, claimed: &Claimed) {
        if !self.store.is_shared() {
            return std::future::pending().await;
        }
        let held = claimed.view.as_ref().map(|view| view.claim.fence());
        loop {
            self.clock.sleep(limits::WAIT_LOOK_EVERY).await;
            // Who holds a record is only found by asking for it; and what cannot be looked at is asked for, and told.
            let Decision::Stop { reason: StopReason::InProgress, .. } = claimed.decision else { return };
            match self.store.show(claimed.id).await {
                Ok(Some(view)) if view.claim.started_at().is_some() && Some(view.claim.fence()) == held => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn after_claim(&self, claimed: &Claimed) {
        if matches!(claimed.decision, Decision::Queued(_)) {
            self.work.notify_one();
        }
    }

    /// Done, error, heartbeat and the like.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn finish(&self, call: FinishCall) -> Result<Option<(Answer, ClaimView)>, StoreError> {
        let finished = self.store.finish(call).await?;
        if let Some((Answer::Accepted, view)) = &finished {
            self.moved(view);
        }
        Ok(finished)
    }

    /// Takes an attempt together with what it does first.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub(crate) async fn begin_run(&self, call: ClaimCall, first: First) -> Result<Option<Begun>, StoreError> {
        let begun = self.store.begin_run(call, first).await?;
        if let Some(Opened::Word(Answer::Accepted, view)) = begun.as_ref().and_then(|b| b.opened.as_ref()) {
            self.moved(view);
        }
        Ok(begun)
    }

    /// What came of the last step, and what its attempt says then.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub(crate) async fn end_run(&self, step: StepEnd, last: FinishCall) -> Result<(), StoreError> {
        if let Some((Answer::Accepted, view)) = &self.store.end_run(step, last).await? {
            self.moved(view);
        }
        Ok(())
    }

    /// A person's act.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn act(&self, call: ActCall) -> Result<Acted, StoreError> {
        let acted = self.store.act(call).await?;
        if let Acted::Written(view) = &acted {
            self.acted(view);
        }
        Ok(acted)
    }

    /// Writes what a person or a script wants, once if it is named, and tells those whom it concerns.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn write(&self, write: Write, once: Option<Once>) -> Result<Wrote, StoreError> {
        let wrote = self.store.write(write, once).await?;
        if let Wrote::Now(written, _) = &wrote {
            match written {
                Written::Act(Acted::Written(view)) => self.acted(view),
                Written::Bulk(Bulked::Begun(_)) | Written::UndoBulk(Undone::Begun(_)) => {
                    self.bulk.notify_one()
                }
                Written::Released(_) | Written::SetPaused(_) => self.work.notify_one(),
                Written::Act(Acted::Refused(_) | Acted::NotFound)
                | Written::Bulk(Bulked::CountChanged(_) | Bulked::TooMany)
                | Written::UndoBulk(_)
                | Written::Tagged(_)
                | Written::Renamed(_)
                | Written::AddedToken(_)
                | Written::RevokedToken(_) => {}
            }
        }
        Ok(wrote)
    }

    /// Decides many claims at once; none of them waits.
    ///
    /// # Errors
    /// The store's; nothing was claimed.
    pub async fn claim_batch(
        &self,
        calls: Vec<ClaimCall>,
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError> {
        let refused: Vec<_> = calls.iter().map(|call| self.judges(call).err()).collect();
        if refused.iter().all(Option::is_none) {
            return self.store.claim_batch(calls).await;
        }
        // One bad item is its own error; the others are judged as ever, in order.
        let judged = calls.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let mut answers = self.store.claim_batch(judged.map(|(call, _)| call).collect()).await?.into_iter();
        let answer = |refused: Option<StoreError>| match refused {
            Some(error) => Err(error),
            None => answers.next().unwrap_or(Err(StoreError::Closed)),
        };
        Ok(refused.into_iter().map(answer).collect())
    }

    /// Whether oncegate itself can start a claim: by its own steps, or by calling the caller's hook.
    pub fn can_start(&self, view: &ClaimView) -> bool {
        let declared = self.book.automation(view.workspace, &view.automation);
        let name = (view.workspace, view.automation.clone());
        match view.claim.flow {
            true => declared.flow.is_some() || self.cluster.others().runs.contains(&name),
            false => declared.retrigger.is_some() || self.cluster.others().calls_back.contains(&name),
        }
    }

    /// Stores a verified request, and tells the runner. The sender may be acknowledged when this returns.
    ///
    /// # Errors
    /// The store's; nothing was written and the sender must be told to come again.
    pub async fn admit(&self, call: AdmitCall) -> Result<Vec<Admitted>, StoreError> {
        let admitted = self.store.admit(call).await?;
        failpoint::hit("admit.acknowledging");
        self.work.notify_one();
        Ok(admitted)
    }

    /// Moves a source on together with what it brings, and tells the runner. `None`: somebody else moved it.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub(crate) async fn advance(&self, call: Advance) -> Result<Option<Vec<Admitted>>, StoreError> {
        let moved = self.store.advance(call).await?;
        if moved.iter().flatten().next().is_some() {
            self.work.notify_one();
        }
        Ok(moved)
    }

    /// Pauses or resumes an automation; what waits starts at once when it is resumed.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn set_paused(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        paused: bool,
        reason: String,
        actor: String,
    ) -> Result<bool, StoreError> {
        let changed = self.store.set_paused(workspace, automation, paused, reason, actor).await?;
        self.work.notify_one();
        Ok(changed)
    }

    /// Gives the next claims of an act on many their turn, and tells those whom it concerns. `false`: all are done.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub(crate) async fn step_bulk(&self) -> Result<bool, StoreError> {
        let Some(step) = self.store.step_bulk(limits::BULK_CHUNK_ROWS).await? else { return Ok(false) };
        step.changed.iter().for_each(|view| self.acted(view));
        Ok(true)
    }

    /// A person did something to a claim: its worker may have lost it, and others may go on.
    fn acted(&self, view: &ClaimView) {
        self.waiters.ring(&Subject::Attempt(view.at()));
        self.moved(view);
    }

    /// A person ends the recovery after a restore; what they have set to run starts at once.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn end_recovery(&self, reason: String, actor: String) -> Result<bool, StoreError> {
        let ended = self.store.end_recovery(reason, actor).await?;
        self.work.notify_one();
        Ok(ended)
    }

    /// A claim left `processing`, or came due: those who wait for it or its record look again.
    fn moved(&self, view: &ClaimView) {
        let claim = &view.claim;
        self.waiters.ring(&Subject::Claim(view.at()));
        if let Some(record) = &claim.record {
            self.waiters.ring(&Subject::Record(view.workspace, record.clone()));
        }
        if claim.flow || claim.record.is_some() {
            self.work.notify_one();
        }
    }
}

/// Who has to finish before a stopped call may run, and how long they are believed at most.
fn waits_for(claimed: &Claimed) -> Option<(Subject, Duration)> {
    let Decision::Stop { reason, retry_after, .. } = &claimed.decision else { return None };
    let subject = match reason {
        StopReason::InProgress => Subject::Claim(claimed.id),
        StopReason::RecordBusy => {
            Subject::Record(claimed.id.workspace, claimed.view.as_ref()?.claim.record.clone()?)
        }
        _ => return None,
    };
    Some((subject, retry_after.unwrap_or(Duration::MAX)))
}

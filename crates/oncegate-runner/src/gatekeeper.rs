//! The use-cases of the gate: what the API, the webhook intake and the runner call. It adds to the store only what
//! happens within a process: waking those who wait, and the runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncegate_core::decide::{Decision, StopReason};
use oncegate_core::finish::Answer;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::reset::{Act, Refusal};
use oncegate_store::api::{
    ActCall, Acted, AdmitCall, Admitted, ClaimCall, ClaimView, Claimed, FinishCall, Store,
};
use oncegate_store::clock::Clock;
use oncegate_store::{StoreError, failpoint};
use tokio::sync::Notify;

use crate::book::Book;
use crate::waiters::{Subject, Waiters};

/// What every way in calls.
pub struct Gatekeeper {
    store: Arc<dyn Store>,
    book: Arc<Book>,
    clock: Arc<dyn Clock>,
    waiters: Waiters,
    /// Rung when there may be new work.
    work: Notify,
    at_work: AtomicUsize,
}

/// One claim that the runner works on.
pub(crate) struct AtWork(Arc<Gatekeeper>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What "run now" led to.
#[derive(Debug)]
pub enum RunNow {
    /// Waiting for the runner, which was told.
    Queued(Box<ClaimView>),
    /// An attempt is running, or already waits to.
    AlreadyRunning,
    /// oncegate does not hold the work of this automation: it must be replayed where it came from.
    NoFlow {
        /// Where a person finds the caller's run.
        run_url: Option<String>,
    },
    /// It cannot be run as it stands.
    Refused(Refusal),
    /// No such claim.
    NotFound,
}

impl Gatekeeper {
    /// A gatekeeper of one store.
    pub fn new(store: Arc<dyn Store>, book: Arc<Book>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            book,
            clock,
            waiters: Waiters::default(),
            work: Notify::new(),
            at_work: AtomicUsize::new(0),
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

    /// Where time comes from.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Rung when a person did something to a claim; its worker may have lost it.
    pub(crate) fn acted_on(&self, id: ClaimRef) -> Arc<Notify> {
        self.waiters.bell(Subject::Attempt(id))
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
                },
                // Now that it is known whom to listen to, it must be looked at once more.
                None => bell = Some((subject.clone(), self.waiters.bell(subject))),
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

    /// A person's act.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn act(&self, call: ActCall) -> Result<Acted, StoreError> {
        let acted = self.store.act(call).await?;
        if let Acted::Written(view) = &acted {
            self.waiters.ring(&Subject::Attempt(view.at()));
            self.moved(view);
        }
        Ok(acted)
    }

    /// Starts it as the runner would: the same claim path, by way of a queue that survives a restart.
    ///
    /// # Errors
    /// The store's; nothing was written.
    pub async fn run_now(&self, id: ClaimRef, reason: String, actor: String) -> Result<RunNow, StoreError> {
        let Some(view) = self.store.show(id).await? else { return Ok(RunNow::NotFound) };
        let declared = self.book.automation(id.workspace, &view.automation);
        let runs = if view.claim.flow { declared.flow.is_some() } else { declared.retrigger.is_some() };
        if !runs {
            return Ok(RunNow::NoFlow { run_url: view.run_url });
        }
        let act = Act::Reset { run_now: true, confirm_holder: None, verified: false };
        Ok(match self.act(ActCall { id, act, reason, actor }).await? {
            Acted::Written(view) => RunNow::Queued(view),
            Acted::Refused(Refusal::LiveHolder { .. } | Refusal::Nothing(_)) => RunNow::AlreadyRunning,
            Acted::Refused(refusal) => RunNow::Refused(refusal),
            Acted::NotFound => RunNow::NotFound,
        })
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

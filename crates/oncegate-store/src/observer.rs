//! What a store tells whoever counts: only what is committed, once, and after its commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate_core::claim::Holder;
use oncegate_core::decide::{Decision, Start, StopReason};
use oncegate_core::finish::{Answer, Call};
use oncegate_core::reset::Act;

use crate::StoreError;
use crate::api::{ClaimCall, StepOutcome};

/// Something that was written. Words of ours alone: nothing in it names a person, a key or an automation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A claim was decided.
    Decided {
        /// `run`, `queued` or `stop`.
        decision: &'static str,
        /// Which of its reasons.
        reason: &'static str,
        /// Who asked: `caller`, `runner` or `source`.
        asked_by: &'static str,
    },
    /// A holder said something.
    Finished {
        /// `done`, `error`, `heartbeat`, `defer`, `hand_back` or `hand_over`.
        call: &'static str,
        /// `accepted`, `unchanged`, `already_done`, `not_processing` or `lost_claim`.
        answer: &'static str,
    },
    /// A person acted on a claim: `reset`, `mark_error`, `mark_done`, `dismiss`.
    Acted(&'static str),
    /// An event or a request arrived: `accepted`, `duplicate`, `mismatch`, `rejected`, `unverified`, or why it was
    /// set aside.
    Delivered(&'static str),
    /// A step's call ended: `succeeded`, `failed` or `unknown`.
    StepEnded(&'static str),
    /// Retention ended for so many rows of a kind.
    Reaped(&'static str, u64),
    /// The wall clock was found to be set back by this much.
    SetBack(Duration),
}

/// Counts. Called on the store's writer thread: it must not wait.
pub trait Observer: Send + Sync {
    /// Was committed.
    fn happened(&self, what: Happened);
    /// A transaction with so many calls was committed; `took` is from its begin until it was synced.
    fn committed(&self, calls: usize, took: Duration);
    /// A call failed and was undone.
    fn failed(&self, error: &StoreError);
}

/// Nobody counts.
impl Observer for () {
    fn happened(&self, _: Happened) {}
    fn committed(&self, _: usize, _: Duration) {}
    fn failed(&self, _: &StoreError) {}
}

/// What the open transaction has done so far: told once it is committed, forgotten if it is undone.
pub(crate) struct Journal {
    pending: Mutex<Vec<Happened>>,
    observer: Arc<dyn Observer>,
}

impl Journal {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { pending: Mutex::default(), observer }
    }

    pub(crate) fn note(&self, what: Happened) {
        self.lock().push(what);
    }

    pub(crate) fn committed(&self, calls: usize, took: Duration) {
        self.lock().drain(..).for_each(|what| self.observer.happened(what));
        self.observer.committed(calls, took);
    }

    pub(crate) fn undone(&self) {
        self.lock().clear();
    }

    pub(crate) fn failed(&self, error: &StoreError) {
        self.observer.failed(error);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Happened>> {
        // Only the writer's thread uses it; the lock is for the compiler.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a decision counts; `None` if it does not.
///
/// As in the claim's history: a delivery for what waits already is a stop, and the runner asking again whether its
/// own work may start is no refusal of anybody. A call that waits counts when it begins to wait and when that ends in
/// something else, not for every look in between.
pub(crate) fn decided(call: &ClaimCall, decision: &Decision, changed: bool) -> Option<Happened> {
    let asked_by = match &call.request.start {
        Start::Now(Holder::Caller { .. }) => "caller",
        Start::Now(Holder::Runner { .. }) => "runner",
        Start::Queue => "source",
    };
    let waits = |reason: &StopReason| matches!(reason, StopReason::InProgress | StopReason::RecordBusy);
    let (decision, reason) = match decision {
        Decision::Run(reason) => ("run", reason.as_str()),
        Decision::Queued(reason) if changed => ("queued", reason.as_str()),
        Decision::Queued(_) => ("stop", StopReason::InProgress.as_str()),
        Decision::Stop { reason, .. } if asked_by == "runner" && *reason != StopReason::NeedsReview => {
            return None;
        }
        Decision::Stop { reason, .. } if call.again && waits(reason) => return None,
        Decision::Stop { reason, .. } => ("stop", reason.as_str()),
    };
    Some(Happened::Decided { decision, reason, asked_by })
}

pub(crate) fn finished(call: &Call, answer: Answer) -> Happened {
    let call = match call {
        Call::Done => "done",
        Call::Error { .. } => "error",
        Call::Heartbeat => "heartbeat",
        Call::Defer { .. } => "defer",
        Call::Review { .. } => "review",
        Call::HandBack => "hand_back",
        Call::HandOver => "hand_over",
    };
    let answer = match answer {
        Answer::Accepted => "accepted",
        Answer::Unchanged => "unchanged",
        Answer::AlreadyDone => "already_done",
        Answer::NotProcessing => "not_processing",
        Answer::LostClaim => "lost_claim",
    };
    Happened::Finished { call, answer }
}

pub(crate) fn acted(act: &Act) -> Happened {
    Happened::Acted(match act {
        Act::Reset { .. } | Act::FromStart { .. } => "reset",
        Act::MarkError { .. } => "mark_error",
        Act::MarkDone => "mark_done",
        Act::Dismiss => "dismiss",
        Act::Approve => "approve",
        Act::Decline => "decline",
    })
}

/// `None` while it is in flight.
pub(crate) fn step_ended(outcome: StepOutcome) -> Option<Happened> {
    match outcome {
        StepOutcome::InFlight => None,
        StepOutcome::Succeeded => Some(Happened::StepEnded("succeeded")),
        StepOutcome::Failed => Some(Happened::StepEnded("failed")),
        StepOutcome::Unknown => Some(Happened::StepEnded("unknown")),
    }
}

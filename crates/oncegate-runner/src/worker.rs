//! Runs one claim: takes the attempt, sends what its steps have not sent yet, says how it ended. Commit, call,
//! commit: what is about to be sent is written down before, what came of it after, and nothing is open meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncegate_connect::{Caller, Mailer};
use oncegate_core::claim::{Claim, Holder, State};
use oncegate_core::decide::{Decision, Request, Start};
use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::key::ClaimRef;
use oncegate_core::time::Timestamp;
use oncegate_core::token::{Fence, Token};
use oncegate_store::StoreError;
use oncegate_store::api::{Begun, ClaimCall, ClaimView, FinishCall, Opened, StepCall, Target};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::entropy;
use crate::flow::{Action, ForwardStep, Step, Until};
use crate::gatekeeper::Gatekeeper;
use crate::held::HeldAttempts;
use crate::planning::Planned;
use crate::sending::Written;
use crate::stepping::Open;

/// The runner's name in the history.
pub(crate) const ACTOR: &str = "runner";

/// What a worker needs.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) gate: Arc<Gatekeeper>,
    pub(crate) caller: Caller,
    pub(crate) mailer: Option<Mailer>,
    /// Where call-back URLs point to, without a slash at the end.
    pub(crate) base_url: Arc<str>,
}

/// How a run of the worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The claim moved on: done, error, deferred, handed over, or lost to somebody else.
    Moved,
    /// It may not start now; look again later.
    NotNow,
}

/// An attempt this worker holds.
pub(crate) struct Attempt {
    pub(crate) id: ClaimRef,
    pub(crate) fence: Fence,
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    /// Beyond its SLA nothing waits for a machine.
    pub(crate) waits_until: Timestamp,
}

/// What to do after a step.
pub(crate) enum Next {
    GoOn(StepCall),
    /// The attempt ended, with this last word about it.
    Finish(Call),
    /// Somebody else holds it now, or will finish it.
    Leave,
}

impl Worker {
    /// Takes the claim, if it may run, and works until it ends. Never fails: what cannot be written stays as it is in
    /// the store and is found again.
    pub(crate) async fn run(&self, id: ClaimRef, held: &HeldAttempts) -> Ended {
        match self.try_run(id, held).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(claim = %id, %error, "the store failed under a running claim; it will be taken up again");
                Ended::NotNow
            }
        }
    }

    async fn try_run(&self, id: ClaimRef, held: &HeldAttempts) -> Result<Ended, StoreError> {
        let store = self.gate.store();
        // Listened to from before the attempt exists, so that no act on it is missed.
        let bell = self.gate.acted_on(id);
        let acted_on = bell.notified();
        tokio::pin!(acted_on);
        acted_on.as_mut().enable();
        let call = ClaimCall {
            target: Target::Id(id),
            request: Request::as_it_stands(Start::Now(Holder::Runner { boot: store.boot() })),
            run_url: None,
            parent: None,
            payload: None,
            actor: ACTOR.into(),
            again: false,
        };
        let planned = Box::pin(self.plan(id)).await?;
        let asked = self.gate.clock().read();
        let (claimed, opened) = match &planned {
            None => (store.claim(call).await?, None),
            Some(planned) => {
                let begun = self.gate.begin_run(call, planned.first.clone()).await;
                let runs = |begun: &Begun| matches!(begun.claimed.decision, Decision::Run(_));
                if !begun.as_ref().is_ok_and(|begun| begun.as_ref().is_some_and(runs)) {
                    // It asked before it was known to run: neither a place nor a turn is kept for it.
                    self.gate.targets().forget(id);
                }
                match begun? {
                    None => (None, None),
                    Some(Begun { claimed, opened }) => (Some(claimed), opened),
                }
            }
        };
        let Some(claimed) = claimed else { return Ok(Ended::Moved) };
        let (Decision::Run(_), Some(token), Some(view)) = (&claimed.decision, claimed.token, claimed.view)
        else {
            return Ok(Ended::NotNow);
        };
        let ttl = match &view.claim.state {
            State::Processing(lease) => lease.ttl.get(),
            State::None { .. } | State::Done { .. } | State::Error { .. } => return Ok(Ended::Moved),
        };
        let sla = self.gate.book().automation(id.workspace, &view.automation).policy.sla;
        let waits_until = view.claim.open_since.after(sla);
        let attempt = Attempt { id, fence: view.claim.fence(), claim: view.claim, token, ttl, waits_until };
        let _held = held.hold(id, attempt.fence);
        let (work, open) = match (opened, planned) {
            (Some(Opened::Word(..)), _) => return Ok(Ended::Moved),
            (Some(Opened::Step(call)), Some(Planned { work, flow, payload, ready: Some(ready), .. })) => {
                (Some(work), Some(Open { flow, payload, ready, written: Written { call, asked } }))
            }
            // What was made ready before is not known to be right for this attempt.
            (_, planned) => {
                drop(planned);
                (store.work(id).await?, None)
            }
        };
        let Some(work) = work else { return Ok(Ended::Moved) };
        // Whoever loses the claim meanwhile drops the step in flight; its row stays and counts as unknown.
        let last = tokio::select! {
            last = Box::pin(self.steps(&attempt, work, open)) => last?,
            () = self.keep_alive(&attempt) => Next::Leave,
            () = self.taken_away(&attempt, &bell, acted_on) => Next::Leave,
        };
        if let Next::Finish(call) = last {
            self.say(&attempt, call, None).await?;
        }
        Ok(Ended::Moved)
    }

    /// Restarts the lease for as long as the attempt holds; returns when it no longer does.
    async fn keep_alive(&self, attempt: &Attempt) {
        loop {
            self.gate.clock().sleep(attempt.ttl / 3).await;
            match self.say(attempt, Call::Heartbeat, None).await {
                Ok(Answer::Accepted) => {}
                // The store may be full or gone for a moment; the lease has two more thirds to live.
                Err(error) => tracing::warn!(claim = %attempt.id, %error, "could not renew a lease"),
                Ok(_) => return,
            }
        }
    }

    /// Returns when a person reset or marked the claim: what comes next must not wait for a call that hangs.
    async fn taken_away<'a>(
        &self,
        attempt: &Attempt,
        bell: &'a Notify,
        mut acted_on: Pin<&mut Notified<'a>>,
    ) {
        loop {
            acted_on.as_mut().await;
            acted_on.set(bell.notified());
            acted_on.as_mut().enable();
            match self.gate.store().show(attempt.id).await {
                Ok(view) if view.as_ref().map(|v| v.claim.fence()) == Some(attempt.fence) => {}
                // The next heartbeat tells.
                Err(error) => tracing::warn!(claim = %attempt.id, %error, "could not look after an act"),
                Ok(_) => return,
            }
        }
    }

    pub(crate) async fn say(
        &self,
        attempt: &Attempt,
        call: Call,
        result: Option<String>,
    ) -> Result<Answer, StoreError> {
        let call = word(attempt, call, result);
        if call.call == Call::Heartbeat {
            return Ok(said(self.gate.finish(call).await?));
        }
        self.patiently(|| self.gate.finish(call.clone())).await.map(said)
    }

    /// What is known must be written down: a store that is full or busy for a moment is asked again while the lease
    /// lives, or what happened would be taken for unknown.
    pub(crate) async fn patiently<T, F>(&self, write: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut tries = 0;
        loop {
            match write().await {
                Err(
                    error @ (StoreError::Full(_)
                    | StoreError::Busy
                    | StoreError::Database(_)
                    | StoreError::Away(_)
                    | StoreError::Unsure(_)),
                ) if tries < patience(&error) => {
                    tries += 1;
                    self.gate.clock().sleep(Duration::from_millis(200)).await;
                }
                answer => return answer,
            }
        }
    }
}

/// What an attempt says.
pub(crate) fn word(attempt: &Attempt, call: Call, result: Option<String>) -> FinishCall {
    let (id, fence, jitter) = (attempt.id, attempt.fence, entropy::jitter());
    FinishCall { id, fence, call, jitter, result, actor: ACTOR.into() }
}

/// Tries of 200 ms: 20 s; and 200 s for a database that is away, which may be changing its machine. Both are below
/// the shortest lease.
fn patience(error: &StoreError) -> u32 {
    match error {
        StoreError::Away(_) | StoreError::Unsure(_) => 1_000,
        _ => 100,
    }
}

fn said(finished: Option<(Answer, ClaimView)>) -> Answer {
    finished.map_or(Answer::LostClaim, |(answer, _)| answer)
}

pub(crate) fn hands_over(step: &Step) -> bool {
    matches!(step.action, Action::Forward(ForwardStep { until: Until::Finished, .. }))
}

pub(crate) fn failed(note: &str) -> Call {
    Call::Error { failure: Failed::Final, note: note.to_owned() }
}

pub(crate) fn unknown_outcome(step: &Step, number: usize, why: &str) -> Call {
    let note = format!(
        "outcome unknown at step {number} `{}`: {why}; look whether it happened, then reset, or mark it done",
        step.name
    );
    Call::Error { failure: Failed::Unknown, note }
}

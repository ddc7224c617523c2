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
use oncegate_store::api::{
    ClaimCall, ClaimView, FinishCall, REVIEW, StepCall, StepOutcome, Target, WAIT, Work,
};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::entropy;
use crate::flow::{Action, Flow, ForwardStep, Repeat, Step, Until};
use crate::gatekeeper::Gatekeeper;
use crate::held::HeldAttempts;
use crate::message;
use crate::render::RenderError;
use crate::request::{Outgoing, forward_request, http_request, payload_of, result_of, world};
use crate::waiting::{Waited, holds};

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
        let Some(claimed) = store.claim(call).await? else { return Ok(Ended::Moved) };
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
        let work = store.work(id).await?;
        // Whoever loses the claim meanwhile drops the step in flight; its row stays and counts as unknown.
        let last = tokio::select! {
            last = self.steps(&attempt, work) => last?,
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
        let call = FinishCall {
            id: attempt.id,
            fence: attempt.fence,
            call,
            jitter: entropy::jitter(),
            result,
            actor: ACTOR.into(),
        };
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

    async fn steps(&self, attempt: &Attempt, work: Option<Work>) -> Result<Next, StoreError> {
        let Some(work) = work else { return Ok(Next::Leave) };
        let Some(flow) = self.gate.book().automation(attempt.id.workspace, &work.automation).flow else {
            return Ok(Next::Finish(failed(&format!(
                "the automation `{}` declares no steps any more; declare them again, then reset this claim",
                work.automation
            ))));
        };
        let payload = match payload_of(&work) {
            Ok(payload) => payload,
            Err(why) => return Ok(Next::Finish(failed(&why))),
        };
        let mut calls: Vec<StepCall> =
            work.steps.iter().filter(|c| c.resets >= attempt.claim.steps_since).cloned().collect();
        if let Some(why) = renamed(&flow, &calls, attempt.claim.resets) {
            return Ok(Next::Finish(why));
        }
        let mut result = None;
        for (number, step) in (1..).zip(&flow.steps) {
            let sent: Vec<&StepCall> = calls.iter().filter(|c| c.step == step.name).collect();
            let wrong = |e: RenderError| Next::Finish(failed(&format!("step {number} `{}`: {e}", step.name)));
            if step.action.sends_nothing() {
                let world = world(&work, &payload, &flow, &calls, self, attempt);
                // One that began is waited for, whatever its condition would say by now.
                match holds(step, &world) {
                    Ok(holds) if holds || !sent.is_empty() => {}
                    Ok(_) => continue,
                    Err(e) => return Ok(wrong(e)),
                }
                match self.pause(attempt, step, &sent, &world).await? {
                    Ok(Waited::Over) => continue,
                    Ok(Waited::Until(call)) => return Ok(Next::Finish(call)),
                    Ok(Waited::Lost) => return Ok(Next::Leave),
                    Err(e) => return Ok(wrong(e)),
                }
            }
            // That a hook took the work is not that its run finished: only its done call says so.
            let happened = sent.iter().rfind(|c| c.outcome == StepOutcome::Succeeded);
            if let (false, Some(call)) = (hands_over(step), happened) {
                result = result_of(step, call).or(result);
                continue;
            }
            if let Some(why) = self.must_not_repeat(attempt, step, number, &sent) {
                return Ok(Next::Finish(why));
            }
            let world = world(&work, &payload, &flow, &calls, self, attempt);
            match holds(step, &world) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(e) => return Ok(wrong(e)),
            }
            let request = match self.request(step, &work, &world, attempt) {
                Ok(request) => request,
                Err(e) => return Ok(wrong(e)),
            };
            match self.send(attempt, step, number, &request).await? {
                Next::GoOn(call) => {
                    result = result_of(step, &call).or(result);
                    calls.push(call);
                }
                other => return Ok(other),
            }
        }
        self.say(attempt, Call::Done, result).await?;
        Ok(Next::Leave)
    }

    /// An unknown outcome of a step that may not be repeated goes to a person (DESIGN §6). A reset is a person's word
    /// that it may run again, so what lies before the last one does not count.
    fn must_not_repeat(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        sent: &[&StepCall],
    ) -> Option<Call> {
        let is_unknown = |c: &StepCall| match c.outcome {
            StepOutcome::Unknown | StepOutcome::InFlight => true,
            StepOutcome::Succeeded => hands_over(step),
            StepOutcome::Failed => false,
        };
        if !sent.iter().any(|c| c.resets == attempt.claim.resets && is_unknown(c)) {
            return None;
        }
        let why = match step.repeat {
            Repeat::Natural => return None,
            Repeat::ByKey { window } => {
                let first = sent.iter().map(|c| c.sent_at).min()?;
                if self.gate.store().now().wall < first.after(window) {
                    return None;
                }
                "the receiver may have forgotten its key by now"
            }
            Repeat::Never => "a repeat could make a second effect",
        };
        Some(unknown_outcome(step, number, why))
    }

    fn request(
        &self,
        step: &Step,
        work: &Work,
        world: &Value,
        attempt: &Attempt,
    ) -> Result<Outgoing, RenderError> {
        // An effect that is wanted anew is another one to its receivers: under the old key they would answer as
        // before and do nothing.
        let key =
            self.gate.store().secret().step_key(attempt.id.id, &step.name, attempt.claim.key_generation);
        let mut request = match &step.action {
            Action::Http(http) => http_request(http, work, world, key)?,
            Action::Forward(forward) => forward_request(forward, world, key)?,
            Action::Message(message) => message::message_request(message, world, key)?,
            Action::Email(email) => return message::mail(email, world, key).map(Outgoing::Mail),
            // Both are seen to before.
            Action::Wait(_) | Action::Review(_) => {
                return Err(RenderError::of(&step.name, "nothing is sent by it".to_owned()));
            }
        };
        request.timeout = step.timeout;
        Ok(Outgoing::Request(request))
    }
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

/// What was sent under a name that is no longer declared may be what a new name would send again. A reset is a
/// person's word that it is not.
fn renamed(flow: &Flow, calls: &[StepCall], resets: u32) -> Option<Call> {
    let declared = |name: &str| flow.steps.iter().any(|step| step.name == name);
    let sent = |c: &&StepCall| {
        c.outcome != StepOutcome::Failed && c.resets == resets && ![WAIT, REVIEW].contains(&c.target.as_str())
    };
    let gone = calls.iter().filter(sent).find(|c| !declared(&c.step))?;
    let new = flow.steps.iter().find(|step| !calls.iter().any(|c| c.step == step.name))?;
    let note = format!(
        "step `{}` was sent and is not declared any more, and `{}` has not been sent: if it is the same step, give it \
         its old name and reset; if it is another one, look what has happened, then reset",
        gone.step, new.name
    );
    Some(Call::Error { failure: Failed::Unknown, note })
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

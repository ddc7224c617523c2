//! The steps of an attempt in their order: which has yet to be sent, and whether it may be.

use std::sync::Arc;

use oncegate_core::finish::{Call, Failed};
use oncegate_store::StoreError;
use oncegate_store::api::{REVIEW, StepCall, StepOutcome, WAIT, Work, step_of};
use serde_json::Value;

use crate::flow::{Action, Flow, Repeat, Step};
use crate::looking::Looked;
use crate::message;
use crate::planning::Ready;
use crate::render::RenderError;
use crate::request::{Outgoing, forward_request, http_request, payload_of, result_of, world};
use crate::sending::{Last, What, Written};
use crate::waiting::{Waited, holds};
use crate::worker::{Attempt, Next, Worker, failed, hands_over, unknown_outcome};

/// What an attempt works on, and what has come of it so far.
pub(crate) struct Run<'a> {
    pub(crate) attempt: &'a Attempt,
    work: &'a Work,
    pub(crate) payload: Value,
    flow: &'a Flow,
    /// The first call, if it is written down already.
    opened: Option<(Ready, Written)>,
    /// What was sent for the effect as it stands: since the last reset from the start.
    pub(crate) calls: Vec<StepCall>,
    /// What later duplicates are told.
    result: Option<String>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        attempt: &'a Attempt,
        work: &'a Work,
        payload: Value,
        flow: &'a Flow,
        calls: Vec<StepCall>,
    ) -> Self {
        Self { attempt, work, payload, flow, opened: None, calls, result: None }
    }

    /// What templates see.
    pub(crate) fn world(&self, worker: &Worker) -> Value {
        world(self.work, &self.payload, self.flow, &self.calls, worker, self.attempt)
    }

    /// Under a step's name, oldest first.
    pub(crate) fn sent(&self, step: &Step) -> Vec<&StepCall> {
        self.calls.iter().filter(|call| call.step == step.name).collect()
    }

    fn succeeded(&mut self, step: &Step, call: StepCall) {
        self.result = result_of(step, &call).or(self.result.take());
        self.calls.push(call);
    }
}

/// A run whose first call is written down.
pub(crate) struct Open {
    pub(crate) flow: Arc<Flow>,
    pub(crate) payload: Value,
    pub(crate) ready: Ready,
    pub(crate) written: Written,
}

/// A template that cannot be rendered is a person's to mend.
pub(crate) fn wrong(step: &Step, number: usize, error: &RenderError) -> Next {
    Next::Finish(failed(&format!("step {number} `{}`: {error}", step.name)))
}

impl Worker {
    pub(crate) async fn steps(
        &self,
        attempt: &Attempt,
        work: Work,
        opened: Option<Open>,
    ) -> Result<Next, StoreError> {
        let (flow, payload, opened) = match opened {
            Some(Open { flow, payload, ready, written }) => (Some(flow), Ok(payload), Some((ready, written))),
            None => {
                let declared = self.gate.book().automation(attempt.id.workspace, &work.automation);
                (declared.flow, payload_of(&work), None)
            }
        };
        let Some(flow) = flow else {
            return Ok(Next::Finish(failed(&format!(
                "the automation `{}` declares no steps any more; declare them again, then reset this claim",
                work.automation
            ))));
        };
        let payload = match payload {
            Ok(payload) => payload,
            Err(why) => return Ok(Next::Finish(failed(&why))),
        };
        let calls: Vec<StepCall> =
            work.steps.iter().filter(|c| c.resets >= attempt.claim.steps_since).cloned().collect();
        if let Some(why) = renamed(&flow, &calls, attempt.claim.resets) {
            return Ok(Next::Finish(why));
        }
        let mut run = Run { opened, ..Run::new(attempt, &work, payload, &flow, calls) };
        for (number, step) in (1..).zip(&flow.steps) {
            let ended = match &step.for_each {
                Some(items) => self.each(&mut run, step, number, items).await?,
                None => self.step(&mut run, step, number, None).await?,
            };
            if let Some(next) = ended {
                return Ok(next);
            }
        }
        self.say(attempt, Call::Done, run.result).await?;
        Ok(Next::Leave)
    }

    /// Sees to one step, or to one item of its list, for which `seen` is what its templates see. `None`: the next one.
    pub(crate) async fn step(
        &self,
        run: &mut Run<'_>,
        step: &Step,
        number: usize,
        seen: Option<&Value>,
    ) -> Result<Option<Next>, StoreError> {
        let attempt = run.attempt;
        let is_last = number == run.flow.steps.len() && step.item.is_none() && !hands_over(step);
        let last = |run: &Run<'_>| is_last.then(|| Last { result: run.result.clone() });
        if let Some((ready, written)) = run.opened.take() {
            let came = self.carry_out(attempt, step, ready, written, What::Effect).await?;
            let next = self.after(attempt, step, number, came, last(run)).await?;
            return Ok(goes_on(run, step, next));
        }
        if step.action.sends_nothing() {
            return self.pauses(run, step, number).await;
        }
        // That a hook took the work is not that its run finished: only its done call says so.
        let happened = run.sent(step).into_iter().rfind(|c| c.outcome == StepOutcome::Succeeded);
        if let (false, Some(call)) = (hands_over(step), happened) {
            run.result = result_of(step, call).or(run.result.take());
            return Ok(None);
        }
        let all;
        let world = match seen {
            Some(world) => world,
            None => {
                all = run.world(self);
                &all
            }
        };
        match (&step.lookup, self.doubt(run, step)) {
            (_, None) => {}
            (None, Some((why, since_reset))) if since_reset => {
                return Ok(Some(Next::Finish(unknown_outcome(step, number, why))));
            }
            // A reset is a person's word that it may run again.
            (None, Some(_)) => {}
            (Some(lookup), Some(_)) => match self.look(run, step, number, lookup, world).await? {
                Looked::There(call) => {
                    run.succeeded(step, call);
                    return Ok(None);
                }
                Looked::NotThere => {}
                Looked::Ended(next) => return Ok(Some(next)),
            },
        }
        match holds(step, world) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(e) => return Ok(Some(wrong(step, number, &e))),
        }
        let request = match self.request(step, run.work, world, attempt) {
            Ok(request) => request,
            Err(e) => return Ok(Some(wrong(step, number, &e))),
        };
        let next = self.send(attempt, step, number, request, last(run)).await?;
        Ok(goes_on(run, step, next))
    }

    /// A step that sends nothing.
    async fn pauses(&self, run: &Run<'_>, step: &Step, number: usize) -> Result<Option<Next>, StoreError> {
        let (world, sent) = (run.world(self), run.sent(step));
        // One that began is waited for, whatever its condition would say by now.
        match holds(step, &world) {
            Ok(holds) if holds || !sent.is_empty() => {}
            Ok(_) => return Ok(None),
            Err(e) => return Ok(Some(wrong(step, number, &e))),
        }
        Ok(match self.pause(run.attempt, step, &sent, &world).await? {
            Ok(Waited::Over) => None,
            Ok(Waited::Until(call)) => Some(Next::Finish(call)),
            Ok(Waited::Lost) => Some(Next::Leave),
            Err(e) => Some(wrong(step, number, &e)),
        })
    }

    /// Why a step must not simply be repeated, if that is so, and whether that came about since the last reset: the
    /// outcome of some call is unknown, and a repeat may do harm (DESIGN §6).
    fn doubt(&self, run: &Run<'_>, step: &Step) -> Option<(&'static str, bool)> {
        let is_unknown = |c: &&&StepCall| match c.outcome {
            StepOutcome::Unknown | StepOutcome::InFlight => true,
            StepOutcome::Succeeded => hands_over(step),
            StepOutcome::Failed => false,
        };
        let sent = run.sent(step);
        let last = sent.iter().filter(is_unknown).map(|c| c.resets).max()?;
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
        Some((why, last == run.attempt.claim.resets))
    }

    pub(crate) fn request(
        &self,
        step: &Step,
        work: &Work,
        world: &Value,
        attempt: &Attempt,
    ) -> Result<Outgoing, RenderError> {
        let key = self.key(attempt, step);
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

    /// An effect that is wanted anew is another one to its receivers: under the old key they would answer as before and
    /// do nothing.
    pub(crate) fn key(&self, attempt: &Attempt, step: &Step) -> String {
        let (secret, generation) = (self.gate.store().secret(), attempt.claim.key_generation);
        match &step.item {
            None => secret.step_key(attempt.id.id, &step.name, generation),
            Some(item) => secret.step_key(attempt.id.id, &format!("{} {item}", step.name), generation),
        }
    }
}

/// `None`: the next step.
fn goes_on(run: &mut Run<'_>, step: &Step, next: Next) -> Option<Next> {
    match next {
        Next::GoOn(call) => {
            run.succeeded(step, call);
            None
        }
        ended => Some(ended),
    }
}

/// What was sent under a name that is no longer declared may be what a new name would send again. A reset is a
/// person's word that it is not.
fn renamed(flow: &Flow, calls: &[StepCall], resets: u32) -> Option<Call> {
    // A step that is done for each item of a list sends under the names of the items, and never under its own.
    let is_of = |step: &Step, name: &str| match step.for_each {
        Some(_) => step_of(name) == step.name && step_of(name) != name,
        None => name == step.name,
    };
    let declared = |name: &str| flow.steps.iter().any(|step| is_of(step, name));
    let sent = |c: &&StepCall| {
        c.outcome != StepOutcome::Failed && c.resets == resets && ![WAIT, REVIEW].contains(&c.target.as_str())
    };
    let gone = calls.iter().filter(sent).find(|c| !declared(&c.step))?;
    let new = flow.steps.iter().find(|step| !calls.iter().any(|c| is_of(step, &c.step)))?;
    let note = format!(
        "step `{}` was sent and is not declared any more, and `{}` has not been sent: if it is the same step, give it \
         its old name and reset; if it is another one, look what has happened, then reset",
        gone.step, new.name
    );
    Some(Call::Error { failure: Failed::Unknown, note })
}

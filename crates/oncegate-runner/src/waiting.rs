//! Whether a step's time has come: `when`, and the steps `wait` and `review`. When a wait began, or what was asked, is
//! written down like a call, so neither a restart nor another node begins it anew, and nobody works meanwhile.

use oncegate_core::finish::{Call, cut};
use oncegate_core::time::Timestamp;
use oncegate_store::StoreError;
use oncegate_store::api::{REVIEW, StepBegin, StepCall, StepEnd, StepOutcome, WAIT};
use serde_json::Value;

use crate::flow::{Action, ReviewStep, Step, Wait, waiting_note};
use crate::render::{self, RenderError};
use crate::worker::{Attempt, Worker};

/// How a step that sends nothing stands.
pub(crate) enum Waited {
    /// It is over, or never was.
    Over,
    /// The attempt ends with this word, and another one goes on later.
    Until(Call),
    /// Somebody else holds the claim.
    Lost,
}

impl Worker {
    /// Sees to a step that sends nothing; of any other it is over.
    pub(crate) async fn pause(
        &self,
        attempt: &Attempt,
        step: &Step,
        begun: &[&StepCall],
        world: &Value,
    ) -> Result<Result<Waited, RenderError>, StoreError> {
        match &step.action {
            Action::Wait(wait) => self.wait(attempt, step, wait, begun, world).await,
            Action::Review(review) => self.ask(attempt, step, review, begun, world).await,
            _ => Ok(Ok(Waited::Over)),
        }
    }

    async fn wait(
        &self,
        attempt: &Attempt,
        step: &Step,
        wait: &Wait,
        begun: &[&StepCall],
        world: &Value,
    ) -> Result<Result<Waited, RenderError>, StoreError> {
        let now = self.gate.store().now().wall;
        let until = match wait {
            Wait::Until(template) => match instant(template, world) {
                Ok(until) => until,
                Err(why) => return Ok(Err(why)),
            },
            Wait::For(time) => match begun.iter().map(|call| call.sent_at).min() {
                Some(began) => began.after(*time),
                None => match self.begin_pause(attempt, step, WAIT, None).await? {
                    true => now.after(*time),
                    false => return Ok(Ok(Waited::Lost)),
                },
            },
        };
        Ok(Ok(match until <= now {
            true => Waited::Over,
            false => {
                let note = format!("{} {until}", waiting_note(&step.name));
                Waited::Until(Call::Defer { until, note })
            }
        }))
    }

    /// Asked once: what was asked stands in the first row of the step, what was answered in the second.
    async fn ask(
        &self,
        attempt: &Attempt,
        step: &Step,
        review: &ReviewStep,
        begun: &[&StepCall],
        world: &Value,
    ) -> Result<Result<Waited, RenderError>, StoreError> {
        if begun.iter().any(|call| call.answer.is_some()) {
            return Ok(Ok(Waited::Over));
        }
        let asked = match begun
            .iter()
            .rfind(|c| c.outcome == StepOutcome::Succeeded)
            .and_then(|call| call.note.clone())
        {
            Some(asked) => asked,
            None => match render::text("review.ask", &review.ask, world) {
                Ok(asked) => {
                    let asked = cut(asked.trim());
                    if !self.begin_pause(attempt, step, REVIEW, Some(&asked)).await? {
                        return Ok(Ok(Waited::Lost));
                    }
                    asked
                }
                Err(why) => return Ok(Err(why)),
            },
        };
        let note = format!("step `{}` asks: {asked}", step.name);
        Ok(Ok(Waited::Until(Call::Review { note })))
    }

    async fn begin_pause(
        &self,
        attempt: &Attempt,
        step: &Step,
        target: &str,
        note: Option<&str>,
    ) -> Result<bool, StoreError> {
        let store = self.gate.store();
        let begin = StepBegin {
            id: attempt.id,
            fence: attempt.fence,
            step: step.name.clone(),
            idempotency_key: String::new(),
            target: target.to_owned(),
        };
        let Some(call) = self.patiently(|| store.begin_step(begin.clone())).await? else { return Ok(false) };
        let end = StepEnd {
            id: attempt.id,
            fence: attempt.fence,
            call,
            outcome: StepOutcome::Succeeded,
            status: None,
            answer: None,
            note: note.map(str::to_owned),
        };
        self.patiently(|| store.end_step(end.clone())).await
    }
}

/// Whether a step is meant for this event.
pub(crate) fn holds(step: &Step, world: &Value) -> Result<bool, RenderError> {
    step.when.as_deref().map_or(Ok(true), |when| render::holds("when", when, world))
}

fn instant(template: &str, world: &Value) -> Result<Timestamp, RenderError> {
    let text = render::text("wait.until", template, world)?;
    Timestamp::parse_rfc3339(text.trim()).map_err(|_| {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
        let why = format!("`{shown}` is no instant; it must be like 2026-11-30T09:00:00Z, with a zone");
        RenderError::of("wait.until", why)
    })
}

//! Whether a step's time has come: `when`, and the step `wait`. When a wait began is written down like a call, so
//! neither a restart nor another node begins it anew, and nobody works meanwhile.

use oncegate_core::finish::Call;
use oncegate_core::time::Timestamp;
use oncegate_store::StoreError;
use oncegate_store::api::{StepBegin, StepCall, StepEnd, StepOutcome};
use serde_json::Value;

use crate::flow::{Step, Wait};
use crate::render::{self, RenderError};
use crate::worker::{Attempt, Worker};

/// What begins the target of a wait's row: nothing was sent there.
pub(crate) const TARGET: &str = "wait";

/// How a wait stands.
pub(crate) enum Waited {
    /// It is over, or never was.
    Over,
    /// Come back then.
    Until(Call),
    /// Somebody else holds the claim.
    Lost,
}

impl Worker {
    pub(crate) async fn wait(
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
                None => match self.begin_wait(attempt, step).await? {
                    true => now.after(*time),
                    false => return Ok(Ok(Waited::Lost)),
                },
            },
        };
        Ok(Ok(match until <= now {
            true => Waited::Over,
            false => {
                let note = format!("step `{}` waits until {until}", step.name);
                Waited::Until(Call::Defer { until, note })
            }
        }))
    }

    async fn begin_wait(&self, attempt: &Attempt, step: &Step) -> Result<bool, StoreError> {
        let store = self.gate.store();
        let begin = StepBegin {
            id: attempt.id,
            fence: attempt.fence,
            step: step.name.clone(),
            idempotency_key: String::new(),
            target: TARGET.to_owned(),
        };
        let Some(call) = self.patiently(|| store.begin_step(begin.clone())).await? else { return Ok(false) };
        let end = StepEnd {
            id: attempt.id,
            fence: attempt.fence,
            call,
            outcome: StepOutcome::Succeeded,
            status: None,
            answer: None,
            note: None,
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

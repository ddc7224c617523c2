//! One call of a step: may it go now, written down, sent, written down what came of it.

use std::time::Duration;

use oncegate_connect::classify::{Spoken, heard};
use oncegate_connect::{CallOutcome, Failure, Mailer, TargetName};
use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::lane::Wait;
use oncegate_store::api::{StepBegin, StepCall, StepEnd, StepOutcome};
use oncegate_store::{StoreError, failpoint};

use crate::flow::{Repeat, Step};
use crate::request::{Outgoing, shown_url};
use crate::targets::Permit;
use crate::worker::{Attempt, Next, Worker, failed, hands_over, unknown_outcome};

/// A receiver that says "come back at once" after refusing is not believed: its clock may be behind ours.
const THROTTLE_FLOOR: Duration = Duration::from_secs(1);

impl Worker {
    /// What was written down was not sent, for certain, and is tried anew by whoever holds the claim.
    async fn not_sent(
        &self,
        attempt: &Attempt,
        step: &Step,
        call: i64,
        stood: Duration,
    ) -> Result<Next, StoreError> {
        let note = format!(
            "step `{}` was not sent: this process stood still for {} s before it",
            step.name,
            stood.as_secs()
        );
        let end = StepEnd {
            id: attempt.id,
            fence: attempt.fence,
            call,
            outcome: StepOutcome::Failed,
            status: None,
            answer: None,
            note: Some(note.clone()),
        };
        Ok(match self.patiently(|| self.gate.store().end_step(end.clone())).await? {
            true => Next::Finish(Call::Error { failure: Failed::Retryable { retry_after: None }, note }),
            false => Next::Leave,
        })
    }

    /// Sends one step, if its target has room for it, and says what comes next.
    pub(crate) async fn send(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        outgoing: &Outgoing,
    ) -> Result<Next, StoreError> {
        let store = self.gate.store();
        let whom = self.target_of(outgoing);
        // Found out before anything is written: what may not go now leaves no trace but that it waits.
        let permit = match &whom {
            None => None,
            Some(whom) => match self.gate.targets().admit(attempt.id, whom).await {
                Ok(permit) => Some(permit),
                Err(wait) => {
                    return Ok(Next::Finish(self.waits(attempt, whom, &wait, step, number, None)));
                }
            },
        };
        if hands_over(step) {
            // Before it is sent, because its run may call back before we hear that it was taken.
            if self.say(attempt, Call::HandOver, None).await? != Answer::Accepted {
                return Ok(Next::Leave);
            }
        }
        let target = match (outgoing, &self.mailer) {
            (Outgoing::Request(r), _) => format!("{} {}", r.method, shown_url(&r.url, step.secret_url)),
            (Outgoing::Mail(_), mailer) => mailer.as_ref().map(Mailer::target).unwrap_or_default(),
        };
        let begin = StepBegin {
            id: attempt.id,
            fence: attempt.fence,
            step: step.name.clone(),
            idempotency_key: outgoing.key().to_owned(),
            target: target.clone(),
        };
        let began = self.patiently(|| async {
            let asked = self.gate.clock().read();
            Ok(store.begin_step(begin.clone()).await?.map(|call| (call, asked)))
        });
        let Some((call, asked)) = began.await? else { return Ok(Next::Leave) };
        failpoint::hit(failpoint::SENDING);
        // It was ours when it was written down. Whoever stood still since, for as long as another may wait, must not
        // send what the other may have sent by now. The wall clock counts where the machine itself was suspended.
        let now = self.gate.clock().read();
        let stood = now.monotonic.saturating_sub(asked.monotonic).max(now.wall.since(asked.wall));
        if stood >= attempt.ttl / 3 {
            return self.not_sent(attempt, step, call, stood).await;
        }
        let sent_at = store.now().wall;
        permit.iter().for_each(Permit::sending);
        let outcome = self.call(step, outgoing, sent_at).await;
        let spoken = match outgoing {
            Outgoing::Request(_) => Spoken::Http,
            Outgoing::Mail(_) => Spoken::Smtp,
        };
        let tried_in_vain = permit.is_some_and(|permit| permit.end(heard(&outcome, spoken)));
        failpoint::hit("step.answered");
        let (known, status, answer, note) = match &outcome {
            CallOutcome::Succeeded { status, answer } => {
                (StepOutcome::Succeeded, Some(*status), Some(answer.body.clone()), None)
            }
            CallOutcome::Failed { status, answer, note, .. } => {
                (StepOutcome::Failed, *status, answer.as_ref().map(|a| a.body.clone()), Some(note.clone()))
            }
            CallOutcome::Unknown { status, note, answer } => {
                (StepOutcome::Unknown, *status, answer.as_ref().map(|a| a.body.clone()), Some(note.clone()))
            }
        };
        let end = StepEnd {
            id: attempt.id,
            fence: attempt.fence,
            call,
            outcome: known,
            status,
            answer: answer.clone(),
            note: note.clone(),
        };
        let holds = self.patiently(|| store.end_step(end.clone())).await?;
        if !holds {
            return Ok(Next::Leave);
        }
        // Whoever tries for the others spends no retry of its own. What it leaves unknown stays unknown.
        let again = matches!(outcome, CallOutcome::Failed { failure: Failure::Transient, .. })
            || matches!(
                (&outcome, step.repeat),
                (CallOutcome::Unknown { .. }, Repeat::Natural | Repeat::ByKey { .. })
            );
        if let (true, Some(whom), Some(note)) = (tried_in_vain && again, &whom, &note)
            && let Err(wait) = self.gate.targets().ask(attempt.id, whom)
        {
            return Ok(Next::Finish(self.waits(attempt, whom, &wait, step, number, Some(note))));
        }
        Ok(match outcome {
            CallOutcome::Succeeded { .. } if hands_over(step) => Next::Leave,
            CallOutcome::Succeeded { .. } => Next::GoOn(StepCall {
                id: call,
                step: step.name.clone(),
                attempt: attempt.fence.attempt,
                resets: attempt.claim.resets,
                idempotency_key: outgoing.key().to_owned(),
                target,
                sent_at,
                outcome: known,
                status,
                answer,
                note,
                finished_at: None,
            }),
            CallOutcome::Failed { failure, note, .. } => {
                let note = format!("step {number} `{}`: {note}", step.name);
                Next::Finish(match failure {
                    Failure::Throttled { retry_after } => {
                        let wait = retry_after.max(THROTTLE_FLOOR);
                        Call::Defer { until: store.now().wall.after(wait), note }
                    }
                    Failure::Transient => {
                        Call::Error { failure: Failed::Retryable { retry_after: None }, note }
                    }
                    Failure::Permanent => failed(&note),
                })
            }
            CallOutcome::Unknown { note, .. } => Next::Finish(match step.repeat {
                Repeat::Natural | Repeat::ByKey { .. } => Call::Error {
                    failure: Failed::Retryable { retry_after: None },
                    note: format!("outcome unknown at step {number} `{}`: {note}", step.name),
                },
                Repeat::Never => unknown_outcome(step, number, &note),
            }),
        })
    }

    /// Who is called; nobody by an URL that is refused before anything is sent.
    fn target_of(&self, outgoing: &Outgoing) -> Option<TargetName> {
        match outgoing {
            Outgoing::Request(request) => TargetName::of_url(&request.url),
            Outgoing::Mail(_) => self.mailer.as_ref().map(|_| TargetName::smtp()),
        }
    }

    /// The claim waits for its target, and nobody works meanwhile.
    fn waits(
        &self,
        attempt: &Attempt,
        whom: &TargetName,
        wait: &Wait,
        step: &Step,
        number: usize,
        after: Option<&str>,
    ) -> Call {
        let targets = self.gate.targets();
        let until = self.gate.store().now().wall.after(wait.wait);
        if until > attempt.waits_until {
            // It becomes an error; its turn is for others.
            targets.forget(attempt.id);
        }
        let after = after.map(|after| format!("{after}; ")).unwrap_or_default();
        let note = format!("step {number} `{}`: {after}{}", step.name, targets.words(whom, wait, until));
        Call::Defer { until, note }
    }
}

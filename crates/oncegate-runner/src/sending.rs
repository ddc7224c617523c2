//! One call of a step: may it go now, written down, sent, written down what came of it.

use std::time::Duration;

use oncegate_connect::classify::{Spoken, heard};
use oncegate_connect::{CallOutcome, Failure, Mailer, TargetName};
use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::lane::Wait;
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_store::api::{LOOKUP, StepBegin, StepCall, StepEnd, StepOutcome};
use oncegate_store::clock::Reading;
use oncegate_store::{StoreError, failpoint};

use crate::flow::{Lookup, Repeat, Step};
use crate::planning::Ready;
use crate::request::{Outgoing, result_of, shown_url};
use crate::targets::Permit;
use crate::worker::{Attempt, Next, Worker, failed, hands_over, unknown_outcome, word};

/// A receiver that says "come back at once" after refusing is not believed: its clock may be behind ours.
const THROTTLE_FLOOR: Duration = Duration::from_secs(1);

/// What a call is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// The effect.
    Effect,
    /// To see whether the effect is there.
    Look(&'a Lookup),
}

impl What<'_> {
    /// Where a test may kill the process: before the call goes out, and after its answer.
    const fn places(self) -> (&'static str, &'static str) {
        match self {
            Self::Effect => (failpoint::SENDING, "step.answered"),
            Self::Look(_) => ("look.sending", "look.answered"),
        }
    }
}

/// A call that was made.
pub(crate) struct Came {
    call: i64,
    pub(crate) sent_at: Timestamp,
    pub(crate) outcome: CallOutcome,
    tried_in_vain: bool,
    whom: Option<TargetName>,
    target: String,
    key: String,
}

/// A call for which its target has room.
pub(crate) struct Cleared {
    whom: Option<TargetName>,
    permit: Option<Permit>,
}

/// A call that is written down.
pub(crate) struct Written {
    /// Under this number.
    pub(crate) call: i64,
    /// What the clock said before it was.
    pub(crate) asked: Reading,
}

/// Nothing is to be done behind a step.
pub(crate) struct Last {
    /// Of the steps before it.
    pub(crate) result: Option<String>,
}

/// Whether a call was made.
pub(crate) enum Exchange {
    Came(Came),
    /// It was not, and this comes next.
    Not(Next),
}

impl Came {
    fn status(&self) -> Option<u16> {
        match &self.outcome {
            CallOutcome::Succeeded { status, .. } => Some(*status),
            CallOutcome::Failed { status, .. } | CallOutcome::Unknown { status, .. } => *status,
        }
    }

    /// How it ended, to be written down.
    fn end(
        &self,
        attempt: &Attempt,
        outcome: StepOutcome,
        answer: Option<Vec<u8>>,
        note: Option<String>,
    ) -> StepEnd {
        let (id, fence, call, status) = (attempt.id, attempt.fence, self.call, self.status());
        StepEnd { id, fence, call, outcome, status, answer, note }
    }

    /// As it is remembered.
    pub(crate) fn call(
        &self,
        attempt: &Attempt,
        step: &Step,
        outcome: StepOutcome,
        answer: Option<Vec<u8>>,
        note: Option<String>,
    ) -> StepCall {
        StepCall {
            id: self.call,
            step: step.name.clone(),
            attempt: attempt.fence.attempt,
            resets: attempt.claim.resets,
            idempotency_key: self.key.clone(),
            target: self.target.clone(),
            sent_at: self.sent_at,
            outcome,
            status: self.status(),
            answer,
            note,
            finished_at: None,
        }
    }
}

/// What is said about an attempt whose call surely did nothing.
pub(crate) fn after_failure(failure: Failure, note: String, now: Timestamp) -> Call {
    match failure {
        Failure::Throttled { retry_after } => {
            Call::Defer { until: now.after(retry_after.max(THROTTLE_FLOOR)), note }
        }
        Failure::Transient => Call::Error { failure: Failed::Retryable { retry_after: None }, note },
        Failure::Locked => Call::Error { failure: Failed::Locked, note },
        Failure::Permanent => failed(&note),
    }
}

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

    /// Sends one step, if its target has room for it, and says what comes next. With `last`, nothing does once it has
    /// succeeded: the attempt is done, with that result unless the answer is one.
    pub(crate) async fn send(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        outgoing: Outgoing,
        last: Option<Last>,
    ) -> Result<Next, StoreError> {
        let came = self.exchange(attempt, step, number, outgoing, What::Effect).await?;
        self.after(attempt, step, number, came, last).await
    }

    /// Writes down what came of the call of a step, and says what comes next.
    pub(crate) async fn after(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        exchange: Exchange,
        last: Option<Last>,
    ) -> Result<Next, StoreError> {
        let came = match exchange {
            Exchange::Came(came) => came,
            Exchange::Not(next) => return Ok(next),
        };
        let (known, answer, note) = match &came.outcome {
            CallOutcome::Succeeded { answer, .. } => {
                (StepOutcome::Succeeded, Some(answer.body.clone()), None)
            }
            CallOutcome::Failed { answer, note, .. } => {
                (StepOutcome::Failed, answer.as_ref().map(|a| a.body.clone()), Some(note.clone()))
            }
            CallOutcome::Unknown { note, answer, .. } => {
                (StepOutcome::Unknown, answer.as_ref().map(|a| a.body.clone()), Some(note.clone()))
            }
        };
        // One of many: later steps see the answers of all.
        let answer = answer.filter(|a| step.item.is_none() || a.len() <= limits::ITEM_ANSWER_BYTES_MAX);
        if let (CallOutcome::Succeeded { .. }, Some(Last { result })) = (&came.outcome, last) {
            let call = came.call(attempt, step, known, answer.clone(), note.clone());
            let done = word(attempt, Call::Done, result_of(step, &call).or(result));
            let end = came.end(attempt, known, answer, note);
            self.patiently(|| self.gate.end_run(end.clone(), done.clone())).await?;
            return Ok(Next::Leave);
        }
        if !self.written(attempt, &came, known, answer.clone(), note.clone()).await? {
            return Ok(Next::Leave);
        }
        // What nobody knows of goes on by itself where a repeat does no harm, or where it can be looked for.
        let may_go_on = !matches!(step.repeat, Repeat::Never) || step.lookup.is_some();
        let again = match &came.outcome {
            CallOutcome::Failed { failure, .. } => matches!(failure, Failure::Transient),
            CallOutcome::Unknown { .. } => may_go_on,
            CallOutcome::Succeeded { .. } => false,
        };
        if let (true, Some(note)) = (again, &note)
            && let Some(waits) = self.tried_for_others(attempt, &came, step, number, note)
        {
            return Ok(waits);
        }
        Ok(match &came.outcome {
            CallOutcome::Succeeded { .. } if hands_over(step) => Next::Leave,
            CallOutcome::Succeeded { .. } => Next::GoOn(came.call(attempt, step, known, answer, note)),
            CallOutcome::Failed { failure, note, .. } => {
                let note = format!("step {number} `{}`: {note}", step.name);
                Next::Finish(after_failure(*failure, note, self.gate.store().now().wall))
            }
            CallOutcome::Unknown { note, .. } if may_go_on => Next::Finish(Call::Error {
                failure: Failed::Retryable { retry_after: None },
                note: format!("outcome unknown at step {number} `{}`: {note}", step.name),
            }),
            CallOutcome::Unknown { note, .. } => Next::Finish(unknown_outcome(step, number, note)),
        })
    }

    /// Makes one call, if its target has room for it, and writes down before that it is made.
    pub(crate) async fn exchange(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        outgoing: Outgoing,
        what: What<'_>,
    ) -> Result<Exchange, StoreError> {
        // Found out before anything is written: what may not go now leaves no trace but that it waits.
        let cleared = match self.clear(attempt, step, number, &outgoing).await {
            Ok(cleared) => cleared,
            Err(waits) => return Ok(Exchange::Not(Next::Finish(waits))),
        };
        if matches!(what, What::Effect) && hands_over(step) {
            // Before it is sent, because its run may call back before we hear that it was taken.
            if self.say(attempt, Call::HandOver, None).await? != Answer::Accepted {
                return Ok(Exchange::Not(Next::Leave));
            }
        }
        let begin = self.begin_of(attempt, step, &outgoing, what);
        let began = self.patiently(|| async {
            let asked = self.gate.clock().read();
            let call = self.gate.store().begin_step(begin.clone()).await?;
            Ok(call.map(|call| Written { call, asked }))
        });
        let Some(written) = began.await? else { return Ok(Exchange::Not(Next::Leave)) };
        let ready = Ready { outgoing, cleared, target: begin.target };
        self.carry_out(attempt, step, ready, written, what).await
    }

    /// Whether a call may go now.
    ///
    /// # Errors
    /// The claim waits.
    pub(crate) async fn clear(
        &self,
        attempt: &Attempt,
        step: &Step,
        number: usize,
        outgoing: &Outgoing,
    ) -> Result<Cleared, Call> {
        let Some(whom) = self.target_of(outgoing) else { return Ok(Cleared { whom: None, permit: None }) };
        match self.gate.targets().admit(attempt.id, &whom).await {
            Ok(permit) => Ok(Cleared { whom: Some(whom), permit: Some(permit) }),
            Err(wait) => Err(self.waits(attempt, &whom, &wait, step, number, None)),
        }
    }

    /// What is written down of a call before it is sent.
    pub(crate) fn begin_of(
        &self,
        attempt: &Attempt,
        step: &Step,
        outgoing: &Outgoing,
        what: What<'_>,
    ) -> StepBegin {
        let target = match (outgoing, &self.mailer, what) {
            (Outgoing::Request(r), _, What::Effect) => {
                format!("{} {}", r.method, shown_url(&r.url, step.secret_url))
            }
            (Outgoing::Request(r), _, What::Look(lookup)) => {
                format!("{LOOKUP}{} {}", r.method, shown_url(&r.url, lookup.secret_url))
            }
            (Outgoing::Mail(_), mailer, _) => mailer.as_ref().map(Mailer::target).unwrap_or_default(),
        };
        let (id, fence, step) = (attempt.id, attempt.fence, step.name.clone());
        StepBegin { id, fence, step, idempotency_key: outgoing.key().to_owned(), target }
    }

    /// Sends what is written down.
    pub(crate) async fn carry_out(
        &self,
        attempt: &Attempt,
        step: &Step,
        Ready { outgoing, cleared: Cleared { whom, permit }, target }: Ready,
        Written { call, asked }: Written,
        what: What<'_>,
    ) -> Result<Exchange, StoreError> {
        let (sending, answered) = what.places();
        failpoint::hit(sending);
        // It was ours when it was written down. Whoever stood still since, for as long as another may wait, must not
        // send what the other may have sent by now. The wall clock counts where the machine itself was suspended.
        let now = self.gate.clock().read();
        let stood = now.monotonic.saturating_sub(asked.monotonic).max(now.wall.since(asked.wall));
        if stood >= attempt.ttl / 3 {
            return self.not_sent(attempt, step, call, stood).await.map(Exchange::Not);
        }
        let sent_at = self.gate.store().now().wall;
        permit.iter().for_each(Permit::sending);
        let outcome = self.call(step, &outgoing, sent_at).await;
        let spoken = match outgoing {
            Outgoing::Request(_) => Spoken::Http,
            Outgoing::Mail(_) => Spoken::Smtp,
        };
        let tried_in_vain = permit.is_some_and(|permit| permit.end(heard(&outcome, spoken)));
        failpoint::hit(answered);
        let key = outgoing.key().to_owned();
        Ok(Exchange::Came(Came { call, sent_at, outcome, tried_in_vain, whom, target, key }))
    }

    /// Writes down what came of a call. `false`: the attempt no longer holds.
    pub(crate) async fn written(
        &self,
        attempt: &Attempt,
        came: &Came,
        outcome: StepOutcome,
        answer: Option<Vec<u8>>,
        note: Option<String>,
    ) -> Result<bool, StoreError> {
        let end = came.end(attempt, outcome, answer, note);
        self.patiently(|| self.gate.store().end_step(end.clone())).await
    }

    /// Whoever tries a target for the others spends no retry of its own. What it leaves unknown stays unknown.
    pub(crate) fn tried_for_others(
        &self,
        attempt: &Attempt,
        came: &Came,
        step: &Step,
        number: usize,
        note: &str,
    ) -> Option<Next> {
        let whom = came.whom.as_ref().filter(|_| came.tried_in_vain)?;
        let wait = self.gate.targets().ask(attempt.id, whom).err()?;
        Some(Next::Finish(self.waits(attempt, whom, &wait, step, number, Some(note))))
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

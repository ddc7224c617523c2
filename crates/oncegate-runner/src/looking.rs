//! Looks whether an effect of which nobody knows has happened, before it is repeated (DESIGN §6, "checkable"). What is
//! found is adopted; what is not there may be sent again.

use oncegate_connect::{CallOutcome, Failure};
use oncegate_core::finish::{Call, Failed};
use oncegate_core::time::Timestamp;
use oncegate_store::StoreError;
use oncegate_store::api::{StepCall, StepOutcome};
use serde_json::{Value, json};

use crate::flow::{Lookup, Step};
use crate::render::{self, RenderError};
use crate::request::{Outgoing, request_of};
use crate::sending::{Came, Exchange, What, after_failure};
use crate::stepping::{Run, wrong};
use crate::worker::{Next, Worker};

/// What a look came to.
pub(crate) enum Looked {
    /// It has happened: this stands for the call that succeeded.
    There(StepCall),
    /// It has not, and may be sent.
    NotThere,
    /// Nobody knows yet.
    Ended(Next),
}

/// What an answer says.
enum Says {
    There(Vec<u8>),
    NotThere,
}

impl Worker {
    pub(crate) async fn look(
        &self,
        run: &Run<'_>,
        step: &Step,
        number: usize,
        lookup: &Lookup,
        world: &Value,
    ) -> Result<Looked, StoreError> {
        let attempt = run.attempt;
        let mut request = match request_of(&lookup.request, world, self.key(attempt, step)) {
            Ok(request) => request,
            Err(e) => return Ok(Looked::Ended(wrong(step, number, &e))),
        };
        request.timeout = step.timeout;
        let outgoing = Outgoing::Request(request);
        let came = match self.exchange(attempt, step, number, outgoing, What::Look(lookup)).await? {
            Exchange::Came(came) => came,
            Exchange::Not(next) => return Ok(Looked::Ended(next)),
        };
        let said = match answered(&came.outcome) {
            Some((status, body)) => says(lookup, status, body, world),
            None => return self.not_seen(run, step, number, &came, None).await,
        };
        let said = match said {
            // A page about maintenance, say: what was asked for is not in it, and that tells nothing.
            Err((e, Told::Nothing)) => {
                return self.not_seen(run, step, number, &came, Some(&e.to_string())).await;
            }
            Err((e, Told::Json)) => Err(e),
            Ok(says) => Ok(says),
        };
        let (outcome, answer, note) = match &said {
            Ok(Says::There(answer)) => (
                StepOutcome::Succeeded,
                Some(answer.clone()),
                "found by its lookup, and not sent again".to_owned(),
            ),
            Ok(Says::NotThere) => (StepOutcome::Failed, None, "its lookup did not find it".to_owned()),
            Err(e) => (StepOutcome::Failed, None, e.to_string()),
        };
        if !self.written(attempt, &came, outcome, answer.clone(), Some(note.clone())).await? {
            return Ok(Looked::Ended(Next::Leave));
        }
        Ok(match said {
            Ok(Says::There(_)) => Looked::There(came.call(attempt, step, outcome, answer, Some(note))),
            Ok(Says::NotThere) => match settles(run, step, lookup).filter(|until| *until > came.sent_at) {
                None => Looked::NotThere,
                Some(until) => {
                    let note = format!(
                        "step {number} `{}`: its lookup did not find it; looks again at {until}, when its last call \
                         must have been seen",
                        step.name
                    );
                    Looked::Ended(Next::Finish(Call::Defer { until, note }))
                }
            },
            Err(e) => Looked::Ended(wrong(step, number, &e)),
        })
    }

    /// The look itself failed.
    async fn not_seen(
        &self,
        run: &Run<'_>,
        step: &Step,
        number: usize,
        came: &Came,
        wrong: Option<&str>,
    ) -> Result<Looked, StoreError> {
        let (failure, why) = match &came.outcome {
            CallOutcome::Failed { failure, note, .. } if wrong.is_none() => (*failure, note.as_str()),
            // Nothing can have happened by a look.
            CallOutcome::Unknown { note, .. } => (Failure::Transient, note.as_str()),
            CallOutcome::Failed { .. } | CallOutcome::Succeeded { .. } => {
                (Failure::Transient, wrong.unwrap_or("its answer did not come whole"))
            }
        };
        let note = format!("step {number} `{}`: could not look whether it happened: {why}", step.name);
        if !self.written(run.attempt, came, StepOutcome::Failed, None, Some(note.clone())).await? {
            return Ok(Looked::Ended(Next::Leave));
        }
        if let Some(waits) = self.tried_for_others(run.attempt, came, step, number, why) {
            return Ok(Looked::Ended(waits));
        }
        let call = match failure {
            // Whether the effect happened is as unknown as before.
            Failure::Permanent => Call::Error { failure: Failed::Unknown, note },
            failure => after_failure(failure, note, self.gate.store().now().wall),
        };
        Ok(Looked::Ended(Next::Finish(call)))
    }
}

/// An answer about the effect; that there is nothing of that name is one, too. In a part of an answer it may only not
/// be seen.
fn answered(outcome: &CallOutcome) -> Option<(u16, &[u8])> {
    match outcome {
        CallOutcome::Succeeded { answer, .. } if answer.cut => None,
        CallOutcome::Succeeded { status, answer } => Some((*status, &answer.body)),
        CallOutcome::Failed { status: Some(404), answer: Some(answer), .. } if !answer.cut => {
            Some((404, &answer.body))
        }
        CallOutcome::Failed { .. } | CallOutcome::Unknown { .. } => None,
    }
}

/// What was in an answer that an expression could not be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Json,
    Nothing,
}

/// `response.json` is there only if the answer is JSON: an expression over nothing would find nothing.
fn says(lookup: &Lookup, status: u16, body: &[u8], world: &Value) -> Result<Says, (RenderError, Told)> {
    let (mut world, json) = (world.clone(), serde_json::from_slice::<Value>(body).ok());
    let told = if json.is_some() { Told::Json } else { Told::Nothing };
    world["response"] = json!({ "status": status, "text": String::from_utf8_lossy(body) });
    if let Some(json) = json {
        world["response"]["json"] = json;
    }
    if !render::holds("lookup.found", &lookup.found, &world).map_err(|e| (e, told))? {
        return Ok(Says::NotThere);
    }
    Ok(Says::There(match &lookup.answer {
        Some(answer) => render::json("lookup.answer", &Value::String(answer.clone()), &world)
            .map_err(|e| (e, told))?
            .to_string()
            .into_bytes(),
        None => body.to_vec(),
    }))
}

/// When the last call whose outcome is unknown must have left its trace, if it left one.
fn settles(run: &Run<'_>, step: &Step, lookup: &Lookup) -> Option<Timestamp> {
    let sent = run.sent(step);
    let unknown = sent.iter().filter(|c| matches!(c.outcome, StepOutcome::Unknown | StepOutcome::InFlight));
    unknown.map(|c| c.finished_at.unwrap_or(c.sent_at).after(lookup.settle)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Body, HttpStep};

    fn lookup(found: &str, answer: Option<&str>) -> Lookup {
        let request = HttpStep {
            method: http::Method::GET,
            url: String::new(),
            headers: vec![],
            body: Body::Empty,
            idempotency_header: http::HeaderName::from_static("idempotency-key"),
        };
        let settle = std::time::Duration::from_secs(30);
        let answer = answer.map(str::to_owned);
        Lookup { request, found: found.to_owned(), answer, settle, secret_url: false }
    }

    #[test]
    fn an_answer_says_whether_it_is_there_and_what_stands_for_the_steps_answer() {
        let world = json!({ "payload": { "email": "ann@example.com" } });
        let of_email = "{{ response.json.results | selectattr('email', 'eq', payload.email) | list }}";
        let first = Some("{{ response.json.results[0] }}");
        let two = r#"{"results":[{"id":7,"email":"ann@example.com"},{"id":8,"email":"bob@example.com"}]}"#;
        for (found, answer, status, body, expected) in [
            ("{{ response.status == 200 }}", None, 200, "{\"id\":1}", Some("{\"id\":1}")),
            ("{{ response.status == 200 }}", None, 404, "", None),
            (of_email, first, 200, two, Some(r#"{"email":"ann@example.com","id":7}"#)),
            (of_email, first, 200, r#"{"results":[]}"#, None),
            (
                "{{ 'ann' in response.text }}",
                Some("{{ {'by': 'text'} }}"),
                200,
                "ann",
                Some(r#"{"by":"text"}"#),
            ),
        ] {
            match says(&lookup(found, answer), status, body.as_bytes(), &world).unwrap() {
                Says::There(answer) => {
                    assert_eq!(Some(&*String::from_utf8(answer).unwrap()), expected, "{body}")
                }
                Says::NotThere => assert_eq!(None, expected, "{body}"),
            }
        }
        for (found, body, told) in [
            ("{{ response.json.total > 0 }}", "[]", Told::Json),
            ("{{ response.json.total > 0 }}", "<html>", Told::Nothing),
            ("{{ response.json | selectattr('email', 'eq', 'x') | list }}", "back soon", Told::Nothing),
        ] {
            let (wrong, found_in) = says(&lookup(found, None), 200, body.as_bytes(), &world).err().unwrap();
            assert!(wrong.to_string().starts_with("lookup.found: "), "{wrong}");
            assert_eq!(found_in, told, "{body}");
        }
        let answer = |cut| oncegate_connect::Answer { body: b"[]".to_vec(), content_type: None, cut };
        for (cut, expected) in [(false, true), (true, false)] {
            let outcome = CallOutcome::Succeeded { status: 200, answer: answer(cut) };
            assert_eq!(answered(&outcome).is_some(), expected, "what is missing may stand in the rest");
        }
    }
}

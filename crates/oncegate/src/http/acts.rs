//! What people do: reset, run now, mark, dismiss, pause. Each with a reason, each audited.

use std::sync::Arc;

use axum::RequestExt;
use axum::extract::{FromRequest, Path, Request};
use oncegate_core::key::ClaimId;
use oncegate_core::limits;
use oncegate_core::reset::{Act, Refusal};
use oncegate_runner::gatekeeper::RunNow;
use oncegate_store::api::{ActCall, Acted};
use serde_json::{Value, json};

use super::answer::Json;
use super::auth::Caller;
use super::claims::named;
use super::input::Fields;
use super::problem::Problem;
use super::{AppState, answer};

type Answered = Result<Json, Problem>;

/// A call by which a person does something: to what, why, who, and what else was sent.
pub(crate) struct Doing {
    pub(crate) state: Arc<AppState>,
    /// The `{id}` or `{name}` of the path.
    pub(crate) subject: String,
    pub(crate) reason: String,
    pub(crate) actor: String,
    pub(crate) caller: Caller,
    pub(crate) fields: Fields,
}

impl FromRequest<Arc<AppState>> for Doing {
    type Rejection = Problem;

    async fn from_request(mut request: Request, state: &Arc<AppState>) -> Result<Self, Problem> {
        let Path(subject) = request
            .extract_parts::<Path<String>>()
            .await
            .map_err(|_| Problem::not_found("this address cannot be read"))?;
        let caller = request.extract_parts::<Caller>().await?;
        let mut fields = Fields::read(request).await?;
        let reason = person_text(fields.required("reason")?, "reason")?;
        // One token may be shared by a team; `by` says who of it acted.
        let actor = match fields.text("by")? {
            Some(by) => format!("{} ({})", person_text(by, "by")?, caller.actor),
            None => caller.actor.clone(),
        };
        Ok(Self { state: Arc::clone(state), subject, reason, actor, caller, fields })
    }
}

impl Doing {
    async fn act(self, act: Act) -> Answered {
        let id = self.caller.claim(&self.state, &self.subject).await?.at();
        match self.state.gate.act(ActCall { id, act, reason: self.reason, actor: self.actor }).await? {
            Acted::Written(view) => Ok(Json(answer::claim(&view, self.state.gate.store().now()))),
            Acted::Refused(refusal) => Err(refused(&refusal)),
            Acted::NotFound => Err(Problem::not_found("there is no such claim")),
        }
    }

    /// Whatever else was sent is not understood.
    pub(crate) fn nothing_else(&mut self, takes: &str) -> Result<(), Problem> {
        std::mem::take(&mut self.fields).finish(takes)
    }
}

pub(crate) fn person_text(text: String, field: &str) -> Result<String, Problem> {
    if text.len() > limits::NOTE_BYTES_MAX {
        return Err(Problem::field(field, format!("is longer than {} bytes", limits::NOTE_BYTES_MAX)));
    }
    match text.chars().any(char::is_control) {
        true => Err(Problem::field(field, "contains control characters; write it as one line")),
        false => Ok(text),
    }
}

/// A claim's id from a path.
pub(crate) fn claim_id(text: &str) -> Result<ClaimId, Problem> {
    ClaimId::parse(text).ok_or_else(|| Problem::not_found("a claim id has 32 hexadecimal digits"))
}

fn refused(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::LiveHolder { holder, attempt } => {
            Problem::live_holder(refusal).with("holder", holder.as_str()).with("attempt", *attempt)
        }
        Refusal::Done => Problem::needs_verified(refusal),
        Refusal::Sent(steps) => Problem::needs_confirm_sent(refusal).with("sent", steps.clone()),
        Refusal::Busy(holder) => Problem::live_holder(refusal).with("holder", holder.as_str()),
        Refusal::PayloadRemoved => Problem::payload_removed(refusal),
        Refusal::Nothing(_) | Refusal::NotAnError(_) => Problem::nothing_to_do(refusal),
    }
}

pub(crate) async fn reset(mut doing: Doing) -> Answered {
    let confirm_holder = doing.fields.text("confirm_holder")?;
    let verified = doing.fields.flag("verified")?.unwrap_or(false);
    let run_now = doing.fields.flag("run_now")?.unwrap_or(false);
    let from_start = doing.fields.flag("from_start")?.unwrap_or(false);
    let confirm_sent = names(doing.fields.value("confirm_sent"))?;
    let new_keys = doing.fields.flag("new_keys")?;
    doing
        .nothing_else("reason, by, confirm_holder, verified, run_now, from_start, confirm_sent, new_keys")?;
    for (field, given) in [("confirm_sent", confirm_sent.is_some()), ("new_keys", new_keys.is_some())] {
        if given && !from_start {
            return Err(Problem::field(field, "goes with from_start: true"));
        }
    }
    if !from_start {
        return doing.act(Act::Reset { run_now, confirm_holder, verified }).await;
    }
    let (confirm_sent, new_keys) = (confirm_sent.unwrap_or_default(), new_keys.unwrap_or(false));
    doing.act(Act::FromStart { run_now, confirm_holder, verified, confirm_sent, new_keys }).await
}

/// Names of steps: a list, which a form sends as JSON; or one name.
fn names(sent: Option<Value>) -> Result<Option<Vec<String>>, Problem> {
    let wrong = || Problem::field("confirm_sent", "must be a list of the steps that were sent");
    let list = match sent {
        None => return Ok(None),
        Some(Value::String(text)) if text.trim_start().starts_with('[') => {
            serde_json::from_str(&text).map_err(|_| wrong())?
        }
        Some(Value::String(name)) => vec![Value::String(name)],
        Some(Value::Array(list)) => list,
        Some(_) => return Err(wrong()),
    };
    let name = |value: Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
    list.into_iter().map(name).collect::<Result<_, _>>().map(Some)
}

pub(crate) async fn mark_error(mut doing: Doing) -> Answered {
    let tag = person_text(doing.fields.required("tag")?, "tag")?;
    doing.nothing_else("reason, by, tag")?;
    let note = format!("{tag}: {}", doing.reason);
    doing.act(Act::MarkError { note }).await
}

pub(crate) async fn mark_done(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::MarkDone).await
}

pub(crate) async fn dismiss(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::Dismiss).await
}

pub(crate) async fn run_now(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    let id = doing.caller.claim(&doing.state, &doing.subject).await?.at();
    match doing.state.gate.run_now(id, doing.reason, doing.actor).await? {
        RunNow::Queued(view) => {
            let mut answer = answer::claim(&view, doing.state.gate.store().now());
            answer["answer"] = "queued".into();
            Ok(Json(answer))
        }
        RunNow::AlreadyRunning => Err(Problem::already_running("nothing was changed")),
        RunNow::NoFlow { run_url } => Err(Problem::no_runner(
            "this automation's work is done by its caller; replay its run there (run_url), or declare `retrigger` or steps \
             for it",
        )
        .with("run_url", run_url)),
        RunNow::Refused(refusal) => Err(refused(&refusal)),
        RunNow::NotFound => Err(Problem::not_found("there is no such claim")),
    }
}

pub(crate) async fn pause(doing: Doing) -> Answered {
    set_paused(doing, true).await
}

pub(crate) async fn resume(doing: Doing) -> Answered {
    set_paused(doing, false).await
}

const BY_HAND: &str = "nobody calls back the callers that are stopped while this is paused: their keys will stand in the \
     parked list as needs_replay, and their runs must be replayed by hand; declare `retrigger` to have them called back";

async fn set_paused(mut doing: Doing, paused: bool) -> Answered {
    doing.nothing_else("reason, by")?;
    let automation = named(&doing.subject, "automation")?;
    doing.caller.may_touch(&automation)?;
    let (workspace, gate) = (doing.caller.workspace, &doing.state.gate);
    // Pausing a misspelt name would say that it stands still, while the real one runs on.
    if !gate.book().declares(workspace, &automation)
        && !gate.store().knows_automation(workspace, automation.clone()).await?
    {
        return Err(Problem::not_found(format!(
            "no automation is called `{automation}`: none of this name is declared or has been seen"
        )));
    }
    let changed =
        doing.state.gate.set_paused(workspace, automation.clone(), paused, doing.reason, doing.actor).await?;
    let declared = gate.book().automation(workspace, &automation);
    let by_hand = paused && declared.flow.is_none() && declared.retrigger.is_none();
    Ok(Json(json!({
        "automation": automation,
        "paused": paused,
        "changed": changed,
        "note": by_hand.then_some(BY_HAND),
    })))
}

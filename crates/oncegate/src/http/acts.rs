//! What people do: reset, run now, mark, dismiss, pause. Each with a reason, each audited.

use std::sync::Arc;

use axum::RequestExt;
use axum::extract::{FromRequest, Path, Request};
use axum::response::Response;
use oncegate_core::key::{ClaimId, ClaimRef};
use oncegate_core::limits;
use oncegate_core::reset::{Act, Refusal};
use oncegate_store::api::{ActCall, Acted, Neighbour};
use oncegate_store::people::{Write, Written};
use serde_json::{Value, json};

use super::auth::Caller;
use super::claims::named as automation_named;
use super::input::Fields;
use super::once::{self, Named, Secrecy};
use super::problem::Problem;
use super::{AppState, answer};

type Answered = Result<Response, Problem>;

/// A call by which a person does something: to what, why, who, and what else was sent.
pub(crate) struct Doing {
    pub(crate) state: Arc<AppState>,
    /// The `{id}` or `{name}` of the path.
    pub(crate) subject: String,
    pub(crate) reason: String,
    pub(crate) actor: String,
    pub(crate) caller: Caller,
    pub(crate) fields: Fields,
    /// How the sender names this call.
    pub(crate) named: Named,
}

impl FromRequest<Arc<AppState>> for Doing {
    type Rejection = Problem;

    async fn from_request(mut request: Request, state: &Arc<AppState>) -> Result<Self, Problem> {
        let Path(subject) = request
            .extract_parts::<Path<String>>()
            .await
            .map_err(|_| Problem::not_found("this address cannot be read"))?;
        let caller = request.extract_parts::<Caller>().await?;
        let named = once::named(request.extensions());
        let mut fields = Fields::read(request).await?;
        let reason = person_text(fields.required("reason")?, "reason")?;
        let actor = actor(&caller, &mut fields)?;
        Ok(Self { state: Arc::clone(state), subject, reason, actor, caller, fields, named })
    }
}

/// Who runs it again is told that newer events have written its record since.
async fn overtaken(state: &AppState, id: ClaimRef, act: &Act) -> Result<Option<Neighbour>, Problem> {
    match act {
        Act::Reset { .. } | Act::FromStart { .. } => {
            Ok(state.gate.store().neighbours(id).await?.overtaken_by)
        }
        Act::MarkError { .. } | Act::MarkDone | Act::Dismiss | Act::Approve | Act::Decline => Ok(None),
    }
}

impl Doing {
    async fn act(self, act: Act, tag: Option<String>) -> Answered {
        let id = self.caller.claim(&self.state, &self.subject).await?.at();
        let overtaken = overtaken(&self.state, id, &act).await?;
        let call = ActCall { id, act, reason: self.reason, actor: self.actor };
        let show = move |written: &Written, now| match written {
            Written::Act(Acted::Written(view)) => {
                let mut answer = answer::claim(view, now);
                answer["overtaken_by"] = json!(overtaken);
                Ok(answer)
            }
            Written::Act(Acted::Refused(refusal)) => Err(refused(refusal)),
            Written::Act(Acted::NotFound) => Err(Problem::not_found("there is no such claim")),
            _ => Err(once::odd()),
        };
        once::write(&self.state, self.named, Secrecy::Open, Write::Act { call, tag }, show).await
    }

    /// Whatever else was sent is not understood.
    pub(crate) fn nothing_else(&mut self, takes: &str) -> Result<(), Problem> {
        std::mem::take(&mut self.fields).finish(takes)
    }
}

/// One token may be shared by a team; `by` says who of it acted.
pub(crate) fn actor(caller: &Caller, fields: &mut Fields) -> Result<String, Problem> {
    Ok(match fields.text("by")? {
        Some(by) => format!("{} ({})", person_text(by, "by")?, caller.actor),
        None => caller.actor.clone(),
    })
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

pub(crate) fn refused(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::LiveHolder { holder, attempt } => {
            Problem::live_holder(refusal).with("holder", holder.as_str()).with("attempt", *attempt)
        }
        Refusal::Done => Problem::needs_verified(refusal),
        Refusal::Sent(steps) => Problem::needs_confirm_sent(refusal).with("sent", steps.clone()),
        Refusal::Busy(holder) => Problem::live_holder(refusal).with("holder", holder.as_str()),
        Refusal::PayloadRemoved => Problem::payload_removed(refusal),
        Refusal::Nothing(_) | Refusal::NotAnError(_) | Refusal::NotInReview => {
            Problem::nothing_to_do(refusal)
        }
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
        return doing.act(Act::Reset { run_now, confirm_holder, verified }, None).await;
    }
    let (confirm_sent, new_keys) = (confirm_sent.unwrap_or_default(), new_keys.unwrap_or(false));
    doing.act(Act::FromStart { run_now, confirm_holder, verified, confirm_sent, new_keys }, None).await
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
    let tag = tag_text(&doing.fields.required("tag")?)?;
    doing.nothing_else("reason, by, tag")?;
    let note = format!("{tag}: {}", doing.reason);
    doing.act(Act::MarkError { note }, Some(tag)).await
}

pub(crate) async fn mark_done(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::MarkDone, None).await
}

pub(crate) async fn dismiss(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::Dismiss, None).await
}

/// Yes, to the question of a `review` step.
pub(crate) async fn approve(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::Approve, None).await
}

/// No.
pub(crate) async fn decline(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    doing.act(Act::Decline, None).await
}

/// Starts it as the runner would: the same claim path, by way of a queue that survives a restart.
pub(crate) async fn run_now(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    let view = doing.caller.claim(&doing.state, &doing.subject).await?;
    if !doing.state.gate.can_start(&view) {
        return Err(Problem::no_runner(
            "this automation's work is done by its caller; replay its run there (run_url), or declare `retrigger` or steps \
             for it",
        )
        .with("run_url", view.run_url));
    }
    let act = Act::Reset { run_now: true, confirm_holder: None, verified: false };
    let overtaken = overtaken(&doing.state, view.at(), &act).await?;
    let call = ActCall { id: view.at(), act, reason: doing.reason, actor: doing.actor };
    let show = move |written: &Written, now| match written {
        Written::Act(Acted::Written(view)) => {
            let mut answer = answer::claim(view, now);
            answer["answer"] = "queued".into();
            answer["overtaken_by"] = json!(overtaken);
            Ok(answer)
        }
        Written::Act(Acted::Refused(Refusal::LiveHolder { .. } | Refusal::Nothing(_))) => {
            Err(Problem::already_running("nothing was changed"))
        }
        Written::Act(Acted::Refused(refusal)) => Err(refused(refusal)),
        Written::Act(Acted::NotFound) => Err(Problem::not_found("there is no such claim")),
        _ => Err(once::odd()),
    };
    once::write(&doing.state, doing.named, Secrecy::Open, Write::Act { call, tag: None }, show).await
}

/// Files a claim under a tag; with `remove=true` under none.
pub(crate) async fn tag(mut doing: Doing) -> Answered {
    let remove = doing.fields.flag("remove")?.unwrap_or(false);
    let tag = match doing.fields.text("tag")? {
        Some(_) if remove => return Err(Problem::field("tag", "is given beside remove; send one of them")),
        Some(tag) => Some(tag_text(&tag)?),
        None if remove => None,
        None => {
            return Err(Problem::field("tag", "is missing or blank; to take the tag away send remove=true"));
        }
    };
    doing.nothing_else("tag, remove, reason, by")?;
    let id = doing.caller.claim(&doing.state, &doing.subject).await?.at();
    let write = Write::Tag { id, tag, reason: doing.reason, actor: doing.actor };
    let show = |written: &Written, now| match written {
        Written::Tagged(Some((view, changed))) => {
            let mut answer = answer::claim(view, now);
            answer["changed"] = (*changed).into();
            Ok(answer)
        }
        Written::Tagged(None) => Err(Problem::not_found("there is no such claim")),
        _ => Err(once::odd()),
    };
    once::write(&doing.state, doing.named, Secrecy::Open, write, show).await
}

/// A tag as it is stored and compared: trimmed, one line.
pub(crate) fn tag_text(text: &str) -> Result<String, Problem> {
    let tag = person_text(text.trim().to_owned(), "tag")?;
    match tag.len() > limits::TAG_BYTES_MAX {
        true => Err(Problem::field("tag", format!("is longer than {} bytes", limits::TAG_BYTES_MAX))),
        false => Ok(tag),
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
    let automation = automation_named(&doing.subject, "automation")?;
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
    let (reason, actor) = (doing.reason, doing.actor);
    let declared = gate.book().automation(workspace, &automation);
    let by_hand = paused && declared.flow.is_none() && declared.retrigger.is_none();
    let write = Write::SetPaused { workspace, automation: automation.clone(), paused, reason, actor };
    let show = move |written: &Written, _| match written {
        Written::SetPaused(changed) => Ok(json!({
            "automation": automation,
            "paused": paused,
            "changed": changed,
            "note": by_hand.then_some(BY_HAND),
        })),
        _ => Err(once::odd()),
    };
    once::write(&doing.state, doing.named, Secrecy::Open, write, show).await
}

//! What people do: reset, run now, mark, dismiss, pause. Each with a reason, each audited.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use oncegate_core::key::ClaimId;
use oncegate_core::limits;
use oncegate_core::reset::{Act, Refusal};
use oncegate_runner::gatekeeper::RunNow;
use oncegate_store::api::{ActCall, Acted, Workspace};
use serde_json::{Value, json};

use super::auth::Actor;
use super::claims::named;
use super::input::{Fields, Reading};
use super::problem::Problem;
use super::{AppState, answer};

type Answered = Result<Json<Value>, Problem>;

/// Who does it and why; the rest of the fields stays for the act itself.
pub(crate) struct Said {
    pub(crate) reason: String,
    pub(crate) actor: String,
}

/// Reads `reason` and `by`.
pub(crate) async fn said(request: Request, actor: &Actor) -> Result<(Said, Fields), Problem> {
    let mut fields = Fields::read(request, Reading::Strict).await?;
    let reason = person_text(fields.required("reason")?, "reason")?;
    // One token may be shared by a team; `by` says who of it acted.
    let actor = match fields.text("by")? {
        Some(by) => format!("{} ({})", person_text(by, "by")?, actor.0),
        None => actor.0.clone(),
    };
    Ok((Said { reason, actor }, fields))
}

fn person_text(text: String, field: &str) -> Result<String, Problem> {
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

async fn act(state: &AppState, id: ClaimId, act: Act, said: Said) -> Answered {
    match state.gate.act(ActCall { id, act, reason: said.reason, actor: said.actor }).await? {
        Acted::Written(view) => Ok(Json(answer::claim(&view, state.gate.store().now()))),
        Acted::Refused(refusal) => Err(refused(&refusal)),
        Acted::NotFound => Err(Problem::not_found("there is no such claim")),
    }
}

fn refused(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::LiveHolder { holder, attempt } => {
            Problem::live_holder(refusal).with("holder", holder.as_str()).with("attempt", *attempt)
        }
        Refusal::Done => Problem::needs_verified(refusal),
        Refusal::Busy(holder) => Problem::live_holder(refusal).with("holder", holder.as_str()),
        Refusal::Nothing(_) | Refusal::NotAnError(_) => Problem::nothing_to_do(refusal),
    }
}

pub(crate) async fn reset(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = claim_id(&id)?;
    let (said, mut fields) = said(request, &actor).await?;
    let confirm_holder = fields.text("confirm_holder")?;
    let verified = fields.flag("verified")?.unwrap_or(false);
    let run_now = fields.flag("run_now")?.unwrap_or(false);
    fields.finish("reason, by, confirm_holder, verified, run_now")?;
    act(&state, id, Act::Reset { run_now, confirm_holder, verified }, said).await
}

pub(crate) async fn run_now(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = claim_id(&id)?;
    let (said, fields) = said(request, &actor).await?;
    fields.finish("reason, by")?;
    match state.gate.run_now(id, said.reason, said.actor).await? {
        RunNow::Queued(view) => {
            let mut answer = answer::claim(&view, state.gate.store().now());
            answer["answer"] = "queued".into();
            Ok(Json(answer))
        }
        RunNow::AlreadyRunning => Err(Problem::already_running("nothing was changed")),
        RunNow::NoFlow { run_url } => Err(Problem::no_runner(
            "this automation's work is done by its caller; replay its run there (run_url), or declare steps for it",
        )
        .with("run_url", run_url)),
        RunNow::Refused(refusal) => Err(refused(&refusal)),
        RunNow::NotFound => Err(Problem::not_found("there is no such claim")),
    }
}

pub(crate) async fn mark_error(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = claim_id(&id)?;
    let (said, mut fields) = said(request, &actor).await?;
    let tag = person_text(fields.required("tag")?, "tag")?;
    fields.finish("reason, by, tag")?;
    let note = format!("{tag}: {}", said.reason);
    act(&state, id, Act::MarkError { note }, said).await
}

pub(crate) async fn mark_done(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = claim_id(&id)?;
    let (said, fields) = said(request, &actor).await?;
    fields.finish("reason, by")?;
    act(&state, id, Act::MarkDone, said).await
}

pub(crate) async fn dismiss(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = claim_id(&id)?;
    let (said, fields) = said(request, &actor).await?;
    fields.finish("reason, by")?;
    act(&state, id, Act::Dismiss, said).await
}

pub(crate) async fn pause(
    state: State<Arc<AppState>>,
    actor: Extension<Actor>,
    name: Path<String>,
    request: Request,
) -> Answered {
    set_paused(state, actor, name, request, true).await
}

pub(crate) async fn resume(
    state: State<Arc<AppState>>,
    actor: Extension<Actor>,
    name: Path<String>,
    request: Request,
) -> Answered {
    set_paused(state, actor, name, request, false).await
}

async fn set_paused(
    State(state): State<Arc<AppState>>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    request: Request,
    paused: bool,
) -> Answered {
    let automation = named(&name, "automation")?;
    let (said, fields) = said(request, &actor).await?;
    fields.finish("reason, by")?;
    let changed = state
        .gate
        .set_paused(Workspace::DEFAULT, automation.clone(), paused, said.reason, said.actor)
        .await?;
    Ok(Json(json!({ "automation": automation, "paused": paused, "changed": changed })))
}

//! Upkeep over HTTP: backups, and the end of a recovery.

use std::sync::Arc;

use axum::extract::{Request, State};
use oncegate_core::access::Right;
use serde_json::json;

use super::AppState;
use super::acts::person_text;
use super::answer::Json;
use super::auth::Caller;
use super::input::Fields;
use super::problem::Problem;

type Answered = Result<Json, Problem>;

/// These are about the whole server.
fn may_administer_the_server(caller: &Caller) -> Result<(), Problem> {
    caller.may(Right::Administer)?;
    match caller.is_server_admin() {
        true => Ok(()),
        false => Err(Problem::forbidden(
            "this is about the whole server; only an admin of the workspace `default` may do it",
        )),
    }
}

pub(crate) async fn recovery(State(state): State<Arc<AppState>>) -> Answered {
    let recovery = state.gate.store().recovery().await?;
    Ok(Json(json!({ "in_recovery": recovery.is_some(), "recovery": recovery })))
}

pub(crate) async fn end_recovery(
    caller: Caller,
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Answered {
    may_administer_the_server(&caller)?;
    let mut fields = Fields::read(request).await?;
    let reason = person_text(fields.required("reason")?, "reason")?;
    let actor = match fields.text("by")? {
        Some(by) => format!("{} ({})", person_text(by, "by")?, caller.actor),
        None => caller.actor.clone(),
    };
    fields.finish("reason, by")?;
    match state.gate.end_recovery(reason, actor).await? {
        true => Ok(Json(json!({ "in_recovery": false }))),
        false => Err(Problem::nothing_to_do("the store is in no recovery")),
    }
}

pub(crate) async fn backups(caller: Caller, State(state): State<Arc<AppState>>) -> Answered {
    may_administer_the_server(&caller)?;
    Ok(Json(json!(state.backups.standing())))
}

pub(crate) async fn back_up(
    caller: Caller,
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Answered {
    may_administer_the_server(&caller)?;
    // Where it is written is the server's to say, not the caller's.
    Fields::read(request).await?.finish("nothing")?;
    match state.backups.make().await {
        Ok(made) => Ok(Json(json!(made))),
        Err(error) => Err(Problem::backup_failed(error)),
    }
}

//! Upkeep over HTTP: backups, and the end of a recovery.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde_json::json;

use super::AppState;
use super::acts::{actor, person_text};
use super::answer::Json;
use super::auth::Caller;
use super::input::Fields;
use super::problem::Problem;
use super::whole::whole;

type Answered = Result<Json, Problem>;

pub(crate) async fn nodes(State(state): State<Arc<AppState>>) -> Answered {
    let store = state.gate.store();
    Ok(Json(json!({ "shared": store.is_shared(), "nodes": store.nodes().await? })))
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
    let mut fields = Fields::read(request).await?;
    let reason = person_text(fields.required("reason")?, "reason")?;
    let actor = actor(&caller, &mut fields)?;
    fields.finish("reason, by")?;
    match whole(async move { state.gate.end_recovery(reason, actor).await }).await?? {
        true => Ok(Json(json!({ "in_recovery": false }))),
        false => Err(Problem::nothing_to_do("the store is in no recovery")),
    }
}

pub(crate) async fn backups(State(state): State<Arc<AppState>>) -> Answered {
    let backups = state.backups.as_ref().ok_or_else(not_ours)?;
    Ok(Json(json!(backups.standing())))
}

/// What a store on PostgreSQL holds is more than this node can see, and its own tools copy all of it at one moment.
fn not_ours() -> Problem {
    Problem::not_backed_up(
        "this store is on PostgreSQL, and oncegate makes no backups of it: use pg_dump, or your provider's backups \
         (docs/postgresql.md)",
    )
}

pub(crate) async fn back_up(State(state): State<Arc<AppState>>, request: Request) -> Answered {
    // Where it is written is the server's to say, not the caller's.
    Fields::read(request).await?.finish("nothing")?;
    let backups = state.backups.clone().ok_or_else(not_ours)?;
    match whole(async move { backups.make().await }).await? {
        Ok(made) => Ok(Json(json!(made))),
        Err(error) => Err(Problem::backup_failed(error)),
    }
}

//! `/v1/workspaces`: one server for many clients; each made, exported and deleted as a whole.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use oncegate_core::access::WorkspaceName;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_store::access::{AuditFilter, Deed, DeleteWorkspace, Deleted, WorkspaceRow};
use oncegate_store::person::{Dossier, Place};
use serde_json::{Value, json};

use super::acts::{Doing, actor};
use super::answer::Json;
use super::auth::Caller;
use super::input::Fields;
use super::lines::{Ended, JSON_LINES, Lines, stream};
use super::problem::Problem;
use super::whole::whole;
use super::{AppState, api_tokens, dossier};

type Answered = Result<Json, Problem>;

/// A workspace that the caller may know of, by its name.
pub(crate) async fn workspace_named(
    state: &AppState,
    caller: &Caller,
    name: &str,
) -> Result<WorkspaceRow, Problem> {
    let all = state.gate.store().workspaces().await?;
    all.into_iter()
        .find(|row| row.name == name && (caller.is_server_admin() || row.workspace == caller.workspace))
        .ok_or_else(|| Problem::not_found("there is no such workspace"))
}

pub(crate) async fn name_of(state: &AppState, workspace: Workspace) -> Result<Option<String>, Problem> {
    let all = state.gate.store().workspaces().await?;
    Ok(all.into_iter().find(|row| row.workspace == workspace).map(|row| row.name))
}

fn shown(state: &AppState, row: &WorkspaceRow) -> Value {
    json!({
        "name": row.name,
        "created_at": row.created_at,
        "declared": state.doors.workspace(&row.name).is_some(),
    })
}

pub(crate) async fn list(State(state): State<Arc<AppState>>, _: Caller) -> Answered {
    let all = state.gate.store().workspaces().await?;
    Ok(Json(json!({ "workspaces": all.iter().map(|row| shown(&state, row)).collect::<Vec<_>>() })))
}

pub(crate) async fn make(State(state): State<Arc<AppState>>, caller: Caller, request: Request) -> Answered {
    let mut fields = Fields::read(request).await?;
    let name =
        WorkspaceName::try_from(fields.required("name")?.trim()).map_err(|e| Problem::field("name", e))?;
    let actor = actor(&caller, &mut fields)?;
    fields.finish("name, by")?;
    let store = state.gate.store();
    let known = store.workspaces().await?;
    if known.len() >= limits::WORKSPACES_MAX && known.iter().all(|row| row.name != name.as_str()) {
        return Err(Problem::limit_reached(format!(
            "a server has {} workspaces at most",
            limits::WORKSPACES_MAX
        )));
    }
    let (_, made) = store.add_workspace(name.clone(), actor).await?;
    Ok(Json(json!({ "name": name, "made": made })))
}

pub(crate) async fn delete(mut doing: Doing) -> Answered {
    let (state, store) = (Arc::clone(&doing.state), Arc::clone(doing.state.gate.store()));
    let row = workspace_named(&state, &doing.caller, &doing.subject).await?;
    let confirm = doing.fields.required("confirm")?;
    let although_live = doing.fields.flag("although_live")?.unwrap_or(false);
    doing.nothing_else("confirm, reason, by, although_live")?;
    if confirm != row.name {
        return Err(Problem::field("confirm", "must be the name of the workspace that shall go for ever"));
    }
    if row.workspace == Workspace::DEFAULT {
        return Err(Problem::field("confirm", "names the workspace that every server has; it cannot go"));
    }
    if state.doors.workspace(&row.name).is_some() {
        return Err(Problem::still_declared(format!(
            "the configuration declares the workspace `{}`, and the next start would make it again: its senders would \
             be refused until then. Take it out of oncegate.yaml, restart, and delete it then",
            row.name
        )));
    }
    let (reason, actor) = (doing.reason, doing.actor);
    let call = DeleteWorkspace { workspace: row.workspace, although_live, reason, actor };
    let known = Arc::clone(&state);
    let deleted = whole(async move {
        let deleted = store.delete_workspace(call).await;
        known.tokens.forget_all();
        if let Ok(Deleted::Begun(_)) = deleted {
            tokio::spawn(async move {
                loop {
                    match store.purge().await {
                        Ok(true) => tokio::task::yield_now().await,
                        Ok(false) => return,
                        Err(error) => return tracing::error!(%error, "what a workspace held goes later"),
                    }
                }
            });
        }
        deleted
    });
    match deleted.await?? {
        Deleted::Begun(held) => {
            Ok(Json(json!({
                "name": row.name,
                "deleted": true,
                "claims": held.claims,
                "deliveries": held.deliveries,
                "tokens": held.tokens,
            })))
        }
        Deleted::Live(live) => Err(Problem::still_live(format!(
            "{live} of its claims are being worked on; wait until they are finished, or send `although_live: true`"
        ))
        .with("live", live)),
        Deleted::Nothing => Err(Problem::not_found("there is no such workspace")),
    }
}

pub(crate) async fn export(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    caller.may_touch_all()?;
    let row = workspace_named(&state, &caller, &name).await?;
    let deed = Deed {
        actor: caller.actor,
        action: "workspace_exported".into(),
        subject: row.name.clone(),
        ..Deed::default()
    };
    state.gate.store().note_deeds(row.workspace, vec![deed]).await?;
    let file = format!("{}.jsonl", row.name);
    Ok(stream(JSON_LINES, &file, move |lines| write(state, row, lines)))
}

/// Claims that change meanwhile are in it as they were when their turn came.
async fn write(state: Arc<AppState>, row: WorkspaceRow, lines: Lines) -> Result<(), Ended> {
    let store = state.gate.store();
    let mut head = shown(&state, &row);
    head["kind"] = "workspace".into();
    lines.json(&head).await?;
    let now = store.now().wall;
    for token in store.tokens(row.workspace).await? {
        let mut line = api_tokens::shown(&token, now);
        line["kind"] = "token".into();
        lines.json(&line).await?;
    }
    let (mut claims, mut deliveries) = (0_u64, 0_u64);
    let mut from = Some(Place::START);
    while let Some(place) = from {
        let (dossiers, next) = store.dossiers(row.workspace, None, place).await?;
        for dossier in &dossiers {
            match dossier {
                Dossier::Claim(_) => claims += 1,
                Dossier::Delivery(_) => deliveries += 1,
            }
            lines.json(&dossier::line(dossier, store.now())).await?;
        }
        from = next;
    }
    let (mut audit, mut before) = (0_u64, None);
    loop {
        let filter = AuditFilter { before, limit: limits::PAGE_ROWS_MAX, ..AuditFilter::default() };
        let page = store.audit_of(row.workspace, filter).await?;
        for row in &page.rows {
            audit += 1;
            let mut line = json!(row);
            line["kind"] = "audit".into();
            lines.json(&line).await?;
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let end = json!({ "kind": "end", "claims": claims, "deliveries": deliveries, "audit": audit });
    lines.json(&end).await
}

//! The list of automations, and their names.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::Uri;
use oncegate_core::policy::show_duration;
use oncegate_store::api::Renamed;
use oncegate_store::people::{AutomationRow, Write, Written};
use serde_json::{Map, Value, json};

use super::AppState;
use super::acts::Doing;
use super::answer::Json;
use super::auth::Caller;
use super::claims::named;
use super::filter::Cursors;
use super::input::Fields;
use super::lists::{page, paging};
use super::once::{self, Secrecy};
use super::problem::Problem;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    uri: Uri,
) -> Result<Json, Problem> {
    let mut fields = Fields::query(&uri)?;
    let cursors = Cursors::new("automations", caller.workspace, &Map::new());
    let (before, limit) = paging(&mut fields, &cursors)?;
    fields.finish("cursor, limit")?;
    let (store, book) = (state.gate.store(), state.gate.book());
    let only = caller.automations.as_ref().map(|bound| bound.to_vec());
    let found = store.automations(caller.workspace, only, before, limit).await?;
    let show = |row: &AutomationRow| {
        let automation = book.automation(caller.workspace, &row.name);
        let inbox: Map<String, Value> =
            row.inbox.iter().map(|(list, n)| (list.as_str().to_owned(), (*n).into())).collect();
        json!({
            "automation": row.name,
            "declared": book.declares(caller.workspace, &row.name),
            "steps": automation.flow.as_ref().map_or(0, |flow| flow.steps.len()),
            "ttl": show_duration(automation.policy.ttl.get()),
            "retention": show_duration(automation.policy.retention()),
            "paused_at": row.paused_at,
            "first_seen_at": row.created_at,
            "inbox": inbox,
        })
    };
    Ok(page("automations", found, &cursors, show))
}

pub(crate) async fn rename(mut doing: Doing) -> Result<Response, Problem> {
    let to = named(&doing.fields.required("to")?, "to")?;
    doing.nothing_else("to, reason, by")?;
    doing.caller.may_touch_all()?;
    let from = named(&doing.subject, "automation")?;
    let workspace = doing.caller.workspace;
    if doing.state.gate.book().declares(workspace, &from) {
        return Err(Problem::not_renamed(format!(
            "`{from}` is declared in oncegate.yaml; rename it there and write `was: [{from}]` beside it"
        )));
    }
    let write = Write::Rename {
        workspace,
        from: from.clone(),
        to: to.clone(),
        reason: doing.reason,
        actor: doing.actor,
    };
    let show = move |written: &Written, _| match written {
        Written::Renamed(Renamed::Written) => Ok(json!({ "automation": to, "was": from })),
        Written::Renamed(Renamed::Nothing) => {
            Err(Problem::not_found(format!("no automation is called `{from}`")))
        }
        Written::Renamed(Renamed::BothKnown) => Err(Problem::not_renamed(format!(
            "`{from}` and `{to}` both have claims of their own; two memories cannot become one"
        ))),
        _ => Err(once::odd()),
    };
    once::write(&doing.state, doing.named, Secrecy::Open, write, show).await
}

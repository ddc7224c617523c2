//! The list of sources: where each is reached, what proves its senders, and what came to it lately.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::Uri;
use oncegate_core::json::told;
use serde_json::{Map, Value, json};

use super::AppState;
use super::answer::Json;
use super::auth::Caller;
use super::doors::Source;
use super::input::Fields;
use super::problem::Problem;

type Answered = Result<Json, Problem>;

pub(crate) async fn list(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    Fields::query(&uri)?.finish("nothing")?;
    let mut sources: Vec<(&str, &Source)> =
        state.doors.of(caller.workspace).filter(|(_, source)| caller.sees(&source.automation)).collect();
    sources.sort_by_key(|(name, _)| *name);
    let rows: Vec<_> =
        sources.into_iter().map(|(name, source)| shown(&state, &caller, name, source)).collect();
    Ok(Json(json!({ "sources": rows })))
}

pub(crate) async fn show(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Answered {
    Fields::query(&uri)?.finish("nothing")?;
    let source = state.doors.source(caller.workspace, &name).filter(|s| caller.sees(&s.automation));
    let source =
        source.ok_or_else(|| Problem::not_found(format!("no source is called `{}`", told(&name))))?;
    let mut row = shown(&state, &caller, &name, source);
    row.insert("deliveries".to_owned(), source.recents.samples(state.gate.store().now().wall).into());
    Ok(Json(Value::Object(row)))
}

fn shown(state: &AppState, caller: &Caller, name: &str, source: &Source) -> Map<String, Value> {
    let way =
        state.doors.name_of(caller.workspace).map(|workspace| format!("{workspace}/")).unwrap_or_default();
    let row = json!({
        "source": name,
        "address": format!("{}/in/{way}{name}", state.base_url),
        "provider": source.provider.name(),
        "signed": source.provider.signs(),
        "automation": source.automation,
    });
    let mut row = row.as_object().cloned().unwrap_or_default();
    row.extend(source.recents.told(state.gate.store().now().wall));
    row
}

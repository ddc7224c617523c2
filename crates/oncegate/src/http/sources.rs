//! The list of sources: where each is reached, what proves its senders, and what came to it lately; of those that run
//! by the clock, which slots come next and which came last.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::Uri;
use oncegate_core::json::told;
use oncegate_core::schedule::Schedule;
use oncegate_runner::scheduler::Scheduled;
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
    let mut schedules = vec![];
    for scheduled in state.doors.schedules.iter() {
        if scheduled.workspace == caller.workspace && caller.sees(&scheduled.automation) {
            schedules.push(timed(&state, scheduled).await?);
        }
    }
    Ok(Json(json!({ "sources": rows, "schedules": schedules })))
}

/// How many of the next slots are told of one.
const NEXT: usize = 5;

/// A source that runs by the clock.
async fn timed(state: &AppState, scheduled: &Scheduled) -> Result<Value, Problem> {
    let gate = &state.gate;
    let stands = scheduled.position(gate).await?;
    let counts_from = stands.as_ref().map(|stands| stands.until);
    let (last, waiting) = stands.map_or((None, None), |stands| (stands.last, stands.waiting));
    let claim_id = match &last {
        Some(slot) => scheduled.claim_of(gate, slot).await?.map(|claim| claim.id),
        None => None,
    };
    let last = last.map(|slot| json!({ "claim_id": claim_id, "slot": slot }));
    let Schedule { rhythm, missed, overlap } = &scheduled.schedule;
    let next: Vec<_> = rhythm.after(gate.store().now().wall).take(NEXT).collect();
    Ok(json!({
        "source": scheduled.source,
        "automation": scheduled.automation,
        "runs": rhythm.to_string(),
        "missed": missed,
        "overlap": overlap,
        "counts_from": counts_from,
        "next": next,
        "last": last,
        "waiting": waiting,
    }))
}

pub(crate) async fn show(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Answered {
    Fields::query(&uri)?.finish("nothing")?;
    let named = |one: &&Scheduled| one.workspace == caller.workspace && one.source == name;
    let scheduled = state.doors.schedules.iter().find(named).filter(|one| caller.sees(&one.automation));
    if let Some(scheduled) = scheduled {
        return Ok(Json(timed(&state, scheduled).await?));
    }
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

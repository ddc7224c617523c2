//! The list of sources: where each is reached, what proves its senders, and what came to it lately; of those that run
//! by the clock, which slots come next and which came last; of those that ask for news, how far they have read, and
//! what keeps them from it.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::Uri;
use oncegate_core::json::told;
use oncegate_core::policy::in_words;
use oncegate_core::schedule::Schedule;
use oncegate_core::time::Timestamp;
use oncegate_runner::poller::Polled;
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
    let mut polls = vec![];
    for one in state.doors.polls.iter() {
        if one.workspace == caller.workspace && caller.sees(&one.automation) {
            polls.push(polled(&state, one).await?);
        }
    }
    Ok(Json(json!({ "sources": rows, "schedules": schedules, "polls": polls })))
}

/// A source that asks for news.
async fn polled(state: &AppState, polled: &Polled) -> Result<Value, Problem> {
    let Polled { poll, call, source, automation, .. } = polled;
    let stands = polled.position(&state.gate).await?;
    let now = state.gate.store().now().wall;
    let next_at: Option<Timestamp> = stands.as_ref().map(|stands| stands.due(poll, now).max(now));
    let stands = stands.as_ref();
    let failing = stands.and_then(|stands| stands.failing.as_ref()).map(|failing| {
        json!({
            "in_a_row": failing.in_a_row,
            "since": failing.since,
            "last_at": failing.at,
            "reason": failing.why,
        })
    });
    Ok(json!({
        "source": source,
        "automation": automation,
        "url": call.shown(),
        "every": in_words(poll.every),
        "order": poll.order,
        "cursor": stands.map(|stands| poll.form.write(stands.cursor)),
        "starts_from": stands.map(|stands| poll.form.write(stands.from)),
        "under_way": stands.is_some_and(|stands| stands.busy_until.is_some_and(|until| until > now)),
        "last_at": stands.and_then(|stands| stands.ended),
        "last_brought": stands.filter(|stands| stands.ended.is_some()).map(|stands| stands.taken),
        "next_at": next_at,
        "failing": failing,
    }))
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
    let named = |one: &&Polled| one.workspace == caller.workspace && one.source == name;
    if let Some(one) = state.doors.polls.iter().find(named).filter(|one| caller.sees(&one.automation)) {
        return Ok(Json(polled(&state, one).await?));
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

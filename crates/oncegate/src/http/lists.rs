//! Reading: claims, the inbox, what was rejected, the audit.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::Uri;
use oncegate_core::claim::ProcessingState;
use oncegate_core::key::IdempotencyKey;
use oncegate_core::limits;
use oncegate_core::notice;
use oncegate_store::api::{ClaimView, DeliveryRow, Filter, Page};
use oncegate_store::search::{Age, By};
use serde_json::{Map, Value, json};

use super::answer::Json;
use super::auth::Caller;
use super::filter::{self, Cursors};
use super::input::Fields;
use super::problem::Problem;
use super::steps;
use super::{AppState, answer};

type Answered = Result<Json, Problem>;

const ROWS_DEFAULT: u32 = 100;

pub(crate) fn paging(fields: &mut Fields, cursors: &Cursors) -> Result<(Option<i64>, u32), Problem> {
    let before = fields.text("cursor")?.map(|text| cursors.read(&text)).transpose()?;
    let limit = match fields.text("limit")? {
        None => ROWS_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|n| (1..=limits::PAGE_ROWS_MAX).contains(n))
            .ok_or_else(|| Problem::field("limit", format!("must be 1 to {}", limits::PAGE_ROWS_MAX)))?,
    };
    Ok((before, limit))
}

pub(crate) fn page<T>(name: &str, page: Page<T>, cursors: &Cursors, show: impl Fn(&T) -> Value) -> Json {
    let rows: Vec<Value> = page.rows.iter().map(show).collect();
    let mut answer = Map::new();
    answer.insert(name.to_owned(), rows.into());
    answer.insert("next_cursor".into(), page.next.map(|n| cursors.write(n)).into());
    Json(answer.into())
}

fn plain(list: &str, caller: &Caller) -> Cursors {
    Cursors::new(list, caller.workspace, &Map::new())
}

pub(crate) async fn claims(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    let mut fields = Fields::query(&uri)?;
    let store = state.gate.store();
    let now = store.now();
    let key = fields.text("idempotency_key")?;
    let oldest_first = match fields.text("order")?.as_deref() {
        None | Some("newest") => false,
        Some("oldest") => true,
        Some(_) => return Err(Problem::field("order", "must be newest or oldest")),
    };
    let mut asked = filter::read(&mut fields, &caller, now)?;
    asked.told.insert("oldest_first".into(), oldest_first.into());
    let cursors = Cursors::new("claims", caller.workspace, &asked.told);
    let (before, limit) = paging(&mut fields, &cursors)?;
    fields.finish(&format!("{}, idempotency_key, order, cursor, limit", filter::TAKES))?;
    let show = |view: &ClaimView| answer::claim(view, now);
    let filter = Filter { oldest_first, before, limit, ..asked.filter };
    if let Some(key) = key {
        let automation = filter
            .automation
            .ok_or_else(|| Problem::field("idempotency_key", "is looked up together with its automation"))?;
        let key = IdempotencyKey::try_from(key.as_str()).map_err(|e| Problem::field("idempotency_key", e))?;
        let view = match store.find(caller.workspace, automation, key).await? {
            Some(id) => store.show(id).await?.filter(|view| caller.sees(&view.automation)),
            None => None,
        };
        return Ok(page("claims", Page { rows: view.into_iter().collect(), next: None }, &cursors, show));
    }
    let found = store.search(caller.workspace, filter).await?;
    let until = found.searched_until;
    let Json(mut answer) = page("claims", Page { rows: found.rows, next: found.next }, &cursors, show);
    if let Some(until) = until {
        answer["searched_until"] = json!(until);
    }
    Ok(Json(answer))
}

pub(crate) async fn groups(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    let mut fields = Fields::query(&uri)?;
    let by = fields.text("by")?.unwrap_or_else(|| "automation,age".to_owned());
    let words: Vec<&str> = by.split(',').map(str::trim).collect();
    if words.iter().any(|word| !matches!(*word, "automation" | "age")) {
        return Err(Problem::field("by", "must be automation, age, or automation,age"));
    }
    let by = By { automation: words.contains(&"automation"), age: words.contains(&"age") };
    let store = state.gate.store();
    let asked = filter::read(&mut fields, &caller, store.now())?;
    fields.finish(&format!("by, {}", filter::TAKES))?;
    let found = store.groups(caller.workspace, asked.filter, by).await?;
    let groups: Vec<Value> = found
        .groups
        .iter()
        .map(|group| {
            json!({
                "automation": group.automation,
                "age": group.age.map(Age::as_str),
                "count": group.count,
                "oldest_at": group.oldest_at,
            })
        })
        .collect();
    Ok(Json(json!({ "groups": groups, "total": found.total, "counted_until": found.counted_until })))
}

pub(crate) async fn claim(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answered {
    let view = caller.claim(&state, &id).await?;
    let (id, store) = (view.at(), state.gate.store());
    let flow = state.gate.book().automation(id.workspace, &view.automation).flow;
    let mut shown = answer::claim(&view, store.now());
    let open = view.claim.processing_state() != ProcessingState::Done;
    let runs = state.gate.somebody_runs(id.workspace, &view.automation);
    if view.claim.flow && !runs && open && shown["note"].is_null() {
        shown["note"] = notice::no_runner(view.automation.as_str()).into();
    }
    let neighbours = store.neighbours(id).await?;
    shown["waits_for"] = json!(neighbours.waits_for);
    shown["overtaken_by"] = json!(neighbours.overtaken_by);
    shown["result"] = view.result.as_deref().and_then(|r| serde_json::from_str(r).ok()).unwrap_or_default();
    let history = store.history(id).await?;
    let waits_for = steps::waits_for(&view.claim, &history);
    // What is asked, in place of the general word that something is.
    if let (Some(note), true) = (&waits_for, shown["note"].is_null() || view.claim.is_in_review()) {
        shown["note"] = note.as_str().into();
    }
    shown["history"] = json!(history);
    // A mismatch is judged by what came: `/v1/rejected/{id}` of a delivery shows its body.
    let deliveries = store.deliveries(id, ROWS_DEFAULT).await?;
    shown["deliveries"] = deliveries.iter().map(delivery).collect();
    let ids = deliveries.iter().map(|row| (row.source.as_str(), row.delivery_id.as_deref()));
    shown["hint"] = json!(notice::subscribed_twice(ids));
    if let Some(work) = store.work(id).await? {
        // What was declared but not started is part of the story of an error.
        let told = |flow| steps::shown(flow, &work.steps, &view.claim, waits_for.as_deref());
        let steps = flow.as_deref().map(told).unwrap_or_default();
        shown["steps"] = steps.into();
        shown["calls"] = json!(work.steps);
        shown["payload"] = work.payload.and_then(|p| serde_json::from_str(&p.json).ok()).unwrap_or_default();
    }
    Ok(Json(shown))
}

pub(crate) async fn history(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Answered {
    let id = caller.claim(&state, &id).await?.at();
    let mut fields = Fields::query(&uri)?;
    let cursors = plain(&format!("history {id}"), &caller);
    let (after, limit) = paging(&mut fields, &cursors)?;
    fields.finish("cursor, limit")?;
    Ok(page("history", state.gate.store().history_page(id, after, limit).await?, &cursors, |row| json!(row)))
}

pub(crate) async fn inbox(State(state): State<Arc<AppState>>, caller: Caller) -> Answered {
    let counts = state.gate.store().counts(caller.workspace, caller.only()).await?;
    let counts: Map<String, Value> =
        counts.into_iter().map(|(list, n)| (list.as_str().to_owned(), n.into())).collect();
    Ok(Json(counts.into()))
}

pub(crate) async fn rejected(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    let mut fields = Fields::query(&uri)?;
    let cursors = plain("rejected", &caller);
    let (before, limit) = paging(&mut fields, &cursors)?;
    let parked = match fields.text("list")?.as_deref() {
        None | Some("rejected") => false,
        Some("parked") => true,
        Some(_) => return Err(Problem::field("list", "must be rejected or parked")),
    };
    fields.finish("list, cursor, limit")?;
    let (workspace, only, store) = (caller.workspace, caller.only(), state.gate.store());
    let rows = match parked {
        false => store.rejected(workspace, only, before, limit).await?,
        true => store.parked_deliveries(workspace, only, before, limit).await?,
    };
    Ok(page("rejected", rows, &cursors, delivery))
}

pub(crate) async fn rejected_one(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answered {
    let found = match id.parse() {
        Ok(id) => state.gate.store().delivery(caller.workspace, id).await?,
        Err(_) => None,
    };
    let row = found
        .filter(|row| caller.sees(&row.automation))
        .ok_or_else(|| Problem::not_found("there is no such delivery"))?;
    let mut shown = delivery(&row);
    shown["headers"] = telling_headers(row.headers.as_deref());
    show_bytes(&mut shown, "body", row.body.as_deref().unwrap_or_default());
    Ok(Json(shown))
}

/// The headers of a delivery without those that prove who sent it: whoever reads this shall not be able to send it.
pub(crate) fn telling_headers(stored: Option<&str>) -> Value {
    let pairs: Vec<(String, String)> =
        stored.and_then(|headers| serde_json::from_str(headers).ok()).unwrap_or_default();
    let proves = |name: &str| {
        ["signature", "authorization", "cookie", "secret", "token", "hmac", "api-key"]
            .iter()
            .any(|word| name.contains(word))
    };
    pairs
        .into_iter()
        .filter(|(name, _)| !proves(&name.to_ascii_lowercase()))
        .map(|pair| json!(pair))
        .collect()
}

/// Bytes as they came: as text, or in base64 under a name that says so.
pub(crate) fn show_bytes(into: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => into[name] = text.into(),
        Err(_) => into[format!("{name}_base64")] = data_encoding::BASE64.encode(bytes).into(),
    }
}

pub(crate) fn delivery(row: &DeliveryRow) -> Value {
    json!({
        "id": row.id,
        "source": row.source,
        "automation": row.automation,
        "received_at": row.received_at,
        "repeats": row.repeats,
        "last_at": row.last_at,
        "delivery_id": row.delivery_id,
        "verdict": row.verdict,
        "reason": row.reason,
        "settled_at": row.settled_at,
    })
}

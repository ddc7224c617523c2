//! Reading: claims, the inbox, what was rejected, the audit.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::Uri;
use oncegate_core::claim::ProcessingState;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::IdempotencyKey;
use oncegate_core::limits;
use oncegate_core::notice;
use oncegate_store::api::{ClaimView, DeliveryRow, Filter, Page};
use serde_json::{Map, Value, json};

use super::answer::Json;
use super::auth::Caller;
use super::claims::named;
use super::input::Fields;
use super::problem::Problem;
use super::{AppState, answer};

type Answered = Result<Json, Problem>;

const ROWS_DEFAULT: u32 = 100;

pub(crate) fn paging(fields: &mut Fields) -> Result<(Option<i64>, u32), Problem> {
    let before = match fields.text("cursor")? {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| Problem::field("cursor", "is not one that this server gave"))?)
        }
    };
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

pub(crate) fn page<T>(name: &str, page: Page<T>, show: impl Fn(&T) -> Value) -> Json {
    let rows: Vec<Value> = page.rows.iter().map(show).collect();
    let mut answer = Map::new();
    answer.insert(name.to_owned(), rows.into());
    answer.insert("next_cursor".into(), page.next.map(|n| n.to_string()).into());
    Json(answer.into())
}

pub(crate) async fn claims(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    let mut fields = Fields::query(&uri)?;
    let (before, limit) = paging(&mut fields)?;
    let inbox = match fields.text("inbox")? {
        None => None,
        Some(text) => Some(
            InboxList::parse(&text)
                .filter(|list| *list != InboxList::Rejected)
                .ok_or_else(|| Problem::field("inbox", "must be stuck, error, mismatch, parked or late"))?,
        ),
    };
    let processing_state = match fields.text("state")? {
        None => None,
        Some(text) => Some(
            serde_json::from_value::<ProcessingState>(text.into())
                .map_err(|_| Problem::field("state", "must be none, processing, done or error"))?,
        ),
    };
    let automation = fields.text("automation")?.map(|t| named(&t, "automation")).transpose()?;
    let key = fields.text("idempotency_key")?;
    fields.finish("inbox, state, automation, idempotency_key, cursor, limit")?;
    let store = state.gate.store();
    let now = store.now();
    let show = |view: &ClaimView| answer::claim(view, now);
    if let Some(key) = key {
        let automation = automation
            .ok_or_else(|| Problem::field("idempotency_key", "is looked up together with its automation"))?;
        let key = IdempotencyKey::try_from(key.as_str()).map_err(|e| Problem::field("idempotency_key", e))?;
        let view = match store.find(caller.workspace, automation, key).await? {
            Some(id) => store.show(id).await?.filter(|view| caller.sees(&view.automation)),
            None => None,
        };
        return Ok(page("claims", Page { rows: view.into_iter().collect(), next: None }, show));
    }
    let only = caller.automations.as_ref().map(|bound| bound.to_vec());
    let filter = Filter { inbox, state: processing_state, automation, only, before, limit };
    Ok(page("claims", store.list(caller.workspace, filter).await?, show))
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
    if view.claim.flow && flow.is_none() && open && shown["note"].is_null() {
        shown["note"] = notice::no_runner(view.automation.as_str()).into();
    }
    shown["result"] = view.result.as_deref().and_then(|r| serde_json::from_str(r).ok()).unwrap_or_default();
    shown["history"] = json!(store.history(id).await?);
    // A mismatch is judged by what came: `/v1/rejected/{id}` of a delivery shows its body.
    let deliveries = store.deliveries(id, ROWS_DEFAULT).await?;
    shown["deliveries"] = deliveries.iter().map(delivery).collect();
    if let Some(work) = store.work(id).await? {
        // What was declared but not started is part of the story of an error.
        let steps: Vec<Value> = flow
            .iter()
            .flat_map(|f| &f.steps)
            .map(|step| {
                let calls: Vec<_> = work.steps.iter().filter(|c| c.step == step.name).collect();
                let outcome = match calls
                    .iter()
                    .rev()
                    .find(|c| c.outcome == oncegate_store::api::StepOutcome::Succeeded)
                {
                    Some(call) => json!(call.outcome),
                    None => calls.last().map_or(json!("not_started"), |call| json!(call.outcome)),
                };
                json!({ "step": step.name, "outcome": outcome, "calls": calls.len() })
            })
            .collect();
        shown["steps"] = steps.into();
        shown["calls"] = json!(work.steps);
        shown["payload"] = work.payload.and_then(|p| serde_json::from_str(&p.json).ok()).unwrap_or_default();
    }
    Ok(Json(shown))
}

pub(crate) async fn inbox(State(state): State<Arc<AppState>>, caller: Caller) -> Answered {
    caller.may_touch_all()?;
    let counts = state.gate.store().counts(caller.workspace).await?;
    let counts: Map<String, Value> =
        counts.into_iter().map(|(list, n)| (list.as_str().to_owned(), n.into())).collect();
    Ok(Json(counts.into()))
}

pub(crate) async fn rejected(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    caller.may_touch_all()?;
    let mut fields = Fields::query(&uri)?;
    let (before, limit) = paging(&mut fields)?;
    let parked = match fields.text("list")?.as_deref() {
        None | Some("rejected") => false,
        Some("parked") => true,
        Some(_) => return Err(Problem::field("list", "must be rejected or parked")),
    };
    fields.finish("list, cursor, limit")?;
    let (workspace, store) = (caller.workspace, state.gate.store());
    let rows = match parked {
        false => store.rejected(workspace, before, limit).await?,
        true => store.parked_deliveries(workspace, before, limit).await?,
    };
    Ok(page("rejected", rows, delivery))
}

pub(crate) async fn rejected_one(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answered {
    caller.may_touch_all()?;
    let found = match id.parse() {
        Ok(id) => state.gate.store().delivery(caller.workspace, id).await?,
        Err(_) => None,
    };
    let row = found.ok_or_else(|| Problem::not_found("there is no such delivery"))?;
    let mut shown = delivery(&row);
    let body = row.body.unwrap_or_default();
    match String::from_utf8(body) {
        Ok(text) => shown["body"] = text.into(),
        Err(e) => shown["body_base64"] = data_encoding::BASE64.encode(e.as_bytes()).into(),
    }
    Ok(Json(shown))
}

fn delivery(row: &DeliveryRow) -> Value {
    json!({
        "id": row.id,
        "source": row.source,
        "automation": row.automation,
        "received_at": row.received_at,
        "repeats": row.repeats,
        "last_at": row.last_at,
        "verdict": row.verdict,
        "reason": row.reason,
        "settled_at": row.settled_at,
    })
}

pub(crate) async fn audit(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    caller.may_touch_all()?;
    let mut fields = Fields::query(&uri)?;
    let (before, limit) = paging(&mut fields)?;
    fields.finish("cursor, limit")?;
    Ok(page("audit", state.gate.store().audit(caller.workspace, before, limit).await?, |row| json!(row)))
}

//! Acts on many claims: counted first, begun with the count, looked at, undone.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::Uri;
use oncegate_core::limits;
use oncegate_store::bulk::{BulkAct, BulkCall, BulkRow, Bulked, Undone};
use oncegate_store::people::{Write, Written};
use serde_json::{Map, Value, json};

use super::AppState;
use super::acts::{Doing, person_text, tag_text};
use super::answer::{self, Json};
use super::auth::Caller;
use super::filter::{self, Cursors};
use super::input::{Fields, kind};
use super::lists::{page, paging};
use super::once::{self, Secrecy};
use super::problem::Problem;

const ACTIONS: &str = "reset, run_now, mark_error, mark_done, dismiss or tag";

fn act(fields: &mut Fields) -> Result<BulkAct, Problem> {
    let action = fields.required("action")?;
    let tag = fields.text("tag")?.map(|t| tag_text(&t)).transpose()?;
    let verified = fields.flag("verified")?;
    let act = match (action.as_str(), tag) {
        ("mark_error", Some(tag)) => BulkAct::MarkError { tag },
        ("mark_error", None) => return Err(Problem::field("tag", "is missing or blank")),
        ("tag", tag) => BulkAct::Tag { tag },
        (_, Some(_)) => return Err(Problem::field("tag", "belongs to mark_error and tag")),
        ("reset", None) => return Ok(BulkAct::Reset { verified: verified.unwrap_or(false) }),
        ("run_now", None) => BulkAct::RunNow,
        ("mark_done", None) => BulkAct::MarkDone,
        ("dismiss", None) => BulkAct::Dismiss,
        _ => return Err(Problem::field("action", format!("must be {ACTIONS}"))),
    };
    match verified {
        Some(_) => Err(Problem::field("verified", "belongs to reset")),
        None => Ok(act),
    }
}

pub(crate) async fn begin(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let named = once::named(request.extensions());
    let mut fields = Fields::read(request).await?;
    let act = act(&mut fields)?;
    let asked = match fields.value("filter") {
        Some(Value::Object(members)) => {
            let mut members = Fields::of(members);
            let asked = filter::read(&mut members, &caller, state.gate.store().now())?;
            members.finish(filter::TAKES)?;
            asked
        }
        Some(other) => {
            return Err(Problem::field("filter", format!("must be an object, not {}", kind(&other))));
        }
        None => return Err(Problem::field("filter", "is missing; say which claims are meant")),
    };
    if !asked.filter.names_something() {
        return Err(Problem::field(
            "filter",
            "names nothing: at least one part beside the ages must say which claims are meant",
        ));
    }
    let dry_run = fields.flag("dry_run")?.unwrap_or(false);
    let expect = match fields.text("expect")? {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            Problem::field("expect", "must be the number of claims that the dry run matched")
        })?),
    };
    let reason = fields.text("reason")?.map(|t| person_text(t, "reason")).transpose()?;
    let by = fields.text("by")?.map(|t| person_text(t, "by")).transpose()?;
    fields.finish("action, filter, tag, verified, expect, dry_run, reason, by")?;
    let Some(expect) = expect.filter(|_| !dry_run) else {
        let count = state.gate.store().count_bulk(caller.workspace, act, asked.filter).await?;
        return Ok(Json(json!({
            "dry_run": true,
            "matched": count.matched,
            "would_act": count.would_act,
            "would_refuse": count.would_refuse,
            "too_many": count.too_many,
        }))
        .into_response());
    };
    let reason = reason.ok_or_else(|| Problem::field("reason", "is missing or blank"))?;
    let actor = match by {
        Some(by) => format!("{by} ({})", caller.actor),
        None => caller.actor.clone(),
    };
    let call = BulkCall {
        workspace: caller.workspace,
        act,
        filter: asked.filter,
        told: Value::from(asked.told).to_string(),
        expect,
        reason,
        actor,
        token_id: caller.token_id,
    };
    let show = move |written: &Written, _| {
        match written {
        Written::Bulk(Bulked::Begun(row)) => Ok(bulk(row)),
        Written::Bulk(Bulked::CountChanged(matched)) => Err(Problem::count_changed(format!(
            "{matched} claims fit the filter by now, and {expect} were expected; nothing was done. Count again, and look \
             at what changed"
        ))
        .with("matched", *matched)),
        Written::Bulk(Bulked::TooMany) => Err(Problem::field(
            "filter",
            format!("fits more than {} claims; narrow it, e.g. by automation or age", limits::BULK_ROWS_MAX),
        )),
        _ => Err(once::odd()),
    }
    };
    once::write(&state, named, Secrecy::Open, Write::Bulk(call), show).await
}

/// How an act on many claims stands. An undo speaks of what it reversed and kept.
fn bulk(row: &BulkRow) -> Value {
    let mut refused: Map<String, Value> = Map::new();
    for ((fate, why), n) in &row.fates {
        if fate != "acted" {
            refused.insert(why.clone(), (*n).into());
        }
    }
    let mut shown = json!({
        "bulk_id": row.id,
        "action": row.act.as_str(),
        "state": if row.finished_at.is_some() { "finished" } else { "running" },
        "matched": row.matched,
        "filter": serde_json::from_str::<Value>(&row.told).unwrap_or_default(),
        "reason": row.reason,
        "actor": row.actor,
        "made_at": row.made_at,
        "finished_at": row.finished_at,
    });
    match row.undoes {
        None => {
            shown["acted"] = row.count("acted").into();
            shown["refused"] = refused.into();
            shown["undone_by"] = row.undone_by.into();
        }
        Some(undoes) => {
            let fate_and_why = |fate: &str| -> Map<String, Value> {
                let of = row.fates.iter().filter(|((f, _), _)| f == fate);
                of.map(|((_, why), n)| (why.clone(), (*n).into())).collect()
            };
            shown["undoes"] = undoes.into();
            shown["reversed"] = row.count("acted").into();
            shown["kept"] = fate_and_why("changed").into();
            shown["failed"] = (row.count("failed") + row.count("refused")).into();
        }
    }
    shown
}

/// The act of a path, if this caller may know of it: a bound token knows its own.
async fn found(state: &AppState, caller: &Caller, id: &str) -> Result<BulkRow, Problem> {
    let row = match id.parse() {
        Ok(id) => state.gate.store().bulk(caller.workspace, id).await?,
        Err(_) => None,
    };
    row.filter(|row| caller.automations.is_none() || row.token_id == Some(caller.token_id))
        .ok_or_else(|| Problem::not_found("there is no such act on many claims"))
}

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    uri: Uri,
) -> Result<Json, Problem> {
    caller.may_touch_all()?;
    let mut fields = Fields::query(&uri)?;
    let cursors = Cursors::new("bulk", caller.workspace, &Map::new());
    let (before, limit) = paging(&mut fields, &cursors)?;
    fields.finish("cursor, limit")?;
    Ok(page("bulk", state.gate.store().bulks(caller.workspace, before, limit).await?, &cursors, bulk))
}

pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json, Problem> {
    Ok(Json(bulk(&found(&state, &caller, &id).await?)))
}

/// What became of each claim.
pub(crate) async fn claims(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json, Problem> {
    let row = found(&state, &caller, &id).await?;
    let mut fields = Fields::query(&uri)?;
    let cursors = Cursors::new(&format!("bulk {}", row.id), caller.workspace, &Map::new());
    let (after, limit) = paging(&mut fields, &cursors)?;
    fields.finish("cursor, limit")?;
    let store = state.gate.store();
    let now = store.now();
    let found = store.bulk_claims(caller.workspace, row.id, after, limit).await?;
    let word = |fate: Option<&str>| match (row.undoes, fate) {
        (_, None) => "waiting",
        (None, Some("acted")) => "acted",
        (None, Some(_)) => "refused",
        (Some(_), Some("acted")) => "reversed",
        (Some(_), Some("changed")) => "kept",
        (Some(_), Some(_)) => "failed",
    };
    Ok(page("claims", found, &cursors, |one| {
        let mut shown = answer::claim(&one.view, now);
        shown["fate"] = word(one.fate.as_deref()).into();
        shown["why"] = one.why.clone().into();
        shown
    }))
}

pub(crate) async fn undo(mut doing: Doing) -> Result<Response, Problem> {
    doing.nothing_else("reason, by")?;
    let row = found(&doing.state, &doing.caller, &doing.subject).await?;
    let write = Write::UndoBulk {
        workspace: doing.caller.workspace,
        id: row.id,
        reason: doing.reason,
        actor: doing.actor,
        token_id: doing.caller.token_id,
    };
    let show = |written: &Written, _| match written {
        Written::UndoBulk(Undone::Begun(row) | Undone::Before(row)) => Ok(bulk(row)),
        Written::UndoBulk(Undone::Running) => {
            Err(Problem::not_undone("it still goes on; undo it once it is finished"))
        }
        Written::UndoBulk(Undone::IsUndo) => {
            Err(Problem::not_undone("it is an undo itself; do the act again instead"))
        }
        Written::UndoBulk(Undone::TooOld) => Err(Problem::not_undone(
            "it was finished more than 30 days ago, and what the claims were before is not kept any more",
        )),
        Written::UndoBulk(Undone::Restored) => Err(Problem::not_undone(
            "the store was restored from a backup since, and what the claims were before may have run meanwhile; look \
             at them, and act on them anew",
        )),
        Written::UndoBulk(Undone::NotFound) => Err(Problem::not_found("there is no such act on many claims")),
        _ => Err(once::odd()),
    };
    once::write(&doing.state, doing.named, Secrecy::Open, write, show).await
}

//! `/v1/audit`: what people and tokens did, as a list or as a file.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Uri;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::time::Timestamp;
use oncegate_store::access::{AuditFilter, Deed};
use serde_json::{Map, json};

use super::AppState;
use super::auth::Caller;
use super::export::{cell, line};
use super::filter::Cursors;
use super::input::Fields;
use super::lines::{Ended, JSON_LINES, Lines, stream};
use super::lists::{page, paging};
use super::problem::Problem;

/// The columns of a CSV, which are the members of a row.
const COLUMNS: [&str; 7] = ["id", "at", "actor", "action", "subject", "reason", "detail"];

pub(crate) async fn audit(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Problem> {
    // It says what people did to everything.
    caller.may_touch_all()?;
    let mut fields = Fields::query(&uri)?;
    let now = state.gate.store().now().wall;
    let mut filter = AuditFilter {
        actor: fields.text("actor")?,
        action: fields.text("action")?,
        subject: fields.text("subject")?,
        since: fields.text("since")?.map(|t| instant(&t, "since", now)).transpose()?,
        until: fields.text("until")?.map(|t| instant(&t, "until", now)).transpose()?,
        before: None,
        limit: limits::PAGE_ROWS_MAX,
    };
    let format = fields.text("format")?;
    // Not of the filter: a cursor is a place in the audit, which has one order.
    let cursors = Cursors::new("audit", caller.workspace, &Map::new());
    let as_page = format.as_deref().is_none_or(|format| format == "json");
    if as_page {
        (filter.before, filter.limit) = paging(&mut fields, &cursors)?;
    }
    fields.finish("actor, action, subject, since, until, format, cursor and limit of a page")?;
    if as_page {
        let rows = state.gate.store().audit_of(caller.workspace, filter).await?;
        return Ok(page("audit", rows, &cursors, |row| json!(row)).into_response());
    }
    let (content_type, file, csv) = match format.as_deref() {
        Some("csv") => ("text/csv; charset=utf-8", "audit.csv", true),
        Some("jsonl") => (JSON_LINES, "audit.jsonl", false),
        _ => return Err(Problem::field("format", "must be json, csv or jsonl")),
    };
    let deed = Deed { actor: caller.actor, action: "audit_exported".into(), ..Deed::default() };
    state.gate.store().note_deeds(caller.workspace, vec![deed]).await?;
    Ok(stream(content_type, file, move |lines| write(state, caller.workspace, filter, csv, lines)))
}

async fn write(
    state: Arc<AppState>,
    workspace: Workspace,
    mut filter: AuditFilter,
    csv: bool,
    lines: Lines,
) -> Result<(), Ended> {
    if csv {
        lines.bytes(line(COLUMNS)).await?;
    }
    loop {
        let page = state.gate.store().audit_of(workspace, filter.clone()).await?;
        let rows = page.rows.iter().map(|row| json!(row));
        let told: Vec<u8> = match csv {
            true => rows.flat_map(|row| line(COLUMNS.map(|name| cell(&row[name])))).collect(),
            false => rows.flat_map(|row| format!("{row}\n").into_bytes()).collect(),
        };
        lines.bytes(told).await?;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(()),
        }
    }
}

/// An instant, or how long ago it was.
fn instant(text: &str, field: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    let ago = parse_duration(text).map(|d| now.before(d));
    ago.or_else(|_| Timestamp::parse_rfc3339(text.trim())).map_err(|_| {
        Problem::field(field, "must be a time such as 2026-01-31T00:00:00Z, or how long ago, such as 7d")
    })
}

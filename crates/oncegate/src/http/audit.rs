//! `/v1/audit`: what people and tokens did, as a list or as a file.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Uri;
use oncegate_core::csv_cell::csv_line;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::time::Timestamp;
use oncegate_store::access::{AuditFilter, Deed};
use oncegate_store::api::AuditRow;
use serde_json::json;

use super::AppState;
use super::auth::Caller;
use super::input::Fields;
use super::lines::{Ended, JSON_LINES, Lines, stream};
use super::lists::{page, paging};
use super::problem::Problem;

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
    let as_page = format.as_deref().is_none_or(|format| format == "json");
    if as_page {
        (filter.before, filter.limit) = paging(&mut fields)?;
    }
    fields.finish("actor, action, subject, since, until, format, cursor and limit of a page")?;
    if as_page {
        let rows = state.gate.store().audit_of(caller.workspace, filter).await?;
        return Ok(page("audit", rows, |row| json!(row)).into_response());
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
        lines.text(csv_line(&["id", "at", "actor", "action", "subject", "reason", "detail"])).await?;
    }
    loop {
        let page = state.gate.store().audit_of(workspace, filter.clone()).await?;
        let line = |row: &AuditRow| if csv { cells(row) } else { format!("{}\n", json!(row)) };
        lines.text(page.rows.iter().map(line).collect()).await?;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(()),
        }
    }
}

fn cells(row: &AuditRow) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    csv_line(&[
        row.id.to_string(),
        row.at.to_string(),
        row.actor.clone(),
        row.action.clone(),
        row.subject.clone(),
        text(&row.reason),
        text(&row.detail),
    ])
}

/// An instant, or how long ago it was.
fn instant(text: &str, field: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    let ago = parse_duration(text).map(|d| now.before(d));
    ago.or_else(|_| Timestamp::parse_rfc3339(text.trim())).map_err(|_| {
        Problem::field(field, "must be a time such as 2026-01-31T00:00:00Z, or how long ago, such as 7d")
    })
}

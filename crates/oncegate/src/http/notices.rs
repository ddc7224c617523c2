//! Notices: what a person should know though nothing waits for them.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use oncegate_store::notices::{NoticeDismissed, NoticeFilter};
use serde_json::{Map, json};

use super::AppState;
use super::acts::Doing;
use super::answer::Json;
use super::auth::Caller;
use super::filter::Cursors;
use super::input::Fields;
use super::lists::{page, paging};
use super::problem::Problem;

type Answered = Result<Json, Problem>;

pub(crate) async fn list(State(state): State<Arc<AppState>>, caller: Caller, uri: Uri) -> Answered {
    let mut fields = Fields::query(&uri)?;
    let cursors = Cursors::new("notices", caller.workspace, &Map::new());
    let (before, limit) = paging(&mut fields, &cursors)?;
    let dismissed = fields.flag("dismissed")?.unwrap_or(false);
    fields.finish("dismissed, cursor, limit")?;
    let only = caller.only();
    let filter = NoticeFilter { dismissed, only, before, limit };
    let notices = state.gate.store().notices(caller.workspace, filter).await?;
    Ok(page("notices", notices, &cursors, |row| json!(row)))
}

pub(crate) async fn dismiss(mut doing: Doing) -> Answered {
    doing.nothing_else("reason, by")?;
    let not_found = || Problem::not_found("there is no such notice");
    let id = doing.subject.parse().map_err(|_| not_found())?;
    let only = doing.caller.only();
    let (workspace, store) = (doing.caller.workspace, doing.state.gate.store());
    match store.dismiss_notice(workspace, id, only, doing.reason, doing.actor).await? {
        NoticeDismissed::Written => Ok(Json(json!({ "id": id, "dismissed": true }))),
        NoticeDismissed::Already => Err(Problem::nothing_to_do("this notice was dismissed before")),
        NoticeDismissed::NotFound => Err(not_found()),
    }
}

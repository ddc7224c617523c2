//! Done, error, heartbeat: what the holder of an attempt says, proved by its token alone.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use oncegate_core::finish::{Answer, Call, Failed, cut};
use oncegate_core::key::{ClaimId, ClaimRef};
use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::token::Fence;
use oncegate_runner::entropy;
use oncegate_store::api::FinishCall;
use serde_json::Value;
use std::time::Duration;

use super::answer::Json;
use super::auth::bearer;
use super::input::{Fields, Unread};
use super::problem::Problem;
use super::{AppState, answer};

type Answered = Result<Json, Problem>;

pub(crate) async fn done(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let Holder { id, fence, mut fields, .. } = holder(&state, &id, request).await?;
    let result = fields.value("result").map(|v| v.to_string());
    let (result, note) = match result {
        // The effect happened: that must be written down, with or without what it returned.
        Some(r) if r.len() > limits::RESULT_BYTES_MAX => (
            None,
            Some(format!(
                "done is written; the result is larger than {} bytes and was not kept",
                limits::RESULT_BYTES_MAX
            )),
        ),
        other => (other, None),
    };
    say(&state, id, fence, Call::Done, result, note).await
}

pub(crate) async fn error(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let Holder { id, fence, mut fields, unread } = holder(&state, &id, request).await?;
    match unread {
        // It comes again as large as it is: better an error without its details than none.
        None | Some(Unread::TooLarge { .. }) => {}
        // Whether it may be retried stood in what did not arrive; the caller's next try will say it.
        Some(why @ (Unread::TooSlow | Unread::BrokenOff | Unread::NoRoom)) => return Err(why.into()),
    }
    let note = match fields.value("note") {
        Some(Value::String(note)) if !note.trim().is_empty() => cut(&without_controls(&note)),
        Some(other) if !other.is_string() => cut(&without_controls(&other.to_string())),
        _ => "the caller reported an error without a note".to_owned(),
    };
    // A caller that says nothing about retrying gets none: only it knows whether a repeat is safe.
    let retryable = fields.flag("retryable").ok().flatten().unwrap_or(false);
    let retry_after = fields.text("retry_after").ok().flatten().and_then(|t| seconds(&t));
    let failure = if retryable { Failed::Retryable { retry_after } } else { Failed::Final };
    say(&state, id, fence, Call::Error { failure, note }, None, None).await
}

pub(crate) async fn heartbeat(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let Holder { id, fence, .. } = holder(&state, &id, request).await?;
    say(&state, id, fence, Call::Heartbeat, None, None).await
}

/// Who calls, proved, and what it says.
struct Holder {
    id: ClaimRef,
    fence: Fence,
    fields: Fields,
    /// Why the body is not among the fields. The token is what counts: done and heartbeat go on without it.
    unread: Option<Unread>,
}

/// The token may stand in the URL, in the body or in the `Authorization` header. What stands in the head is checked
/// before the body is read.
async fn holder(state: &AppState, id: &str, request: Request) -> Result<Holder, Problem> {
    let (parts, body) = request.into_parts();
    let mut fields = Fields::query_leniently(&parts.uri)?;
    let header = bearer(&parts.headers);
    let proved = match fields.text("token")? {
        Some(token) => Some(read_token(state, id, &token)?),
        // A tool may send a token of its own there, and the claim's in the body.
        None => header.and_then(|token| read_token(state, id, token).ok()),
    };
    let unread = fields.add_body(&parts, body).await?;
    let (id, fence) = match (proved, fields.text("token")) {
        (Some(proved), _) => proved,
        (None, Ok(Some(token))) => read_token(state, id, &token)?,
        (None, Err(problem)) => return Err(problem),
        (None, Ok(None)) => {
            return Err(match (unread, header) {
                (Some(why), _) => why.into(),
                (None, Some(_)) => foreign(),
                (None, None) => {
                    Problem::missing_credentials("send the token that the claim was answered with")
                }
            });
        }
    };
    Ok(Holder { id, fence, fields, unread })
}

fn read_token(state: &AppState, id: &str, token: &str) -> Result<(ClaimRef, Fence), Problem> {
    let (named, fence) = state.gate.store().secret().read_token(token.trim()).ok_or_else(foreign)?;
    match ClaimId::parse(id) {
        Some(id) if id == named.id => Ok((named, fence)),
        _ => Err(foreign()),
    }
}

fn foreign() -> Problem {
    Problem::invalid_token("use the done_url, error_url and heartbeat_url of the claim's own answer")
}

async fn say(
    state: &AppState,
    id: ClaimRef,
    fence: Fence,
    call: Call,
    result: Option<String>,
    note: Option<String>,
) -> Answered {
    let call = FinishCall { id, fence, call, jitter: entropy::jitter(), result, actor: "holder".into() };
    let Some((said, view)) = state.gate.finish(call).await? else {
        return Err(Problem::not_found(
            "there is no such claim; it may have been forgotten after its retention",
        ));
    };
    let claim = answer::claim(&view, state.gate.store().now());
    let conflict = |problem: Problem| Err(problem.with("claim", claim.clone()));
    match said {
        Answer::Accepted | Answer::Unchanged => {
            let mut answer = claim;
            answer["answer"] = if said == Answer::Accepted { "accepted" } else { "unchanged" }.into();
            if let Some(note) = note {
                answer["note"] = note.into();
            }
            Ok(Json(answer))
        }
        Answer::AlreadyDone => conflict(Problem::already_done("the claim is done; that stays so")),
        Answer::NotProcessing => conflict(Problem::not_processing(
            "this attempt ended in error; claim again when it is due, or call done if the effect did happen",
        )),
        Answer::LostClaim => conflict(Problem::lost_claim(format!(
            "attempt {} no longer holds this claim: it was taken over, reset, or its record was taken. \
             Nothing was changed, and the claim is listed as late: check for a double effect",
            fence.attempt
        ))),
    }
}

fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs).or_else(|| parse_duration(text).ok())
}

/// Notes come from anywhere and go into terminals and lists: no character in one may move the cursor, begin a line or
/// turn the direction of what follows.
pub(crate) fn without_controls(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

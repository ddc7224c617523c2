//! `/v1/tokens`: made, listed, revoked. A token is shown once; what is kept is its hash.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use oncegate_core::access::{Role, TokenName};
use oncegate_core::key::{AutomationName, Workspace, sha256};
use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::time::Timestamp;
use oncegate_runner::entropy;
use oncegate_store::access::{ApiToken, NewToken, Revoked};
use oncegate_store::people::{Write, Written};
use serde_json::{Value, json};

use super::AppState;
use super::acts::{Doing, actor};
use super::answer::Json;
use super::auth::Caller;
use super::claims::named;
use super::input::{Fields, kind};
use super::once::{self, Secrecy};
use super::problem::Problem;
use super::workspaces::{name_of, workspace_named};

type Answered = Result<Json, Problem>;

/// A new token: what tells ours from others' at a glance, and 192 random bits.
pub(crate) fn fresh() -> String {
    format!("oga_{}", data_encoding::BASE64URL_NOPAD.encode(&entropy::bytes::<24>()))
}

pub(crate) async fn own(State(state): State<Arc<AppState>>, caller: Caller) -> Answered {
    let store = state.gate.store();
    // Its own row, wherever the call acts.
    let all = store.tokens(caller.home()).await?;
    let token = all.iter().find(|t| t.id == caller.token_id);
    let token = token.ok_or_else(|| Problem::not_found("this token was removed just now"))?;
    let mut shown = shown(token, store.now().wall);
    shown["workspace"] = name_of(&state, caller.home()).await?.into();
    shown["acts_in"] = name_of(&state, caller.workspace).await?.into();
    Ok(Json(shown))
}

pub(crate) async fn list(State(state): State<Arc<AppState>>, caller: Caller) -> Answered {
    let store = state.gate.store();
    let tokens = store.tokens(caller.workspace).await?;
    let now = store.now().wall;
    let tokens: Vec<Value> = tokens.iter().filter(|t| rules(&caller, t)).map(|t| shown(t, now)).collect();
    Ok(Json(json!({ "tokens": tokens })))
}

/// Whether somebody who is bound may know of a token: one that reaches no further than it does.
fn rules(caller: &Caller, token: &ApiToken) -> bool {
    match (&caller.automations, &token.automations) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(_), Some(theirs)) => theirs.iter().all(|name| caller.sees(name)),
    }
}

pub(crate) async fn make(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let once_named = once::named(request.extensions());
    let mut fields = Fields::read(request).await?;
    let name =
        TokenName::try_from(fields.required("name")?.as_str()).map_err(|e| Problem::field("name", e))?;
    let role = role(&fields.required("role")?)?;
    let automations = automations(fields.value("automations"))?;
    let now = state.gate.store().now().wall;
    let expires_at = ending(fields.text("expires_in")?, fields.text("expires_at")?, now)?;
    let workspace = match fields.text("workspace")? {
        None => caller.workspace,
        Some(name) => workspace_named(&state, &caller, &name).await?.workspace,
    };
    let actor = actor(&caller, &mut fields)?;
    fields.finish("name, role, automations, expires_in or expires_at, workspace, by")?;
    reaches_no_further(&caller, automations.as_deref())?;
    let store = state.gate.store();
    if store.tokens(workspace).await?.iter().filter(|t| t.is_good(now)).count() >= limits::TOKENS_MAX {
        return Err(Problem::limit_reached(format!(
            "a workspace has {} good tokens at most; revoke some",
            limits::TOKENS_MAX
        )));
    }
    let note = unknown(&state, workspace, automations.as_deref()).await?;
    let token = fresh();
    let new = NewToken {
        workspace,
        hash: sha256(token.as_bytes()),
        name: name.clone(),
        role,
        automations: automations.clone(),
        expires_at,
        actor,
    };
    let home = name_of(&state, workspace).await?;
    let show = move |written: &Written, _| match written {
        Written::AddedToken(Some(id)) => Ok(json!({
            "token_id": id,
            "token": token,
            "name": name,
            "role": role,
            "automations": automations,
            "workspace": home,
            "expires_at": expires_at,
            "note": note,
        })),
        Written::AddedToken(None) => Err(Problem::internal("a token that was just drawn is there already")),
        _ => Err(once::odd()),
    };
    once::write(&state, once_named, Secrecy::ShownOnce, Write::AddToken(new), show).await
}

pub(crate) async fn revoke(mut doing: Doing) -> Result<Response, Problem> {
    let although_last = match doing.fields.text("confirm")?.as_deref() {
        None => false,
        Some("last_admin") => true,
        Some(_) => return Err(Problem::field("confirm", "must be last_admin")),
    };
    doing.nothing_else("reason, by, confirm")?;
    let (state, workspace) = (Arc::clone(&doing.state), doing.caller.workspace);
    let store = state.gate.store();
    let known = store.tokens(workspace).await?;
    let id = doing.subject.parse::<i64>().ok();
    let token = known.iter().find(|t| Some(t.id) == id && rules(&doing.caller, t));
    let token = token.ok_or_else(|| Problem::not_found("there is no such token"))?;
    let (id, name) = (token.id, token.name.clone());
    let is_preset = state.preset_token == Some(id);
    let write = Write::RevokeToken { workspace, id, although_last, reason: doing.reason, actor: doing.actor };
    let show = move |written: &Written, _| match written {
        Written::RevokedToken(Revoked::Ended) => {
            let note = is_preset.then_some(
                "this is the token of ONCEGATE_ADMIN_TOKEN: unset or change that, or the next start makes it good again",
            );
            Ok(json!({ "token_id": id, "name": name, "revoked": true, "note": note }))
        }
        Written::RevokedToken(Revoked::Nothing) => {
            Err(Problem::nothing_to_do("this token was revoked before"))
        }
        Written::RevokedToken(Revoked::LastAdmin) => Err(Problem::last_admin(
            "this is the server's last admin token without an end; make another first, or send \
             `confirm: last_admin`. After that only a start with ONCEGATE_ADMIN_TOKEN lets anybody in again",
        )),
        _ => Err(once::odd()),
    };
    once::write(&state, doing.named, Secrecy::Open, write, show).await
}

pub(crate) fn shown(token: &ApiToken, now: Timestamp) -> Value {
    json!({
        "token_id": token.id,
        "name": token.name,
        "role": token.role,
        "automations": token.automations,
        "good": token.is_good(now),
        "created_at": token.created_at,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
    })
}

fn role(text: &str) -> Result<Role, Problem> {
    Role::parse(text.trim()).ok_or_else(|| {
        let all: Vec<&str> = Role::ALL.into_iter().map(Role::as_str).collect();
        Problem::field("role", format!("must be one of {}", all.join(", ")))
    })
}

/// A list, or names with commas between them.
fn automations(value: Option<Value>) -> Result<Option<Vec<AutomationName>>, Problem> {
    let wrong = |what: &str| Problem::field("automations", format!("must be a list of names, not {what}"));
    let mut names: Vec<AutomationName> = match value {
        None => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => {
            text.split(',').map(|name| named(name, "automations")).collect::<Result<_, _>>()?
        }
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| match item {
                Value::String(name) => named(name, "automations"),
                other => Err(wrong(kind(other))),
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(wrong(kind(&other))),
    };
    names.sort();
    names.dedup();
    match names.len() {
        0 => Err(Problem::field("automations", "is empty; leave it out for a token that is not bound")),
        n if n > limits::TOKEN_AUTOMATIONS_MAX => Err(Problem::field(
            "automations",
            format!("has more than {} names", limits::TOKEN_AUTOMATIONS_MAX),
        )),
        _ => Ok(Some(names)),
    }
}

fn ending(
    expires_in: Option<String>,
    expires_at: Option<String>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let (at, field) = match (expires_in, expires_at) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Problem::field("expires_at", "is given beside expires_in; send one of them"));
        }
        (Some(text), None) => {
            let life = parse_duration(&text).map_err(|e| Problem::field("expires_in", e))?;
            (now.after(life), "expires_in")
        }
        (None, Some(text)) => {
            let at = Timestamp::parse_rfc3339(text.trim()).map_err(|e| Problem::field("expires_at", e))?;
            (at, "expires_at")
        }
    };
    match at > now && at.since(now) <= limits::TOKEN_LIFE_MAX {
        true => Ok(Some(at)),
        false => Err(Problem::field(field, "must lie ahead, and not more than ten years")),
    }
}

fn reaches_no_further(caller: &Caller, automations: Option<&[AutomationName]>) -> Result<(), Problem> {
    let Some(bound) = &caller.automations else { return Ok(()) };
    let within = automations.is_some_and(|names| names.iter().all(|name| caller.sees(name)));
    match within {
        true => Ok(()),
        false => {
            let names: Vec<&str> = bound.iter().map(AutomationName::as_str).collect();
            Err(Problem::forbidden(format!(
                "this token is bound, so that the tokens it makes must be: name some of {} in `automations`",
                names.join(", ")
            )))
        }
    }
}

/// A binding to a misspelt name would look as if it worked.
async fn unknown(
    state: &AppState,
    workspace: Workspace,
    automations: Option<&[AutomationName]>,
) -> Result<Option<String>, Problem> {
    let mut unknown = vec![];
    for name in automations.unwrap_or_default() {
        if !state.gate.book().declares(workspace, name)
            && !state.gate.store().knows_automation(workspace, name.clone()).await?
        {
            unknown.push(name.as_str());
        }
    }
    Ok((!unknown.is_empty()).then(|| {
        format!("none of these is declared or has been seen yet; check the spelling: {}", unknown.join(", "))
    }))
}

/// The token that the start makes or brings.
pub(crate) fn first(token: &[u8]) -> NewToken {
    NewToken {
        workspace: Workspace::DEFAULT,
        hash: sha256(token),
        name: TokenName::of_the_start(),
        role: Role::Admin,
        automations: None,
        expires_at: None,
        actor: "start".into(),
    }
}

//! Who may call: a bearer token whose hash the store knows, and what its role and its automations allow. Capability
//! URLs carry a claim's token instead.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use oncegate_core::access::{Right, Role, WorkspaceName};
use oncegate_core::key::{AutomationName, ClaimRef, Workspace, sha256};
use oncegate_store::access::ApiToken;
use oncegate_store::api::ClaimView;

use super::AppState;
use super::acts::claim_id;
use super::peer::{self, Peer};
use super::problem::Problem;
use super::routes::Needs;

/// With this header an admin of the server acts in another workspace.
pub(crate) const WORKSPACE_HEADER: HeaderName = HeaderName::from_static("oncegate-workspace");

/// Who calls, proved by its token.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// In which workspace it acts.
    pub(crate) workspace: Workspace,
    /// Whose its token is.
    home: Workspace,
    pub(crate) role: Role,
    /// The only automations it may see and touch; `None`: all.
    pub(crate) automations: Option<Arc<[AutomationName]>>,
    /// For history and audit, e.g. `token:admin`.
    pub(crate) actor: String,
    pub(crate) token_id: i64,
}

impl Caller {
    fn new(token: &ApiToken) -> Self {
        Self {
            workspace: token.workspace,
            home: token.workspace,
            role: token.role,
            automations: token.automations.as_deref().map(Into::into),
            actor: format!("token:{}", token.name),
            token_id: token.id,
        }
    }

    /// The same, acting in another workspace; its people see from whose admin it came.
    fn acting_in(self, workspace: Workspace) -> Self {
        match workspace == self.home {
            true => self,
            false => Self { workspace, actor: format!("{}@{}", self.actor, WorkspaceName::DEFAULT), ..self },
        }
    }

    /// Whose its token is.
    pub(crate) fn home(&self) -> Workspace {
        self.home
    }

    /// The automations that lists are cut down to.
    pub(crate) fn only(&self) -> Option<Vec<AutomationName>> {
        self.automations.as_ref().map(|bound| bound.to_vec())
    }

    /// # Errors
    /// The role does not have this right.
    pub(crate) fn may(&self, right: Right) -> Result<(), Problem> {
        match self.role.has(right) {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "this token is a {}; the call needs the role {} or one above it",
                self.role.as_str(),
                right.least().as_str()
            ))
            .with("role", self.role.as_str())
            .with("needs", right.least().as_str())),
        }
    }

    /// An admin of the default workspace is the server's.
    pub(crate) fn is_server_admin(&self) -> bool {
        self.home == Workspace::DEFAULT && self.role == Role::Admin && self.automations.is_none()
    }

    /// # Errors
    /// It is not the server's admin.
    pub(crate) fn may_rule(&self) -> Result<(), Problem> {
        match self.is_server_admin() {
            true => Ok(()),
            false => Err(Problem::forbidden(
                "this call is for the server's admins: unbound admin tokens of the workspace `default`",
            )
            .with("needs", "server admin")),
        }
    }

    /// Whether the token is bound to other automations than this one.
    pub(crate) fn sees(&self, automation: &AutomationName) -> bool {
        self.automations.as_ref().is_none_or(|bound| bound.contains(automation))
    }

    /// # Errors
    /// The token is bound to other automations.
    pub(crate) fn may_touch(&self, automation: &AutomationName) -> Result<(), Problem> {
        match self.sees(automation) {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "this token is bound to other automations than `{automation}`; use the token made for it"
            ))),
        }
    }

    /// # Errors
    /// The call is about all automations, and the token is bound to some.
    pub(crate) fn may_touch_all(&self) -> Result<(), Problem> {
        match self.automations {
            None => Ok(()),
            Some(_) => Err(Problem::forbidden(
                "this token is bound to some automations, and the call is about all of them",
            )),
        }
    }

    /// The claim that a path names, if this caller may know of it.
    ///
    /// # Errors
    /// There is none, or it is another workspace's or automation's: these look alike.
    pub(crate) async fn claim(&self, state: &AppState, id: &str) -> Result<ClaimView, Problem> {
        let claim = ClaimRef { workspace: self.workspace, id: claim_id(id)? };
        let view = state.gate.store().show(claim).await?;
        view.filter(|view| self.sees(&view.automation)).ok_or_else(|| {
            Problem::not_found("there is no such claim; it may have been forgotten after its retention")
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // The route lets nobody through without one; should it ever, nothing is done.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::missing_credentials("send a bearer token"))
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Who calls, if the bearer token is good and gives what the route needs.
///
/// # Errors
/// It is not, or does not.
pub(crate) async fn admitted(
    state: &AppState,
    needs: Needs,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> Result<Caller, Problem> {
    let caller = authenticate(state, extensions, headers).await?;
    match needs {
        Needs::Right(right) => caller.may(right)?,
        Needs::ServerAdmin => caller.may_rule()?,
        Needs::AnyToken | Needs::ClaimToken | Needs::Signature | Needs::Nothing => {}
    }
    match headers.get(WORKSPACE_HEADER) {
        None => Ok(caller),
        Some(name) => elsewhere(state, caller, name).await,
    }
}

async fn elsewhere(state: &AppState, caller: Caller, name: &HeaderValue) -> Result<Caller, Problem> {
    if !caller.is_server_admin() {
        return Err(Problem::forbidden(
            "the header Oncegate-Workspace is for the server's admins; every other token acts in its own workspace",
        )
        .with("needs", "server admin"));
    }
    let known = state.gate.store().workspaces().await?;
    let named = known.into_iter().find(|row| name.as_bytes() == row.name.as_bytes());
    match named {
        Some(row) => Ok(caller.acting_in(row.workspace)),
        None => Err(Problem::not_found("Oncegate-Workspace names no workspace of this server")),
    }
}

/// Tokens are looked up by their SHA-256 hash, so that nothing about a token can be learnt from how long a refusal
/// takes.
async fn authenticate(
    state: &AppState,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> Result<Caller, Problem> {
    if headers.get(header::AUTHORIZATION).is_some_and(|v| v.to_str().is_err()) {
        let problem =
            Problem::invalid_credentials("the token holds characters that no token of this server has");
        return Err(state.refused(extensions, headers, problem));
    }
    let Some(token) = bearer(headers) else {
        return Err(Problem::missing_credentials(
            "send the header `Authorization: Bearer <token>`; the admin token was printed at the first start",
        ));
    };
    let hash = sha256(token.as_bytes());
    let known = match state.tokens.known(&hash, state.gate.clock().read().monotonic) {
        Ok(known) => Some(known),
        Err(asked) => {
            let found = state.gate.store().token_by_hash(hash).await?;
            found.map(|token| state.tokens.remember(asked, hash, token))
        }
    };
    let now = state.gate.store().now().wall;
    let problem = match known {
        Some(token) if token.is_good(now) => {
            state.tokens.used(token.id, now);
            return Ok(Caller::new(&token));
        }
        Some(_) => {
            Problem::invalid_credentials("this token was revoked or has expired; ask an admin for another")
        }
        None => Problem::invalid_credentials(
            "this token is not known to this server; is it whole, and of this data directory? If the admin token is \
             lost, start once with ONCEGATE_ADMIN_TOKEN",
        ),
    };
    Err(state.refused(extensions, headers, problem))
}

impl AppState {
    /// Counts a failed authentication; what is answered is `problem`, or that the address shall wait.
    pub(crate) fn refused(&self, extensions: &Extensions, headers: &HeaderMap, problem: Problem) -> Problem {
        let peer = extensions.get::<Peer>().copied().unwrap_or(Peer(None));
        let from = peer::address(peer, headers, &self.trusted_proxies);
        match self.failures.failed(from, self.gate.store().now().wall) {
            None => problem,
            Some(wait) => {
                let seconds = wait.as_secs().max(1);
                Problem::too_many_failures(format!(
                    "too many tokens from this address were wrong; stop whatever sends them, and try again in \
                     {seconds} s. A token that is right is taken at any time"
                ))
                .with("retry_after_s", seconds)
            }
        }
    }
}

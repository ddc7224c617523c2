//! The one table of every address this server answers at, with what each needs. The router is made of it, and the
//! tests walk along it.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use oncegate_core::access::Right;

use super::entry::Entry;
use super::{
    AppState, acts, api_tokens, audit, automations, batch, bulk, claims, export, finish, forgetting, health,
    intake, lists, notices, openapi, sources, upkeep, workspaces,
};

/// What a call must bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A token whose role has this right.
    Right(Right),
    /// A token of the server's admins.
    ServerAdmin,
    /// Any good token.
    AnyToken,
    /// The claim's own token.
    ClaimToken,
    /// The signature of its source.
    Signature,
    /// Nothing.
    Nothing,
}

impl Needs {
    /// For the description of the API, and for tests.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Right(right) => right.least().as_str(),
            Self::ServerAdmin => "server admin",
            Self::AnyToken => "any token",
            Self::ClaimToken => "claim token",
            Self::Signature => "signature",
            Self::Nothing => "nothing",
        }
    }

    /// The same as a sentence.
    pub(crate) fn told(self) -> String {
        match self {
            Self::Right(right) => format!("Needs the role {} or one above it.", right.least().as_str()),
            Self::ServerAdmin => {
                "Needs a server's admin: an unbound admin of the workspace `default`.".into()
            }
            Self::AnyToken => "Needs a good token of any role.".into(),
            Self::ClaimToken => "Needs the claim's own token.".into(),
            Self::Signature => "Needs the signature of its source.".into(),
            Self::Nothing => "Needs no token.".into(),
        }
    }

    /// Whether a bearer token is looked at before the handler is called.
    pub(crate) const fn bearer(self) -> bool {
        matches!(self, Self::Right(_) | Self::ServerAdmin | Self::AnyToken)
    }
}

/// One address with one method.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
    /// Whether a repeat under one `Idempotency-Key` is given the first answer.
    pub(crate) once: bool,
    pub(crate) handler: MethodRouter<Arc<AppState>>,
}

fn get<T: 'static>(path: &'static str, needs: Needs, handler: impl Handler<T, Arc<AppState>>) -> Route {
    route("GET", path, needs, false, handler)
}

fn post<T: 'static>(path: &'static str, needs: Needs, handler: impl Handler<T, Arc<AppState>>) -> Route {
    route("POST", path, needs, false, handler)
}

/// A write that takes an `Idempotency-Key`.
fn once<T: 'static>(path: &'static str, needs: Needs, handler: impl Handler<T, Arc<AppState>>) -> Route {
    route("POST", path, needs, true, handler)
}

fn route<T: 'static>(
    method: &'static str,
    path: &'static str,
    needs: Needs,
    once: bool,
    handler: impl Handler<T, Arc<AppState>>,
) -> Route {
    let filter = if method == "GET" { MethodFilter::GET } else { MethodFilter::POST };
    let handler = on(filter, Entry::of(path, needs, once, handler));
    Route { method, path, needs, once, handler }
}

const CLAIM: Needs = Needs::Right(Right::Claim);
const READ: Needs = Needs::Right(Right::Read);
const ACT: Needs = Needs::Right(Right::Act);
const ADMINISTER: Needs = Needs::Right(Right::Administer);

/// All of them. What changes something is POST: GET and HEAD never act, because link previews and browsers send them.
pub(crate) fn routes(metrics_public: bool) -> Vec<Route> {
    let metrics = match metrics_public {
        true => get("/metrics", Needs::Nothing, health::metrics),
        false => get("/metrics", READ, health::metrics_for),
    };
    vec![
        metrics,
        post("/v1/claims", CLAIM, claims::claim),
        post("/v1/claims/batch", CLAIM, batch::claims),
        get("/v1/claims", READ, lists::claims),
        get("/v1/claims/export", READ, export::claims),
        get("/v1/claims/groups", READ, lists::groups),
        get("/v1/claims/{id}/history", READ, lists::history),
        get("/v1/bulk", READ, bulk::list),
        get("/v1/bulk/{id}", READ, bulk::one),
        get("/v1/bulk/{id}/claims", READ, bulk::claims),
        get("/v1/automations", READ, automations::list),
        get("/v1/claims/{id}", READ, lists::claim),
        get("/v1/inbox", READ, lists::inbox),
        get("/v1/rejected", READ, lists::rejected),
        get("/v1/rejected/{id}", READ, lists::rejected_one),
        get("/v1/audit", READ, audit::audit),
        once("/v1/claims/{id}/reset", ACT, acts::reset),
        once("/v1/claims/{id}/run-now", ACT, acts::run_now),
        once("/v1/claims/{id}/mark-error", ACT, acts::mark_error),
        once("/v1/claims/{id}/mark-done", ACT, acts::mark_done),
        once("/v1/claims/{id}/dismiss", ACT, acts::dismiss),
        once("/v1/claims/{id}/approve", ACT, acts::approve),
        once("/v1/claims/{id}/decline", ACT, acts::decline),
        once("/v1/claims/{id}/tag", ACT, acts::tag),
        once("/v1/automations/{name}/rename", ACT, automations::rename),
        once("/v1/automations/{name}/pause", ACT, acts::pause),
        once("/v1/automations/{name}/resume", ACT, acts::resume),
        once("/v1/bulk", ACT, bulk::begin),
        once("/v1/bulk/{id}/undo", ACT, bulk::undo),
        once("/v1/rejected/{id}/release", ACT, intake::release),
        get("/v1/notices", READ, notices::list),
        get("/v1/sources", READ, sources::list),
        get("/v1/sources/{source}", READ, sources::show),
        post("/v1/notices/{id}/dismiss", ACT, notices::dismiss),
        get("/v1/recovery", READ, upkeep::recovery),
        post("/v1/recovery/end", Needs::ServerAdmin, upkeep::end_recovery),
        get("/v1/nodes", Needs::ServerAdmin, upkeep::nodes),
        get("/v1/backup", Needs::ServerAdmin, upkeep::backups),
        post("/v1/backup", Needs::ServerAdmin, upkeep::back_up),
        get("/v1/tokens/self", Needs::AnyToken, api_tokens::own),
        get("/v1/tokens", ADMINISTER, api_tokens::list),
        once("/v1/tokens", ADMINISTER, api_tokens::make),
        once("/v1/tokens/{id}/revoke", ADMINISTER, api_tokens::revoke),
        post("/v1/forget", ADMINISTER, forgetting::forget),
        post("/v1/person", ADMINISTER, forgetting::person),
        get("/v1/workspaces", Needs::ServerAdmin, workspaces::list),
        post("/v1/workspaces", Needs::ServerAdmin, workspaces::make),
        get("/v1/workspaces/{name}/export", ADMINISTER, workspaces::export),
        post("/v1/workspaces/{name}/delete", Needs::ServerAdmin, workspaces::delete),
        post("/v1/claims/{id}/done", Needs::ClaimToken, finish::done),
        post("/v1/claims/{id}/error", Needs::ClaimToken, finish::error),
        post("/v1/claims/{id}/heartbeat", Needs::ClaimToken, finish::heartbeat),
        // One address: what stands behind a source's name may be anything, and is never 404.
        post("/in/{*source}", Needs::Signature, intake::deliver),
        get("/in/{*source}", Needs::Signature, intake::greet),
        get("/openapi.json", Needs::Nothing, openapi::openapi),
        get("/healthz", Needs::Nothing, health::healthz),
        get("/readyz", Needs::Nothing, health::readyz),
    ]
}

//! The HTTP way in: translates between requests and the gatekeeper, decides nothing.

mod acts;
mod answer;
mod auth;
mod budget;
mod claims;
mod connection;
mod finish;
mod form;
mod input;
mod intake;
mod lists;
mod notices;
mod problem;
pub(crate) mod server;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use oncegate_core::access::Right;
use oncegate_core::limits;
use oncegate_runner::gatekeeper::Gatekeeper;
use tokio::sync::Semaphore;

use crate::config::Source;
use problem::Problem;
use tokens::KnownTokens;

/// What every handler sees.
pub(crate) struct AppState {
    pub(crate) gate: Arc<Gatekeeper>,
    pub(crate) sources: HashMap<String, Source>,
    /// Where the URLs in answers point to, without a slash at the end.
    pub(crate) base_url: String,
    pub(crate) tokens: KnownTokens,
    /// Turns of large bodies, whose check and parsing take a core and memory.
    large_bodies: Arc<Semaphore>,
}

impl AppState {
    pub(crate) fn new(gate: Arc<Gatekeeper>, sources: HashMap<String, Source>, base_url: String) -> Self {
        let large_bodies = Arc::new(Semaphore::new(limits::LARGE_BODIES_AT_WORK_MAX));
        Self { gate, sources, base_url, tokens: KnownTokens::default(), large_bodies }
    }
}

const WRONG_METHOD: &str =
    "this method does nothing here; the `Allow` header names the one that does, e.g. `curl -X POST`";

/// Every address this server answers at.
pub(crate) fn router(state: Arc<AppState>) -> Router {
    let with = |right| middleware::from_fn_with_state((Arc::clone(&state), right), auth::require);
    let claiming = Router::new().route("/v1/claims", post(claims::claim)).route_layer(with(Right::Claim));
    let reading = Router::new()
        .route("/v1/claims", get(lists::claims))
        .route("/v1/claims/{id}", get(lists::claim))
        .route("/v1/inbox", get(lists::inbox))
        .route("/v1/rejected", get(lists::rejected))
        .route("/v1/rejected/{id}", get(lists::rejected_one))
        .route("/v1/audit", get(lists::audit))
        .route("/v1/notices", get(notices::list))
        .route_layer(with(Right::Read));
    let acting = Router::new()
        .route("/v1/claims/{id}/reset", post(acts::reset))
        .route("/v1/claims/{id}/run-now", post(acts::run_now))
        .route("/v1/claims/{id}/mark-error", post(acts::mark_error))
        .route("/v1/claims/{id}/mark-done", post(acts::mark_done))
        .route("/v1/claims/{id}/dismiss", post(acts::dismiss))
        .route("/v1/automations/{name}/pause", post(acts::pause))
        .route("/v1/automations/{name}/resume", post(acts::resume))
        .route("/v1/rejected/{id}/release", post(intake::release))
        .route("/v1/notices/{id}/dismiss", post(notices::dismiss))
        .route_layer(with(Right::Act));
    // These carry the claim's own token. GET and HEAD never act: link previews and browsers send them.
    let capability = Router::new()
        .route("/v1/claims/{id}/done", post(finish::done))
        .route("/v1/claims/{id}/error", post(finish::error))
        .route("/v1/claims/{id}/heartbeat", post(finish::heartbeat));
    Router::new()
        .merge(claiming)
        .merge(reading)
        .merge(acting)
        .merge(capability)
        .route("/in/{source}", post(intake::deliver))
        .route("/healthz", get(async || "ok\n"))
        .method_not_allowed_fallback(async || Problem::method_not_allowed(WRONG_METHOD))
        .fallback(async || Problem::not_found("no page or call has this address"))
        .with_state(state)
}

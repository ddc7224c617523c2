//! The HTTP way in: translates between requests and the gatekeeper, decides nothing.

mod acts;
mod answer;
mod auth;
mod budget;
mod claims;
mod connection;
mod finish;
pub(crate) mod form;
mod health;
pub(crate) mod input;
mod intake;
mod lists;
mod notices;
mod openapi;
pub(crate) mod problem;
pub(crate) mod server;
mod tokens;
mod upkeep;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use http::HeaderValue;
use oncegate_core::access::Right;
use oncegate_core::limits;
use oncegate_runner::gatekeeper::Gatekeeper;
use tokio::sync::Semaphore;

use crate::backups::Backups;
use crate::config::Source;
use crate::metrics::Metrics;
pub(crate) use finish::without_controls;
use health::Health;
pub(crate) use intake::identified;
use problem::Problem;
use tokens::KnownTokens;
use watch::RequestIds;

/// What every handler sees.
pub(crate) struct AppState {
    pub(crate) gate: Arc<Gatekeeper>,
    pub(crate) sources: HashMap<String, Source>,
    /// Where the URLs in answers point to, without a slash at the end.
    pub(crate) base_url: String,
    pub(crate) tokens: KnownTokens,
    pub(crate) backups: Arc<Backups>,
    /// Turns of large bodies, whose check and parsing take a core and memory.
    large_bodies: Arc<Semaphore>,
    pub(crate) health: Health,
    request_ids: RequestIds,
}

impl AppState {
    pub(crate) fn new(
        gate: Arc<Gatekeeper>,
        sources: HashMap<String, Source>,
        base_url: String,
        metrics: Arc<Metrics>,
        backups: Arc<Backups>,
    ) -> Self {
        let large_bodies = Arc::new(Semaphore::new(limits::LARGE_BODIES_AT_WORK_MAX));
        Self {
            gate,
            sources,
            base_url,
            tokens: KnownTokens::default(),
            backups,
            large_bodies,
            health: Health::new(metrics),
            request_ids: RequestIds::new(),
        }
    }
}

const WRONG_METHOD: &str =
    "this method does nothing here; the `Allow` header names the one that does, e.g. `curl -X POST`";

/// The store's clock, in every answer: ages are told by it, not by the reader's own clock.
async fn stamp(State(state): State<Arc<AppState>>, mut response: Response) -> Response {
    if let Ok(now) = HeaderValue::from_str(&state.gate.store().now().wall.to_string()) {
        response.headers_mut().insert("oncegate-time", now);
    }
    response
}

/// Every address this server answers at. The numbers of `/metrics` tell how much business there is, so they are for
/// everybody only if somebody said so.
pub(crate) fn router(state: Arc<AppState>, metrics_public: bool) -> Router {
    let with = |right| middleware::from_fn_with_state((Arc::clone(&state), right), auth::require);
    let metrics = match metrics_public {
        true => Router::new().route("/metrics", get(health::metrics)),
        false => Router::new().route("/metrics", get(health::metrics_for)).route_layer(with(Right::Read)),
    };
    let claiming = Router::new().route("/v1/claims", post(claims::claim)).route_layer(with(Right::Claim));
    let reading = Router::new()
        .route("/v1/claims", get(lists::claims))
        .route("/v1/claims/{id}", get(lists::claim))
        .route("/v1/inbox", get(lists::inbox))
        .route("/v1/rejected", get(lists::rejected))
        .route("/v1/rejected/{id}", get(lists::rejected_one))
        .route("/v1/audit", get(lists::audit))
        .route("/v1/notices", get(notices::list))
        .route("/v1/recovery", get(upkeep::recovery))
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
    let upkeep = Router::new()
        .route("/v1/backup", get(upkeep::backups).post(upkeep::back_up))
        .route("/v1/recovery/end", post(upkeep::end_recovery))
        .route_layer(with(Right::Administer));
    // These carry the claim's own token. GET and HEAD never act: link previews and browsers send them.
    let capability = Router::new()
        .route("/v1/claims/{id}/done", post(finish::done))
        .route("/v1/claims/{id}/error", post(finish::error))
        .route("/v1/claims/{id}/heartbeat", post(finish::heartbeat));
    Router::new()
        .merge(claiming)
        .merge(reading)
        .merge(acting)
        .merge(upkeep)
        .merge(capability)
        .merge(metrics)
        .route("/in/{source}", post(intake::deliver))
        .route("/openapi.json", get(openapi::openapi))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .method_not_allowed_fallback(async || Problem::method_not_allowed(WRONG_METHOD))
        .fallback(async || Problem::not_found("no page or call has this address"))
        .layer(middleware::map_response_with_state(Arc::clone(&state), stamp))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), watch::watch))
        .with_state(state)
}

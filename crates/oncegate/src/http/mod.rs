//! The HTTP way in: translates between requests and the gatekeeper, decides nothing.

mod acts;
mod answer;
pub(crate) mod api_tokens;
mod audit;
mod auth;
mod automations;
mod batch;
mod budget;
mod bulk;
mod claims;
mod connection;
mod doors;
mod dossier;
mod entry;
mod export;
mod failures;
mod filter;
mod finish;
mod forgetting;
pub(crate) mod form;
mod guards;
mod health;
pub(crate) mod input;
mod intake;
mod lines;
mod lists;
mod naming;
mod notices;
mod once;
mod openapi;
mod peer;
pub(crate) mod problem;
mod recents;
pub(crate) mod routes;
pub(crate) mod server;
mod sources;
mod steps;
mod tokens;
mod upkeep;
mod watch;
mod whole;
mod workspaces;

use std::sync::Arc;

use axum::Router;
use ipnet::IpNet;
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_runner::gatekeeper::Gatekeeper;
use oncegate_store::StoreError;
use tokio::sync::Semaphore;

use crate::backups::Backups;
use crate::metrics::Metrics;
pub(crate) use doors::Doors;
use entry::Entry;
use failures::Failures;
pub(crate) use finish::without_controls;
use health::Health;
use problem::Problem;
use tokens::KnownTokens;
use watch::RequestIds;

/// What every handler sees.
pub(crate) struct AppState {
    pub(crate) gate: Arc<Gatekeeper>,
    pub(crate) doors: Doors,
    /// Where the URLs in answers point to, without a slash at the end.
    pub(crate) base_url: String,
    /// Whose word on a caller's address is taken.
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// The number of the token that ONCEGATE_ADMIN_TOKEN brought.
    pub(crate) preset_token: Option<i64>,
    pub(crate) tokens: KnownTokens,
    /// `None` where the store makes its own.
    pub(crate) backups: Option<Arc<Backups>>,
    failures: Failures,
    /// Turns of large bodies, whose check and parsing take a core and memory.
    large_bodies: Arc<Semaphore>,
    pub(crate) health: Health,
    request_ids: RequestIds,
}

impl AppState {
    pub(crate) fn new(
        gate: Arc<Gatekeeper>,
        doors: Doors,
        base_url: String,
        trusted_proxies: Vec<IpNet>,
        preset_token: Option<i64>,
        metrics: Arc<Metrics>,
        backups: Option<Arc<Backups>>,
    ) -> Self {
        let large_bodies = Arc::new(Semaphore::new(limits::LARGE_BODIES_AT_WORK_MAX));
        let believed = gate.store().is_shared().then_some(limits::TOKEN_BELIEVED_FOR);
        let label = gate.store().secret().store_label();
        let (tokens, failures) = (KnownTokens::new(believed), Failures::default());
        Self {
            gate,
            doors,
            base_url,
            trusted_proxies,
            preset_token,
            tokens,
            backups,
            failures,
            large_bodies,
            health: Health::new(metrics, label),
            request_ids: RequestIds::new(),
        }
    }

    /// Writes down when tokens were last used, and the failed authentications that are an hour old, or all of them.
    ///
    /// # Errors
    /// The store's. What was to be written is lost then: it is not worth keeping the server's memory full of it.
    pub(crate) async fn write_uses(&self, all: bool) -> Result<(), StoreError> {
        let store = self.gate.store();
        let used = self.tokens.take_used();
        if !used.is_empty() {
            store.touch_tokens(used).await?;
        }
        let failed = self.failures.take(store.now().wall, all);
        if !failed.is_empty() {
            store.note_deeds(Workspace::DEFAULT, failed).await?;
        }
        Ok(())
    }
}

const WRONG_METHOD: &str =
    "this method does nothing here; the `Allow` header names the one that does, e.g. `curl -X POST`";

/// Answers at every address of the table. The numbers of `/metrics` tell how much business there is, so they are for
/// everybody only if somebody said so.
pub(crate) fn router(state: Arc<AppState>, metrics_public: bool) -> Router {
    let mut router = Router::new();
    for route in routes::routes(metrics_public) {
        router = router.route(route.path, route.handler);
    }
    router
        .method_not_allowed_fallback(Entry::of_none(async || Problem::method_not_allowed(WRONG_METHOD)))
        .fallback(Entry::of_none(async || Problem::not_found("no page or call has this address")))
        .with_state(state)
}

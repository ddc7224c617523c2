//! `/healthz`, `/readyz` and `/metrics`: for those who watch the gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use oncegate_core::key::Workspace;
use oncegate_core::limits;
use oncegate_runner::gatekeeper::Gatekeeper;
use oncegate_store::StoreError;
use oncegate_store::vitals::Vitals;
use serde_json::json;
use tokio::sync::Mutex;

use super::AppState;
use super::auth::Caller;
use super::problem::Problem;
use crate::backups::Backups;
use crate::metrics::{Metrics, error_kind};

/// What the pages about the gate itself remember from one look to the next.
pub(crate) struct Health {
    pub(crate) metrics: Arc<Metrics>,
    /// By which whoever asks from elsewhere knows whether they reached this gate or another.
    store: String,
    draining: AtomicBool,
    /// The last look at the store, and when it was on the monotonic clock. Who comes meanwhile waits for it: however
    /// many ask, one write is made.
    probed: Mutex<Option<(Duration, Result<(), &'static str>)>>,
    /// When the gauges were last read.
    read: Mutex<Option<Duration>>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>, store: String) -> Self {
        Self {
            metrics,
            store,
            draining: AtomicBool::new(false),
            probed: Mutex::default(),
            read: Mutex::default(),
        }
    }

    /// From now on the gate is not ready, though it still answers.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why the gate should get no requests; empty if it should.
    async fn reasons(&self, gate: &Gatekeeper) -> Vec<&'static str> {
        let mut reasons = vec![];
        if self.draining.load(Ordering::Relaxed) {
            reasons.push("draining");
        }
        reasons.extend(self.probe(gate).await.err());
        self.metrics.found_ready(reasons.is_empty());
        reasons
    }

    async fn probe(&self, gate: &Gatekeeper) -> Result<(), &'static str> {
        let mut last = self.probed.lock().await;
        let now = gate.clock().read().monotonic;
        if let Some((_, found)) = last.filter(|(at, _)| now.saturating_sub(*at) < limits::READY_LOOKED_AT_FOR)
        {
            return found;
        }
        let found = match tokio::time::timeout(limits::READY_WRITE_MAX, gate.store().probe()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err("store_slow"),
        };
        if let (Err(reason), true) = (found, last.is_none_or(|(_, before)| before.is_ok())) {
            tracing::warn!(reason, "not ready");
        }
        *last = Some((gate.clock().read().monotonic, found));
        found
    }

    async fn text(&self, gate: &Gatekeeper, backups: Option<&Backups>) -> String {
        let mut read = self.read.lock().await;
        let now = gate.clock().read().monotonic;
        if read.is_none_or(|at| now.saturating_sub(at) >= limits::VITALS_LOOKED_AT_FOR) {
            let vitals = gate.store().vitals().await;
            self.metrics.found_up(vitals.is_ok());
            match vitals {
                // Wherever they lie, and only those that were found to be whole.
                Ok(vitals) => {
                    let backed_up_at = backups.and_then(|backups| backups.standing().last_success_at);
                    self.metrics.show(&Vitals { backed_up_at, ..vitals });
                }
                // What was counted is of use all the same.
                Err(error) => tracing::error!(%error, "could not read how the store is doing"),
            }
            *read = Some(now);
        }
        self.metrics.at_work(gate.at_work());
        self.metrics.targets(gate.targets());
        self.metrics.text()
    }
}

/// Why a write could not be made, as `/readyz` says it.
fn reason(error: &StoreError) -> &'static str {
    match error_kind(error) {
        "full" => "store_full",
        "busy" => "store_busy",
        "closed" => "store_closed",
        "inconsistent" => "store_inconsistent",
        _ => "store_failed",
    }
}

/// The process lives. Says nothing about the store: a full disk is not mended by a restart.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// The gate takes requests: a write reaches the disk in time, and it is not about to stop.
pub(crate) async fn readyz(State(state): State<Arc<AppState>>) -> Response {
    let reasons = state.health.reasons(&state.gate).await;
    let (status, word) = match reasons.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    let body = format!("{}\n", json!({ "status": word, "reasons": reasons, "store": state.health.store }));
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Everything that is counted, for a token that may see all of the server.
pub(crate) async fn metrics_for(state: State<Arc<AppState>>, caller: Caller) -> Result<Response, Problem> {
    caller.may_touch_all()?;
    if caller.workspace != Workspace::DEFAULT {
        return Err(Problem::forbidden(
            "the numbers are those of all workspaces; use a token of the workspace `default`",
        ));
    }
    Ok(metrics(state).await)
}

/// The same, for everybody.
pub(crate) async fn metrics(State(state): State<Arc<AppState>>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut response = state.health.text(&state.gate, state.backups.as_deref()).await.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

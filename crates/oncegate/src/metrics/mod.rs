//! What the gate counts for those who watch it, in the text format of Prometheus (OpenMetrics). Each name is explained
//! in docs/metrics.md. No label holds what a user wrote.

mod registry;
mod vitals;

use std::borrow::Cow;
use std::time::Duration;

use oncegate_store::StoreError;
use oncegate_store::observer::{Happened, Observer};

pub(crate) use registry::Metrics;
pub use registry::NAMES;

/// One answer to a request.
pub(crate) struct Answered {
    /// The route's template, e.g. `/v1/claims/{id}`; `other` if none has this address.
    pub(crate) route: Cow<'static, str>,
    pub(crate) method: &'static str,
    pub(crate) status: u16,
    /// The code of the problem document, if it is one.
    pub(crate) refused: Option<&'static str>,
    pub(crate) took: Duration,
}

impl Metrics {
    pub(crate) fn answered(&self, one: &Answered) {
        let class = match one.status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        let route = || one.route.clone();
        let labels = [("route", route()), ("method", one.method.into()), ("status", class.into())];
        self.http_requests.get_or_create(&labels).inc();
        self.http_duration.get_or_create(&[("route", route())]).observe(one.took.as_secs_f64());
        if let Some(code) = one.refused {
            self.http_refused.get_or_create(&[("code", code)]).inc();
        }
    }
}

impl Observer for Metrics {
    fn happened(&self, what: Happened) {
        match what {
            Happened::Decided { decision, reason, asked_by } => {
                let labels = [("decision", decision), ("reason", reason), ("asked_by", asked_by)];
                self.decisions.get_or_create(&labels).inc();
            }
            Happened::Finished { call, answer } => {
                self.finishes.get_or_create(&[("call", call), ("answer", answer)]).inc();
            }
            Happened::Acted(act) => {
                self.acts.get_or_create(&[("act", act)]).inc();
            }
            Happened::Delivered(verdict) => {
                self.deliveries.get_or_create(&[("verdict", verdict)]).inc();
            }
            Happened::StepEnded(outcome) => {
                self.step_calls.get_or_create(&[("outcome", outcome)]).inc();
            }
            Happened::Reaped(kind, rows) => {
                self.reaped.get_or_create(&[("kind", kind)]).inc_by(rows);
            }
            Happened::SetBack(by) => {
                self.clock_set_back.inc_by(by.as_secs_f64());
            }
        }
    }

    fn committed(&self, calls: usize, took: Duration) {
        self.commit_duration.observe(took.as_secs_f64());
        self.commit_calls.observe(calls as f64);
    }

    fn failed(&self, error: &StoreError) {
        self.store_errors.get_or_create(&[("kind", error_kind(error))]).inc();
    }
}

/// The word for a fault of the store, in metrics and in `/readyz`.
pub(crate) fn error_kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Full(_) => "full",
        StoreError::Busy => "busy",
        StoreError::Closed => "closed",
        StoreError::Inconsistent(_) => "inconsistent",
        StoreError::Away(_) => "away",
        StoreError::Unsure(_) => "unsure",
        StoreError::Refused(_) => "refused",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_one_metric_are_those_of_its_page_and_of_no_user() {
        let metrics = Metrics::new();
        metrics.answered(&Answered {
            route: "/v1/claims/{id}".into(),
            method: "GET",
            status: 404,
            refused: Some("not_found"),
            took: Duration::from_millis(3),
        });
        metrics.committed(2, Duration::from_micros(700));
        metrics.failed(&StoreError::Full("database or disk is full".into()));
        let text = metrics.text();
        for line in [
            r#"oncegate_http_requests_total{route="/v1/claims/{id}",method="GET",status="4xx"} 1"#,
            r#"oncegate_http_refused_total{code="not_found"} 1"#,
            r#"oncegate_http_request_duration_seconds_bucket{le="0.005",route="/v1/claims/{id}"} 1"#,
            r#"oncegate_store_errors_total{kind="full"} 1"#,
            r#"oncegate_store_errors_total{kind="busy"} 0"#,
            "oncegate_store_commit_calls_sum 2.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}

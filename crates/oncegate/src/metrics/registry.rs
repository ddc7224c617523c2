//! The names: one line each. `NAMES` is what docs/metrics.md is compared to.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use oncegate_core::webhook::Aside;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Labels of ours.
type Words<const N: usize> = [(&'static str, &'static str); N];
/// Labels with the templates of routes, which live in the router.
type Texts<const N: usize> = [(&'static str, Cow<'static, str>); N];
type Counts<const N: usize> = Family<Words<N>, Counter>;
/// Or not a number, where they cannot be known.
type Bytes = Gauge<f64, AtomicU64>;
type Seconds = Gauge<f64, AtomicU64>;
type Routes = Family<Texts<1>, Histogram, fn() -> Histogram>;

macro_rules! metrics {
    ($($field:ident: $ty:ty = $make:expr, $name:literal $(+ $total:literal)?, $help:literal;)+) => {
        /// Everything that is counted.
        pub(crate) struct Metrics {
            $(#[doc = $help] pub(super) $field: $ty,)+
            registry: Registry,
        }

        /// Every name that is served, as a scraper stores it.
        pub const NAMES: &[&str] = &[
            "oncegate_build_info",
            $(concat!($name $(, $total)?)),+
        ];

        impl Metrics {
            /// All at zero.
            pub(crate) fn new() -> Self {
                let mut registry = Registry::default();
                $(let $field: $ty = $make; registry.register($name, $help, $field.clone());)+
                registry.register("oncegate_build", "The version that runs", build());
                let metrics = Self { $($field,)+ registry };
                metrics.begin();
                metrics
            }
        }
    };
}

metrics! {
    decisions: Counts<3> = Family::default(), "oncegate_decisions" + "_total",
        "Decisions about claims, once committed";
    finishes: Counts<2> = Family::default(), "oncegate_finish_calls" + "_total",
        "What holders said about their attempts, and what was answered";
    acts: Counts<1> = Family::default(), "oncegate_acts" + "_total",
        "What people did to claims";
    deliveries: Counts<1> = Family::default(), "oncegate_deliveries" + "_total",
        "Events of webhook sources by what became of them";
    step_calls: Counts<1> = Family::default(), "oncegate_step_calls" + "_total",
        "Calls of steps by what is known of their effect";
    reaped: Counts<1> = Family::default(), "oncegate_reaped_rows" + "_total",
        "Rows forgotten because their retention ended";
    clock_set_back: Counter<f64, AtomicU64> = Counter::default(), "oncegate_clock_set_back_seconds" + "_total",
        "By how much the wall clock was set back";
    store_errors: Counts<1> = Family::default(), "oncegate_store_errors" + "_total",
        "Writes that failed and were undone";
    commit_duration: Histogram = Histogram::new(exponential_buckets(0.000_1, 2.0, 16)), "oncegate_store_commit_duration_seconds",
        "Time of a transaction from its begin until it was synced to disk";
    commit_calls: Histogram = Histogram::new(exponential_buckets(1.0, 2.0, 9)), "oncegate_store_commit_calls",
        "Calls written by one transaction";
    http_requests: Family<Texts<3>, Counter> = Family::default(), "oncegate_http_requests" + "_total",
        "Requests answered";
    http_duration: Routes = Family::new_with_constructor(per_route), "oncegate_http_request_duration_seconds",
        "Time from a request's head to its answer, waiting included";
    http_refused: Counts<1> = Family::default(), "oncegate_http_refused" + "_total",
        "Requests answered with a problem document";
    inbox: Family<Words<1>, Gauge> = Family::default(), "oncegate_inbox_claims",
        "What needs a person, by list";
    inbox_age: Family<Words<1>, Seconds> = Family::default(), "oncegate_inbox_oldest_age_seconds",
        "How long the oldest of a list has stood there";
    runner_at_work: Gauge = Gauge::default(), "oncegate_runner_at_work_claims",
        "Claims that the runner works on at this moment";
    targets_down: Gauge = Gauge::default(), "oncegate_targets_down",
        "Targets whose breaker is open";
    held_back: Counts<1> = Family::default(), "oncegate_calls_held_back" + "_total",
        "Calls that had to wait for their target";
    due: Gauge = Gauge::default(), "oncegate_due_claims",
        "Claims that wait for the runner and are due";
    due_age: Seconds = Gauge::default(), "oncegate_due_oldest_age_seconds",
        "How long the oldest of them has been due";
    database_bytes: Gauge = Gauge::default(), "oncegate_store_database_bytes",
        "Size of the database";
    wal_bytes: Bytes = Gauge::default(), "oncegate_store_wal_bytes",
        "Size of the write-ahead log; NaN if it is a database server's";
    free_bytes: Bytes = Gauge::default(), "oncegate_store_disk_free_bytes",
        "Room left on the disk of the data directory; NaN if it is a database server's";
    tick_age: Seconds = Gauge::default(), "oncegate_tick_age_seconds",
        "Time since the store last carried its clocks on";
    clock_doubtful: Gauge = Gauge::default(), "oncegate_clock_doubtful",
        "1 while the wall clock has leapt forward lately, so that nothing is forgotten";
    backup_at: Seconds = Gauge::default(), "oncegate_backup_last_success_timestamp_seconds",
        "When the newest backup was finished; 0 if there is none";
    store_up: Gauge = Gauge::default(), "oncegate_store_up",
        "1 if the store could be read for this answer; if not, the gauges are those of the last time";
    ready: Gauge = Gauge::default(), "oncegate_ready",
        "1 if the last look of /readyz found nothing";
    started_at: Seconds = Gauge::default(), "oncegate_start_time_seconds",
        "When this process started";
}

fn build() -> Info<Words<1>> {
    Info::new([("version", env!("CARGO_PKG_VERSION"))])
}

/// From a millisecond to what a call may wait.
fn per_route() -> Histogram {
    Histogram::new([0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Metrics {
    /// What an alert looks for is there before it happens for the first time: a rise from nothing is not seen.
    fn begin(&self) {
        // Until somebody looks: nothing is wrong that is known.
        self.ready.set(1);
        for outcome in ["succeeded", "failed", "unknown"] {
            self.step_calls.get_or_create(&[("outcome", outcome)]).inc_by(0);
        }
        let aside = Aside::ALL.map(Aside::as_str);
        for verdict in
            ["accepted", "duplicate", "mismatch", "rejected", "unverified"].into_iter().chain(aside)
        {
            self.deliveries.get_or_create(&[("verdict", verdict)]).inc_by(0);
        }
        for kind in ["full", "busy", "closed", "inconsistent", "failed"] {
            self.store_errors.get_or_create(&[("kind", kind)]).inc_by(0);
        }
    }

    /// In the text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

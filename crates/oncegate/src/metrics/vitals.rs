//! Sets the gauges.

use oncegate_core::time::Timestamp;
use oncegate_runner::targets::Targets;
use oncegate_store::vitals::Vitals;

use super::Metrics;

impl Metrics {
    pub(crate) fn started(&self, at: Timestamp) {
        self.started_at.set(seconds(at));
    }

    pub(crate) fn found_ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    pub(crate) fn found_up(&self, up: bool) {
        self.store_up.set(i64::from(up));
    }

    pub(crate) fn at_work(&self, claims: usize) {
        self.runner_at_work.set(i64::try_from(claims).unwrap_or(i64::MAX));
    }

    pub(crate) fn targets(&self, targets: &Targets) {
        self.targets_down.set(i64::try_from(targets.down()).unwrap_or(i64::MAX));
        for (why, count) in Targets::REASONS.into_iter().zip(targets.held_back()) {
            let counter = self.held_back.get_or_create(&[("why", why)]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    pub(crate) fn show(&self, vitals: &Vitals) {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for standing in &vitals.inbox {
            let labels = [("list", standing.list.as_str())];
            self.inbox.get_or_create(&labels).set(whole(standing.count));
            self.inbox_age.get_or_create(&labels).set(vitals.age(standing.since).as_secs_f64());
        }
        self.due.set(whole(vitals.due));
        self.due_age.set(vitals.age(vitals.due_since).as_secs_f64());
        self.database_bytes.set(whole(vitals.database_bytes));
        self.wal_bytes.set(known(vitals.wal_bytes));
        self.free_bytes.set(known(vitals.free_bytes));
        self.tick_age.set(vitals.age(vitals.ticked_at).as_secs_f64());
        self.clock_doubtful.set(i64::from(vitals.clock_is_doubtful));
        self.backup_at.set(vitals.backed_up_at.map_or(0.0, seconds));
    }
}

/// A zero would say that the disk is full, and wake somebody.
fn known(bytes: Option<u64>) -> f64 {
    bytes.map_or(f64::NAN, |bytes| bytes as f64)
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1000.0
}

//! Places where a test kills this very process, between each two commits of an event's way.
//!
//! In a release build they are nothing. In a debug build `ONCEGATE_FAILPOINT=name@n` sends this process SIGKILL
//! when it reaches the named place for the n-th time, as a power cut or an out-of-memory kill would.

/// Every place, in the order in which one webhook passes them.
pub const PLACES: [&str; 12] = [
    "admit.before_commit",
    "admit.committed",
    "admit.acknowledging",
    "run.before_commit",
    "run.committed",
    "step.before_commit",
    "step.written",
    "step.answered",
    "answer.before_commit",
    "answer.committed",
    "done.before_commit",
    "done.committed",
];

/// Around each part of an act on many claims.
pub const BULK_PLACES: [&str; 2] = ["bulk.before_commit", "bulk.committed"];

/// Dies here if the environment says so.
#[cfg(debug_assertions)]
pub fn hit(place: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);

    debug_assert!(PLACES.contains(&place) || BULK_PLACES.contains(&place), "{place} is not listed");
    let armed = ARMED.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a test's own switch, absent from release builds")]
        let setting = std::env::var("ONCEGATE_FAILPOINT").ok()?;
        let (name, nth) = setting.split_once('@').unwrap_or((&setting, "1"));
        Some((name.to_owned(), nth.parse().unwrap_or(1)))
    });
    if let Some((name, nth)) = armed
        && name == place
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // SIGKILL is on its way; nothing more may happen on this thread.
        loop {
            std::thread::park();
        }
    }
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
pub fn hit(_place: &'static str) {}

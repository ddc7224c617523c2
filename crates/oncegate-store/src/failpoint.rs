//! Places where a test kills this very process, between each two commits of an event's way, or has it stand still.
//!
//! In a release build they are nothing. In a debug build `ONCEGATE_FAILPOINT=name@n` sends this process SIGKILL
//! when it reaches the named place for the n-th time, as a power cut or an out-of-memory kill would;
//! `ONCEGATE_FAILPOINT=name@n:stop` sends it SIGSTOP, as if its machine was suspended, until somebody sends SIGCONT.

/// Every place, in the order in which one webhook passes them; `look.` is on the way of a call that is looked for,
/// `each.` between the items of a list, `defer.` and `error.` where an attempt ends and another one is due.
pub const PLACES: [&str; 19] = [
    "admit.before_commit",
    "admit.committed",
    "admit.acknowledging",
    "run.before_commit",
    "run.committed",
    "look.sending",
    "look.answered",
    "step.before_commit",
    "step.written",
    "step.answered",
    "answer.before_commit",
    "answer.committed",
    "each.item_done",
    "defer.before_commit",
    "defer.committed",
    "error.before_commit",
    "error.committed",
    "done.before_commit",
    "done.committed",
];

/// Around each part of an act on many claims.
pub const BULK_PLACES: [&str; 2] = ["bulk.before_commit", "bulk.committed"];

/// Where it matters how long a process stood still: what is to be sent is written down, and nothing is sent yet.
pub const SENDING: &str = "step.sending";

/// Dies, or stands still, here if the environment says so.
#[cfg(debug_assertions)]
pub fn hit(place: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: OnceLock<Option<(String, u64, bool)>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);

    debug_assert!(
        PLACES.contains(&place) || BULK_PLACES.contains(&place) || place == SENDING,
        "{place} is not listed"
    );
    let armed = ARMED.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a test's own switch, absent from release builds")]
        let setting = std::env::var("ONCEGATE_FAILPOINT").ok()?;
        let (name, nth) = setting.split_once('@').unwrap_or((&setting, "1"));
        let (nth, stops) = nth.strip_suffix(":stop").map_or((nth, false), |nth| (nth, true));
        Some((name.to_owned(), nth.parse().unwrap_or(1), stops))
    });
    if let Some((name, nth, stops)) = armed
        && name == place
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        if *stops {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
            // It may reach another thread first; this one must not go on before all stand still.
            std::thread::sleep(std::time::Duration::from_millis(200));
            return;
        }
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

//! The only file that reads time, and the clock tests turn by hand.

use std::sync::Mutex;
use std::time::Duration;

use oncegate_core::limits::CLOCK_SLACK;
use oncegate_core::time::{LeaseInstant, Now, Tick, Timestamp};
use tokio::sync::watch;

/// One reading of a machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock.
    pub wall: Timestamp,
    /// A clock that only goes forward, from an arbitrary start.
    pub monotonic: Duration,
}

/// Where a node's time comes from.
#[async_trait::async_trait]
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Reads both clocks.
    fn read(&self) -> Reading;

    /// Waits until about `d` has passed on the monotonic clock; may return early.
    async fn sleep(&self, d: Duration);
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Starts the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "this file is where time comes in")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait::async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this file is where time comes in")]
    fn read(&self) -> Reading {
        let since_epoch = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Reading { wall: Timestamp::from_millis(since_epoch), monotonic: self.start.elapsed() }
    }

    async fn sleep(&self, d: Duration) {
        tokio::time::sleep(d).await;
    }
}

/// A clock that moves only when told to: for tests, drills and simulations.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Reading>,
}

impl ManualClock {
    /// Stands at `wall`.
    pub fn at(wall: Timestamp) -> Self {
        Self { now: watch::Sender::new(Reading { wall, monotonic: Duration::from_secs(1_000_000) }) }
    }

    /// Time passes: both clocks go on.
    pub fn advance(&self, d: Duration) {
        self.now.send_modify(|r| {
            r.wall = r.wall.after(d);
            r.monotonic += d;
        });
    }

    /// Somebody sets the wall clock; no time passes.
    pub fn set_wall(&self, wall: Timestamp) {
        self.now.send_modify(|r| r.wall = wall);
    }
}

#[async_trait::async_trait]
impl Clock for ManualClock {
    fn read(&self) -> Reading {
        *self.now.borrow()
    }

    async fn sleep(&self, d: Duration) {
        let mut changes = self.now.subscribe();
        let until = changes.borrow_and_update().monotonic + d;
        // The sender lives in `self`, so this only ends when the time has come.
        let _ = changes.wait_for(|r| r.monotonic >= until).await;
    }
}

/// The lease clock of one store, carried from tick to tick ([`Tick`]).
#[derive(Debug)]
pub struct LeaseClock {
    anchor: Mutex<Anchor>,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    tick: Tick,
    at: Reading,
    /// By how much the wall clock was set back since that was last written down.
    set_back: Duration,
    /// Until when, on the monotonic clock, the wall clock's word is not enough to forget anything.
    doubtful_until: Option<Duration>,
}

/// A wall clock that moved forward by more than time did, by more than this, may be wrong by years.
const LEAP: Duration = Duration::from_secs(86_400);
/// How long it must have kept its word before it is believed: long enough for a person, or NTP, to mend it.
const PROBATION: Duration = Duration::from_secs(6 * 3600);

impl Anchor {
    fn leapt(&self, reading: Reading) -> bool {
        let elapsed = reading.monotonic.saturating_sub(self.at.monotonic);
        reading.wall.since(self.at.wall.after(elapsed)) > LEAP
    }
}

/// What a tick found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// The lease clock; what the store writes down.
    pub lease: LeaseInstant,
    /// By how much somebody set the wall clock back since the last settled tick; zero below the slack of a clock
    /// that is merely disciplined.
    pub set_back: Duration,
}

impl LeaseClock {
    /// Goes on from what the store last wrote down: the time in between did not count.
    pub fn resume(lease: LeaseInstant, reading: Reading, last_wall: Option<Timestamp>) -> Self {
        // A machine that was off for a week looks like a clock that is wrong by one; forgetting can wait.
        let leapt = last_wall.is_some_and(|last| reading.wall.since(last) > LEAP);
        let doubtful_until = leapt.then(|| reading.monotonic + PROBATION);
        let anchor = Anchor { tick: Tick { lease }, at: reading, set_back: Duration::ZERO, doubtful_until };
        Self { anchor: Mutex::new(anchor) }
    }

    /// Whether the wall clock has leapt forward lately: what is remembered is not forgotten on its word.
    pub fn is_doubtful(&self, reading: Reading) -> bool {
        let anchor = *self.lock();
        anchor.doubtful_until.is_some_and(|until| reading.monotonic < until) || anchor.leapt(reading)
    }

    /// Both clocks at one moment.
    pub fn now(&self, reading: Reading) -> Now {
        let anchor = *self.lock();
        let elapsed = reading.monotonic.saturating_sub(anchor.at.monotonic);
        Now { wall: reading.wall, lease: anchor.tick.lease_after(elapsed) }
    }

    /// Ticks.
    pub fn tick(&self, reading: Reading) -> Ticked {
        let mut anchor = self.lock();
        let elapsed = reading.monotonic.saturating_sub(anchor.at.monotonic);
        let lease = anchor.tick.lease_after(elapsed);
        let back = anchor.at.wall.after(elapsed).since(reading.wall);
        let back = if back > CLOCK_SLACK { back } else { Duration::ZERO };
        let set_back = anchor.set_back + back;
        let doubtful_until = match anchor.leapt(reading) {
            true => Some(reading.monotonic + PROBATION),
            false => anchor.doubtful_until,
        };
        *anchor = Anchor { tick: Tick { lease }, at: reading, set_back, doubtful_until };
        Ticked { lease, set_back }
    }

    /// What the last tick found set back has been written down.
    pub fn settle(&self, set_back: Duration) {
        let mut anchor = self.lock();
        anchor.set_back = anchor.set_back.saturating_sub(set_back);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Anchor> {
        // The guarded value is replaced in one assignment, so a panic cannot leave it half written.
        self.anchor.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_does_not_age_leases_and_a_set_clock_does_not_either() {
        let clock = ManualClock::at(Timestamp::from_secs(0));
        let lease = LeaseClock::resume(LeaseInstant(7_000), clock.read(), None);
        clock.advance(Duration::from_secs(4));
        assert_eq!(lease.now(clock.read()).lease, LeaseInstant(11_000));
        assert_eq!(
            lease.tick(clock.read()),
            Ticked { lease: LeaseInstant(11_000), set_back: Duration::ZERO }
        );
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(
            lease.now(clock.read()).lease,
            LeaseInstant(21_000),
            "an hour without a tick counts as 10 s"
        );
        lease.tick(clock.read());
        clock.set_wall(Timestamp::from_secs(3_604 - 86_400));
        assert_eq!(lease.now(clock.read()).lease, LeaseInstant(21_000));
        let day = Duration::from_secs(86_400);
        assert_eq!(lease.tick(clock.read()).set_back, day);
        assert_eq!(lease.tick(clock.read()).set_back, day, "owed until it is written down");
        lease.settle(day);
        assert!(!lease.is_doubtful(clock.read()));
        clock.set_wall(Timestamp::from_secs(3_604 + 86_400));
        assert!(lease.is_doubtful(clock.read()), "at once, and for some hours of time that really passes");
        lease.tick(clock.read());
        clock.advance(PROBATION - Duration::from_secs(1));
        assert!(lease.is_doubtful(clock.read()));
        clock.advance(Duration::from_secs(1));
        assert!(!lease.is_doubtful(clock.read()));
        clock.set_wall(Timestamp::from_secs(3_604 - 86_400));
        let set_back = lease.tick(clock.read()).set_back;
        assert!(set_back > day);
        lease.settle(set_back);
        assert_eq!(lease.tick(clock.read()).set_back, Duration::ZERO);
    }
}

//! Time in a cluster: the database's, and no node's.
//!
//! Leases age by the lease clock, which all nodes carry on together in the table `clock`: each tick adds what passed
//! since the last one, by whichever node, up to two intervals (DESIGN §3, "Time"). Between ticks a node adds what has
//! passed since the tick it knows of; as long as that is less than two intervals, every node gets the same reading,
//! whatever its own clocks say.
//!
//! A node's monotonic clock is a witness and no more: where the database's clock moved by much more, or less, than
//! passed for the node that ticks, somebody has set it, and what it shows is not what passed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate_core::limits::CLOCK_SLACK;
use oncegate_core::time::{LeaseInstant, Now, Tick, Timestamp, millis};

/// A wall clock that moved forward by more than this between two ticks may be wrong by years.
const LEAP_MS: i64 = 86_400_000;
/// How long such a clock must have kept its word before it is believed: enough for a person, or NTP, to mend it.
pub(super) const PROBATION_MS: i64 = 6 * 3_600_000;

/// How much of the time between two ticks counts.
pub(super) const COUNTS_MS: i64 = 2 * Tick::INTERVAL.as_millis() as i64;

/// What a statement says the time is, in milliseconds since 1970.
pub(super) const WALL_SQL: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The row of `clock`, as it was at the last tick that this node knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) lease: i64,
    pub(super) wall: i64,
    pub(super) doubtful_until: i64,
}

/// A node's view of the cluster's clock.
#[derive(Debug)]
pub(super) struct ClusterClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    anchor: Anchor,
    /// The database's last word on the time, and when the node heard it on its own monotonic clock.
    heard: (i64, Duration),
    /// The same, of this node's last tick.
    witness: (i64, Duration),
}

impl ClusterClock {
    pub(super) fn new(anchor: Anchor, wall: i64, monotonic: Duration) -> Self {
        Self { state: Mutex::new(State { anchor, heard: (wall, monotonic), witness: (wall, monotonic) }) }
    }

    /// Both clocks at a moment that the database named. `None`: the anchor is too old, or the database's clock was set
    /// back behind it; the row of `clock` has to be read, or ticked, first.
    pub(super) fn at(&self, wall: i64, monotonic: Duration) -> Option<Now> {
        let mut state = self.lock();
        state.heard = (wall, monotonic);
        let passed = wall - state.anchor.wall;
        (-millis(CLOCK_SLACK)..=COUNTS_MS).contains(&passed).then(|| reading(state.anchor, wall))
    }

    /// Both clocks as they should stand now, for what needs no better: how long to sleep, which age to show. `wall` is
    /// what stands in for the database's clock, if something does; what a tick would say is said before it.
    pub(super) fn estimate(&self, wall: Option<i64>, monotonic: Duration) -> Now {
        let state = self.lock();
        let passed = |(then, at): (i64, Duration)| then + millis(monotonic.saturating_sub(at));
        let (wall, expected) = (wall.unwrap_or_else(|| passed(state.heard)), passed(state.witness));
        let makes_sense = (0..=COUNTS_MS).contains(&(wall - state.anchor.wall));
        let believed = if makes_sense { wall } else { expected };
        Now { wall: Timestamp::from_millis(wall), lease: reading(state.anchor, believed).lease }
    }

    /// Takes over a tick that this node made.
    pub(super) fn anchor(&self, anchor: Anchor, monotonic: Duration) {
        let mut state = self.lock();
        (state.anchor, state.heard) = (anchor, (anchor.wall, monotonic));
        state.witness = state.heard;
    }

    /// What the database's clock should show, going by what has passed for this node since it ticked last.
    pub(super) fn expected(&self, monotonic: Duration) -> i64 {
        let (wall, at) = self.lock().witness;
        wall + millis(monotonic.saturating_sub(at))
    }

    /// Whether the wall clock has leapt forward lately: what is remembered is not forgotten on its word.
    pub(super) fn is_doubtful(&self, now: Now) -> bool {
        now.wall.as_millis() < self.lock().anchor.doubtful_until
    }

    /// The tick that this node goes by.
    pub(super) fn anchored(&self) -> Anchor {
        self.lock().anchor
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Replaced field by field with plain numbers: a panic cannot leave it half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reading(anchor: Anchor, wall: i64) -> Now {
    let lease = LeaseInstant(anchor.lease + (wall - anchor.wall).clamp(0, COUNTS_MS));
    Now { wall: Timestamp::from_millis(wall), lease }
}

/// The tick: one statement, whose row every node adds to in turn. `$1` is the time, if it is not the database's; `$2`
/// what the node that ticks expects it to be, if it has ticked before. It read the time before it came to hold the row:
/// a tick that had to wait for another's must not move `wall` back, or what passed in between would count twice. And
/// what it expects is only asked where the row alone makes no sense: another may have told of a clock that was set.
pub(super) fn tick_sql() -> String {
    let slack = millis(CLOCK_SLACK);
    format!(
        "WITH d AS (SELECT coalesce($1::bigint, {WALL_SQL}) AS ms), \
         t AS (SELECT ms, coalesce($2::bigint, ms) AS expected FROM d) \
         UPDATE clock SET \
         lease = lease + CASE WHEN t.ms - wall BETWEEN 0 AND {COUNTS_MS} THEN t.ms - wall \
         ELSE LEAST(GREATEST(t.expected - wall, 0), {COUNTS_MS}) END, \
         wall = CASE WHEN wall - t.ms > {slack} THEN t.ms ELSE GREATEST(wall, t.ms) END, \
         set_back = set_back + CASE WHEN wall - t.ms > {slack} THEN GREATEST(t.expected, wall) - t.ms ELSE 0 END, \
         doubtful_until = CASE WHEN t.ms - GREATEST($2::bigint, wall) > {LEAP_MS} THEN t.ms + {PROBATION_MS} \
         WHEN wall - t.ms > {slack} THEN 0 ELSE doubtful_until END \
         FROM t WHERE id = 1 RETURNING lease, wall, set_back, doubtful_until"
    )
}

/// At the start of the first node: what passed while none ran does not count. A clock that leapt, or was set back,
/// meanwhile is told by the tick after it.
pub(super) const WAKE: &str = "UPDATE clock SET wall = $1 WHERE id = 1 AND $1 - wall BETWEEN 0 AND 86400000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_an_old_anchor_asks_before_it_judges() {
        let anchor = Anchor { lease: 1_000, wall: 50_000, doubtful_until: 0 };
        let clock = ClusterClock::new(anchor, 50_000, Duration::ZERO);
        let at = |wall| clock.at(wall, Duration::ZERO).map(|now| now.lease.0);
        assert_eq!(at(53_000), Some(4_000));
        assert_eq!(at(60_000), Some(11_000));
        assert_eq!(at(60_001), None, "others may have ticked meanwhile");
        assert_eq!(at(49_000), Some(1_000), "a clock that is merely disciplined");
        assert_eq!(at(-20_000), None, "set back");
    }
}

//! The breaker of one target: after so many failures one after another nothing is sent for a while, then one call is
//! tried. Pure: `now` is a monotonic clock's.

use std::time::Duration;

/// When a breaker opens, and how long it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures one after another that open it; at least 1.
    pub failures: u32,
    /// How long nothing is sent after it opened.
    pub pause: Duration,
    /// How long at most: the pause doubles with each call that was tried in vain.
    pub pause_max: Duration,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(30), pause_max: Duration::from_secs(5 * 60) }
    }
}

/// What a call told of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answered, whatever it thought of the request.
    Up,
    /// It did not answer, or said that it cannot.
    Down,
    /// Nothing: the request was not sent, or nobody waited for its answer.
    Untold,
}

/// What became of a breaker, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It opened.
    Opened {
        /// For how long.
        pause: Duration,
    },
    /// A call was tried, and the target is still down.
    StaysOpen {
        /// How long until the next one is.
        pause: Duration,
    },
    /// The target is back.
    Closed {
        /// How long it was away.
        after: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { since: Duration, until: Duration, pause: Duration },
    Probing { since: Duration, pause: Duration },
}

/// Whether a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Any may.
    Free,
    /// One may, to try.
    Probe { since: Duration },
    /// None may before so long.
    Shut { since: Duration, wait: Duration },
    /// One is being tried.
    Trying { since: Duration },
}

/// Where the breaker of one target stands.
#[derive(Clone, Debug)]
pub(super) struct Breaker(State);

impl Breaker {
    pub(super) const fn new() -> Self {
        Self(State::Closed { failures: 0 })
    }

    /// Whether it has nothing to remember.
    pub(super) fn is_fresh(&self) -> bool {
        self.0 == State::Closed { failures: 0 }
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.0, State::Closed { .. })
    }

    pub(super) fn door(&self, now: Duration) -> Door {
        match self.0 {
            State::Closed { .. } => Door::Free,
            State::Open { since, until, .. } if now < until => Door::Shut { since, wait: until - now },
            State::Open { since, .. } => Door::Probe { since },
            State::Probing { since, .. } => Door::Trying { since },
        }
    }

    /// A call goes; whether it is the one that is tried.
    pub(super) fn pass(&mut self) -> bool {
        match self.0 {
            State::Open { since, pause, .. } => {
                self.0 = State::Probing { since, pause };
                true
            }
            State::Closed { .. } | State::Probing { .. } => false,
        }
    }

    /// A call ended. Of one that went before it opened, only the failures that open it count.
    pub(super) fn end(
        &mut self,
        is_probe: bool,
        standing: Standing,
        rules: &BreakerRules,
        now: Duration,
    ) -> Option<Change> {
        let (state, change) = match (self.0, standing) {
            (State::Closed { .. }, Standing::Up) => (State::Closed { failures: 0 }, None),
            (State::Closed { failures }, Standing::Down) if failures + 1 >= rules.failures => {
                let pause = rules.pause;
                (State::Open { since: now, until: now + pause, pause }, Some(Change::Opened { pause }))
            }
            (State::Closed { failures }, Standing::Down) => (State::Closed { failures: failures + 1 }, None),
            (State::Probing { since, .. }, Standing::Up) if is_probe => {
                (State::Closed { failures: 0 }, Some(Change::Closed { after: now.saturating_sub(since) }))
            }
            (State::Probing { since, pause }, Standing::Down) if is_probe => {
                let pause = pause.saturating_mul(2).min(rules.pause_max);
                (State::Open { since, until: now + pause, pause }, Some(Change::StaysOpen { pause }))
            }
            // The next one is tried in its place.
            (State::Probing { since, pause }, Standing::Untold) if is_probe => {
                (State::Open { since, until: now, pause }, None)
            }
            (state @ (State::Closed { .. } | State::Open { .. } | State::Probing { .. }), _) => (state, None),
        };
        self.0 = state;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn it_opens_after_failures_one_after_another_and_one_call_tries() {
        use Standing::{Down, Untold, Up};
        let rules = BreakerRules { failures: 3, pause: s(30), pause_max: s(100) };
        let mut breaker = Breaker::new();
        let end = |breaker: &mut Breaker, probe, standing, at| breaker.end(probe, standing, &rules, s(at));
        for (standing, at) in [(Down, 1), (Down, 2), (Up, 3), (Down, 4), (Untold, 5), (Down, 6)] {
            assert_eq!(end(&mut breaker, false, standing, at), None, "{at}");
            assert_eq!(breaker.door(s(at)), Door::Free, "{at}");
        }
        assert_eq!(end(&mut breaker, false, Down, 10), Some(Change::Opened { pause: s(30) }));
        assert_eq!(breaker.door(s(39)), Door::Shut { since: s(10), wait: s(1) });
        // Calls that went before it opened neither close it nor prolong it.
        for standing in [Up, Down, Untold] {
            assert_eq!(end(&mut breaker, false, standing, 20), None);
            assert_eq!(breaker.door(s(40)), Door::Probe { since: s(10) });
        }
        let mut at = 40;
        for pause in [60, 100, 100] {
            assert_eq!(breaker.door(s(at)), Door::Probe { since: s(10) });
            assert!(breaker.pass(), "one is tried");
            assert_eq!(breaker.door(s(at)), Door::Trying { since: s(10) });
            for standing in [Up, Down, Untold] {
                assert_eq!(end(&mut breaker, false, standing, at), None, "another one says nothing");
            }
            assert_eq!(end(&mut breaker, true, Down, at), Some(Change::StaysOpen { pause: s(pause) }));
            assert_eq!(breaker.door(s(at)), Door::Shut { since: s(10), wait: s(pause) });
            at += pause;
        }
        assert!(breaker.pass());
        assert_eq!(end(&mut breaker, true, Untold, at), None);
        assert_eq!(breaker.door(s(at)), Door::Probe { since: s(10) }, "the next one is tried at once");
        assert!(breaker.pass());
        assert_eq!(end(&mut breaker, true, Up, at), Some(Change::Closed { after: s(at - 10) }));
        assert_eq!((breaker.door(s(at)), breaker.is_fresh()), (Door::Free, true));
        assert!(!breaker.pass());
        // The pause is short again.
        for _ in 0..2 {
            end(&mut breaker, false, Down, at);
        }
        assert_eq!(end(&mut breaker, false, Down, at), Some(Change::Opened { pause: s(30) }));
    }
}

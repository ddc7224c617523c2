//! So many calls in so long a time, whenever the time begins, and turns for those who come too early. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits;
use crate::policy::{parse_duration, show_duration};

/// So many calls in any time of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: usize,
    period: Duration,
}

impl Rate {
    /// Reads `100/10s`.
    ///
    /// # Errors
    /// It is none, or out of bounds ([`limits::RATE_CALLS_MAX`], [`limits::RATE_PERIOD_MAX`]); the sentence says how
    /// to mend it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rate; write calls and a time, e.g. `100/10s`");
        let (count, period) = text.split_once('/').ok_or_else(wrong)?;
        let count: usize = count.trim().parse().map_err(|_| wrong())?;
        let period = parse_duration(period.trim()).map_err(|_| wrong())?;
        if count == 0 || count > limits::RATE_CALLS_MAX {
            return Err(format!(
                "a rate is of 1 to {} calls; pause an automation to send none",
                limits::RATE_CALLS_MAX
            ));
        }
        if period.is_zero() || period > limits::RATE_PERIOD_MAX {
            return Err(format!("a rate is of a time from 1s to {}", show_duration(limits::RATE_PERIOD_MAX)));
        }
        Ok(Self { count, period })
    }
}

/// What was sent lately, and who comes when.
#[derive(Clone, Debug)]
pub(super) struct Window {
    rate: Rate,
    /// Let through and not sent yet: that can take a while, and they count from when they are.
    pending: usize,
    /// When calls went, oldest first; those of the last period.
    sent: VecDeque<Duration>,
    /// Turns that were given, in their order.
    booked: VecDeque<Duration>,
}

impl Window {
    pub(super) const fn new(rate: Rate) -> Self {
        Self { rate, pending: 0, sent: VecDeque::new(), booked: VecDeque::new() }
    }

    /// Forgets what does not count any more; and turns that nobody took, such as that of a claim that a person reset.
    pub(super) fn look_at(&mut self, now: Duration) {
        while self.sent.front().is_some_and(|at| *at + self.rate.period <= now) {
            self.sent.pop_front();
        }
        while self.booked.front().is_some_and(|turn| *turn + self.rate.period + limits::TURN_KEPT_FOR <= now)
        {
            self.booked.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending == 0 && self.sent.is_empty() && self.booked.is_empty()
    }

    /// Whether one more may go now, besides `others` who were told that they may.
    pub(super) fn has_room(&self, others: usize) -> bool {
        self.pending + self.sent.len() + others < self.rate.count
    }

    /// When somebody without a turn may go who does not push in.
    pub(super) fn free_at(&self, now: Duration) -> Duration {
        let before = self.sent.len() + self.pending + self.booked.len();
        let Some(leaves) = before.checked_sub(self.rate.count) else { return now };
        let after = leaves.checked_sub(self.sent.len() + self.pending);
        let goes = match (self.sent.get(leaves), after) {
            (Some(at), _) => *at,
            (None, None) => now,
            (None, Some(turn)) => self.booked.get(turn).map_or(now, |turn| now.max(*turn)),
        };
        now.max(goes + self.rate.period)
    }

    /// Gives the next turn.
    pub(super) fn book(&mut self, now: Duration) -> Duration {
        // A turn never lies before one that was given earlier.
        let turn = self.booked.back().map_or(now, |last| now.max(*last)).max(self.free_at(now));
        self.booked.push_back(turn);
        turn
    }

    pub(super) fn unbook(&mut self, turn: Duration) {
        if let Some(place) = self.booked.iter().position(|booked| *booked == turn) {
            self.booked.remove(place);
        }
    }

    pub(super) fn let_through(&mut self) {
        self.pending += 1;
    }

    pub(super) fn sending(&mut self, now: Duration) {
        self.pending = self.pending.saturating_sub(1);
        self.sent.push_back(now);
    }

    pub(super) fn not_sent(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }
}

//! Where a poll stands, when it is due, and what becomes of failures. It is written down with what the poll brings.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Form, Mark, Poll, Start};
use crate::limits;
use crate::time::Timestamp;

/// Where a poll stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// How its marks are meant.
    pub form: Form,
    /// What was declared as its start, in words.
    pub start: String,
    /// Where it began: what lies before does not run.
    pub from: Mark,
    /// How far everything was read.
    pub cursor: Mark,
    /// When the last poll began; `None`: none has.
    #[serde(default)]
    pub begun: Option<Timestamp>,
    /// Until when a poll under way is believed to be; `None`: none is.
    #[serde(default)]
    pub busy_until: Option<Timestamp>,
    /// When a poll last came to its end.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// What that one brought.
    #[serde(default)]
    pub taken: Taken,
    /// What went wrong since.
    #[serde(default)]
    pub failing: Option<Failing>,
}

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Pages read.
    pub pages: usize,
    /// Items on them.
    pub items: usize,
    /// Those that nobody had brought before.
    pub new: usize,
    /// Those that were not taken because they lie before where the poll began.
    pub older: usize,
}

/// Polls that did not come to their end, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// How many.
    pub in_a_row: u32,
    /// When the first did.
    pub since: Timestamp,
    /// When the last did.
    pub at: Timestamp,
    /// Why, for people.
    pub why: String,
    /// When it is tried again.
    pub again_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    Poll(Position),
}

/// Whether so many failures in a row are told: at the third, and whenever there are twice as many, so that who was
/// told of another one since is told again.
pub const fn failure_is_told(in_a_row: u32) -> bool {
    let first = limits::POLL_FAILURES_UNTOLD + 1;
    in_a_row.is_multiple_of(first) && (in_a_row / first).is_power_of_two()
}

impl Position {
    /// Reads what was stored. `None`: of a schedule, which the source was before.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(json: &str) -> Result<Option<Self>, String> {
        let value: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
        if value.get("rhythm").is_some() {
            return Ok(None);
        }
        let Stored::Poll(position) = serde_json::from_value(value).map_err(|e| e.to_string())?;
        Ok(Some(position))
    }

    /// As it is stored.
    ///
    /// # Errors
    /// It cannot be written, which does not happen.
    pub fn write(&self) -> Result<String, String> {
        serde_json::to_string(&Stored::Poll(self.clone())).map_err(|e| e.to_string())
    }

    /// Where a poll stands that is looked at now. One that never ran begins where it is declared to; so does one
    /// whose start was declared anew, and one whose cursor means something else now. To begin at "now" again would
    /// leave out what came meanwhile, so that this is no reason.
    pub fn of(poll: &Poll, before: Option<Self>, now: Timestamp) -> Self {
        let start = match poll.start {
            Start::Now => "now".to_owned(),
            Start::At(mark) => poll.form.write(mark),
        };
        let before = before.filter(|before| before.form.is_time() == poll.form.is_time());
        let begins = match poll.start {
            Start::Now => now.into(),
            Start::At(mark) => mark,
        };
        let fresh = |before: Option<Self>| Self {
            form: poll.form,
            start: start.clone(),
            from: begins,
            cursor: begins,
            begun: None,
            busy_until: before.as_ref().and_then(|before| before.busy_until),
            ended: before.as_ref().and_then(|before| before.ended),
            taken: Taken::default(),
            failing: before.and_then(|before| before.failing),
        };
        match before {
            Some(before) if before.start == start || poll.start == Start::Now => {
                let mut position = Self { form: poll.form, start, ..before };
                // A clock that was wrong by years must not keep it from going on. What is declared, is meant.
                let latest = Mark::from(now.after(limits::CLOCK_SLACK));
                let is_declared = poll.start == Start::At(position.cursor);
                if poll.form.is_time() && position.cursor > latest && !is_declared {
                    position.cursor = now.into();
                    position.from = position.from.min(position.cursor);
                }
                position
            }
            before => fresh(before),
        }
    }

    /// When it is to be looked at next; a poll under way on another node is left alone until it must be over.
    pub fn due(&self, poll: &Poll, now: Timestamp) -> Timestamp {
        let next = match (&self.failing, self.begun) {
            (Some(failing), _) => failing.again_at,
            (None, Some(begun)) => begun.after(poll.every),
            (None, None) => now,
        };
        let busy_until = self.busy_until.unwrap_or(next);
        // What lies further ahead was written by a clock that was wrong.
        let ahead = |at: Timestamp, by: Duration| if at.since(now) > by { now } else { at };
        ahead(next, poll.every.max(limits::POLL_WAIT_MAX)).max(ahead(busy_until, limits::POLL_WAIT_MAX))
    }

    /// A poll begins, and nobody else needs to until `busy_until`.
    pub fn begins(&mut self, now: Timestamp, busy_until: Timestamp) {
        self.begun = Some(now);
        self.busy_until = Some(busy_until);
    }

    /// It goes no further, because its process ends: the next one need not wait.
    pub fn stops(&mut self) {
        self.begun = None;
        self.busy_until = None;
    }

    /// It came to its end. Whether somebody was told of failures, which are over now.
    pub fn succeeds(&mut self, taken: Taken, now: Timestamp) -> bool {
        self.busy_until = None;
        self.ended = Some(now);
        self.taken = taken;
        self.failing.take().is_some_and(|failing| failing.in_a_row > limits::POLL_FAILURES_UNTOLD)
    }

    /// It did not. Each further failure waits twice as long, up to a bound, and at least as long as was asked for.
    pub fn fails(&mut self, poll: &Poll, why: String, asked: Option<Duration>, now: Timestamp) -> &Failing {
        let (before, since) =
            self.failing.as_ref().map_or((0, now), |failing| (failing.in_a_row, failing.since));
        let longest = poll.every.max(limits::POLL_BACKOFF_MAX);
        let pause = poll.every.saturating_mul(1 << before.min(16)).min(longest);
        let begun = self.begun.unwrap_or(now).min(now);
        let asked = now.after(asked.unwrap_or_default().min(limits::POLL_WAIT_MAX));
        self.busy_until = None;
        let again_at = begun.after(pause).max(asked);
        self.failing.insert(Failing { in_a_row: before.saturating_add(1), since, at: now, why, again_at })
    }

    /// What a notice says of failures.
    pub fn failing_words(&self, source: &str) -> Option<String> {
        let failing = self.failing.as_ref()?;
        Some(format!(
            "{} failed {} times in a row since {}: {}; nothing is lost, it goes on from where it stood",
            Self::notice_begins(source),
            failing.in_a_row,
            failing.since,
            failing.why
        ))
    }

    /// How such a notice begins: of two polls of one automation the one tells of the other's failures no more.
    pub fn notice_begins(source: &str) -> String {
        format!("the poll `{source}`")
    }
}

//! What an automation allows: TTL, retries, retention, SLA. Values that would break the promise cannot be
//! built, so the code that reads a policy never checks one.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a duration was refused; the sentence a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A bare number: seconds, minutes or milliseconds?
    #[error("`{0}` has no unit; write e.g. `10m`, `90s`, `4h` or `90d`")]
    NoUnit(String),
    /// Not a number and a unit.
    #[error("`{0}` is not a duration; write a whole number and a unit, e.g. `10m`, `90s`, `4h` or `90d`")]
    Malformed(String),
    /// Outside what its field allows.
    #[error("{what} of {given} is outside {min} to {max}")]
    OutOfRange {
        /// Which setting.
        what: &'static str,
        /// What was asked for, as a duration text.
        given: String,
        /// Shortest allowed.
        min: String,
        /// Longest allowed.
        max: String,
    },
}

/// Reads `90s`, `10m`, `4h`, `90d`: a whole number and one unit, nothing else.
///
/// # Errors
/// No unit, an unknown unit, a sign, a fraction, or more than a century.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DurationError::NoUnit(text.to_owned()));
    }
    let malformed = || DurationError::Malformed(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().map_err(|_| malformed())?;
    let unit = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(malformed()),
    };
    let seconds = count.checked_mul(unit).filter(|s| *s <= 36_525 * 86_400).ok_or_else(malformed)?;
    Ok(Duration::from_secs(seconds))
}

/// Writes a duration as people write it: the largest unit that divides it, e.g. `4h`, `90s`.
pub fn show_duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 => "0s".to_owned(),
        s if s % 86_400 == 0 => format!("{}d", s / 86_400),
        s if s % 3_600 == 0 => format!("{}h", s / 3_600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// Says how long something lasts in words, for notes: `45s`, `90 min`, `24 h`, `2 h 59 min`. Minutes are exact enough
/// beyond two of them.
pub fn in_words(d: Duration) -> String {
    let seconds = d.as_secs();
    let minutes = (seconds + 30) / 60;
    match (seconds, minutes / 60, minutes % 60) {
        (0..=120, _, _) => show_duration(Duration::from_secs(seconds)),
        (_, 0 | 1, _) => format!("{minutes} min"),
        (_, hours, 0) => format!("{hours} h"),
        (_, hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn within(
    what: &'static str,
    given: Duration,
    min: Duration,
    max: Duration,
) -> Result<Duration, DurationError> {
    if given < min || given > max {
        let [given, min, max] = [given, min, max].map(show_duration);
        return Err(DurationError::OutOfRange { what, given, min, max });
    }
    Ok(given)
}

/// How long `processing` is believed since the start or the last heartbeat. 5 to 30 minutes; default 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// Shortest TTL without an override: below it a healthy no-code step is taken for dead.
    pub const MIN: Duration = Duration::from_secs(5 * 60);
    /// Longest TTL without an override: above it a dead run holds its record for too long.
    pub const MAX: Duration = Duration::from_secs(30 * 60);
    /// Bounds even of an override.
    const OVERRIDE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

    /// A TTL within the usual range.
    ///
    /// # Errors
    /// Outside 5 to 30 minutes.
    pub fn new(d: Duration) -> Result<Self, DurationError> {
        within("ttl", d, Self::MIN, Self::MAX).map(Self)
    }

    /// A TTL outside the usual range, which somebody explicitly asked for.
    ///
    /// # Errors
    /// Outside 1 second to 24 hours.
    pub fn overridden(d: Duration) -> Result<Self, DurationError> {
        within("ttl", d, Self::OVERRIDE.0, Self::OVERRIDE.1).map(Self)
    }

    /// The duration itself.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self(Duration::from_secs(15 * 60))
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(self.0))
    }
}

/// A number in 0..1 that spreads retries apart; made at the edge, an argument here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// The middle: a delay exactly as declared.
    pub const NONE: Self = Self(0.5);

    /// From 32 random bits.
    pub fn from_random(bits: u32) -> Self {
        Self(f64::from(bits) / (f64::from(u32::MAX) + 1.0))
    }

    /// `d` × 0.75 to 1.25.
    pub fn spread(self, d: Duration) -> Duration {
        d.mul_f64(0.75 + self.0 / 2.0)
    }
}

/// Delays before each automatic retry; their number is the number of retries. Default 30 s, 4 min, 30 min.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    delays: Vec<Duration>,
}

impl RetryPolicy {
    /// Retries that may be declared at most (DESIGN §3: three).
    pub const MAX: usize = 3;

    /// Declared delays, at most three, each up to a day.
    ///
    /// # Errors
    /// More than three, or one outside 0 s to 24 h.
    pub fn new(delays: Vec<Duration>) -> Result<Self, String> {
        if delays.len() > Self::MAX {
            return Err(format!("{} retries are declared; at most {} are allowed", delays.len(), Self::MAX));
        }
        for d in &delays {
            within("retry delay", *d, Duration::ZERO, Duration::from_secs(86_400))
                .map_err(|e| e.to_string())?;
        }
        Ok(Self { delays })
    }

    /// The delay before the retry after `used` retries, or `None` when they are used up.
    ///
    /// Never under `retry_after`, which the other side asked for.
    pub fn delay(&self, used: u32, retry_after: Option<Duration>, jitter: Jitter) -> Option<Duration> {
        let declared = self.delays.get(usize::try_from(used).ok()?)?;
        Some(jitter.spread(*declared).max(retry_after.unwrap_or_default()))
    }

    /// The same after a failure that passes within moments, because somebody else held what was to be changed: the
    /// first comes after [`Self::LOCK_DELAY`], each other one when the one before it would have come.
    pub fn delay_of_lock(&self, used: u32, jitter: Jitter) -> Option<Duration> {
        let last = self.delay(used, None, jitter)?;
        match used.checked_sub(1) {
            Some(before) => self.delay(before, None, jitter),
            None => Some(last.min(jitter.spread(Self::LOCK_DELAY))),
        }
    }

    /// The delay before the first retry of what was locked (DESIGN §3, "Retries").
    pub const LOCK_DELAY: Duration = Duration::from_secs(3);

    /// How many retries there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.delays.len()).unwrap_or(u32::MAX)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { delays: vec![Duration::from_secs(30), Duration::from_secs(240), Duration::from_secs(1_800)] }
    }
}

/// What happens when a `processing` claim goes stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStale {
    /// One stale retry, then a person.
    #[default]
    RetryOnce,
    /// A person at once: for work that must not be repeated after an unknown outcome, e.g. a payment.
    Hold,
}

/// Who says that the effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The holder calls done or error.
    #[default]
    Caller,
    /// The first claim counts as done at once, for flows that cannot call back.
    AtClaim,
}

/// What happens when one key comes with two payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMismatch {
    /// Stop and show both to a person.
    #[default]
    Stop,
    /// The key alone decides.
    Ignore,
}

/// Most first runs of one record in one automation within a window; more look like a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimit {
    /// First runs allowed, at least 1.
    pub runs: u32,
    /// The window.
    pub within: Duration,
}

impl LoopLimit {
    /// Longest window: first runs are remembered for a day.
    pub const WITHIN_MAX: Duration = Duration::from_secs(86_400);

    /// Why nothing more of the record starts.
    pub fn note(&self) -> String {
        let (runs, within) = (self.runs, in_words(self.within));
        format!(
            "loop suspected: this record has used up its loop_limit, {runs} in {within}; find out what starts it, then \
             run it now or dismiss it"
        )
    }
}

impl Default for LoopLimit {
    fn default() -> Self {
        Self { runs: 5, within: Duration::from_secs(600) }
    }
}

/// The policy of one automation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long `processing` is believed.
    pub ttl: Ttl,
    /// What a stale claim gets.
    pub on_stale: OnStale,
    /// Automatic retries.
    pub retries: RetryPolicy,
    /// How long `done` is remembered; see [`Policy::retention`].
    retention: Duration,
    /// How long the payload is kept after done; see [`Policy::payload_retention`].
    payload_retention: Duration,
    /// How long anything but done may last before the digest names it.
    pub sla: Duration,
    /// Who finishes.
    pub finish: Finish,
    /// Two payloads under one key.
    pub on_mismatch: OnMismatch,
    /// When first runs of one record look like a loop.
    pub loop_limit: LoopLimit,
    /// A hook calls back the tool whose caller was stopped; otherwise a person has to replay its run.
    pub retrigger: bool,
}

impl Policy {
    /// Shortest retention: no shorter than the longest TTL override, so that "done" outlives every lease and
    /// the one-day horizon after which common senders stop retrying.
    pub const RETENTION_MIN: Duration = Duration::from_secs(24 * 3600);
    /// Longest retention: ten years.
    pub const RETENTION_MAX: Duration = Duration::from_secs(3_653 * 86_400);

    /// How long `done` is remembered, independent of the TTL.
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// The same policy with another retention.
    ///
    /// # Errors
    /// Outside 1 day to 10 years.
    pub fn with_retention(self, d: Duration) -> Result<Self, DurationError> {
        let retention = within("retention", d, Self::RETENTION_MIN, Self::RETENTION_MAX)?;
        Ok(Self { retention, ..self })
    }

    /// How long the payload, and the answers to its steps, are kept after done; never removed while a claim is open.
    /// Zero: they go as soon as it is done.
    pub fn payload_retention(&self) -> Duration {
        self.payload_retention
    }

    /// The same policy with another retention of payloads.
    ///
    /// # Errors
    /// Over 10 years.
    pub fn with_payload_retention(self, d: Duration) -> Result<Self, DurationError> {
        let payload_retention = within("payload_retention", d, Duration::ZERO, Self::RETENTION_MAX)?;
        Ok(Self { payload_retention, ..self })
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Ttl::default(),
            on_stale: OnStale::default(),
            retries: RetryPolicy::default(),
            retention: Duration::from_secs(90 * 86_400),
            payload_retention: Duration::from_secs(30 * 86_400),
            sla: Duration::from_secs(4 * 3600),
            finish: Finish::default(),
            on_mismatch: OnMismatch::default(),
            loop_limit: LoopLimit::default(),
            retrigger: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_ttl_cannot_be_written() {
        for (text, ok) in [
            ("10m", true),
            ("300s", true),
            ("30m", true),
            ("31m", false),
            ("4m", false),
            ("0m", false),
            ("-10m", false),
            ("600", false),
            ("600000ms", false),
            ("10", false),
            ("10 m", false),
            ("", false),
            ("1.5h", false),
            ("99999999999999999999m", false),
            ("5h", false),
        ] {
            let ttl = parse_duration(text).and_then(Ttl::new);
            assert_eq!(ttl.is_ok(), ok, "{text}: {ttl:?}");
        }
        assert!(parse_duration("600").unwrap_err().to_string().contains("no unit"));
        assert!(Ttl::overridden(Duration::from_secs(3 * 3600)).is_ok());
        assert!(Ttl::overridden(Duration::ZERO).is_err());
    }

    #[test]
    fn retries_back_off_with_jitter_and_never_under_retry_after() {
        let retries = RetryPolicy::default();
        let delays: Vec<_> = (0..4).map(|n| retries.delay(n, None, Jitter::NONE)).collect();
        let secs = |s| Some(Duration::from_secs(s));
        assert_eq!(delays, [secs(30), secs(240), secs(1_800), None]);
        let low = retries.delay(0, None, Jitter::from_random(0)).unwrap();
        let high = retries.delay(0, None, Jitter::from_random(u32::MAX)).unwrap();
        assert_eq!(low, Duration::from_millis(22_500));
        assert!(high > Duration::from_millis(37_499) && high < Duration::from_millis(37_501));
        assert_eq!(retries.delay(0, secs(100), Jitter::NONE), secs(100));
    }

    #[test]
    fn retention_is_independent_of_the_ttl_and_never_shorter_than_a_day() {
        assert!(Policy::default().with_retention(Duration::from_secs(600)).is_err());
        assert!(Policy::default().with_retention(Duration::from_secs(30 * 86_400)).is_ok());
    }
}

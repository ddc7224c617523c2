//! How the receiver of the tests misbehaves: drawn for each request from a seed, from what is asked for and from the
//! number of the try, so that a run can be had again. Not from the key, which no two stores have in common.

use std::time::Duration;

use oncegate_core::key::sha256;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Acts, and says so.
    Well,
    /// Acts after a while, whether or not somebody still listens.
    Late(Duration),
    /// Acts, and says so after a while.
    Slow(Duration),
    /// Does nothing, and answers 500.
    Fails,
    /// Acts, and answers 500.
    FailsAfter,
    /// Does nothing, and resets the connection.
    HangsUp,
    /// Acts, and resets the connection.
    HangsUpAfter,
    /// Does nothing, and answers 429 with `Retry-After` in seconds (RFC 9110 §10.2.3).
    Throttles,
    /// The same with a date.
    ThrottlesByDate,
    /// Acts, and never answers.
    Silent,
}

/// From this try on it behaves: whoever goes on asking comes to an end.
const TRIES: u64 = 5;
/// The longest latency: well below the timeouts of those who ask, and below the time that their lookups wait.
const LATENCY_MS: u64 = 150;

/// How the n-th request (counted from 1) for one thing is met.
pub(super) fn mood(seed: u64, what: &str, number: u64) -> Mood {
    if number >= TRIES {
        return Mood::Well;
    }
    let drawn = sha256(format!("{seed} {number} {what}").as_bytes());
    let latency = u64::from(u16::from_be_bytes([drawn[1], drawn[2]])) % LATENCY_MS;
    let latency = Duration::from_millis(latency);
    match drawn[0] % 100 {
        0..44 => Mood::Well,
        44..52 => Mood::Late(latency),
        52..64 => Mood::Slow(latency),
        64..70 => Mood::Fails,
        70..78 => Mood::FailsAfter,
        78..81 => Mood::HangsUp,
        81..88 => Mood::HangsUpAfter,
        88..92 => Mood::Throttles,
        92..96 => Mood::ThrottlesByDate,
        _ => Mood::Silent,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_mood_comes_up_the_same_for_the_same_seed_and_ends() {
        let drawn = |seed| (0..500).map(|n| mood(seed, &format!("/wild/{n}"), 1)).collect::<Vec<_>>();
        let kinds: HashSet<_> = drawn(7).iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 10, "a mood that never comes up is not tried");
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert!((0..500).all(|n| mood(7, &format!("/wild/{n}"), TRIES) == Mood::Well));
    }
}

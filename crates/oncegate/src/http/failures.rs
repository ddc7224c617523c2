//! Failed authentications by address: after some of them an address is told to wait, a little longer each time, and
//! the audit gets one row per address and hour.
//!
//! Tokens have 192 random bits, so nobody guesses one; this is against noise. A token that is good is never refused
//! for what others did from the same address: it is looked up first.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_store::access::Deed;

use super::peer::neighbourhood;

const HOUR: Duration = Duration::from_secs(3_600);

/// What failed lately, of a bounded number of addresses.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_address: HashMap<IpNet, Record>,
    /// By the turn at which each failed last: the first is the one to forget.
    by_turn: BTreeMap<u64, IpNet>,
    turn: u64,
    /// Failures of forgotten addresses that the audit has not seen.
    of_others: u64,
}

#[derive(Clone, Debug)]
struct Record {
    turn: u64,
    /// The present window's begin, and the failures in it.
    window: (Timestamp, u32),
    /// How often it was told to wait, without a long silence between.
    told: u32,
    wait_until: Timestamp,
    /// The first failure that the audit has not seen, and their number.
    unseen: Option<(Timestamp, u64)>,
}

impl Failures {
    /// Counts one. `Some`: it is one too many; how long to wait.
    pub(crate) fn failed(&self, from: IpAddr, now: Timestamp) -> Option<Duration> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = neighbourhood(from);
        known.turn += 1;
        let turn = known.turn;
        let mut record = match known.by_address.remove(&address) {
            Some(record) => {
                known.by_turn.remove(&record.turn);
                record
            }
            None => {
                known.make_room();
                Record { turn, window: (now, 0), told: 0, wait_until: now, unseen: None }
            }
        };
        record.turn = turn;
        record.unseen = Some(record.unseen.map_or((now, 1), |(since, n)| (since, n + 1)));
        let wait = record.count(now);
        known.by_turn.insert(turn, address);
        known.by_address.insert(address, record);
        wait
    }

    /// For the audit: what is an hour old, or all of it at the end.
    pub(crate) fn take(&self, now: Timestamp, all: bool) -> Vec<Deed> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |subject: String, detail: String| Deed {
            actor: "nobody".into(),
            action: "auth_failed".into(),
            subject,
            reason: String::new(),
            detail: Some(detail),
        };
        let mut deeds = vec![];
        for (address, record) in &mut known.by_address {
            if let Some((since, count)) = record.unseen
                && (all || now.since(since) >= HOUR || now < since)
            {
                record.unseen = None;
                let address = match address.prefix_len() == address.max_prefix_len() {
                    true => address.addr().to_string(),
                    false => address.to_string(),
                };
                deeds.push(row(address, format!("{count} failed authentications since {since}")));
            }
        }
        deeds.sort_by(|a, b| a.subject.cmp(&b.subject));
        let of_others = std::mem::take(&mut known.of_others);
        if of_others > 0 {
            deeds.push(row("other addresses".into(), format!("{of_others} failed authentications")));
        }
        deeds
    }
}

impl Known {
    fn make_room(&mut self) {
        while self.by_address.len() >= limits::FAILURES_ADDRESSES_MAX {
            let Some((_, oldest)) = self.by_turn.pop_first() else { return };
            let unseen = self.by_address.remove(&oldest).and_then(|record| record.unseen);
            self.of_others += unseen.map_or(0, |(_, count)| count);
        }
    }
}

impl Record {
    fn count(&mut self, now: Timestamp) -> Option<Duration> {
        let (since, count) = self.window;
        let left = self.wait_until.since(now);
        // A clock that was set back must not make anybody wait for hours.
        if !left.is_zero() && left <= limits::FAILURES_DELAY_MAX && now >= since {
            return Some(left);
        }
        if now < since || now.since(since) >= limits::FAILURES_WINDOW {
            if now.since(since) >= limits::FAILURES_DELAY_MAX * 2 {
                self.told = 0;
            }
            self.window = (now, 1);
            return None;
        }
        self.window.1 = count.saturating_add(1);
        if self.window.1 <= limits::FAILURES_MAX {
            return None;
        }
        let delay = Duration::from_secs(1 << self.told.min(20)).min(limits::FAILURES_DELAY_MAX);
        self.told = self.told.saturating_add(1);
        self.wait_until = now.after(delay);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_767_607_200);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_delay_grows_while_it_goes_on_and_is_forgotten_after_a_silence() {
        let failures = Failures::default();
        let (mut now, from) = (NOW, ip("203.0.113.7"));
        for _ in 0..limits::FAILURES_MAX {
            assert_eq!(failures.failed(from, now), None);
        }
        for seconds in [1, 2, 4] {
            let delay = Duration::from_secs(seconds);
            assert_eq!(failures.failed(from, now), Some(delay));
            assert_eq!(failures.failed(from, now), Some(delay), "meanwhile nothing is added");
            assert_eq!(failures.failed(ip("203.0.113.8"), now), None, "others are not meant");
            now = now.after(delay);
        }
        now = now.after(limits::FAILURES_WINDOW);
        for _ in 0..limits::FAILURES_MAX {
            assert_eq!(failures.failed(from, now), None);
        }
        assert_eq!(failures.failed(from, now), Some(Duration::from_secs(8)), "it goes on");
        now = now.after(limits::FAILURES_DELAY_MAX * 2);
        for _ in 0..limits::FAILURES_MAX {
            assert_eq!(failures.failed(from, now), None);
        }
        assert_eq!(failures.failed(from, now), Some(Duration::from_secs(1)));
        assert_eq!(failures.failed(from, NOW), None, "a clock set back holds nobody");
    }

    #[test]
    fn no_delay_is_longer_than_its_limit() {
        let failures = Failures::default();
        let (mut now, from, mut longest) = (NOW, ip("203.0.113.7"), Duration::ZERO);
        for _ in 0..20_000 {
            let wait = failures.failed(from, now).unwrap_or(Duration::ZERO);
            longest = longest.max(wait);
            now = now.after(wait);
        }
        assert!(longest <= limits::FAILURES_DELAY_MAX && longest >= limits::FAILURES_WINDOW, "{longest:?}");
    }

    #[test]
    fn a_flood_of_addresses_takes_up_bounded_memory_and_stays_in_the_count() {
        let failures = Failures::default();
        let many = u32::try_from(limits::FAILURES_ADDRESSES_MAX).unwrap() + 50;
        for n in 0..many {
            failures.failed(IpAddr::V4(n.into()), NOW);
        }
        assert_eq!(failures.0.lock().unwrap().by_address.len(), limits::FAILURES_ADDRESSES_MAX);
        assert_eq!(failures.0.lock().unwrap().by_turn.len(), limits::FAILURES_ADDRESSES_MAX);
        let deeds = failures.take(NOW, true);
        assert_eq!(deeds.len(), limits::FAILURES_ADDRESSES_MAX + 1);
        assert_eq!(deeds.last().unwrap().detail.as_deref(), Some("50 failed authentications"));
        assert!(failures.take(NOW, true).is_empty(), "told once");
    }

    #[test]
    fn the_audit_gets_one_row_per_address_and_hour() {
        let failures = Failures::default();
        for _ in 0..3 {
            failures.failed(ip("2001:db8::1"), NOW);
        }
        assert!(failures.take(NOW.after(Duration::from_secs(60)), false).is_empty());
        let [deed] = failures.take(NOW.after(HOUR), false).try_into().unwrap();
        assert_eq!(deed.subject, "2001:db8::/64");
        assert!(deed.detail.unwrap().starts_with("3 failed"));
    }
}

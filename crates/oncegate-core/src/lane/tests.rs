//! What a lane lets through, and what it never does.

use proptest::prelude::*;

use super::*;
use crate::key::ClaimId;

const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn claim(workspace: i64, n: u8) -> ClaimRef {
    ClaimRef { workspace: Workspace(workspace), id: ClaimId([n; 16]) }
}

fn lane(rate: Option<&str>, concurrency: usize) -> Lane {
    let rate = rate.map(|rate| Rate::parse(rate).unwrap());
    Lane::new(LaneRules { rate, concurrency, breaker: BreakerRules::default() })
}

fn heard(standing: Standing) -> Heard {
    Heard { standing, asked: None }
}

/// Lets a call through, sends it, and ends it.
fn whole(lane: &mut Lane, who: ClaimRef, heard: Heard, now: Duration) -> Option<Change> {
    let ticket = lane.ask(who, now).unwrap_or_else(|wait| panic!("{who} at {now:?}: {wait:?}"));
    lane.sending(&ticket, now);
    lane.end(&ticket, heard, now)
}

#[test]
fn a_rate_is_read_or_told_how_to_mend() {
    for text in ["100/10s", " 1 / 24h ", "100000/1s"] {
        Rate::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    for (text, says) in [
        ("", "`` is no rate; write calls and a time, e.g. `100/10s`"),
        ("100", "is no rate"),
        ("100/10", "is no rate"),
        ("/10s", "is no rate"),
        ("-1/10s", "is no rate"),
        ("1.5/10s", "is no rate"),
        ("100/10s/2", "is no rate"),
        ("0/10s", "a rate is of 1 to 100000 calls; pause"),
        ("100001/10s", "a rate is of 1 to 100000 calls"),
        ("99999999999999999999999/1s", "is no rate"),
        ("1/0s", "a time from 1s to 1d"),
        ("1/25h", "a time from 1s to 1d"),
    ] {
        let told = Rate::parse(text).unwrap_err();
        assert!(told.contains(says), "{text}: {told}");
    }
}

#[test]
fn calls_in_flight_are_counted_and_a_call_that_never_went_frees_its_place() {
    let mut lane = lane(None, 2);
    let first = lane.ask(claim(1, 1), s(0)).unwrap();
    let second = lane.ask(claim(1, 2), s(0)).unwrap();
    assert_eq!(lane.ask(claim(1, 3), s(10)).unwrap_err().why, Why::Busy);
    assert!(!lane.call(claim(1, 3), s(10)), "there is no room to come for");
    assert_eq!(lane.end(&first, Heard::NOTHING, s(10)), None);
    assert!(lane.call(claim(1, 3), s(10)));
    assert_eq!(lane.ask(claim(1, 4), s(10)).unwrap_err().why, Why::Busy, "its place is kept");
    assert!(lane.ask(claim(1, 3), s(10)).is_ok());
    lane.end(&second, heard(Standing::Up), s(40));
    assert!(lane.call(claim(1, 4), s(40)));
    lane.leave(claim(1, 4));
    assert!(lane.ask(claim(1, 5), s(40)).is_ok(), "whoever was called and did not come keeps no place");
}

#[test]
fn what_is_new_is_taken_up_while_it_may_go_or_few_wait() {
    let mut lane = lane(None, 2);
    let calls = [1, 2].map(|n| lane.ask(claim(1, n), s(0)).unwrap());
    assert!(lane.takes_new(Workspace(1), s(0)), "nobody waits");
    assert!(lane.ask(claim(1, 3), s(0)).is_err());
    assert!(lane.takes_new(Workspace(1), s(0)));
    assert!(lane.ask(claim(1, 4), s(0)).is_err());
    assert!(!lane.takes_new(Workspace(1), s(0)), "as many wait as may be in flight");
    for call in &calls {
        lane.sending(call, s(0));
        lane.end(call, heard(Standing::Up), s(1));
    }
    assert!(lane.takes_new(Workspace(1), s(1)), "there is room, and those who wait have not been called");
    let _held = [3, 4].map(|n| lane.ask(claim(1, n), s(1)).unwrap());
    assert!(lane.takes_new(Workspace(1), s(1)), "nobody waits any more");
    assert_eq!(lane.passed(), 4);
}

#[test]
fn who_waits_for_room_is_told_a_time_that_the_calls_of_late_suggest() {
    let mut lane = lane(None, 2);
    let tickets = [1, 2].map(|n| lane.ask(claim(1, n), s(0)).unwrap());
    assert_eq!(lane.ask(claim(1, 3), s(0)).unwrap_err().wait, MOMENT, "nothing is known yet");
    for ticket in tickets {
        lane.sending(&ticket, s(0));
        lane.end(&ticket, heard(Standing::Up), s(40));
    }
    let _held = [4, 5].map(|n| lane.ask(claim(1, n), s(40)).unwrap());
    let waits: Vec<_> = (6..10).map(|n| lane.ask(claim(1, n), s(40)).unwrap_err().wait).collect();
    // One has waited before them; two are in flight for 40 s each; half of it.
    assert_eq!(waits, [s(20), s(30), s(40), s(50)]);
    lane.in_vain(s(10_000));
    assert_eq!(lane.ask(claim(1, 11), s(40)).unwrap_err().wait, limits::ROOM_WAIT_MAX);
}

#[test]
fn whoever_is_held_back_by_the_rate_comes_once_and_in_order() {
    let mut lane = lane(Some("2/10s"), 100);
    let mut waits = vec![];
    for n in 0..7 {
        match lane.ask(claim(1, n), s(0)) {
            Ok(ticket) => {
                lane.sending(&ticket, s(0));
                waits.push(s(0));
            }
            Err(wait) => {
                assert_eq!(wait.why, Why::Rate);
                waits.push(wait.wait);
            }
        }
    }
    assert_eq!(waits, [0, 0, 10, 10, 20, 20, 30].map(s));
    assert_eq!(lane.ask(claim(1, 3), s(4)).unwrap_err().wait, s(6), "asking twice does not cost its turn");
    assert!(!lane.call(claim(1, 2), s(9)));
    assert!(lane.call(claim(1, 2), s(10)));
    // One that comes only now does not push in, though one of the two places is not taken yet.
    assert_eq!(lane.ask(claim(1, 9), s(10)).unwrap_err().wait, s(20));
    for n in [2, 3] {
        let ticket = lane.ask(claim(1, n), s(10)).unwrap();
        lane.sending(&ticket, s(10));
    }
    // What became a person's business leaves its turn to others.
    lane.forget(claim(1, 5));
    lane.forget(claim(1, 6));
    assert_eq!(lane.ask(claim(1, 10), s(10)).unwrap_err().wait, s(20));
    assert!(lane.ask(claim(1, 4), s(20)).is_ok());
}

#[test]
fn a_call_counts_from_when_it_is_sent_not_from_when_it_was_let_through() {
    let mut lane = lane(Some("1/10s"), 100);
    let ticket = lane.ask(claim(1, 1), s(0)).unwrap();
    assert_eq!(lane.ask(claim(1, 2), s(30)).unwrap_err().why, Why::Rate, "the store took 30 s to write it");
    assert!(lane.ask(claim(1, 2), s(40)).is_err(), "its turn has come, and the first one is not sent yet");
    lane.sending(&ticket, s(45));
    assert!(lane.ask(claim(1, 2), s(54)).is_err());
    let ticket = lane.ask(claim(1, 2), s(55)).unwrap();
    lane.end(&ticket, Heard::NOTHING, s(55));
    assert!(lane.ask(claim(1, 3), s(55)).is_ok(), "what was not sent does not count");
}

#[test]
fn who_sent_too_much_waits_and_others_do_not_unless_everybody_was_asked() {
    let mut lane = lane(None, 100);
    let asked = |asked| Heard { standing: Standing::Up, asked: Some(asked) };
    whole(&mut lane, claim(1, 1), asked(Asked::Workspace(s(60))), s(0));
    let wait = lane.ask(claim(1, 2), s(20)).unwrap_err();
    assert_eq!(wait, Wait { wait: s(40), why: Why::Throttled });
    // A shorter word does not shorten the longer one.
    whole(&mut lane, claim(2, 1), asked(Asked::Workspace(s(1))), s(20));
    assert!(!lane.call(claim(1, 2), s(59)));
    assert!(lane.call(claim(1, 2), s(60)));
    whole(&mut lane, claim(1, 2), asked(Asked::Everybody(s(86_400))), s(60));
    for workspace in [1, 2] {
        let wait = lane.ask(claim(workspace, 3), s(60)).unwrap_err().wait;
        assert!(wait <= limits::THROTTLE_BELIEVED_MAX + s(1), "a day is one call's: {wait:?}");
    }
    let over = s(60) + limits::THROTTLE_BELIEVED_MAX;
    assert!(lane.ask(claim(2, 4), over).is_ok());
    assert!(!lane.is_idle(over));
}

#[test]
fn while_a_target_is_down_one_is_tried_and_the_others_are_not_even_taken_up() {
    let mut lane = lane(None, 100);
    for n in 0..5 {
        let opened = whole(&mut lane, claim(1, n), heard(Standing::Down), s(0));
        assert_eq!(opened.is_some(), n == 4);
    }
    assert!(lane.is_down());
    for n in 10..20 {
        let wait = lane.ask(claim(1, n), s(10)).unwrap_err();
        assert_eq!(wait.why, Why::Down { since: s(0), trying: false });
        assert_eq!(wait.wait, s(20) + 20 * Duration::from_millis(u64::from(n) - 10), "one after another");
        assert!(!lane.call(claim(1, n), s(29)));
    }
    assert!(lane.call(claim(1, 10), s(30)));
    assert!(!lane.call(claim(1, 11), s(30)), "one is enough");
    assert!(lane.ask(claim(1, 99), s(30)).is_err());
    let probe = lane.ask(claim(1, 10), s(30)).unwrap();
    assert!(!lane.call(claim(1, 11), s(31)));
    assert_eq!(lane.ask(claim(1, 98), s(31)).unwrap_err().why, Why::Down { since: s(0), trying: true });
    assert_eq!(lane.end(&probe, heard(Standing::Down), s(31)), Some(Change::StaysOpen { pause: s(60) }));
    assert!(!lane.call(claim(1, 11), s(90)));
    // The SLA of one who is never taken up would pass unseen.
    assert!(lane.call(claim(1, 12), s(30) + limits::WAITS_UNSEEN_MAX + s(1)));
    assert_eq!(
        whole(&mut lane, claim(1, 11), heard(Standing::Up), s(91)),
        Some(Change::Closed { after: s(91) })
    );
    for n in 13..20 {
        assert!(lane.call(claim(1, n), s(92)), "all go on");
    }
}

proptest! {
    /// Whatever comes when, and however long it takes from being let through to being sent: no window of the period
    /// has more calls in it than the rate says, no more are in flight than may be, and everybody goes at last.
    #[test]
    fn neither_limit_is_ever_passed_and_nobody_waits_for_ever(
        count in 1_usize..6,
        period in 1_u64..20,
        concurrency in 1_usize..6,
        events in prop::collection::vec((0_u8..30, 0_u64..4_000, 0_u64..3_000), 1..150),
    ) {
        let mut lane = lane(Some(&format!("{count}/{period}s")), concurrency);
        let (mut now, mut sends, mut flying) = (s(100), vec![], Vec::<(Ticket, Duration)>::new());
        let mut open: HashSet<u8> = HashSet::new();
        let mut step = |lane: &mut Lane, open: &mut HashSet<u8>, n: u8, now: Duration, took: u64| {
            flying.retain(|(ticket, until)| {
                let over = *until <= now;
                if over {
                    lane.end(ticket, heard(Standing::Up), now);
                }
                !over
            });
            open.insert(n);
            if lane.call(claim(1, n), now) && let Ok(ticket) = lane.ask(claim(1, n), now) {
                open.remove(&n);
                lane.sending(&ticket, now);
                sends.push(now);
                flying.push((ticket, now + Duration::from_millis(took)));
            }
            flying.len()
        };
        for (n, apart, took) in events {
            now += Duration::from_millis(apart);
            prop_assert!(step(&mut lane, &mut open, n, now, took) <= concurrency);
        }
        for _ in 0..2_000 {
            let left: Vec<u8> = open.iter().copied().collect();
            now += s(1);
            for n in left {
                prop_assert!(step(&mut lane, &mut open, n, now, 500) <= concurrency);
            }
        }
        prop_assert!(open.is_empty(), "{open:?} never went");
        for (at, sent) in sends.iter().enumerate() {
            let within = sends[..=at].iter().filter(|before| **before + s(period) > *sent).count();
            prop_assert!(within <= count, "{within} in {period} s at {sent:?}");
        }
    }
}

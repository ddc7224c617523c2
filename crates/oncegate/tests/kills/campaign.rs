//! Hundreds of kills: at each failpoint, while a receiver holds a request, while the gate starts, right after an
//! acknowledgement, and at random moments. `ONCEGATE_KILLS=n` asks for more of them, `TORTURE_HOURS=h` for as many as
//! fit (docs/torture.md).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use oncegate_store::failpoint::PLACES;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::configs;
use crate::dice::{Dice, say};
use crate::judge::{Event, Kind, judge};
use crate::report::{ACKNOWLEDGED, Report, windows};
use crate::round::{self, Death, Round};
use crate::wire;
use crate::world::{self, Ground, Receiver, SECRET, Site, until};

/// Kills unless more are asked for; those after an acknowledgement come on top.
const KILLS: u64 = 440;
/// Rounds at a time. They wait more than they work.
const WORKERS: u64 = 4;
/// Kills of one round: few enough that what is wrong can be read, and that the database begins anew now and then.
const LIVES: u64 = 55;
/// Kills within 5 ms after an acknowledgement (C42).
const AFTER_ACKNOWLEDGEMENT: u64 = 100;
/// Kills of all kinds at whose moment something was accepted and not finished.
const IN_FLIGHT: u64 = 500;

static ACKNOWLEDGED_RUN: LazyLock<Report> = LazyLock::new(killed_after_acknowledgement);

#[test]
fn every_window_is_killed_in_and_nothing_is_lost_or_doubled() {
    let campaign = Campaign::new();
    if campaign.is_long {
        // What a machine that is too busy cannot do is told at once, not after hours.
        LazyLock::force(&ACKNOWLEDGED_RUN);
    }
    let went_well = std::thread::scope(|scope| {
        let all = &campaign;
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || all.work(n))).collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join().is_ok()).collect();
        ends.into_iter().all(|ended_well| ended_well)
    });
    campaign.report.lock().unwrap().add(&ACKNOWLEDGED_RUN);
    campaign.tell("in all");
    let report = campaign.report.lock().unwrap();
    say(&format!("\n{report}"));
    assert!(went_well, "see above; what is wrong with a round is not in the table");
    // A handful of kills cannot reach them all.
    for window in windows().filter(|_| campaign.kills >= KILLS) {
        assert!(report.clone().line(window).kills > 0, "never killed at {window}\n{report}");
    }
    let total = report.total();
    assert!(total.kills >= campaign.kills + AFTER_ACKNOWLEDGEMENT, "too few kills\n{report}");
    assert!(
        total.in_flight >= IN_FLIGHT.min(campaign.kills),
        "too few of them while something was on its way\n{report}"
    );
    // The judge has said so for each event; the table must say the same.
    assert_eq!((total.doubled, total.lost, total.effects), (0, 0, total.meant), "{report}");
}

#[test]
fn c42_acknowledged_then_killed_within_5_ms() {
    let mut report = ACKNOWLEDGED_RUN.clone();
    let line = report.line(ACKNOWLEDGED);
    assert!(line.kills >= AFTER_ACKNOWLEDGEMENT, "{line:?}");
    assert_eq!((line.effects, line.doubled, line.lost), (line.events, 0, 0), "{line:?}");
}

/// Everything that is killed in one run of the test.
struct Campaign {
    dice: Mutex<Dice>,
    kills: u64,
    until: Option<Instant>,
    /// Whether somebody watches for hours.
    is_long: bool,
    began: Instant,
    rounds: AtomicU64,
    stop: AtomicBool,
    report: Mutex<Report>,
}

impl Campaign {
    fn new() -> Self {
        let began = Instant::now();
        let kills = std::env::var("ONCEGATE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
        let hours = std::env::var("TORTURE_HOURS").ok().map(|text| text.parse::<f64>().unwrap());
        Self {
            dice: Mutex::new(Dice::new("kills")),
            kills: if hours.is_some() { KILLS } else { kills },
            until: hours.map(|hours| began + Duration::from_secs_f64(hours * 3600.0)),
            is_long: hours.is_some() || kills > KILLS,
            began,
            rounds: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            report: Mutex::default(),
        }
    }

    fn work(&self, worker: u64) {
        let _stops = StopsAll(&self.stop);
        while !self.stop.load(Ordering::SeqCst) {
            // Seeds are drawn in the order of the rounds, so that they do not hang on who is faster.
            let (number, seed) = {
                let mut dice = self.dice.lock().unwrap();
                (self.rounds.fetch_add(1, Ordering::SeqCst), dice.next())
            };
            let first = number * LIVES;
            let is_over = match self.until {
                Some(until) => Instant::now() >= until && first >= self.kills,
                None => first >= self.kills,
            };
            if is_over {
                return;
            }
            let mut round = Round::new(&format!("r{number}"), seed);
            for life in first..first + LIVES {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                round.live(life, death(life));
            }
            let report = round.end();
            self.report.lock().unwrap().add(&report);
            if self.is_long {
                self.tell(&format!("round {number} of worker {worker}, seed {seed}"));
            }
        }
    }

    fn tell(&self, what: &str) {
        let total = self.report.lock().unwrap().total();
        say(&format!(
            "{what}: {} kills, {} of them in flight; {} events, {} before a person, {} doubled, {} lost; {} s",
            total.kills,
            total.in_flight,
            total.events,
            total.asked,
            total.doubled,
            total.lost,
            self.began.elapsed().as_secs()
        ));
    }
}

/// Ends the other workers when one finds something wrong.
struct StopsAll<'a>(&'a AtomicBool);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

/// All failpoints in turn, and in between from outside. The first life of a round may end before there is a database.
fn death(life: u64) -> Death {
    let turn = usize::try_from(life / 2).unwrap();
    match life % 2 {
        _ if life.is_multiple_of(LIVES) => Death::Starting,
        0 => Death::At(PLACES[turn % PLACES.len()]),
        _ => [Death::WhileHeld, Death::AnyMoment, Death::Starting, Death::AnyMoment][turn % 4],
    }
}

/// This test is the sender itself: it must know the moment of the acknowledgement to the millisecond.
fn killed_after_acknowledgement() -> Report {
    let mut dice = Dice::new("c42");
    let ground = Ground::new("c42");
    let receivers = [(Kind::Once, Receiver::start(&ground, "once", &[]))];
    let site = Site::new(&ground, &configs::calm(&receivers[0].1));
    let sample: Value = serde_json::from_str(&std::fs::read_to_string(world::sample()).unwrap()).unwrap();
    let mut events: Vec<Event> = vec![];
    let (mut in_time, mut in_flight) = (0, 0);
    while in_time < AFTER_ACKNOWLEDGEMENT {
        assert!(events.len() < 500, "this machine is too busy to kill anything within 5 ms");
        let gate = site.start(None);
        if let Some(event) = events.last() {
            until(&format!("the end of {}", event.token), || event.is_settled(&gate).then_some(()));
        }
        let event = post_one(site.at, &sample, events.len());
        let acknowledged = Instant::now();
        std::thread::sleep(Duration::from_micros(dice.below(4_000)));
        let waited = acknowledged.elapsed();
        gate.kill();
        if waited < Duration::from_millis(5) {
            in_time += 1;
            in_flight += u64::from(site.in_flight() > 0);
        }
        events.push(event);
    }
    let gate = site.start(None);
    for event in &events {
        until(&format!("the end of {}", event.token), || event.is_settled(&gate).then_some(()));
    }
    let (mut report, wrong) = judge(&round::read(&gate, &receivers, |_| true), &events, true);
    wrong.holds();
    let line = report.line(ACKNOWLEDGED);
    (line.kills, line.in_flight) = (in_time, in_flight);
    report
}

fn post_one(at: std::net::SocketAddr, sample: &Value, number: usize) -> Event {
    let token = format!("c42-{number}");
    let old = sample["body_text"].as_str().unwrap();
    let body = old.replace("tok8m2c4x7q1z5v9b3n6k0j", &token);
    assert_ne!(body, old, "the sample has another token by now");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", BASE64.encode(&mac.finalize().into_bytes()));
    let headers = [("content-type", "application/json"), ("typeform-signature", &signature)];
    let answer = wire::call(at, "POST", "/in/once", &headers, body.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let mut event = Event::new(ACKNOWLEDGED, Kind::Once, token, configs::ONE);
    event.body_sha256 = HEXLOWER.encode(&Sha256::digest(&body));
    event
}

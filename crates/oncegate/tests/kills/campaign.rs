//! Hundreds of kills: at each failpoint, while the receiver holds a request, right after an acknowledgement, and at
//! random moments. `ONCEGATE_KILLS=n` asks for more of them.
//!
//! Many lives share one data directory and two receivers. Lives in which a failpoint kills alternate with lives in
//! which the kill comes from outside, and the latter first bring to an end what earlier lives left: so no claim is
//! killed more than twice, as after three resumes without progress a person must look (DESIGN §3).

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use oncegate_store::failpoint::PLACES;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::dice::{Dice, say};
use crate::judge::{self, Event};
use crate::report::Report;
use crate::wire;
use crate::world::{self, Gate, Ground, Receiver, SECRET, Sender, Site, until};

/// Kills unless more are asked for; those after an acknowledgement come on top.
const KILLS: u64 = 240;
const WORKERS: u64 = 2;
/// Kills within 5 ms after an acknowledgement (C42).
const ACKNOWLEDGED: u64 = 100;
/// Per life and automation.
const EVENTS: u32 = 2;
const COPIES: u32 = 3;

static AFTER_ACKNOWLEDGEMENT: LazyLock<Report> = LazyLock::new(killed_after_acknowledgement);

#[test]
fn every_window_is_killed_in_and_nothing_is_lost_or_doubled() {
    const { assert!(KILLS + ACKNOWLEDGED >= 300) };
    let start = Instant::now();
    let kills = std::env::var("ONCEGATE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let mut dice = Dice::new("kills");
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let dice = dice.split();
                scope.spawn(move || Worker::new(number, dice).work(kills.div_ceil(WORKERS)))
            })
            .collect();
        for worker in workers {
            report.add(&worker.join().unwrap());
        }
    });
    report.add(&AFTER_ACKNOWLEDGEMENT);
    say(&format!("\n{report}in {:.1} s\n", start.elapsed().as_secs_f64()));
    for window in PLACES.into_iter().chain(["receiver_holds", "random", "acknowledged_5ms"]) {
        assert!(report.line(window).kills > 0, "never killed at {window}\n{report}");
    }
    let total = report.total();
    assert!(total.kills >= kills + ACKNOWLEDGED, "too few kills\n{report}");
    assert_eq!((total.doubled, total.lost), (0, 0), "{report}");
    // Each event led to its effect, or a person was told that nobody knows.
    assert!(total.effects + total.asked >= total.events, "{report}");
}

#[test]
fn c42_acknowledged_then_killed_within_5_ms() {
    let mut report = Report::default();
    report.add(&AFTER_ACKNOWLEDGEMENT);
    let line = report.line("acknowledged_5ms");
    assert!(line.kills >= ACKNOWLEDGED, "{line:?}");
    assert_eq!((line.effects, line.doubled, line.lost), (line.events, 0, 0), "{line:?}");
}

/// How one life ends.
#[derive(Clone, Copy)]
enum Death {
    At(&'static str),
    WhileHeld,
    AnyMoment,
}

impl Death {
    fn window(self) -> &'static str {
        match self {
            Self::At(place) => place,
            Self::WhileHeld => "receiver_holds",
            Self::AnyMoment => "random",
        }
    }
}

/// A gate with its two receivers: one that knows keys, one that does not.
struct Worker {
    number: u64,
    dice: Dice,
    ground: Ground,
    once: Receiver,
    never: Receiver,
    site: Site,
    report: Report,
    settled: Vec<Event>,
    open: Vec<Event>,
    senders: Vec<(Sender, Vec<Event>)>,
}

impl Worker {
    fn new(number: u64, dice: Dice) -> Self {
        let ground = Ground::new(&format!("campaign{number}"));
        let once = Receiver::start(&ground, "once", &[]);
        let never = Receiver::start(&ground, "never", &["--no-dedupe"]);
        let site = Site::new(&ground, &world::config(&once, Some(&never)));
        Self {
            number,
            dice,
            ground,
            once,
            never,
            site,
            report: Report::default(),
            settled: vec![],
            open: vec![],
            senders: vec![],
        }
    }

    fn work(mut self, lives: u64) -> Report {
        for life in 0..lives {
            // Both workers go through all windows, from different ends.
            let turn = usize::try_from(life / 2 + self.number * 5).unwrap();
            let death = match (life % 2, turn % 2) {
                (0, _) => Death::At(PLACES[turn % PLACES.len()]),
                (_, 0) => Death::WhileHeld,
                _ => Death::AnyMoment,
            };
            self.live(life, death);
            self.report.line(death.window()).kills += 1;
        }
        let gate = self.site.start(None);
        self.settle(&gate);
        let (report, wrong) = judge::judge(&gate, &self.once, Some(&self.never), &self.settled);
        wrong.holds();
        self.report.add(&report);
        self.report
    }

    fn live(&mut self, life: u64, death: Death) {
        match death {
            Death::At(place) => {
                let failpoint = format!("{place}@{}", 1 + self.dice.below(3));
                let gate = self.site.start(Some(&failpoint));
                self.post(life, death);
                gate.dies(&failpoint);
            }
            Death::WhileHeld => {
                let gate = self.site.start(None);
                self.settle(&gate);
                let before = (self.once.arrivals().len(), self.never.arrivals().len());
                self.once.hold();
                self.never.hold();
                self.post(life, death);
                until("a request at each receiver", || {
                    let now = (self.once.arrivals().len(), self.never.arrivals().len());
                    (now.0 > before.0 && now.1 > before.1).then_some(())
                });
                gate.kill();
                self.once.release();
                self.never.release();
            }
            Death::AnyMoment => {
                let gate = self.site.start(None);
                self.settle(&gate);
                self.post(life, death);
                // Not a wait for anything: the moment itself is what is drawn.
                std::thread::sleep(Duration::from_micros(self.dice.below(60_000)));
                gate.kill();
            }
        }
    }

    /// Two senders start; they go on over deaths until they are acknowledged.
    fn post(&mut self, life: u64, death: Death) {
        for automation in ["once", "never"] {
            let to = format!("http://{}/in/{automation}", self.site.at);
            let prefix = format!("{automation}-{life}");
            let sender = Sender::start(&self.ground, &to, &world::sample(), Some((EVENTS, &prefix)), COPIES);
            let event = |n| Event {
                window: death.window(),
                automation,
                token: format!("{prefix}-{n}"),
                body_sha256: String::new(),
            };
            self.senders.push((sender, (0..EVENTS).map(event).collect()));
        }
    }

    /// Everything posted so far is acknowledged and has come to its end.
    fn settle(&mut self, gate: &Gate) {
        for (sender, mut events) in self.senders.drain(..) {
            judge::acknowledged(&mut events, &sender.acknowledged(), COPIES as usize);
            self.open.append(&mut events);
        }
        let open: Vec<&str> = self.open.iter().map(|event| event.token.as_str()).collect();
        until(&format!("the end of each of {open:?}"), || {
            let (settled, open) = self.open.drain(..).partition(|event| event.is_settled(gate));
            self.open = open;
            self.settled.extend::<Vec<_>>(settled);
            self.open.is_empty().then_some(())
        });
    }
}

/// This test is the sender itself: it must know the moment of the acknowledgement to the millisecond.
fn killed_after_acknowledgement() -> Report {
    let mut dice = Dice::new("c42");
    let ground = Ground::new("c42");
    let once = Receiver::start(&ground, "once", &[]);
    let site = Site::new(&ground, &world::config(&once, None));
    let sample: Value = serde_json::from_str(&std::fs::read_to_string(world::sample()).unwrap()).unwrap();
    let mut events: Vec<Event> = vec![];
    let mut in_time = 0;
    while in_time < ACKNOWLEDGED {
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
        in_time += u64::from(waited < Duration::from_millis(5));
        events.push(event);
    }
    let gate = site.start(None);
    for event in &events {
        until(&format!("the end of {}", event.token), || event.is_settled(&gate).then_some(()));
    }
    let (mut report, wrong) = judge::judge(&gate, &once, None, &events);
    wrong.holds();
    report.line("acknowledged_5ms").kills = in_time;
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
    let body_sha256 = HEXLOWER.encode(&Sha256::digest(&body));
    Event { window: "acknowledged_5ms", automation: "once", token, body_sha256 }
}

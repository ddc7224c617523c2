//! One round: a fresh gate with fresh receivers lives and dies some dozens of times, then everything comes to its
//! end, and is judged; then people look at what is left for them, and all is judged again.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::configs;
use crate::dice::{Dice, say};
use crate::judge::{self, Books, Event, Kind, judge};
use crate::report::{HOLDS, RANDOM, Report, STARTING};
use crate::world::{self, Gate, Ground, Receiver, Sender, Site, until};

/// Copies of each event that its sender sends.
const COPIES: u32 = 3;
/// How long a life lasts at most if nothing comes by the place where it is to end.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Within which time a life ends at any moment, in microseconds.
const ANY_MOMENT: u64 = 200_000;
/// Of what nobody had to look at, one in so many is held against the gate's history.
const WHOLE: u64 = 8;
/// Lists in which what is open may stand when the gate is done with it.
const LISTS: [&str; 3] = ["error", "stuck", "parked"];

/// How one life ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    At(&'static str),
    WhileHeld,
    Starting,
    AnyMoment,
}

/// A gate with its receivers, one of each kind.
pub(crate) struct Round {
    name: String,
    seed: u64,
    dice: Dice,
    receivers: Vec<(Kind, Receiver)>,
    site: Site,
    report: Report,
    events: Vec<Event>,
    senders: Vec<(Sender, Range<usize>)>,
    /// How long it takes from a start until it answers.
    start: Duration,
    // The last to be dropped: the processes have their files there.
    ground: Ground,
}

impl Round {
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        let ground = Ground::new(name);
        let receiver = |kind: Kind| {
            let seed = format!("--seed={seed}");
            let args: &[&str] = if kind == Kind::Once { &[&seed] } else { &[&seed, "--no-dedupe"] };
            (kind, Receiver::start(&ground, kind.name(), args))
        };
        let receivers: Vec<(Kind, Receiver)> = Kind::ALL.into_iter().map(receiver).collect();
        Self {
            name: name.to_owned(),
            seed,
            dice: Dice::of(seed),
            site: Site::new(&ground, &configs::wild(&receivers)),
            receivers,
            report: Report::default(),
            events: vec![],
            senders: vec![],
            start: Duration::from_millis(100),
            ground,
        }
    }

    /// One life, and what came in during it.
    pub(crate) fn live(&mut self, number: u64, death: Death) {
        let first = self.events.len();
        let window = self.die(number, death);
        self.events[first..].iter_mut().for_each(|event| event.window = window);
        let line = self.report.line(window);
        line.kills += 1;
        line.in_flight += u64::from(self.site.in_flight() > 0);
    }

    /// Where it died.
    fn die(&mut self, number: u64, death: Death) -> &'static str {
        match death {
            Death::At(place) => {
                // What every event passes may also be passed by others before.
                let rare = ["look.", "each.", "defer.", "error."].iter().any(|rare| place.starts_with(rare));
                let failpoint = format!("{place}@{}", 1 + self.dice.below(if rare { 1 } else { 3 }));
                self.post(number);
                let mut gate = self.site.start(Some(&failpoint));
                if gate.dies_within(PATIENCE) {
                    return place;
                }
                gate.kill();
                RANDOM
            }
            Death::Starting => {
                self.post(number);
                let gate = self.site.launch(None);
                let most = u64::try_from(self.start.as_micros()).unwrap();
                std::thread::sleep(Duration::from_micros(self.dice.below(most)));
                gate.kill();
                STARTING
            }
            Death::WhileHeld => {
                let gate = self.start_in_peace();
                let size = |round: &Self| round.receivers.iter().map(|(_, one)| one.size()).sum::<u64>();
                self.receivers.iter().for_each(|(_, one)| one.hold());
                let before = size(self);
                self.post(number);
                let held = within(PATIENCE, || size(self) > before);
                gate.kill();
                self.receivers.iter().for_each(|(_, one)| one.release());
                if held { HOLDS } else { RANDOM }
            }
            Death::AnyMoment => {
                let gate = self.start_in_peace();
                self.post(number);
                // Not a wait for anything: the moment itself is what is drawn.
                std::thread::sleep(Duration::from_micros(self.dice.below(ANY_MOMENT)));
                gate.kill();
                RANDOM
            }
        }
    }

    /// A gate that has gone on with what earlier lives left: what is taken up three times in vain goes to a person,
    /// and nothing would be tried by that. What waits for its time is no matter.
    fn start_in_peace(&mut self) -> Gate {
        let start = Instant::now();
        let gate = self.site.start(None);
        self.start = start.elapsed();
        within(PATIENCE, || gate.list("state=processing&").iter().all(|claim| claim["due_at"].is_string()));
        gate
    }

    /// A sender starts, and goes on over deaths until it is acknowledged.
    fn post(&mut self, number: u64) {
        let to: Vec<String> =
            Kind::ALL.iter().map(|kind| format!("http://{}/in/{}", self.site.at, kind.name())).collect();
        let (prefix, first) = (format!("{}-{number}", self.name), self.events.len());
        let (seed, sample) = (Some(self.seed), world::sample());
        let count = u32::try_from(to.len()).unwrap();
        let sender = Sender::mixed(&self.ground, &to, &sample, Some((count, &prefix)), COPIES, seed);
        let event = |(n, kind)| Event::new(RANDOM, kind, format!("{prefix}-{n}"), configs::meant(kind));
        self.events.extend((0..count).zip(Kind::ALL).map(event));
        self.senders.push((sender, first..self.events.len()));
    }

    /// Everything comes to its end, and every promise is held against the books.
    pub(crate) fn end(mut self) -> Report {
        let gate = self.site.start(None);
        for (sender, events) in self.senders.drain(..) {
            judge::acknowledged(&mut self.events[events], &sender.acknowledged(), COPIES as usize);
        }
        all(&gate, "the end of everything that was acknowledged", judge::is_settled);
        let books = read(&gate, &self.receivers, |claim| claim["processing_state"] != "done");
        self.holds(&books, false);
        self.receivers.iter().for_each(|(_, receiver)| receiver.calm());
        self.people(&gate, &books);
        let is_done = |claim: &Value| claim["processing_state"] == "done";
        all(&gate, "the end of everything that people looked at", is_done);
        let mut number = 0;
        let books = read(&gate, &self.receivers, |claim| {
            number += 1;
            let key = claim["idempotency_key"].as_str().unwrap();
            number % WHOLE == 0 || self.events.iter().any(|event| event.listed && event.key() == key)
        });
        let report = self.holds(&books, true);
        self.report.add(&report);
        self.report
    }

    fn holds(&self, books: &Books, ends: bool) -> Report {
        let (report, mut wrong) = judge(books, &self.events, ends);
        if self.site.log().contains("panicked") {
            wrong.0.push(format!("the gate panicked:\n{}", self.site.log()));
        }
        if !wrong.0.is_empty() {
            say(&format!(
                "WRONG: see {}; its receivers' seed is {}",
                self.ground.path("").display(),
                self.seed
            ));
        }
        wrong.holds();
        report
    }

    /// What the lists are for: somebody looks whether it happened, and then says so, or lets it run.
    fn people(&mut self, gate: &Gate, books: &Books) {
        for event in &mut self.events {
            let claim = books.claim(event).unwrap();
            if claim["processing_state"] == "done" {
                continue;
            }
            event.listed = true;
            let happened = event.kind == Kind::Never && books.effects(event) > 0;
            let verb = if happened { "mark-done" } else { "run-now" };
            let path = format!("/v1/claims/{}/{verb}", claim["claim_id"].as_str().unwrap());
            gate.post(&path, &json!({ "reason": "looked at the receiver's book", "by": "Ann" })).unwrap();
            event.resets += usize::from(!happened);
        }
    }
}

/// Waits until it is so of every claim.
fn all(gate: &Gate, what: &str, is_so: impl Fn(&Value) -> bool) {
    let so = |list: &str| gate.list(list).iter().all(&is_so);
    // The short lists cost little; the long one is read at one moment, and between two short ones a claim could change
    // from the one to the other.
    until(what, || (so("state=processing&") && so("inbox=error&") && so("")).then_some(()));
}

/// Whether it comes about in time. Its absence is no fault.
fn within(time: Duration, mut comes: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        match comes() {
            true => return true,
            false if start.elapsed() > time => return false,
            false => std::thread::sleep(Duration::from_millis(30)),
        }
    }
}

/// All books. `whole`: of which claims with their calls; to ask for each costs the gate more than to work on it.
pub(crate) fn read(gate: &Gate, receivers: &[(Kind, Receiver)], whole: impl FnMut(&Value) -> bool) -> Books {
    let files: Vec<(Kind, String)> = receivers.iter().map(|(kind, one)| (*kind, one.book())).collect();
    books(gate, &files, whole)
}

/// The same, of receivers' files that were read before.
pub(crate) fn books(gate: &Gate, files: &[(Kind, String)], mut whole: impl FnMut(&Value) -> bool) -> Books {
    let listed: Vec<Value> = LISTS.iter().flat_map(|list| gate.list(&format!("inbox={list}&"))).collect();
    let claims = gate.list("");
    let read = |claim: Value| if whole(&claim) { gate.whole(&claim) } else { claim };
    let claims = claims.into_iter().map(read).collect();
    Books::new(files, claims, &listed)
}

//! What must be true of every event afterwards, from the files of receiver and sender and from the gate's audit.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::report::Report;
use crate::world::{Arrival, Delivery, Gate, Receiver};

/// The form of the sample.
pub(crate) const FORM: &str = "frmDemo7";

/// One event that was on its way when the gate was killed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Where the kill of that life was placed.
    pub(crate) window: &'static str,
    /// `once` or `never`.
    pub(crate) automation: &'static str,
    pub(crate) token: String,
    /// What was sent; known when it was acknowledged.
    pub(crate) body_sha256: String,
}

impl Event {
    /// Its end: done; or, where nothing may be repeated, before a person.
    pub(crate) fn is_settled(&self, gate: &Gate) -> bool {
        let Some(claim) = gate.claim(self.automation, FORM, &self.token) else { return false };
        claim["processing_state"] == "done"
            || (self.automation == "never"
                && claim["processing_state"] == "error"
                && claim["due_at"].is_null())
    }
}

/// Every copy of every event was told 200, and none something else.
pub(crate) fn acknowledged(events: &mut [Event], deliveries: &[Delivery], copies: usize) {
    for event in events {
        let ours: Vec<&Delivery> = deliveries.iter().filter(|d| d.event == event.token).collect();
        assert_eq!(ours.len(), copies, "{event:?}: {ours:?}");
        assert!(ours.iter().all(|d| d.status == 200), "{event:?}: {ours:?}");
        event.body_sha256.clone_from(&ours[0].body_sha256);
    }
}

/// What is not as it must be.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) Vec<String>);

impl Wrong {
    pub(crate) fn holds(self) {
        assert!(self.0.is_empty(), "{} thing(s) are wrong:\n{}", self.0.len(), self.0.join("\n"));
    }
}

/// Counts all events, and what is wrong with them.
pub(crate) fn judge(
    gate: &Gate,
    once: &Receiver,
    never: Option<&Receiver>,
    events: &[Event],
) -> (Report, Wrong) {
    let mut report = Report::default();
    let mut wrong = Vec::new();
    let mut audited = HashSet::new();
    let files = [("once", once.arrivals()), ("never", never.map(Receiver::arrivals).unwrap_or_default())];
    let mut by_key: HashMap<(&str, &str), Vec<&Arrival>> = HashMap::new();
    for (automation, arrivals) in &files {
        for arrival in arrivals {
            by_key.entry((automation, arrival.key.as_deref().unwrap_or_default())).or_default().push(arrival);
        }
    }
    for event in events {
        let line = report.line(event.window);
        line.events += 1;
        let Some(claim) = gate.claim(event.automation, FORM, &event.token) else {
            line.lost += 1;
            wrong.push(format!("{event:?}: acknowledged, but the gate does not know it"));
            continue;
        };
        let whole = gate.whole(&claim);
        let calls = whole["calls"].as_array().unwrap();
        let keys: HashSet<&str> =
            calls.iter().map(|call| call["idempotency_key"].as_str().unwrap()).collect();
        audited.extend(keys.iter().map(|key| (event.automation, (*key).to_owned())));
        let arrivals: Vec<&Arrival> = keys
            .iter()
            .flat_map(|key| by_key.get(&(event.automation, *key)).into_iter().flatten().copied())
            .collect();
        let effects = arrivals.iter().filter(|a| a.did == "effect").count();
        let asked = whole["error_cause"] == "outcome_unknown" && whole["inbox"] == "error";
        let done = whole["processing_state"] == "done";
        line.effects += effects as u64;
        line.asked += u64::from(asked);
        line.doubled += u64::from(effects > 1);
        // A claim that is done without an effect is as lost as one that nobody works on.
        let lost = if done { effects == 0 } else { !(asked && event.automation == "never") };
        line.lost += u64::from(lost);
        let mut must = |so: bool, what: &str| {
            if !so {
                wrong.push(format!("{event:?}: {what}\n  claim: {whole}\n  receiver: {arrivals:?}"));
            }
        };
        must(!lost, "lost");
        must(effects <= 1, "doubled");
        must(keys.len() <= 1, "one step sent two keys");
        must(arrivals.len() <= calls.len(), "requests on the wire that the audit does not know");
        must(arrivals.len() >= answered(calls), "answered calls that never reached the receiver");
        must(arrivals.iter().all(|a| a.body_sha256 == event.body_sha256), "not the bytes that came in");
        if event.automation == "never" {
            must(arrivals.len() <= 1, "repeated although it must not be");
        }
    }
    for (automation, key) in by_key.keys() {
        if !audited.contains(&(*automation, (*key).to_owned())) {
            wrong.push(format!("{automation}: a request with key {key:?} that no call in the audit has"));
        }
    }
    (report, Wrong(wrong))
}

fn answered(calls: &[Value]) -> usize {
    calls.iter().filter(|call| !call["status"].is_null()).count()
}

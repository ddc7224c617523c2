//! What must be true of every event afterwards. It believes what the receivers and the senders wrote down themselves
//! and, of the gate, its lists; its history is only held against what came over the wire.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::report::{Line, Report};
use crate::world::{Arrival, Delivery, Gate, lines_of};

/// The form of the sample.
pub(crate) const FORM: &str = "frmDemo7";

/// The automations of these tests, by what their receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It knows keys, and does nothing when it sees one again.
    Once,
    /// It knows none, and can be asked.
    Checked,
    /// Neither: a second call would be a second effect.
    Never,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Once, Self::Checked, Self::Never];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Checked => "checked",
            Self::Never => "never",
        }
    }
}

/// One event that was on its way when the gate was killed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Where the kill of that life was placed.
    pub(crate) window: &'static str,
    pub(crate) kind: Kind,
    pub(crate) token: String,
    /// What is meant to happen once for it: how the paths end that its receiver is asked under. What has a `/` in it
    /// is one of many, and has a body of its own.
    pub(crate) meant: &'static [&'static str],
    /// What was sent; known when it was acknowledged.
    pub(crate) body_sha256: String,
    /// How often a person said that it may run again.
    pub(crate) resets: usize,
    /// It stood in a list when the gate was done with it.
    pub(crate) listed: bool,
}

impl Event {
    pub(crate) fn new(
        window: &'static str,
        kind: Kind,
        token: String,
        meant: &'static [&'static str],
    ) -> Self {
        Self { window, kind, token, meant, body_sha256: String::new(), resets: 0, listed: false }
    }

    pub(crate) fn key(&self) -> String {
        format!("typeform:form_response:{FORM}:{}", self.token)
    }

    /// Its end: done, or before a person.
    pub(crate) fn is_settled(&self, gate: &Gate) -> bool {
        gate.claim(self.kind.name(), FORM, &self.token).is_some_and(|claim| is_settled(&claim))
    }
}

/// Nothing happens to it any more by itself.
pub(crate) fn is_settled(claim: &Value) -> bool {
    let state = &claim["processing_state"];
    state == "done" || (claim["due_at"].is_null() && (state == "error" || claim["inbox"] == "parked"))
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
        let shown: Vec<&str> = self.0.iter().take(10).map(String::as_str).collect();
        assert!(self.0.is_empty(), "{} thing(s) are wrong:\n{}", self.0.len(), shown.join("\n"));
    }
}

/// What is read before it is judged.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// By the receivers' own files.
    arrivals: BTreeMap<Kind, Vec<Arrival>>,
    /// As the list of all claims shows them; with `calls`, if they were looked at one by one.
    pub(crate) claims: Vec<Value>,
    /// The ids of those that stand in a list for people.
    pub(crate) listed: HashSet<String>,
}

impl Books {
    /// Of texts, as they stand in the files and in the gate's answers.
    pub(crate) fn new(arrivals: &[(Kind, String)], claims: Vec<Value>, listed: &[Value]) -> Self {
        let arrivals = arrivals.iter().map(|(kind, text)| (*kind, lines_of(text))).collect();
        let id = |claim: &Value| claim["claim_id"].as_str().unwrap().to_owned();
        Self { arrivals, claims, listed: listed.iter().map(id).collect() }
    }

    pub(crate) fn claim(&self, event: &Event) -> Option<&Value> {
        let (name, key) = (event.kind.name(), event.key());
        self.claims.iter().find(|c| c["automation"] == name && c["idempotency_key"] == key.as_str())
    }

    /// What happened for an event, by its receiver's file, under each name that is meant.
    fn of<'a>(&'a self, event: &Event, name: &str) -> Vec<&'a Arrival> {
        let all = self.arrivals.get(&event.kind).into_iter().flatten();
        all.filter(|a| !a.looks() && a.token() == event.token && a.name() == name).collect()
    }

    pub(crate) fn effects(&self, event: &Event) -> usize {
        event.meant.iter().map(|name| effects(&self.of(event, name))).sum()
    }
}

fn effects(arrivals: &[&Arrival]) -> usize {
    arrivals.iter().filter(|a| a.did == "effect").count()
}

/// Counts all events, and what is wrong with them. `ends`: people have looked at every list, so all of it must be
/// done.
pub(crate) fn judge(books: &Books, events: &[Event], ends: bool) -> (Report, Wrong) {
    let (mut report, mut wrong) = (Report::default(), Vec::new());
    for event in events {
        let line = report.line(event.window);
        line.events += 1;
        line.meant += event.meant.len() as u64;
        line.effects += books.effects(event) as u64;
        line.asked += u64::from(event.listed);
        let found = one(books, event, ends, line);
        let claim = books.claim(event).map(Value::to_string).unwrap_or_default();
        let arrivals: Vec<&Arrival> =
            books.arrivals[&event.kind].iter().filter(|a| a.token() == event.token).collect();
        wrong.extend(
            found
                .into_iter()
                .map(|what| format!("{event:?}: {what}\n  claim: {claim}\n  receiver: {arrivals:?}")),
        );
    }
    for (kind, arrivals) in &books.arrivals {
        let ours: HashSet<&str> =
            events.iter().filter(|e| e.kind == *kind).map(|event| event.token.as_str()).collect();
        let strange = arrivals.iter().filter(|a| !ours.contains(a.token()));
        wrong.extend(strange.map(|a| format!("{kind:?}: nobody ordered {a:?}")));
    }
    (report, Wrong(wrong))
}

fn one(books: &Books, event: &Event, ends: bool, line: &mut Line) -> Vec<String> {
    let mut wrong = Vec::new();
    let claims = (event.kind.name(), event.key());
    let same = |c: &&Value| c["automation"] == claims.0 && c["idempotency_key"] == claims.1.as_str();
    if books.claims.iter().filter(same).count() > 1 {
        wrong.push("two claims of one event".to_owned());
    }
    let Some(claim) = books.claim(event) else {
        line.lost += 1;
        return vec!["acknowledged, but the gate does not know it".to_owned()];
    };
    let done = claim["processing_state"] == "done";
    let listed = books.listed.contains(claim["claim_id"].as_str().unwrap());
    let mut lost = false;
    if !done && (ends || !listed) {
        lost = true;
        wrong.push("lost: neither done nor in a list".to_owned());
    }
    let all = books.arrivals[&event.kind].iter().filter(|a| a.token() == event.token);
    if let Some(other) = all.clone().find(|a| !event.meant.contains(&a.name())) {
        wrong.push(format!("nobody meant {:?}", other.path));
    }
    for name in event.meant {
        let arrivals = books.of(event, name);
        let happened = effects(&arrivals);
        if done && happened == 0 {
            lost = true;
            wrong.push(format!("lost: done, and `{name}` never happened"));
        }
        if happened > 1 {
            line.doubled += 1;
            wrong.push(format!("doubled: `{name}` happened {happened} times"));
        }
        let keys: HashSet<_> = arrivals.iter().map(|a| a.key.as_deref()).collect();
        if keys.len() > 1 {
            wrong.push(format!("`{name}` was sent under {} keys", keys.len()));
        }
        let other = arrivals.iter().any(|a| a.body_sha256 != event.body_sha256);
        if !name.contains('/') && other {
            wrong.push(format!("`{name}` was not sent the bytes that came in"));
        }
        if event.kind == Kind::Never {
            wrong.extend(again(event, name, &arrivals));
        }
    }
    // What the gate heard of is no matter: nobody does that again.
    let heard =
        claim["calls"].as_array().is_some_and(|calls| calls.iter().any(|c| c["outcome"] == "succeeded"));
    if event.kind == Kind::Never && !done && !heard && claim["error_cause"] != "outcome_unknown" {
        let open = event.meant.iter().any(|name| books.of(event, name).iter().any(|a| a.did != "refused"));
        if open {
            wrong.push("it may have happened, and nobody is told so".to_owned());
        }
    }
    if let Some(calls) = claim["calls"].as_array() {
        let answered = calls.iter().filter(|call| !call["status"].is_null()).count();
        if all.clone().count() > calls.len() {
            wrong.push("requests on the wire that the history does not know".to_owned());
        }
        if all.count() < answered {
            wrong.push("answered calls that never reached the receiver".to_owned());
        }
    }
    line.lost += u64::from(lost);
    wrong
}

/// A receiver that is neither: of all but a refusal nobody knows what it did, so nothing may come after it, unless a
/// person said so.
fn again(event: &Event, name: &str, arrivals: &[&Arrival]) -> Option<String> {
    let unknown = |before: &[&Arrival]| before.iter().filter(|a| a.did != "refused").count();
    let worst = (1..arrivals.len()).map(|n| unknown(&arrivals[..n])).max()?;
    (worst > event.resets).then(|| format!("`{name}` was tried again after an unknown outcome"))
}

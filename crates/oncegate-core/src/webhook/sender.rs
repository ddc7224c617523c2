//! How many events of one sender run within a time: two systems that answer each other make a new event each time,
//! and nothing in it is known from before but who sent it (C92).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine_mail::address;
use super::request::Headers;
use crate::identity::{KeyField, Part, Rule};
use crate::json::told;
use crate::key::{StoreSecret, Workspace};
use crate::limits;
use crate::policy::{LoopLimit, in_words};
use crate::time::Timestamp;

/// How many events of one sender a source lets run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderLimit {
    /// Who sent it, and how two of them are compared.
    pub field: KeyField,
    /// How many, and within which time.
    pub limit: LoopLimit,
}

impl SenderLimit {
    /// Who sent an event. `None`: it does not say, or not as the rule wants it; nobody can count it then.
    pub fn of(
        &self,
        (headers, payload): (&Headers, &Value),
        secret: &StoreSecret,
        (workspace, source): (Workspace, &str),
    ) -> Option<Sender> {
        let said = self.field.path.plain(headers, payload)?;
        // Mails say `Ann <ann@example.org>`, which is no address.
        let said = match self.field.rule {
            Rule::Email(_) => address(&said).to_owned(),
            _ => said,
        };
        let Ok(Part::Value(value)) = self.field.part(Some(&Value::String(said))) else { return None };
        let field = self.field.describe();
        let parts = [source, &field, &value.folded].map(str::as_bytes);
        Some(Sender {
            hash: secret.hash_in(workspace, "sender", &parts),
            shown: told(&value.folded),
            limit: self.limit,
        })
    }
}

/// Who sent one event, and how many of its events may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Equal for events of one sender of one source; keyed, so that whoever reads the store learns no address by it.
    pub hash: [u8; 16],
    /// As all its spellings are compared, for people.
    pub shown: String,
    /// How many, and within which time.
    pub limit: LoopLimit,
}

impl Sender {
    /// Why an event of it is set aside. The same for all of them, so that an event that comes again is known.
    pub fn why(&self) -> String {
        let LoopLimit { runs, within } = self.limit;
        let events = if runs == 1 { "event" } else { "events" };
        format!("more than {runs} {events} of {} within {}", self.shown, in_words(within))
    }

    /// What a person is told once, when the first of them is set aside.
    pub fn notice(&self, source: &str) -> String {
        format!(
            "source `{source}`: {}: does another system answer this one? What comes is set aside until it gets less; stop \
             the other side, then release what should run (`oncegate list --inbox parked`), which lets this sender begin \
             anew",
            self.why()
        )
    }
}

/// What is remembered of one sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderCount {
    /// When its events were accepted, in milliseconds since 1970, oldest first; only those that still count.
    runs: Vec<i64>,
    /// A person was told since the last of them.
    told: bool,
}

impl SenderCount {
    /// What is stored; what cannot be read counts nothing, as if the sender were new.
    pub fn read(stored: &str) -> Self {
        serde_json::from_str(stored).unwrap_or_default()
    }

    /// To be stored.
    pub fn written(&self) -> String {
        // Numbers and a word: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether one more may run. What lies ahead of a clock that was set back does not count.
    pub fn has_room(&mut self, limit: LoopLimit, now: Timestamp) -> bool {
        let (from, until) = (now.before(limit.within).as_millis(), now.as_millis());
        self.runs.retain(|at| (from + 1..=until).contains(at));
        self.runs.len() < limit.runs as usize
    }

    /// One ran.
    pub fn ran(&mut self, now: Timestamp) {
        self.runs.push(now.as_millis());
        let over = self.runs.len().saturating_sub(limits::SENDER_RUNS_MAX as usize);
        self.runs.drain(..over);
        self.told = false;
    }

    /// One was set aside: whether a person is to be told.
    pub fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn limit() -> LoopLimit {
        LoopLimit { runs: 2, within: Duration::from_secs(600) }
    }

    #[test]
    fn an_address_typed_otherwise_is_the_same_sender_and_what_is_none_is_not_counted() {
        let secret = StoreSecret::new([7; 32]);
        let declared = SenderLimit {
            field: serde_json::from_value(json!({ "field": "from", "as": "email" })).unwrap(),
            limit: limit(),
        };
        let of = |source: &str, payload: Value| {
            declared
                .of((&Headers::default(), &payload), &secret, (Workspace::DEFAULT, source))
                .map(|sender| (sender.hash, sender.shown))
        };
        let ann = of("mails", json!({ "from": "ann@partner.example" })).unwrap();
        assert_eq!(ann.1, "ann@partner.example");
        for (payload, same) in [
            (json!({ "from": " Ann@Partner.EXAMPLE" }), Some(true)),
            (json!({ "from": "\"Ann, sales\" <ANN@partner.example>" }), Some(true)),
            (json!({ "from": "bob@partner.example" }), Some(false)),
            (json!({ "from": "ann" }), None),
            (json!({ "from": "" }), None),
            (json!({ "from": ["ann@partner.example"] }), None),
            (json!({}), None),
        ] {
            let found = of("mails", payload.clone());
            assert_eq!(found.map(|found| found.0 == ann.0), same, "{payload}");
        }
        assert_ne!(of("others", json!({ "from": "ann@partner.example" })).unwrap().0, ann.0);
    }

    #[test]
    fn the_window_slides_and_a_person_is_told_once_until_it_gets_less() {
        let mut count = SenderCount::default();
        let at = Timestamp::from_secs;
        for now in [1_000, 1_300] {
            assert!(count.has_room(limit(), at(now)));
            count.ran(at(now));
        }
        // As the store keeps it.
        count = SenderCount::read(&count.written());
        for (now, news) in [(1_300, true), (1_599, false)] {
            assert!(!count.has_room(limit(), at(now)), "{now}");
            assert_eq!(count.is_news(), news, "{now}");
        }
        assert!(count.has_room(limit(), at(1_600)), "the first is ten minutes old");
        count.ran(at(1_600));
        assert!(!count.has_room(limit(), at(1_601)) && count.is_news(), "it begins anew");
        assert!(count.clone().has_room(limit(), at(900)), "the clock was set back");
        assert_eq!(SenderCount::read("garbage"), SenderCount::default());
    }
}

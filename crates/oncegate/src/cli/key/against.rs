//! Whether two samples would be one effect.

use serde_json::{Value, json};

use super::look::Seen;

/// What would become of the second one after the first.
pub(super) struct Compared {
    pub(super) one_effect: bool,
    /// `duplicate`, `payload_mismatch`, `repeat`, `another`, `rejected`.
    pub(super) verdict: &'static str,
    pub(super) key: Result<String, String>,
    pub(super) words: String,
    /// Fields of the key that count as different values.
    pub(super) differ: Vec<String>,
}

/// Compares the first events of both.
pub(super) fn compare(first: &[Seen], second: &[Seen]) -> Compared {
    let key = match second.first().map(|seen| &seen.identity) {
        Some(Ok(key)) => Ok(key.to_string()),
        Some(Err(why)) => Err(why.clone()),
        None => Err("there is no event in it".to_owned()),
    };
    let said = |one_effect, verdict, words: String| (one_effect, verdict, words);
    let (one_effect, verdict, words) = match (first.first(), second.first()) {
        (Some(a), Some(b)) => match (&a.identity, &b.identity) {
            (Ok(ka), Ok(kb)) if ka == kb => same_key(a, b),
            (Ok(_), Ok(_)) if a.repeat.is_some() && a.repeat == b.repeat => said(
                true,
                "repeat",
                format!(
                    "another key, but the same by the repeat rule: within {} of the first it would be parked",
                    a.within.as_deref().unwrap_or_default()
                ),
            ),
            (Ok(_), Ok(_)) if a.record.is_some() && a.record == b.record => said(
                false,
                "another",
                "another effect of the same record: both would run, one after the other".to_owned(),
            ),
            (Ok(_), Ok(_)) => said(false, "another", "another effect: both would run".to_owned()),
            (Err(_), _) => said(false, "rejected", "the first one would be rejected".to_owned()),
            (_, Err(why)) => said(false, "rejected", format!("it would be rejected: {why}")),
        },
        _ => said(false, "rejected", "there is no event to compare".to_owned()),
    };
    Compared { one_effect, verdict, key, words, differ: differ(first, second) }
}

fn same_key(a: &Seen, b: &Seen) -> (bool, &'static str, String) {
    let of_another = a.about.is_some() && b.about.is_some() && a.about != b.about;
    if a.fingerprint.differs_from(&b.fingerprint) {
        let words = "the same key with another payload: it would be stopped and listed as a mismatch; fields that may \
            change between two deliveries can be declared `volatile`";
        return (true, "payload_mismatch", words.to_owned());
    }
    if a.record != b.record {
        let words = "the same key with another record: it would be stopped and listed as a mismatch";
        return (true, "payload_mismatch", words.to_owned());
    }
    let words = match of_another {
        true => {
            "the same key, but the record says something else about itself: a duplicate, listed as a mismatch"
        }
        false => "the same key and payload: a duplicate, which gets the result of the first",
    };
    (true, "duplicate", words.to_owned())
}

fn differ(first: &[Seen], second: &[Seen]) -> Vec<String> {
    let (Some(a), Some(b)) = (first.first(), second.first()) else { return vec![] };
    let fields = a.explained.key.iter().zip(&b.explained.key);
    fields
        .filter(|(x, y)| x.part != y.part && folded(x) != folded(y))
        .map(|(x, _)| x.field.path.to_string())
        .collect()
}

fn folded(seen: &oncegate_core::webhook::FieldSeen) -> Option<String> {
    seen.part.as_ref().ok().map(ToString::to_string)
}

impl Compared {
    pub(super) fn document(&self) -> Value {
        json!({
            "one_effect": self.one_effect,
            "verdict": self.verdict,
            "idempotency_key": self.key.as_ref().ok(),
            "rejected": self.key.as_ref().err(),
            "differ": self.differ,
            "words": self.words,
        })
    }
}

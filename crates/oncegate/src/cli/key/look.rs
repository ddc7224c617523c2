//! What a sample would become, and how.

use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::identity::{KeyField, Part, Rule, Subject, join};
use oncegate_core::key::{IdempotencyKey, RecordName};
use oncegate_core::policy::show_duration;
use oncegate_core::webhook::{Explained, FieldSeen, Reading};
use oncegate_runner::arrivals::identified;
use serde_json::{Value, json};

use super::{Sample, Shown};

/// One event.
pub(super) struct Seen {
    pub(super) identity: Result<IdempotencyKey, String>,
    /// The key if no field had a rule, where that is another one.
    pub(super) without_rules: Option<String>,
    pub(super) record: Option<RecordName>,
    pub(super) explained: Explained,
    pub(super) fingerprint: Fingerprint,
    pub(super) repeat: Option<Subject>,
    pub(super) within: Option<String>,
    pub(super) about: Option<Subject>,
    pub(super) delivery_id: Option<String>,
    pub(super) hints: Vec<String>,
}

/// `None`: it only tests the connection.
pub(super) fn at(shown: &Shown<'_>, sample: &Sample) -> Option<Vec<Seen>> {
    let source = shown.source;
    let template = shown.declared.automations.get(&source.automation).and_then(|a| a.record.as_deref());
    let request = sample.request();
    let explained = source.provider.explain(&request, shown.name, &source.rules);
    let Reading::Events(events) = source.provider.read(&request, shown.name, &source.rules) else {
        return None;
    };
    let seen = events.into_iter().zip(explained).map(|(event, explained)| {
        let (identity, record) = identified(event.identity, &event.payload, template);
        let bare = without_rules(&explained).filter(|bare| Some(bare) != identity.as_ref().ok());
        Seen {
            without_rules: bare.map(|key| key.to_string()),
            identity,
            record,
            hints: explained.key.iter().filter_map(hint).collect(),
            fingerprint: event.fingerprint,
            repeat: event.repeat.map(|(subject, _)| subject),
            within: explained.within.map(show_duration),
            explained,
            about: event.about,
            delivery_id: event.delivery_id,
        }
    });
    Some(seen.collect())
}

fn without_rules(explained: &Explained) -> Option<IdempotencyKey> {
    if explained.key.iter().all(|seen| seen.field.rule == Rule::Opaque) {
        return None;
    }
    let text = |text: &str| Rule::Opaque.fold(text).ok().map(Part::Value);
    let mut parts: Vec<Part> = explained.prefix.iter().filter_map(|prefix| text(prefix)).collect();
    for seen in &explained.key {
        let plain = KeyField { rule: Rule::Opaque, ..seen.field.clone() };
        parts.push(plain.part(seen.sent.as_ref()).ok()?);
    }
    join(parts.iter().map(|part| (None, part))).ok()
}

/// What a person might not have meant.
fn hint(seen: &FieldSeen) -> Option<String> {
    let FieldSeen { field, sent, part } = seen;
    let (Some(sent), Ok(Part::Value(folded))) = (sent.as_ref().and_then(Value::as_str), part) else {
        return None;
    };
    let path = &field.path;
    match &field.rule {
        Rule::Email(folding) => {
            let (local, domain) = folded.folded.rsplit_once('@')?;
            let typed = folded.shown.rsplit_once('@')?.0;
            let folds = folding.fold_tags.contains(domain) || folding.fold_dots.contains(domain);
            let has_noise = typed.contains('+') || typed.contains('.');
            match (folds, has_noise) {
                (true, true) => Some(format!(
                    "`{path}`: at {domain} tags or dots do not count ({folding}), so it is {local}@{domain}"
                )),
                (false, _) if typed.contains('+') => {
                    let tag = typed.split_once('+').map(|(_, tag)| tag).unwrap_or_default();
                    Some(format!(
                        "`{path}`: `+{tag}` counts, so this is another person than without it; at providers where it does \
                         not, declare `fold_tags: [{domain}]`"
                    ))
                }
                _ => None,
            }
        }
        Rule::Opaque if Rule::Text.fold(sent).is_ok_and(|text| text.folded != sent) => {
            Some(format!("`{path}`: the white space around it counts; `as: text` would leave it out"))
        }
        Rule::Opaque if looks_like_an_address(sent) => Some(format!(
            "`{path}`: an address is compared letter by letter here; `as: email` would not count case"
        )),
        Rule::Opaque if sent.contains(char::is_whitespace) => Some(format!(
            "`{path}`: each blank inside it counts; `as: collapse_ws` would make runs of them one"
        )),
        _ => None,
    }
}

fn looks_like_an_address(text: &str) -> bool {
    Rule::Email(oncegate_core::identity::EmailFolding::default()).fold(text).is_ok() && text.contains('.')
}

impl Seen {
    pub(super) fn document(&self) -> Value {
        json!({
            "idempotency_key": self.identity.as_ref().ok(),
            "without_rules": self.without_rules,
            "rejected": self.identity.as_ref().err(),
            "record": self.record,
            "fields": fields(&self.explained.key),
            "repeat": self.within.as_ref().map(|within| json!({
                "within": within,
                "fields": fields(&self.explained.repeat),
                "applies": self.repeat.is_some(),
            })),
            "identity": fields(&self.explained.identity),
            "fingerprint": self.fingerprint.to_string(),
            "volatile": self.explained.volatile.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "delivery_id": self.delivery_id,
            "hints": self.hints,
        })
    }
}

fn fields(seen: &[FieldSeen]) -> Vec<Value> {
    let one = |seen: &FieldSeen| {
        let value = match &seen.part {
            Ok(Part::Value(folded)) => Some(folded),
            _ => None,
        };
        json!({
            "field": seen.field.path.to_string(),
            "as": seen.field.rule.name(),
            "rule": seen.field.describe(),
            "sent": seen.sent,
            "counts_as": seen.part.as_ref().ok().map(ToString::to_string),
            "shown": value.map(|folded| &folded.shown),
            "why": seen.part.as_ref().err().map(ToString::to_string),
        })
    };
    seen.iter().map(one).collect()
}

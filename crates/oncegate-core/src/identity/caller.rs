//! What an automation declares about those who claim by themselves: the fields of their keys, and what makes two of
//! their claims one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field::{KeyField, MemberRule};
use super::part::Part;
use super::rule::Rule;
use super::subject::{Repeat, Subject};
use crate::webhook::{FieldPath, NoIdentity};

/// The declared part of a caller's identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallerRules {
    /// Rules for members of `key_fields`. Where there are any, a key is made of these members and no others.
    pub key_fields: BTreeMap<String, MemberRule>,
    /// When a claim with another key is the same one.
    pub repeat: Option<Repeat>,
    /// What tells the record from another one with its id.
    pub identity: Vec<KeyField>,
}

/// What a caller sent, as far as its identity may stand in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent<'a> {
    /// `payload`.
    pub payload: Option<&'a Value>,
    /// `key_fields`.
    pub key_fields: Option<&'a Value>,
    /// `identity_fields`.
    pub identity_fields: Option<&'a Value>,
}

impl CallerRules {
    /// The parts of a key, by name and in the order of names, whatever the order in which they were sent.
    ///
    /// # Errors
    /// The name of the member that makes it none, and why; [`NoIdentity::Nothing`] for one that is not declared.
    pub fn parts(&self, sent: &Map<String, Value>) -> Result<Vec<(String, Part)>, (String, NoIdentity)> {
        let open = MemberRule { rule: Rule::Opaque, optional: false };
        let mut parts = BTreeMap::new();
        for (name, value) in sent {
            let rule = match self.key_fields.get(name) {
                Some(rule) => rule,
                None if self.key_fields.is_empty() => &open,
                None => return Err((name.clone(), NoIdentity::Nothing)),
            };
            let part = rule.clone().named(name).part(Some(value)).map_err(|why| (name.clone(), why))?;
            parts.insert(name.clone(), part);
        }
        for (name, rule) in &self.key_fields {
            if !parts.contains_key(name) {
                let part = rule.clone().named(name).part(None).map_err(|why| (name.clone(), why))?;
                parts.insert(name.clone(), part);
            }
        }
        Ok(parts.into_iter().collect())
    }

    /// By what a claim may repeat another one; `None` without a rule, or if a field has no value.
    pub fn repeat(&self, sent: Sent<'_>) -> Option<(Subject, std::time::Duration)> {
        let rule = self.repeat.as_ref()?;
        let places = [sent.payload, sent.key_fields];
        Some((subject(&rule.fields, &places)?, rule.within))
    }

    /// What a claim says about its record: the declared fields, or all that were sent for this.
    ///
    /// # Errors
    /// The name of the member of `identity_fields` that cannot be read, and why.
    pub fn identity(&self, sent: Sent<'_>) -> Result<Option<Subject>, (String, NoIdentity)> {
        let Some(Value::Object(members)) = sent.identity_fields else {
            return Ok(subject(&self.identity, &[sent.payload, sent.key_fields]));
        };
        let mut fields: Vec<KeyField> = self.identity.clone();
        if fields.is_empty() {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            fields = names.into_iter().map(|name| FieldPath::body(&[name]).into()).collect();
        }
        for field in &fields {
            if let Some(value) = sent.identity_fields.and_then(|sent| field.path.find_in(sent)) {
                field.part(Some(value)).map_err(|why| (field.path.to_string(), why))?;
            }
        }
        Ok(subject(&fields, &[sent.identity_fields, sent.payload, sent.key_fields]))
    }
}

fn subject(fields: &[KeyField], places: &[Option<&Value>]) -> Option<Subject> {
    let find = |field: &KeyField| places.iter().flatten().find_map(|place| field.path.find_in(place));
    Subject::of(fields.iter().map(|field| (field, field.part(find(field)))))
}

//! What stands in the file about identity: the fields of keys, the repeat rule, what tells records apart.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_core::identity::{CallerRules, Repeat};
use oncegate_core::policy::show_duration;
use oncegate_core::webhook::{Batch, EventRules};
use serde_saphyr::Spanned;

use super::file::{AutomationFile, BatchFile, Period, RepeatFile, SourceFile};
use super::{At, ConfigError};

/// What an automation declares about its callers.
pub(super) fn of_callers(declared: &AutomationFile, at: At<'_>) -> Result<CallerRules, ConfigError> {
    let mut key_fields = BTreeMap::new();
    for (name, rule) in &declared.key_fields {
        let plain = |c: char| c.is_alphanumeric() || "_.-".contains(c);
        if name.value.is_empty() || !name.value.chars().all(plain) {
            let message =
                format!("`{}` cannot be the name of a key field; write letters, digits, _ . -", name.value);
            return Err(at(name.referenced, message));
        }
        if key_fields.insert(name.value.clone(), rule.clone()).is_some() {
            return Err(at(
                name.referenced,
                format!("`{}` stands here twice; remove one of them", name.value),
            ));
        }
    }
    if let (Some((name, _)), true) =
        (declared.key_fields.first(), key_fields.values().all(|rule| rule.optional))
    {
        let message =
            "every key field is optional, so a call could be without any; let at least one be required";
        return Err(at(name.referenced, message.to_owned()));
    }
    let repeat = declared.repeat.as_ref().map(|repeat| self::repeat(repeat, at)).transpose()?;
    Ok(CallerRules { key_fields, repeat, identity: declared.identity.clone() })
}

/// What a source declares about its events; what it leaves out is as its automation has it.
pub(super) fn of_events(
    declared: &SourceFile,
    automation: Option<&CallerRules>,
    at: At<'_>,
) -> Result<EventRules, ConfigError> {
    if let Some(key) = declared.key.as_ref().filter(|key| !key.value.is_empty())
        && key.value.iter().all(|field| field.optional)
    {
        let message = "every field of the key is optional, so an event could be without any; let at least one be required";
        return Err(at(key.referenced, message.to_owned()));
    }
    let repeat = declared.repeat.as_ref().map(|repeat| self::repeat(repeat, at)).transpose()?;
    let inherited = automation.cloned().unwrap_or_default();
    let batch = match declared.batch.as_ref().map(|batch| &batch.value) {
        None | Some(BatchFile::Body(false)) => None,
        Some(BatchFile::Body(true)) => Some(Batch::Body),
        Some(BatchFile::At(path)) => Some(Batch::At(path.clone())),
    };
    if let (Some(place), Some(_), None) = (&declared.batch, &batch, &declared.key) {
        let message = "a list of events needs `key`: the fields that tell its events apart, e.g. `key: [id]`";
        return Err(at(place.referenced, message.to_owned()));
    }
    let own_identity = Some(declared.identity.clone()).filter(|fields| !fields.is_empty());
    Ok(EventRules {
        key: declared.key.as_ref().map(|key| key.value.clone()),
        volatile: declared.volatile.clone(),
        repeat: repeat.or(inherited.repeat),
        identity: own_identity.unwrap_or(inherited.identity),
        delivery_id: declared.delivery_id.clone(),
        batch,
    })
}

fn repeat(declared: &Spanned<RepeatFile>, at: At<'_>) -> Result<Repeat, ConfigError> {
    let RepeatFile { fields, within: Period(within) } = &declared.value;
    if fields.is_empty() {
        let message = "repeat.fields names no field; write those that two sendings of one effect agree in";
        return Err(at(declared.referenced, message.to_owned()));
    }
    if *within < Duration::from_secs(1) || *within > Repeat::WITHIN_MAX {
        let message =
            format!("repeat.within must be 1s to {}", show_duration(Repeat::WITHIN_MAX).replace("1d", "24h"));
        return Err(at(declared.referenced, message));
    }
    Ok(Repeat { fields: fields.clone(), within: *within })
}

//! What stands in the file about guards at the door of a source: how many events of one sender run, and what becomes
//! of mails that no person wrote.

use std::fmt;

use oncegate_connect::mailbox;
use oncegate_core::identity::KeyField;
use oncegate_core::limits;
use oncegate_core::policy::LoopLimit;
use oncegate_core::webhook::{FieldPath, MachineMail, MailPlaces, Provider, SenderLimit};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::file::{Period, SourceFile};
use super::{At, ConfigError};

/// A key field with how many of it may run beside it.
pub(super) struct SenderFile {
    field: KeyField,
    runs: Option<u32>,
    within: Option<Period>,
}

impl<'de> Deserialize<'de> for SenderFile {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = SenderFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a field and how many of it run, e.g. `{ field: from, as: email, runs: 5, within: 10m }`",
                )
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SenderFile, A::Error> {
                let (mut runs, mut within, mut field) = (None, None, serde_json::Map::new());
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "runs" => runs = Some(map.next_value()?),
                        "within" => within = Some(map.next_value()?),
                        _ => drop(field.insert(name, map.next_value()?)),
                    }
                }
                let field =
                    KeyField::deserialize(serde_json::Value::Object(field)).map_err(A::Error::custom)?;
                Ok(SenderFile { field, runs, within })
            }
        }
        d.deserialize_map(Members)
    }
}

/// Where a source's mails say who wrote them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MailFile {
    #[serde(default)]
    headers: Option<FieldPath>,
    #[serde(default)]
    from: Option<FieldPath>,
    #[serde(default)]
    envelope_from: Option<FieldPath>,
    #[serde(default)]
    own: Vec<Spanned<String>>,
}

/// What becomes of a mail that no person wrote.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum MachineMailWord {
    Park,
    Run,
}

/// How many events of one sender the source lets run.
pub(super) fn sender(declared: &Spanned<SenderFile>, at: At<'_>) -> Result<SenderLimit, ConfigError> {
    let wrong = |message: String| Err(at(declared.referenced, message));
    let SenderFile { field, runs, within } = &declared.value;
    if field.optional {
        return wrong(
            "sender: an event without its field is not counted anyway; remove `optional`".to_owned(),
        );
    }
    let default = LoopLimit::default();
    let runs = runs.unwrap_or(default.runs);
    let within = within.map_or(default.within, |Period(within)| within);
    if !(1..=limits::SENDER_RUNS_MAX).contains(&runs) {
        return wrong(format!("sender.runs must be 1 to {}", limits::SENDER_RUNS_MAX));
    }
    if within.is_zero() || within > LoopLimit::WITHIN_MAX {
        return wrong("sender.within must be 1s to 24h".to_owned());
    }
    Ok(SenderLimit { field: field.clone(), limit: LoopLimit { runs, within } })
}

/// How mails that no person wrote are told from others; `None`: they run like all events, or its events are no mails.
pub(super) fn machine_mail(
    declared: &SourceFile,
    provider: &Provider,
    server_from: Option<&str>,
    at: At<'_>,
) -> Result<Option<MachineMail>, ConfigError> {
    let known = provider.mail();
    let wanted = declared.machine_mail.as_ref();
    if let (Some(word), None, None) = (wanted, &known, &declared.mail) {
        let message = format!(
            "{provider} does not say where its mails' headers stand; add e.g. `mail: {{ headers: message-headers, from: \
             from }}`, or remove `machine_mail`"
        );
        return Err(at(word.referenced, message));
    }
    let none = MailFile::default();
    let mail = declared.mail.as_ref().map_or(&none, |mail| &mail.value);
    let mut own: Vec<String> = server_from.map(str::to_owned).into_iter().collect();
    for address in &mail.own {
        mailbox(&address.value).map_err(|e| at(address.referenced, format!("mail.own: {e}")))?;
        own.push(address.value.clone());
    }
    let usual = known.clone().unwrap_or_default();
    let places = MailPlaces {
        headers: mail.headers.clone().or(usual.headers),
        from: mail.from.clone().or(usual.from),
        envelope_from: mail.envelope_from.clone().or(usual.envelope_from),
    };
    if let (Some(mail), true) = (&declared.mail, places == MailPlaces::default()) {
        let message = "mail says nowhere what its mails are; name at least `headers`, e.g. `mail: { headers: headers }`";
        return Err(at(mail.referenced, message.to_owned()));
    }
    let is_mail = known.is_some() || declared.mail.is_some();
    let runs = wanted.is_some_and(|word| word.value == MachineMailWord::Run);
    Ok((is_mail && !runs).then_some(MachineMail { places, own }))
}

//! The sources that the file declares: webhook endpoints, schedules and polls.

use std::collections::{BTreeMap, HashMap};

use oncegate_core::key::AutomationName;
use oncegate_core::webhook::{EventEnvironment, Provider, ProviderError, Trust};
use oncegate_runner::book::Automation;
use serde_saphyr::Spanned;

use super::{
    Around, At, ConfigError, Polling, Source, Timed, file, guards, hooks, identity, polls, schedules,
    secrets, sentence,
};

/// Shortest secret, in bytes, of a sender that signs nothing: it is all that stands between everybody and the
/// automation.
const SHOWN_SECRET_BYTES_MIN: usize = 16;

/// Endpoints, schedules and polls, by name.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) webhooks: HashMap<String, Source>,
    pub(super) schedules: BTreeMap<String, Timed>,
    pub(super) polls: BTreeMap<String, Polling>,
}

pub(super) fn sources(
    file: &file::Members<file::SourceFile>,
    around: Around<'_>,
    automations: &HashMap<AutomationName, Automation>,
    at: At<'_>,
) -> Result<Sources, ConfigError> {
    let mut sources = Sources::default();
    for (name, declared) in file {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if name.value.is_empty() || name.value.len() > 64 || !name.value.chars().all(plain) {
            return Err(at(
                name.referenced,
                format!(
                    "`{}` stands in the URL /in/…: write up to 64 lower-case letters, digits, - and _",
                    name.value
                ),
            ));
        }
        let automation = AutomationName::try_from(declared.automation.value.as_str())
            .map_err(|e| at(declared.automation.referenced, e.to_string()))?;
        if let Some(message) = leads_nowhere(&automation, automations) {
            return Err(at(declared.automation.referenced, format!("the source `{}` {message}", name.value)));
        }
        if let Some(schedule) = &declared.schedule {
            let record = automations.get(&automation).and_then(|declared| declared.record.as_deref());
            let timed = schedules::timed((name, declared), schedule, (automation, record), at)?;
            sources.schedules.insert(name.value.clone(), timed);
            continue;
        }
        let callers = automations.get(&automation).map(|declared| declared.callers.as_ref());
        if let Some(poll) = &declared.poll {
            if let Some(member) = declared.of_senders() {
                let message = format!(
                    "`{name}` has a `poll`, so nobody sends to it; remove `{member}`",
                    name = name.value
                );
                return Err(at(name.referenced, message));
            }
            needs_key(name, declared, true, at)?;
            let rules = identity::of_events(declared, callers, at)?;
            let environment = environment(declared, at)?;
            let (provider, trust) = (Provider::Polled, Trust::default());
            let (sender, machine_mail) = (None, None);
            let source = Source { provider, trust, automation, rules, environment, sender, machine_mail };
            let polling = polls::polling(declared, poll, source, around.secrets, at)?;
            sources.polls.insert(name.value.clone(), polling);
            continue;
        }
        let Some(named) = &declared.provider else {
            let message = format!(
                "the source `{}` needs `provider`, which says who sends to it, `schedule`, which says when it runs, or `poll`, \
                 which says whom it asks for news",
                name.value
            );
            return Err(at(name.referenced, message));
        };
        let provider = provider(named, declared, at)?;
        if provider.signs_url() && !around.has_public_url {
            return Err(at(
                named.referenced,
                format!(
                    "{provider} signs the address it sends to, so `public_url` must be set: the one that {provider} was given"
                ),
            ));
        }
        let trust = trust(name, declared, &provider, around.secrets, at)?;
        needs_key(name, declared, matches!(provider, Provider::Hmac(_)), at)?;
        let rules = identity::of_events(declared, callers, at)?;
        let environment = environment(declared, at)?;
        let sender = declared.sender.as_ref().map(|declared| guards::sender(declared, at)).transpose()?;
        let machine_mail = guards::machine_mail(declared, &provider, around.mail_from, at)?;
        let source = Source { provider, trust, automation, rules, environment, sender, machine_mail };
        sources.webhooks.insert(name.value.clone(), source);
    }
    Ok(sources)
}

fn environment(declared: &file::SourceFile, at: At<'_>) -> Result<Option<EventEnvironment>, ConfigError> {
    declared.environment.as_ref().map(|declared| hooks::environment(declared, at)).transpose()
}

/// Refuses a source whose events nothing names; `always`: its provider has no key of its own.
fn needs_key(
    name: &Spanned<String>,
    declared: &file::SourceFile,
    always: bool,
    at: At<'_>,
) -> Result<(), ConfigError> {
    let fields = declared.key.as_ref();
    if fields.is_some_and(|key| !key.value.is_empty()) || (fields.is_none() && !always) {
        return Ok(());
    }
    let message = format!(
        "the source `{}` needs `key`: the fields that tell its events apart, e.g. `key: [order.id]`",
        name.value
    );
    Err(at(fields.map_or(name.referenced, |key| key.referenced), message))
}

fn provider(
    named: &Spanned<String>,
    declared: &file::SourceFile,
    at: At<'_>,
) -> Result<Provider, ConfigError> {
    Provider::from_name(&named.value, declared.hmac.clone()).map_err(|e| {
        let meant = match &e {
            ProviderError::Unknown { name } => {
                sentence::nearest(&name.to_lowercase(), Provider::NAMES.iter().copied())
            }
            _ => None,
        };
        let told = e.to_string();
        let told = match meant {
            Some(name) => told.replacen("; known", &format!("; did you mean `{name}`? Known"), 1),
            None => told,
        };
        at(named.referenced, told)
    })
}

/// By what the requests of a source are believed.
fn trust(
    name: &Spanned<String>,
    declared: &file::SourceFile,
    provider: &Provider,
    secrets: &secrets::Secrets<'_>,
    at: At<'_>,
) -> Result<Trust, ConfigError> {
    let mut keys = vec![];
    for reference in declared.secret.iter().chain(&declared.secrets) {
        let wrong = |why: String| at(reference.referenced, why);
        let secret = secrets.resolve(&reference.value).map_err(wrong)?;
        if !secrets.environment.is_real() {
            keys.push(secret);
            continue;
        }
        provider
            .check_secret(&secret)
            .map_err(|e| wrong(format!("the secret `{}`: {e}", reference.value)))?;
        if !provider.signs() && secret.expose().len() < SHOWN_SECRET_BYTES_MIN {
            return Err(wrong(format!(
                "the secret `{}` has fewer than {SHOWN_SECRET_BYTES_MIN} characters; {provider} signs nothing, so whoever \
                 guesses it could send: make a long one, e.g. with `openssl rand -hex 24`",
                reference.value
            )));
        }
        keys.push(secret);
    }
    if keys.is_empty() {
        let shown = match provider.signs() {
            true => format!("with the signing secret that {provider} shows"),
            false => format!(
                "with a long one of your own, and put it into the sender too; {provider} signs nothing"
            ),
        };
        return Err(at(
            name.referenced,
            format!(
                "the source `{}` has no secret, so anybody could send to it; add `secret: env:NAME` or \
                 `secret: file:PATH` {shown}",
                name.value
            ),
        ));
    }
    let only = |place: serde_saphyr::Location, member: &str, whose: &str| {
        at(place, format!("`{member}` is only for {whose}; remove it, or check `provider`"))
    };
    if let Some(place) = declared.secret_in.as_ref().filter(|_| provider.signs()) {
        return Err(only(place.referenced, "secret_in", "senders that sign nothing"));
    }
    let verify_token = match (&declared.verify_token, provider) {
        (Some(token), Provider::Meta) => {
            Some(secrets.resolve(&token.value).map_err(|e| at(token.referenced, e))?)
        }
        (Some(token), _) => return Err(only(token.referenced, "verify_token", "meta")),
        (None, Provider::Meta) => {
            let message = "meta tests the address with a word that you choose: add `verify_token: env:NAME`, and \
                enter the same word there";
            return Err(at(name.referenced, message.to_owned()));
        }
        (None, _) => None,
    };
    let organization = match (&declared.organization, provider) {
        (Some(id), Provider::Salesforce) if matches!(id.value.len(), 15 | 18) => Some(id.value.clone()),
        (Some(id), Provider::Salesforce) => {
            let message = "`organization` is an id of 15 or 18 characters; Salesforce shows it under Company Information";
            return Err(at(id.referenced, message.to_owned()));
        }
        (Some(id), _) => return Err(only(id.referenced, "organization", "salesforce")),
        (None, _) => None,
    };
    if let (Some(repeat), Provider::Mailgun) = (&declared.repeat, provider) {
        let message = "mailgun has a rule of its own: a token is good for one event, or its signature would be for any; \
            remove `repeat`";
        return Err(at(repeat.referenced, message.to_owned()));
    }
    let secret_in = declared.secret_in.as_ref().map(|place| place.value.clone());
    Ok(Trust { secrets: keys, secret_in, verify_token, organization })
}

/// Why events of a source could not be run.
fn leads_nowhere(
    automation: &AutomationName,
    automations: &HashMap<AutomationName, Automation>,
) -> Option<String> {
    match automations.get(automation) {
        Some(declared) if declared.flow.is_some() => None,
        Some(_) => Some(format!(
            "sends to the automation `{automation}`, which declares no steps; add at least one under `steps`"
        )),
        None => {
            let nearest =
                sentence::nearest(automation.as_str(), automations.keys().map(AutomationName::as_str));
            let meant = nearest.map(|name| format!("did you mean `{name}`? If not, ")).unwrap_or_default();
            Some(format!(
                "sends to the automation `{automation}`, which is not declared; {meant}add it under `automations` \
                 with at least one step"
            ))
        }
    }
}

//! The steps of an automation, from their shape in the file to what the runner works with.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use http::{HeaderName, Method};
use oncegate_core::limits;
use oncegate_core::policy::{Policy, parse_duration, show_duration};
use oncegate_runner::flow::{
    self, Action, Body, Chat, Flow, ForwardStep, HeaderText, HttpStep, KEY_WINDOW, MessageStep, Repeat,
    ReviewStep, Step, Until, Wait,
};
use oncegate_store::api::step_of;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::file::Period;
use super::json::Json;
use super::lookup::{self, LookupFile};
use super::mail::{self, EmailFile};
use super::secrets::{self, Secrets};
use super::template::Sees;
use super::{Around, At, ConfigError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFile {
    name: Spanned<String>,
    #[serde(default)]
    http: Option<HttpFile>,
    #[serde(default)]
    forward: Option<ForwardFile>,
    #[serde(default)]
    slack: Option<MessageFile>,
    #[serde(default)]
    teams: Option<MessageFile>,
    #[serde(default)]
    email: Option<EmailFile>,
    #[serde(default)]
    wait: Option<Spanned<WaitFile>>,
    #[serde(default)]
    review: Option<ReviewFile>,
    #[serde(default)]
    when: Option<Spanned<String>>,
    #[serde(default)]
    for_each: Option<Spanned<String>>,
    #[serde(default)]
    lookup: Option<LookupFile>,
    #[serde(default)]
    repeat: Option<RepeatWord>,
    #[serde(default)]
    key_window: Option<Period>,
    #[serde(default)]
    timeout: Option<Period>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpFile {
    #[serde(default)]
    pub(super) method: Option<Spanned<String>>,
    pub(super) url: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) json: Option<Spanned<Json>>,
    #[serde(default)]
    pub(super) body: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) idempotency_header: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardFile {
    url: Spanned<String>,
    #[serde(default)]
    json: Option<Spanned<Json>>,
    #[serde(default)]
    until: UntilWord,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageFile {
    url: Spanned<String>,
    text: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewFile {
    ask: Spanned<String>,
}

/// A duration, or an instant.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`10m`, or `until` with an instant: `{ until: \"{{ payload.send_at }}\" }`")]
enum WaitFile {
    For(String),
    Until(UntilInstant),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UntilInstant {
    until: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RepeatWord {
    Natural,
    ByKey,
    Never,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UntilWord {
    #[default]
    Finished,
    Accepted,
}

/// How long one call may take: long enough for slow APIs, short enough for the shortest TTL.
const TIMEOUT: (Duration, Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(30), Duration::from_secs(240));

pub(super) fn flow(
    declared: &[StepFile],
    around: Around<'_>,
    at: At<'_>,
) -> Result<Option<Flow>, ConfigError> {
    let all: Vec<&str> = declared.iter().map(|step| step.name.value.as_str()).collect();
    let mut names = HashSet::new();
    let mut steps = vec![];
    for (number, step) in (1..).zip(declared) {
        let name = &step.name;
        if name.value.trim().is_empty() {
            return Err(at(name.referenced, format!("step {number} has a blank name; call it what it does")));
        }
        if step_of(&name.value) != name.value {
            let message = format!(
                "`{}` ends like an item of a list, as `for_each` names them; call the step otherwise",
                name.value
            );
            return Err(at(name.referenced, message));
        }
        if !names.insert(name.value.clone()) {
            let message = format!(
                "two steps are called `{}`; what a step did is remembered by its name, so rename one",
                name.value
            );
            return Err(at(name.referenced, message));
        }
        if number > limits::STEPS_MAX {
            return Err(at(
                name.referenced,
                format!("an automation has at most {} steps", limits::STEPS_MAX),
            ));
        }
        let before = all.get(..steps.len()).unwrap_or_default();
        let step = one(step, Sees::Step { before, all: &all, item: false, response: false }, around, at)?;
        let waits = matches!(step.action, Action::Forward(ForwardStep { until: Until::Finished, .. }));
        if waits && number < declared.len() {
            return Err(at(
                name.referenced,
                format!(
                    "step `{}` ends the automation: its hook calls done_url; make it the last step, or declare \
                     `until: accepted`",
                    name.value
                ),
            ));
        }
        steps.push(step);
    }
    Ok((!steps.is_empty()).then_some(Flow { steps }))
}

fn one(step: &StepFile, sees: Sees<'_>, around: Around<'_>, at: At<'_>) -> Result<Step, ConfigError> {
    let secrets = around.secrets;
    let here = |message: String| at(step.name.referenced, format!("step `{}`: {message}", step.name.value));
    let declared = [
        ("http", step.http.is_some()),
        ("forward", step.forward.is_some()),
        ("slack", step.slack.is_some()),
        ("teams", step.teams.is_some()),
        ("email", step.email.is_some()),
        ("wait", step.wait.is_some()),
        ("review", step.review.is_some()),
    ];
    let declared: Vec<&str> = declared.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    if let [one, two, ..] = declared.as_slice() {
        return Err(here(format!("declares `{one}` and `{two}`; make two steps of it")));
    }
    // What is done for each item sees it; the list itself is of all.
    let for_each = step.for_each.as_ref().map(|items| expression("for_each", items, sees, at)).transpose()?;
    let sees = if for_each.is_some() { sees.of_an_item() } else { sees };
    let action = if let Some(declared) = &step.http {
        Action::Http(http(declared, sees, secrets, at)?)
    } else if let Some(declared) = &step.forward {
        Action::Forward(forward(declared, sees, secrets, at)?)
    } else if let Some(declared) = &step.slack {
        Action::Message(message(Chat::Slack, declared, sees, secrets, at)?)
    } else if let Some(declared) = &step.teams {
        Action::Message(message(Chat::Teams, declared, sees, secrets, at)?)
    } else if let Some(declared) = &step.email {
        Action::Email(mail::email(declared, around.mail_from, sees, at)?)
    } else if let Some(declared) = &step.wait {
        Action::Wait(wait(declared, sees, at)?)
    } else if let Some(ReviewFile { ask }) = &step.review {
        Action::Review(ReviewStep { ask: said("review.ask", ask, sees, at)? })
    } else {
        return Err(here(
            "says nothing to do; declare `http`, `forward`, `slack`, `teams`, `email`, `wait` or `review`"
                .to_owned(),
        ));
    };
    let waits = matches!(action, Action::Forward(ForwardStep { until: Until::Finished, .. }));
    if for_each.is_some() && (action.sends_nothing() || waits) {
        return Err(here(
            "for_each does a step once for each item; a `wait`, a `review` and a `forward` until finished are done once"
                .to_owned(),
        ));
    }
    if action.sends_nothing() && (step.repeat.is_some() || step.timeout.is_some()) {
        return Err(here("sends nothing, so it has no `repeat` and no `timeout`; remove them".to_owned()));
    }
    let when = step.when.as_ref().map(|when| expression("when", when, sees, at)).transpose()?;
    let lookup = match (&step.lookup, &action) {
        (None, _) => None,
        (Some(declared), Action::Http(_)) => Some(lookup::lookup(declared, sees, secrets, at)?),
        (Some(_), _) => {
            return Err(here("lookup finds what an `http` step did; remove it".to_owned()));
        }
    };
    let timeout = step.timeout.map_or(TIMEOUT.1, |p| p.0);
    if timeout < TIMEOUT.0 || timeout > TIMEOUT.2 {
        return Err(here("timeout must be from 1s to 240s".to_owned()));
    }
    let window = step.key_window.map_or(KEY_WINDOW, |p| p.0);
    let repeat = match (step.repeat, &action) {
        (Some(RepeatWord::Natural), _) => Repeat::Natural,
        (Some(RepeatWord::ByKey), _) => Repeat::ByKey { window },
        (Some(RepeatWord::Never), _) => Repeat::Never,
        // RFC 9110 §9.2.2: these mean the same however often they are sent.
        (None, Action::Http(http)) if http.method.is_idempotent() => Repeat::Natural,
        (None, Action::Wait(_) | Action::Review(_)) => Repeat::Natural,
        // Whoever reads a message reads it twice if it comes twice.
        (None, Action::Http(_) | Action::Forward(_) | Action::Message(_) | Action::Email(_)) => Repeat::Never,
    };
    if step.key_window.is_some() && !matches!(repeat, Repeat::ByKey { .. }) {
        return Err(here(
            "key_window says how long the receiver remembers keys; declare `repeat: by_key` too".into(),
        ));
    }
    // A hook's URL is all that is needed to call it.
    let secret_url = match (&step.http, &step.forward) {
        (Some(http), _) => Secrets::is_reference(&http.url.value),
        (None, _) => true,
    };
    let name = step.name.value.clone();
    Ok(Step { name, action, when, for_each, item: None, lookup, repeat, timeout, secret_url })
}

/// Refuses a flow that waits longer than its effect may take.
pub(super) fn waits_within(
    flow: &Flow,
    policy: &Policy,
    first: &StepFile,
) -> Result<(), (serde_saphyr::Location, String)> {
    let waits = flow.steps.iter().map(|step| match &step.action {
        Action::Wait(Wait::For(time)) => *time,
        _ => Duration::ZERO,
    });
    let all: Duration = waits.sum();
    if all < policy.sla {
        return Ok(());
    }
    let message = format!(
        "the steps wait {} in all, and the automation's `sla` is {}: what takes longer is a person's business; raise `sla`",
        show_duration(all),
        show_duration(policy.sla)
    );
    Err((first.name.referenced, message))
}

fn message(
    chat: Chat,
    declared: &MessageFile,
    sees: Sees<'_>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<MessageStep, ConfigError> {
    let text = said("text", &declared.text, sees, at)?;
    Ok(MessageStep { chat, url: url(&declared.url, sees, secrets, at)?, text })
}

/// What people are to read.
fn said(place: &str, declared: &Spanned<String>, sees: Sees<'_>, at: At<'_>) -> Result<String, ConfigError> {
    sees.check(place, &declared.value).map_err(|e| at(declared.referenced, e))?;
    match declared.value.trim().is_empty() {
        true => {
            Err(at(declared.referenced, "the text is blank; nobody would know what it is about".to_owned()))
        }
        false => Ok(declared.value.clone()),
    }
}

fn wait(declared: &Spanned<WaitFile>, sees: Sees<'_>, at: At<'_>) -> Result<Wait, ConfigError> {
    let here = |message: String| at(declared.referenced, message);
    match &declared.value {
        WaitFile::For(text) => match parse_duration(text) {
            Ok(time) if time < Duration::from_secs(1) => Err(here("wait must be at least 1s".to_owned())),
            Ok(time) => Ok(Wait::For(time)),
            Err(e) => Err(here(e.to_string())),
        },
        WaitFile::Until(UntilInstant { until }) => {
            sees.check("wait.until", until).map_err(here)?;
            Ok(Wait::Until(until.clone()))
        }
    }
}

/// One expression: text beside it would always hold, and never be a list.
pub(super) fn expression(
    member: &str,
    declared: &Spanned<String>,
    sees: Sees<'_>,
    at: At<'_>,
) -> Result<String, ConfigError> {
    let here = |message: String| at(declared.referenced, message);
    if flow::expression(&declared.value).is_none() {
        let such = match member {
            "for_each" => "payload.items",
            "lookup.found" => "response.json.total > 0",
            "lookup.answer" => "response.json.results[0]",
            _ => "payload.amount > 100",
        };
        let name = member.rsplit('.').next().unwrap_or(member);
        let message =
            format!("`{}` is not one expression; write e.g. `{name}: \"{{{{ {such} }}}}\"`", declared.value);
        return Err(here(message));
    }
    sees.check(member, &declared.value).map_err(here)?;
    Ok(declared.value.clone())
}

pub(super) fn http(
    declared: &HttpFile,
    sees: Sees<'_>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<HttpStep, ConfigError> {
    let method = match &declared.method {
        None => Method::POST,
        Some(word) => word.value.to_ascii_uppercase().parse().map_err(|_| {
            at(word.referenced, format!("`{}` is not an HTTP method; write e.g. POST", word.value))
        })?,
    };
    let mut headers = vec![];
    for (name, value) in &declared.headers {
        if name.parse::<HeaderName>().is_err() {
            return Err(at(
                value.referenced,
                format!("`{name}` cannot be the name of a header; write e.g. `X-Api-Key`"),
            ));
        }
        let text = match Secrets::is_reference(&value.value) {
            true => HeaderText::Secret(secrets.resolve(&value.value).map_err(|e| at(value.referenced, e))?),
            false => {
                secrets::refuse_clear_text(name, &value.value).map_err(|e| at(value.referenced, e))?;
                let place = format!("headers.{name}");
                sees.check(&place, &value.value).map_err(|e| at(value.referenced, e))?;
                HeaderText::Template(value.value.clone())
            }
        };
        headers.push((name.clone(), text));
    }
    let body = match (&declared.json, &declared.body) {
        (Some(_), Some(_)) => {
            return Err(at(declared.url.referenced, "declare one of `json` and `body`, not both".to_owned()));
        }
        (Some(json), None) => Body::Json(Json::checked(json, |place, text| sees.check(place, text), at)?),
        (None, Some(text)) => {
            sees.check("body", &text.value).map_err(|e| at(text.referenced, e))?;
            Body::Text(text.value.clone())
        }
        (None, None) if matches!(method, Method::POST | Method::PUT | Method::PATCH) => Body::Payload,
        (None, None) => Body::Empty,
    };
    let idempotency_header = match &declared.idempotency_header {
        None => HeaderName::from_static("idempotency-key"),
        Some(name) => name.value.parse().map_err(|_| {
            let message =
                format!("`{}` cannot be the name of a header; write e.g. `Idempotency-Key`", name.value);
            at(name.referenced, message)
        })?,
    };
    Ok(HttpStep { method, url: url(&declared.url, sees, secrets, at)?, headers, body, idempotency_header })
}

fn forward(
    declared: &ForwardFile,
    sees: Sees<'_>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<ForwardStep, ConfigError> {
    let until = match declared.until {
        UntilWord::Finished => Until::Finished,
        UntilWord::Accepted => Until::Accepted,
    };
    let json = declared.json.as_ref();
    let json = json.map(|json| Json::checked(json, |place, text| sees.check(place, text), at)).transpose()?;
    Ok(ForwardStep { url: url(&declared.url, sees, secrets, at)?, json, until })
}

/// A hook's URL is a secret of its own: it may come from the environment or a file.
pub(super) fn url(
    declared: &Spanned<String>,
    sees: Sees<'_>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<String, ConfigError> {
    let resolved = match Secrets::is_reference(&declared.value) {
        true => {
            let secret = secrets.resolve(&declared.value).map_err(|e| at(declared.referenced, e))?;
            Some(String::from_utf8_lossy(secret.expose()).trim().to_owned())
        }
        false => None,
    };
    let text = resolved.as_ref().unwrap_or(&declared.value);
    match text.contains("{{") || text.contains("{%") {
        true => sees.check("url", text),
        // It is named by its reference: it may be secret itself.
        false => wrong_url(text).map_or(Ok(()), |why| Err(format!("`{}` {why}", declared.value))),
    }
    .map_err(|e| at(declared.referenced, e))?;
    Ok(text.clone())
}

/// What can be told of an URL before it is called.
pub(super) fn wrong_url(url: &str) -> Option<&'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest.and_then(|rest| rest.split(['/', '?', '#']).next()) {
        None => Some("is no http or https URL; write e.g. https://api.example.com/contacts"),
        Some("") => Some("names no host; write e.g. https://api.example.com/contacts"),
        Some(_) if url.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Some("has white space in it; write %20 for a blank")
        }
        Some(_) => None,
    }
}

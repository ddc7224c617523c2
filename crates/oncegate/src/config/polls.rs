//! Sources that ask an API what is new: what the file says of them.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_connect::OutgoingRequest;
use oncegate_core::limits;
use oncegate_core::policy::show_duration;
use oncegate_core::poll::{Form, Next, Order, Poll, Start};
use oncegate_core::webhook::FieldPath;
use oncegate_runner::poller::PollCall;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::file::{Period, SourceFile};
use super::secrets::Secrets;
use super::template::Sees;
use super::{At, ConfigError, Polling, Source, hooks, steps};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PollFile {
    url: Spanned<String>,
    every: Spanned<Period>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    timeout: Option<Spanned<Period>>,
    #[serde(default)]
    items: Option<Spanned<FieldPath>>,
    #[serde(default)]
    next: Option<Spanned<NextPage>>,
    cursor: Spanned<FieldPath>,
    #[serde(default)]
    form: Form,
    #[serde(default)]
    overlap: Option<Spanned<Period>>,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    start: Option<Spanned<StartWord>>,
}

/// The field that holds a link, or what is sent along with the same address.
#[derive(Deserialize)]
#[serde(untagged)]
enum NextPage {
    Link(FieldPath),
    Token(TokenFile),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    token: FieldPath,
    query: String,
}

/// `now`, an instant or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum StartWord {
    Number(i64),
    Word(String),
}

/// How far a poll reads back, unless declared: APIs show what was changed some seconds late.
const OVERLAP: Duration = Duration::from_secs(60);
/// The shortest that can be declared: what was changed in one second may be shown one after another (C63).
const OVERLAP_MIN: Duration = Duration::from_secs(1);

/// The declared poll of a source.
pub(super) fn polling(
    declared: &SourceFile,
    file: &PollFile,
    source: Source,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<Polling, ConfigError> {
    if let Some(field) = in_a_header(declared, &source, file) {
        let message =
            format!("`{field}` stands in a header, and the items of a poll have none; name a field");
        return Err(at(file.url.referenced, message));
    }
    let within = |name: &str, given: &Spanned<Period>, from: Duration, to: Duration| {
        let Period(period) = given.value;
        let range = format!("{} to {}", show_duration(from), show_duration(to).replace("1d", "24h"));
        match (from..=to).contains(&period) {
            true => Ok(period),
            false => Err(at(given.referenced, format!("poll.{name} must be {range}"))),
        }
    };
    let [shortest, longest] = limits::POLL_EVERY;
    let every = within("every", &file.every, shortest, longest)?;
    let timeout = match &file.timeout {
        None => OutgoingRequest::TIMEOUT_DEFAULT,
        Some(given) => within("timeout", given, Duration::from_secs(1), limits::POLL_TIMEOUT_MAX)?,
    };
    let overlap = match (&file.overlap, file.form.is_time()) {
        (Some(given), true) => within("overlap", given, OVERLAP_MIN, limits::POLL_OVERLAP_MAX)?,
        (None, true) => OVERLAP,
        (Some(given), false) => {
            let message = "a cursor that is a number has no time to read back by; remove `overlap`";
            return Err(at(given.referenced, message.to_owned()));
        }
        (None, false) => Duration::ZERO,
    };
    let next = match file.next.as_ref().map(|next| (&next.value, next.referenced)) {
        None => None,
        Some((NextPage::Link(field), _)) => Some(Next::Link(field.clone())),
        Some((NextPage::Token(TokenFile { query, .. }), place)) if query.trim().is_empty() => {
            let message = "next.query is blank; write the parameter that carries the token, e.g. `after`";
            return Err(at(place, message.to_owned()));
        }
        Some((NextPage::Token(TokenFile { token, query }), _)) => {
            Some(Next::Token { field: token.clone(), query: query.trim().to_owned() })
        }
    };
    let start = start(file, at)?;
    let poll = Poll {
        every,
        items: file.items.as_ref().map(|items| items.value.clone()),
        next,
        cursor: file.cursor.value.clone(),
        form: file.form,
        overlap,
        order: file.order,
        start,
    };
    let call = PollCall {
        url: steps::url(&file.url, Sees::Cursor, secrets, at)?,
        secret_url: Secrets::is_reference(&file.url.value),
        headers: hooks::headers(&file.headers, secrets, at)?,
        timeout,
    };
    // What it is filled in with is known now: an address that cannot be never could.
    let sample = call.sample(&poll).map_err(|e| at(file.url.referenced, e))?;
    match steps::wrong_url(&sample) {
        Some(why) => Err(at(file.url.referenced, format!("`{}` {why}", file.url.value))),
        None => Ok(Polling { source, poll, call }),
    }
}

/// A field of the source that nothing a poll brings could have.
fn in_a_header(declared: &SourceFile, source: &Source, file: &PollFile) -> Option<String> {
    let rules = &source.rules;
    let keyed = rules.key.iter().flatten().chain(&rules.identity);
    let repeat = rules.repeat.iter().flat_map(|repeat| &repeat.fields);
    let fields = keyed.chain(repeat).map(|field| &field.path);
    let others = [file.items.as_ref(), Some(&file.cursor)].into_iter().flatten().map(|path| &path.value);
    let next = file.next.iter().map(|next| match &next.value {
        NextPage::Link(field) | NextPage::Token(TokenFile { token: field, .. }) => field,
    });
    let environment = source.environment.iter().map(|environment| &environment.field);
    let all = fields.chain(&declared.volatile).chain(others).chain(next).chain(environment);
    all.map(ToString::to_string).find(|path| path.starts_with("header:"))
}

fn start(file: &PollFile, at: At<'_>) -> Result<Start, ConfigError> {
    let unknown = "nobody knows which number is `now`; write the first one that is to run, e.g. `start: 0` for everything";
    let Some(given) = &file.start else {
        return match file.form.is_time() {
            true => Ok(Start::Now),
            false => Err(at(file.cursor.referenced, unknown.to_owned())),
        };
    };
    let (value, shown) = match &given.value {
        StartWord::Word(word) if word.trim() == "now" => (None, word.clone()),
        StartWord::Word(word) => (Some(Value::from(word.as_str())), word.clone()),
        StartWord::Number(number) => (Some(Value::from(*number)), number.to_string()),
    };
    match (value, file.form.is_time()) {
        (None, true) => Ok(Start::Now),
        (None, false) => Err(at(given.referenced, unknown.to_owned())),
        (Some(value), is_time) => {
            // An instant is written as people write it, however the API does.
            let form = if is_time { Form::Timestamp } else { file.form };
            let wanted = match is_time {
                true => "`now`, or a date and time with its zone, e.g. `2026-01-05T10:00:00Z`",
                false => "a whole number",
            };
            let mark = form
                .read(&value)
                .ok_or_else(|| at(given.referenced, format!("`{shown}` is no start; write {wanted}")))?;
            Ok(Start::At(mark))
        }
    }
}

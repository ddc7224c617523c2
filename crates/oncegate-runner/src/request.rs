//! What a step sends and what its templates see: requests made from the payload and the answers before it.

use oncegate_connect::{OutgoingMail, OutgoingRequest};
use oncegate_store::api::{StepCall, StepOutcome, Work, item_of};
use serde_json::{Map, Value, json};

use crate::flow::{Action, Body, Flow, ForwardStep, HeaderText, HttpStep, Step};
use crate::render::{self, RenderError};
use crate::worker::{Attempt, Worker};

/// What a step is about to send.
pub(crate) enum Outgoing {
    Request(OutgoingRequest),
    Mail(OutgoingMail),
}

impl Outgoing {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Request(request) => &request.idempotency_key,
            Self::Mail(mail) => &mail.idempotency_key,
        }
    }
}

pub(crate) fn http_request(
    http: &HttpStep,
    work: &Work,
    world: &Value,
    key: String,
) -> Result<OutgoingRequest, RenderError> {
    let mut request = request_of(http, world, key)?;
    if let Body::Payload = http.body {
        request.body = Some(work.payload.as_ref().map(|p| p.body.clone()).unwrap_or_default());
    }
    Ok(request)
}

/// A request but for a payload that it passes on.
pub(crate) fn request_of(
    http: &HttpStep,
    world: &Value,
    key: String,
) -> Result<OutgoingRequest, RenderError> {
    let url = render::url("url", &http.url, world)?;
    let mut request = OutgoingRequest::new(http.method.clone(), url, key);
    request.idempotency_header = http.idempotency_header.clone();
    for (name, value) in &http.headers {
        let value = match value {
            HeaderText::Template(template) => render::text(&format!("headers.{name}"), template, world)?,
            HeaderText::Secret(secret) => String::from_utf8_lossy(secret.expose()).into_owned(),
        };
        request.headers.push((name.clone(), value));
    }
    match &http.body {
        Body::Empty | Body::Payload => {}
        Body::Json(template) => with_json(&mut request, &render::json("json", template, world)?),
        Body::Text(template) => request.body = Some(render::text("body", template, world)?.into_bytes()),
    }
    Ok(request)
}

pub(crate) fn forward_request(
    forward: &ForwardStep,
    world: &Value,
    key: String,
) -> Result<OutgoingRequest, RenderError> {
    let url = render::url("url", &forward.url, world)?;
    let mut request = OutgoingRequest::new(http::Method::POST, url, key);
    let json = match &forward.json {
        Some(template) => render::json("json", template, world)?,
        None => json!({ "payload": world["payload"], "oncegate": world["oncegate"] }),
    };
    with_json(&mut request, &json);
    Ok(request)
}

fn with_json(request: &mut OutgoingRequest, json: &Value) {
    request.body = Some(json.to_string().into_bytes());
    if !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request.headers.push(("content-type".into(), "application/json".into()));
    }
}

/// What templates see: `payload`, `idempotency_key`, `automation`, `attempt`, `steps.<name>`, `oncegate.done_url` …
pub(crate) fn world(
    work: &Work,
    payload: &Value,
    flow: &Flow,
    calls: &[StepCall],
    worker: &Worker,
    attempt: &Attempt,
) -> Value {
    let mut steps = Map::new();
    for step in &flow.steps {
        let succeeded = |name: &str| {
            calls.iter().rev().find(|c| c.step == name && c.outcome == StepOutcome::Succeeded).map(answer)
        };
        let answered = match step.for_each {
            None => succeeded(&step.name),
            // Those of items that were left out, or have yet to run, are missing.
            Some(_) => {
                let mut items: Vec<(usize, Value)> = calls
                    .iter()
                    .filter(|c| c.outcome == StepOutcome::Succeeded)
                    .filter_map(|c| Some((item_of(&c.step, &step.name)?, answer(c))))
                    .collect();
                items.sort_by_key(|(index, _)| *index);
                let items: Vec<Value> = items.into_iter().map(|(_, answer)| answer).collect();
                (!items.is_empty()).then(|| json!({ "items": items }))
            }
        };
        if let Some(answered) = answered {
            steps.insert(step.name.clone(), answered);
        }
    }
    let url = |verb: &str| {
        format!("{}/v1/claims/{}/{verb}?token={}", worker.base_url, attempt.id, attempt.token.expose())
    };
    json!({
        "payload": payload,
        "idempotency_key": work.key.as_str(),
        "automation": work.automation.as_str(),
        "attempt": attempt.fence.attempt,
        "steps": steps,
        "oncegate": {
            "idempotency_key": work.key.as_str(),
            "attempt": attempt.fence.attempt,
            "done_url": url("done"),
            "error_url": url("error"),
            "heartbeat_url": url("heartbeat"),
        },
    })
}

/// What templates see of an answer.
fn answer(call: &StepCall) -> Value {
    let body = call.answer.clone().unwrap_or_default();
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    json!({ "status": call.status, "json": json, "text": String::from_utf8_lossy(&body) })
}

/// What the event says. One that was stored and cannot be read is a fault, never an empty event: steps would send
/// nothing in its name.
pub(crate) fn payload_of(work: &Work) -> Result<Value, String> {
    match &work.payload {
        None => Ok(Value::Null),
        Some(payload) => serde_json::from_str(&payload.json)
            .map_err(|e| format!("the stored payload cannot be read ({e}); nothing was sent")),
    }
}

/// What people see of a target: no query and no user, which carry secrets, and no path where that is one.
pub(crate) fn shown_url(url: &str, secret: bool) -> String {
    const LONGEST: usize = 300;
    let bare = url.split(['?', '#']).next().unwrap_or(url);
    let (scheme, rest) = bare.split_once("://").unwrap_or(("", bare));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = if secret { "…" } else { path };
    let shown = format!("{scheme}://{host}/{path}");
    shown.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}

/// What later duplicates are told: the last answer that is JSON, which a chat's is not; or that it was handed over.
pub(crate) fn result_of(step: &Step, call: &StepCall) -> Option<String> {
    if matches!(step.action, Action::Forward(_)) {
        return Some(json!({ "handed_over": true, "status": call.status }).to_string());
    }
    if matches!(step.action, Action::Message(_) | Action::Email(_) | Action::Review(_)) {
        return None;
    }
    let answer = call.answer.as_deref()?;
    if answer.len() > oncegate_core::limits::RESULT_BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(answer).ok()?;
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_are_shown_without_what_is_secret_in_them() {
        for (url, secret, shown) in [
            ("https://crm.example.com/contacts?key=s#x", false, "https://crm.example.com/contacts"),
            ("https://ann:pw@crm.example.com:8443/a/b", false, "https://crm.example.com:8443/a/b"),
            ("https://hooks.example.com/catch/1/s3cret/", true, "https://hooks.example.com/…"),
            ("http://h/a\r\nb", false, "http://h/a  b"),
        ] {
            assert_eq!(super::shown_url(url, secret), shown);
        }
        assert_eq!(super::shown_url(&format!("http://h/{}", "x".repeat(5_000)), false).chars().count(), 300);
    }
}

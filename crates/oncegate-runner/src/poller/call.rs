//! How a poll asks: one page after another, each when its target has room.

use std::time::Duration;

use http::Method;
use oncegate_connect::classify::{Spoken, heard};
use oncegate_connect::{
    CallOutcome, Caller, Failure, OutgoingRequest, TargetName, other_page, with_parameter,
};
use oncegate_core::key::{ClaimId, ClaimRef, sha256};
use oncegate_core::limits;
use oncegate_core::poll::{Fault, Mark, Next, Onward, Poll, Walk};
use serde_json::json;

use super::Polled;
use crate::flow::HeaderText;
use crate::gatekeeper::Gatekeeper;
use crate::render;
use crate::request::shown_url;
use crate::targets::Permit;

/// The request that a poll sends.
#[derive(Clone, Debug)]
pub struct PollCall {
    /// Template; it knows `cursor`.
    pub url: String,
    /// Whoever knows it may use it: it is shown to nobody.
    pub secret_url: bool,
    /// Header names and values; the values are sent as they are.
    pub headers: Vec<(String, HeaderText)>,
    /// How long one page may take.
    pub timeout: Duration,
}

/// Why there is no page, and how long its target asked to wait.
pub(super) struct Trouble {
    pub(super) why: String,
    pub(super) wait: Option<Duration>,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self { why: fault.to_string(), wait: None }
    }
}

/// The next question.
pub(super) struct Asked {
    url: String,
    target: TargetName,
    permit: Option<Permit>,
    number: usize,
}

impl PollCall {
    /// Where it asks, for people.
    pub fn shown(&self) -> String {
        shown_url(&self.url, self.secret_url)
    }

    /// The address as it would be filled in, for the check of the configuration.
    ///
    /// # Errors
    /// A sentence that says what cannot be filled in.
    pub fn sample(&self, poll: &Poll) -> Result<String, String> {
        let world = json!({ "cursor": poll.form.write(Mark(0)) });
        render::url("url", &self.url, &world).map_err(|e| e.to_string())
    }

    /// The first question of a poll.
    ///
    /// # Errors
    /// Its target has no room for it yet; how long to wait.
    pub(super) async fn begin(&self, gate: &Gatekeeper, of: &Polled, walk: &Walk) -> Result<Asked, Duration> {
        let world = json!({ "cursor": walk.asks(&of.poll) });
        let url = render::url("url", &self.url, &world);
        let target = url.as_ref().ok().and_then(|url| TargetName::of_url(url));
        let (Ok(url), Some(target)) = (url, target) else {
            // Refused when the configuration was read.
            tracing::error!(source = of.source, "the url of a poll cannot be filled in; check it");
            return Err(limits::POLL_BACKOFF_MAX);
        };
        let permit = gate.targets().admit(of.who(), &target).await.map_err(|wait| wait.wait)?;
        Ok(Asked { url, target, permit: Some(permit), number: 1 })
    }
}

impl Polled {
    /// As whom it waits for its target.
    fn who(&self) -> ClaimRef {
        let mut id = [0; 16];
        id.copy_from_slice(&sha256(format!("poll {}", self.source).as_bytes())[..16]);
        ClaimRef { workspace: self.workspace, id: ClaimId(id) }
    }
}

impl Asked {
    /// Sends it and gives the answer's body.
    ///
    /// # Errors
    /// There is none that could be read.
    pub(super) async fn send(
        &mut self,
        caller: &Caller,
        gate: &Gatekeeper,
        of: &Polled,
    ) -> Result<Vec<u8>, Trouble> {
        let now = gate.store().now().wall;
        // Each is one of its own: who remembers keys must not answer the second as the first.
        let key = gate.store().secret().step_key(of.who().id, &format!("poll at {now}"), self.number as u32);
        let mut request = OutgoingRequest::new(Method::GET, self.url.clone(), key);
        request.timeout = of.call.timeout;
        request.answer_bytes_max = limits::POLL_ANSWER_BYTES_MAX;
        for (name, value) in &of.call.headers {
            let value = match value {
                HeaderText::Template(text) => text.clone(),
                HeaderText::Secret(secret) => String::from_utf8_lossy(secret.expose()).into_owned(),
            };
            request.headers.push((name.clone(), value));
        }
        if !of.call.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
            request.headers.push(("accept".into(), "application/json".into()));
        }
        self.permit.iter().for_each(Permit::sending);
        let outcome = caller.call(&request, now).await;
        if let Some(permit) = self.permit.take() {
            permit.end(heard(&outcome, Spoken::Http));
        }
        self.body(outcome)
    }

    fn body(&self, outcome: CallOutcome) -> Result<Vec<u8>, Trouble> {
        let (status, failure, note) = match outcome {
            CallOutcome::Succeeded { answer, .. } if answer.cut => return Err(Fault::Cut.into()),
            CallOutcome::Succeeded { answer, .. } => return Ok(answer.body),
            CallOutcome::Failed { status, failure, note, .. } => (status, Some(failure), note),
            CallOutcome::Unknown { status, note, .. } => (status, None, note),
        };
        let wait = match failure {
            Some(Failure::Throttled { retry_after }) => Some(retry_after),
            Some(Failure::Transient | Failure::Locked | Failure::Permanent) | None => None,
        };
        let target = &self.target;
        let why = match (status, wait) {
            (Some(status), Some(wait)) => {
                format!("{target} answered {status} and asked to wait {} s", wait.as_secs())
            }
            (Some(status @ (401 | 403)), None) => format!(
                "{target} answered {status}; check the credentials in `headers`, and what they are allowed to read"
            ),
            (Some(status @ 300..=399), None) => format!(
                "{target} answered {status}; redirects are not followed: put the final address into `url`"
            ),
            (Some(status), None) => format!("{target} answered {status}"),
            // A question has no effect that one would have to know of.
            (None, _) => note.split("; whether").next().unwrap_or_default().to_owned(),
        };
        Err(Trouble { why, wait })
    }

    /// The question for the next page.
    ///
    /// # Errors
    /// It is on another server.
    pub(super) fn onward(&mut self, of: &Polled, next: &Onward) -> Result<(), Fault> {
        let url = match (next, &of.poll.next) {
            (Onward::Link(link), _) => other_page(&self.url, link),
            (Onward::Token(token), Some(Next::Token { query, .. })) => {
                with_parameter(&self.url, query, token)
            }
            (Onward::Token(_), _) => None,
        };
        self.url = url.ok_or(Fault::Elsewhere)?;
        self.number += 1;
        Ok(())
    }

    /// Whether its target has room for it.
    ///
    /// # Errors
    /// Not yet: how long to wait, and why.
    pub(super) async fn admit(&mut self, gate: &Gatekeeper, of: &Polled) -> Result<(), Trouble> {
        match gate.targets().admit(of.who(), &self.target).await {
            Ok(permit) => {
                self.permit = Some(permit);
                Ok(())
            }
            Err(wait) => {
                let due = gate.store().now().wall.after(wait.wait);
                Err(Trouble { why: gate.targets().words(&self.target, &wait, due), wait: Some(wait.wait) })
            }
        }
    }
}

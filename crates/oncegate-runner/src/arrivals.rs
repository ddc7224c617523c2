//! What becomes of an event that is about to be admitted, whoever brings it: a webhook, or a poll.

use oncegate_core::identity::Subject;
use oncegate_core::key::{AutomationName, IdempotencyKey, RecordName, StoreSecret, Workspace};
use oncegate_core::webhook::{Aside, Event, EventEnvironment, Headers, NoIdentity, SetAside};
use oncegate_store::api::AdmitEvent;
use serde_json::Value;

use crate::flow;
use crate::gatekeeper::Gatekeeper;

/// Where events are about to arrive.
pub struct Arrivals<'a> {
    workspace: Workspace,
    automation: &'a AutomationName,
    secret: &'a StoreSecret,
    record: Option<String>,
    environment: Option<&'a EventEnvironment>,
}

impl<'a> Arrivals<'a> {
    /// Those of a source that leads to this automation; `environment` is what its events must say to be run.
    pub fn new(
        gate: &'a Gatekeeper,
        workspace: Workspace,
        automation: &'a AutomationName,
        environment: Option<&'a EventEnvironment>,
    ) -> Self {
        let record = gate.book().automation(workspace, automation).record;
        Self { workspace, automation, secret: gate.store().secret(), record, environment }
    }

    /// The event as the store takes it. `scrub` takes secrets out of its JSON.
    pub fn event(&self, headers: &Headers, event: Event, scrub: impl FnOnce(String) -> String) -> AdmitEvent {
        let likeness = event.repeat.map(|(subject, within): (Subject, _)| {
            subject.likeness(self.secret, self.workspace, self.automation, within)
        });
        let about = event.about.map(|subject| subject.print(self.secret, self.workspace));
        let (identity, record) = identified(event.identity, &event.payload, self.record.as_deref());
        AdmitEvent {
            identity,
            fingerprint: event.fingerprint,
            likeness,
            about,
            delivery_id: event.delivery_id,
            aside: self
                .environment
                .and_then(|ours| ours.differs(headers, &event.payload))
                .map(|why| SetAside { kind: Aside::OtherEnvironment, why }),
            sender: None,
            json: scrub(event.payload.to_string()),
            of_batch: event.of_batch,
            record,
            dated: event.dated,
        }
    }
}

/// The key and the record of an event, or why it cannot run.
pub fn identified(
    identity: Result<IdempotencyKey, NoIdentity>,
    payload: &Value,
    template: Option<&str>,
) -> (Result<IdempotencyKey, String>, Option<RecordName>) {
    let record = template.map(|template| flow::record(template, payload)).transpose();
    match (identity, record) {
        (Ok(key), Ok(record)) => (Ok(key), record),
        // Named, so that two events are two rows although their bodies are equal.
        (Ok(key), Err(why)) => (Err(format!("{why} (key {key})")), None),
        (Err(none), _) => (Err(none.to_string()), None),
    }
}

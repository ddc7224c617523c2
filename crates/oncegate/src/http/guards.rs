//! The guards at the door of a source: what sets an event aside before it is stored as one to run.

use oncegate_core::webhook::{Aside, Headers, Sender, SetAside};
use serde_json::Value;

use super::AppState;
use super::doors::Source;

/// Who lets an event in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// It has just come.
    Itself,
    /// A person, who has seen it: only what is of another environment still does not run.
    Person,
}

/// Why an event is of another environment than its source.
pub(super) fn elsewhere(source: &Source, headers: &Headers, payload: &Value) -> Option<String> {
    source.environment.as_ref().and_then(|ours| ours.differs(headers, payload))
}

/// Why an event is set aside, as far as it tells by itself.
pub(super) fn aside(source: &Source, headers: &Headers, payload: &Value, by: By) -> Option<SetAside> {
    if let Some(why) = elsewhere(source, headers, payload) {
        return Some(SetAside { kind: Aside::OtherEnvironment, why });
    }
    let guard =
        source.machine_mail.as_ref().filter(|_| by == By::Itself && source.provider.is_mail(payload))?;
    guard.why(headers, payload).map(|why| SetAside { kind: Aside::MachineMail, why })
}

/// Who sent an event, where the store is to count it.
pub(super) fn sender(
    state: &AppState,
    (source, name): (&Source, &str),
    headers: &Headers,
    payload: &Value,
) -> Option<Sender> {
    let limit = source.sender.as_ref()?;
    limit.of((headers, payload), state.gate.store().secret(), (source.workspace, name))
}

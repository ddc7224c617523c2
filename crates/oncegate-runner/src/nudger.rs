//! Calls back the tools of callers that were stopped (`retrigger`): looks for those whose turn has come, asks the
//! store, which writes it down, and then calls the hook. What comes of it is the tool's next claim; the call itself
//! decides nothing, so that its outcome is only told, never acted on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use oncegate_connect::classify::{Spoken, heard};
use oncegate_connect::{CallOutcome, Caller, OutgoingRequest, TargetName};
use oncegate_core::key::ClaimRef;
use oncegate_core::limits;
use oncegate_core::secret::Secret;
use oncegate_store::StoreError;
use oncegate_store::api::Due;
use oncegate_store::nudges::{Nudge, Nudged};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::flow::HeaderText;
use crate::gatekeeper::Gatekeeper;
use crate::targets::Permit;

/// The hook of an automation, declared as `retrigger`.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Whoever knows it may call it.
    pub url: Secret,
    /// Header names and values; the values are sent as they are.
    pub headers: Vec<(String, HeaderText)>,
}

/// How often it is looked whose turn has come.
const LOOK: Duration = Duration::from_secs(1);
/// How soon it is looked again at what could not be called back just now: its record may become free any moment.
const COOL: Duration = Duration::from_secs(5);

pub(crate) async fn run(gate: Arc<Gatekeeper>, caller: Caller, mut stopped: watch::Receiver<bool>) {
    let mut calls: JoinSet<ClaimRef> = JoinSet::new();
    let mut active: HashSet<ClaimRef> = HashSet::new();
    let mut cooling: HashMap<ClaimRef, Duration> = HashMap::new();
    while !*stopped.borrow() {
        let now = gate.clock().read().monotonic;
        cooling.retain(|_, until| *until > now);
        while let Some(ended) = calls.try_join_next() {
            match ended {
                Ok(id) => active.remove(&id),
                // It was written down before: its turn comes again.
                Err(_) => false,
            };
        }
        if calls.is_empty() {
            active.clear();
        }
        if let Err(error) = look(&gate, &caller, &mut calls, &mut active, &mut cooling, now + COOL).await {
            tracing::error!(%error, "could not look for tools to call back");
        }
        tokio::select! {
            () = gate.clock().sleep(LOOK) => {}
            _ = stopped.changed() => break,
        }
    }
    // A call that is cut off is made again, like one that nobody answered.
    calls.shutdown().await;
}

async fn look(
    gate: &Arc<Gatekeeper>,
    caller: &Caller,
    calls: &mut JoinSet<ClaimRef>,
    active: &mut HashSet<ClaimRef>,
    cooling: &mut HashMap<ClaimRef, Duration>,
    cool_until: Duration,
) -> Result<(), StoreError> {
    // Page by page: those who wait for a record must not keep from their turn those who stand behind them.
    loop {
        let want = limits::NUDGES_AT_WORK_MAX + active.len() + cooling.len();
        let page = gate.store().due_nudges(u32::try_from(want).unwrap_or(u32::MAX)).await?;
        let is_last = page.len() < want;
        let mut waiting = 0;
        for due in page {
            if active.len() >= limits::NUDGES_AT_WORK_MAX {
                return Ok(());
            }
            if active.contains(&due.id) || cooling.contains_key(&due.id) {
                continue;
            }
            // A node never judges what it does not know: here it would give up for want of a hook.
            if gate.is_of_another(due.id.workspace, &due.automation) {
                waiting += 1;
                cooling.insert(due.id, cool_until);
                continue;
            }
            // Asked before it is written down that the hook is called.
            let permit = match target(gate, &due) {
                None => None,
                Some(target) => match gate.targets().ask(due.id, &target) {
                    Ok(permit) => Some(permit),
                    Err(_) => {
                        waiting += 1;
                        cooling.insert(due.id, cool_until);
                        continue;
                    }
                },
            };
            // One that cannot be read must not keep those behind it from their turn either.
            let nudge = gate.store().nudge(due.id).await.unwrap_or_else(|error| {
                tracing::error!(claim = %due.id, %error, "could not look whether a tool is to be called back");
                Nudge::Wait
            });
            match nudge {
                Nudge::Over => {}
                Nudge::Wait => {
                    waiting += 1;
                    cooling.insert(due.id, cool_until);
                }
                Nudge::Send(nudged) => {
                    active.insert(due.id);
                    let (gate, caller) = (Arc::clone(gate), caller.clone());
                    calls.spawn(async move {
                        call(&gate, &caller, &nudged, permit).await;
                        nudged.id
                    });
                }
            }
        }
        if is_last || waiting == 0 {
            return Ok(());
        }
    }
}

/// Whom the hook of an automation calls.
fn target(gate: &Gatekeeper, due: &Due) -> Option<TargetName> {
    let hook = gate.book().automation(due.id.workspace, &due.automation).retrigger?;
    TargetName::of_url(&String::from_utf8_lossy(hook.url.expose()))
}

async fn call(gate: &Gatekeeper, caller: &Caller, nudged: &Nudged, permit: Option<Permit>) {
    let hook = gate.book().automation(nudged.id.workspace, &nudged.automation).retrigger;
    let now = gate.store().now().wall;
    let note = match hook {
        None => "the automation declares no hook any more".to_owned(),
        Some(hook) => {
            // Each call is one of its own: a receiver that remembers keys must not take the second for the first.
            let key = gate.store().secret().step_key(nudged.id.id, &format!("retrigger at {now}"), 0);
            permit.iter().for_each(Permit::sending);
            let outcome = caller.call(&request(&hook, nudged, key), now).await;
            permit.map(|permit| permit.end(heard(&outcome, Spoken::Http)));
            match outcome {
                CallOutcome::Succeeded { .. } => return,
                CallOutcome::Failed { note, .. } | CallOutcome::Unknown { note, .. } => note,
            }
        }
    };
    tracing::warn!(claim = %nudged.id, note, "a retrigger hook did not take a call");
    if let Err(error) = gate.store().nudge_failed(nudged.id, note).await {
        tracing::warn!(claim = %nudged.id, %error, "could not write down that a retrigger hook failed");
    }
}

fn request(hook: &Hook, nudged: &Nudged, key: String) -> OutgoingRequest {
    let url = String::from_utf8_lossy(hook.url.expose()).into_owned();
    let mut request = OutgoingRequest::new(Method::POST, url, key);
    request.timeout = limits::NUDGE_TIME_MAX;
    request.headers.push(("content-type".into(), "application/json".into()));
    for (name, value) in &hook.headers {
        let value = match value {
            HeaderText::Template(text) => text.clone(),
            HeaderText::Secret(secret) => String::from_utf8_lossy(secret.expose()).into_owned(),
        };
        request.headers.push((name.clone(), value));
    }
    request.body = Some(body(nudged).to_string().into_bytes());
    request
}

/// What the caller sent to `POST /v1/claims`, as far as it is kept, so that the tool can send it again as it is; what
/// oncegate adds stands apart.
fn body(nudged: &Nudged) -> Value {
    let payload: Option<Value> = nudged.payload.as_deref().and_then(|json| serde_json::from_str(json).ok());
    json!({
        "automation": nudged.automation,
        "idempotency_key": nudged.key,
        "record": nudged.record,
        "run_url": nudged.run_url,
        "payload": payload,
        "oncegate": {
            "claim_id": nudged.id,
            "reason": nudged.reason.as_str(),
            "attempt": nudged.attempt,
            "calls_unanswered": nudged.unanswered,
        },
    })
}

//! Tools that are called back (`retrigger`): whose turn it is, and what their hook is told.

use async_trait::async_trait;
use oncegate_core::claim::Holder;
use oncegate_core::decide::{Request, RunReason, Start};
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, RecordName};

use crate::StoreError;
use crate::api::{ClaimCall, Due, Target};

/// The history's name for who calls hooks.
pub(crate) const ACTOR: &str = "retrigger";

/// What a hook is told about a claim that may run: what its caller sent, as far as it is kept.
#[derive(Clone, Debug)]
pub struct Nudged {
    /// Which claim.
    pub id: ClaimRef,
    /// Of which automation.
    pub automation: AutomationName,
    /// Its key.
    pub key: IdempotencyKey,
    /// The record it touches.
    pub record: Option<RecordName>,
    /// Where a person finds the run that was stopped.
    pub run_url: Option<String>,
    /// Its payload as JSON; `None` if no claim brought one.
    pub payload: Option<String>,
    /// The last attempt given, 0 if none was.
    pub attempt: u32,
    /// Why a claim would run now.
    pub reason: RunReason,
    /// Calls since the tool was last heard of, this one included.
    pub unanswered: u32,
}

/// What became of a nudge whose turn had come.
#[derive(Clone, Debug)]
pub enum Nudge {
    /// Written down; call the hook.
    Send(Box<Nudged>),
    /// It would be stopped now; look again in some seconds.
    Wait,
    /// It is over: the claim moved on, or waits for a person.
    Over,
}

/// The part of the contract that is about calling tools back.
#[async_trait]
pub trait Nudges: Send + Sync {
    /// Claims whose tool is to be called, oldest first, not of paused automations.
    async fn due_nudges(&self, limit: u32) -> Result<Vec<Due>, StoreError>;
    /// Decides whether the tool is called now, and writes it down before it is.
    async fn nudge(&self, id: ClaimRef) -> Result<Nudge, StoreError>;
    /// The hook did not take it; for the history. It is called again by itself.
    async fn nudge_failed(&self, id: ClaimRef, note: String) -> Result<(), StoreError>;
}

/// What is looked up for the claim that the tool would make.
pub(crate) fn as_its_caller(id: ClaimRef) -> ClaimCall {
    ClaimCall {
        target: Target::Id(id),
        request: Request::as_it_stands(Start::Now(Holder::Caller { run_id: None })),
        run_url: None,
        parent: None,
        payload: None,
        actor: ACTOR.into(),
        again: false,
    }
}

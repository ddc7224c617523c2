//! The store's contract: one method = one thing that happens, in one transaction.
//!
//! An `Ok` means committed (synchronously, to disk). An `Err` means that nothing of the call was written, and that
//! the caller may try again. Refusals of the gate are values, not errors.

use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::claim::{Boot, Claim};
use oncegate_core::decide::{Decision, Request};
use oncegate_core::finish::{Answer, Call};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, IdempotencyKey, StoreSecret};
pub use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::recovery::Gap;
use oncegate_core::reset::{Act, Refusal};
use oncegate_core::time::{Now, Timestamp};
use oncegate_core::token::{Fence, Token};
use serde::Serialize;

use crate::StoreError;
use crate::access::{Access, AuditFilter};
pub use crate::deliveries::*;
pub use crate::in_line::{InLine, Neighbour, Neighbours};
pub use crate::nodes::{Names, Nodes};
use crate::notices::Notices;
use crate::nudges::Nudges;
use crate::people::People;
use crate::person::Privacy;
use crate::positions::Positions;
pub use crate::search::Filter;
pub use crate::step_calls::*;
use crate::vitals::Vitals;

/// Finds the policy of an automation. The store passes it to the core and never looks inside.
pub trait PolicyBook: Send + Sync {
    /// The declared policy, or the default one.
    fn policy(&self, workspace: Workspace, automation: &AutomationName) -> Arc<Policy>;

    /// The names that are declared: a first claim of one of them makes no notice.
    fn declared(&self, _workspace: Workspace) -> Vec<AutomationName> {
        Vec::new()
    }
}

/// Every automation has the default policy.
#[derive(Debug, Default)]
pub struct DefaultPolicies(Arc<Policy>);

impl PolicyBook for DefaultPolicies {
    fn policy(&self, _workspace: Workspace, _automation: &AutomationName) -> Arc<Policy> {
        Arc::clone(&self.0)
    }
}

/// Which claim.
#[derive(Clone, Debug)]
pub enum Target {
    /// By what names it; the claim, and its automation, are made if there is none.
    Key {
        /// Whose.
        workspace: Workspace,
        /// Of which automation.
        automation: AutomationName,
        /// Which effect.
        key: IdempotencyKey,
    },
    /// By id; must exist.
    Id(ClaimRef),
}

/// A payload as it came, and as templates see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Byte for byte.
    pub body: Vec<u8>,
    /// JSON made from it.
    pub json: String,
}

/// Asks to run.
#[derive(Clone, Debug)]
pub struct ClaimCall {
    /// Which claim.
    pub target: Target,
    /// What is asked.
    pub request: Request,
    /// Where a person finds the caller's run.
    pub run_url: Option<String>,
    /// The token of another claim whose holder asks: this one shares its record, ends no later and is void with it.
    pub parent: Option<(ClaimRef, Fence)>,
    /// Kept from the first call that brings one.
    pub payload: Option<Payload>,
    /// For the history, e.g. `token:admin`, `runner`.
    pub actor: String,
    /// Another look of a call that waits: a stop was counted at its first.
    pub again: bool,
}

/// The answer to a [`ClaimCall`].
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Run or stop.
    pub decision: Decision,
    /// The row after it; `None` if there is still none (a stop that leaves no row).
    pub view: Option<ClaimView>,
    /// Whether the claim's row changed.
    pub changed: bool,
    /// Which claim.
    pub id: ClaimRef,
    /// Proof of holding the attempt; only with a run.
    pub token: Option<Token>,
    /// What is wrong with how the caller asks, beside what the decision itself says.
    pub note: Option<String>,
    /// When it was decided.
    pub now: Now,
}

/// A finish call by a holder.
#[derive(Clone, Debug)]
pub struct FinishCall {
    /// Which claim.
    pub id: ClaimRef,
    /// The attempt its token was made for.
    pub fence: Fence,
    /// What it says.
    pub call: Call,
    /// Spreads the retry.
    pub jitter: Jitter,
    /// JSON handed to later duplicates; kept from the first done.
    pub result: Option<String>,
    /// For the history.
    pub actor: String,
}

/// A person's act.
#[derive(Clone, Debug)]
pub struct ActCall {
    /// Which claim.
    pub id: ClaimRef,
    /// What.
    pub act: Act,
    /// Why; never blank.
    pub reason: String,
    /// Who.
    pub actor: String,
}

/// The answer to a [`ActCall`].
#[derive(Clone, Debug)]
pub enum Acted {
    /// Written; the row after it.
    Written(Box<ClaimView>),
    /// Refused; nothing changed.
    Refused(Refusal),
    /// No such claim.
    NotFound,
}

/// What an attempt does first.
#[derive(Clone, Debug)]
pub struct First {
    /// Of the claim's row, from which this was made ([`Work::version`]).
    pub version: i64,
    /// What it is; its fence is the one of the attempt to come.
    pub opening: Opening,
}

/// How an attempt begins.
#[derive(Clone, Debug)]
pub enum Opening {
    /// With a call that is about to be sent.
    Step(StepBegin),
    /// With its last word: it has to wait.
    Word(FinishCall),
}

impl Opening {
    /// Of which claim.
    pub fn id(&self) -> ClaimRef {
        match self {
            Self::Step(begin) => begin.id,
            Self::Word(word) => word.id,
        }
    }

    /// Of which attempt.
    pub fn fence(&self) -> Fence {
        match self {
            Self::Step(begin) => begin.fence,
            Self::Word(word) => word.fence,
        }
    }
}

/// What became of an [`Opening`].
#[derive(Clone, Debug)]
pub enum Opened {
    /// The call is written down, under this number.
    Step(i64),
    /// What the word was answered.
    Word(Answer, Box<ClaimView>),
}

/// The answer to [`Store::begin_run`].
#[derive(Clone, Debug)]
pub struct Begun {
    /// That to the claim.
    pub claimed: Claimed,
    /// `None`: nothing was written beside it.
    pub opened: Option<Opened>,
}

/// Everything the runner needs to run one claim.
#[derive(Clone, Debug)]
pub struct Work {
    /// As it stands.
    pub claim: Claim,
    /// Of its row: another one once anything of it has changed.
    pub version: i64,
    /// Its automation.
    pub automation: AutomationName,
    /// Its key.
    pub key: IdempotencyKey,
    /// Its payload.
    pub payload: Option<Payload>,
    /// What its steps have sent so far, oldest first.
    pub steps: Vec<StepCall>,
}

/// A claim with what the core does not need to see.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Whose.
    pub workspace: Workspace,
    /// Position in lists; rises with creation.
    pub row: i64,
    /// The row the core decides on.
    pub claim: Claim,
    /// Its automation.
    pub automation: AutomationName,
    /// Its key.
    pub key: IdempotencyKey,
    /// The key of the claim that it repeats, if that is still there.
    pub repeat_of: Option<IdempotencyKey>,
    /// The list it stands in at the moment of reading.
    pub inbox: Option<InboxList>,
    /// Where a person finds the caller's run.
    pub run_url: Option<String>,
    /// What the first done said, as JSON.
    pub result: Option<String>,
    /// How many calls were stopped since the first stop.
    pub stops: u64,
    /// When the first of them was.
    pub first_stop_at: Option<Timestamp>,
    /// When the last of them was.
    pub last_stop_at: Option<Timestamp>,
    /// What a person filed it under.
    pub tag: Option<String>,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the row last changed.
    pub updated_at: Timestamp,
    /// When its payload was removed, some time after done; `None` while it is kept, and if there was none.
    pub payload_removed_at: Option<Timestamp>,
}

impl ClaimView {
    /// Which claim this is.
    pub fn at(&self) -> ClaimRef {
        ClaimRef { workspace: self.workspace, id: self.claim.id }
    }
}

/// One thing that happened to a claim.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryRow {
    /// When.
    pub at: Timestamp,
    /// `run`, `stop`, `done`, `error`, `late`, `reset`, …
    pub kind: String,
    /// Which reason of that kind.
    pub reason: Option<String>,
    /// The attempt at that time.
    pub attempt: u32,
    /// Who.
    pub actor: String,
    /// In words.
    pub note: Option<String>,
}

/// One thing a person or token did.
#[derive(Clone, Debug, Serialize)]
pub struct AuditRow {
    /// Rises with time.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub subject: String,
    /// Why.
    pub reason: Option<String>,
    /// More.
    pub detail: Option<String>,
}

/// A page of a list, newest first.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<i64>,
}

/// What became of a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// Written.
    Written,
    /// There is none of the old name, or not any more.
    Nothing,
    /// Both names have claims of their own; two memories cannot become one.
    BothKnown,
}

/// A restore that no person has ended yet: nothing runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Recovery {
    /// What the store knows nothing of.
    #[serde(flatten)]
    pub gap: Gap,
    /// How many claims were open in the backup; they are `error` with the cause `restored`.
    pub open_claims: u64,
}

/// Workspaces of which [`Store::due`] tells at least one claim that is due, if so many have one.
pub const WORKSPACES_SEEN: u32 = 1_000;

/// Work that the runner may take.
#[derive(Clone, Debug)]
pub struct Due {
    /// Which claim.
    pub id: ClaimRef,
    /// Of which automation.
    pub automation: AutomationName,
    /// Nobody has tried it yet, nor has it been due for long: it need not be told if it has to wait for its target.
    pub is_new: bool,
}

/// What was answered to whoever said how an attempt goes, and the claim as it is now; `None`: there is no such claim.
pub type Finished = Option<(Answer, ClaimView)>;

/// The contract.
#[async_trait]
pub trait Store:
    Access + InLine + Nodes + Notices + Nudges + People + Positions + Privacy + Send + Sync
{
    /// The secret from which ids, tokens and outgoing keys derive.
    fn secret(&self) -> &StoreSecret;
    /// This start of the gate.
    fn boot(&self) -> Boot;
    /// The store's time.
    fn now(&self) -> Now;

    /// Decides and writes. A call whose future was dropped before its turn claims nothing. `None`: the claim named by
    /// id does not exist, or the parent's token no longer holds; nothing was written.
    async fn claim(&self, call: ClaimCall) -> Result<Option<Claimed>, StoreError>;
    /// Done, error, heartbeat, defer, hand back. `None`: no such claim.
    async fn finish(&self, call: FinishCall) -> Result<Finished, StoreError>;
    /// Reset, mark, dismiss.
    async fn act(&self, call: ActCall) -> Result<Acted, StoreError>;
    /// Stores a verified request: all of its events or none. One answer per event, in order.
    async fn admit(&self, call: AdmitCall) -> Result<Vec<Admitted>, StoreError>;
    /// Keeps a request whose signature did not verify.
    async fn keep_unverified(&self, call: UnverifiedCall) -> Result<i64, StoreError>;
    /// Writes down a call before it is sent. `None`: the attempt no longer holds; do not send.
    async fn begin_step(&self, step: StepBegin) -> Result<Option<i64>, StoreError>;
    /// Writes down how it ended, whoever holds the claim by now. `false`: the attempt no longer holds.
    async fn end_step(&self, step: StepEnd) -> Result<bool, StoreError>;
    /// Takes an attempt together with what it does first, in one transaction; each as by itself. The attempt alone is
    /// taken if the claim has changed since it was read, or was given under another fence; and by a store that does
    /// not write both at once.
    async fn begin_run(&self, call: ClaimCall, first: First) -> Result<Option<Begun>, StoreError> {
        drop(first);
        Ok(self.claim(call).await?.map(|claimed| Begun { claimed, opened: None }))
    }
    /// Writes down how the last step ended and what its attempt says then, in one transaction; each as by itself.
    async fn end_run(&self, step: StepEnd, last: FinishCall) -> Result<Finished, StoreError>;
    /// Pauses or resumes an automation; one that is unknown is made. Returns whether that changed anything.
    async fn set_paused(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        paused: bool,
        reason: String,
        actor: String,
    ) -> Result<bool, StoreError>;

    /// Gives an automation another name; what was done under the old one stays done.
    async fn rename_automation(
        &self,
        workspace: Workspace,
        from: AutomationName,
        to: AutomationName,
    ) -> Result<Renamed, StoreError>;
    /// Whether an automation of this name has been seen.
    async fn knows_automation(
        &self,
        workspace: Workspace,
        automation: AutomationName,
    ) -> Result<bool, StoreError>;
    /// One claim.
    async fn show(&self, id: ClaimRef) -> Result<Option<ClaimView>, StoreError>;
    /// The id a key would have; `None` if its automation is unknown.
    async fn find(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        key: IdempotencyKey,
    ) -> Result<Option<ClaimRef>, StoreError>;
    /// What happened to a claim, oldest first; of a long history the newest rows.
    async fn history(&self, id: ClaimRef) -> Result<Vec<HistoryRow>, StoreError>;
    /// What a claim's runner needs.
    async fn work(&self, id: ClaimRef) -> Result<Option<Work>, StoreError>;
    /// Claims, newest first.
    async fn list(&self, workspace: Workspace, filter: Filter) -> Result<Page<ClaimView>, StoreError>;
    /// How many stand in each inbox list; of `only` these automations, if given.
    async fn counts(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
    ) -> Result<Vec<(InboxList, u64)>, StoreError>;
    /// Deliveries that wait for a person (`rejected`, `unverified`), newest first, without bodies; of `only` these
    /// automations, if given.
    async fn rejected(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError>;
    /// Deliveries that are parked, newest first, without bodies.
    async fn parked_deliveries(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError>;
    /// The deliveries of a claim, newest first, without bodies; `limit` at most.
    async fn deliveries(&self, id: ClaimRef, limit: u32) -> Result<Vec<DeliveryRow>, StoreError>;
    /// One delivery, with its body.
    async fn delivery(&self, workspace: Workspace, id: i64) -> Result<Option<DeliveryRow>, StoreError>;
    /// Everything that people did, newest first.
    async fn audit(
        &self,
        workspace: Workspace,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<AuditRow>, StoreError> {
        self.audit_of(workspace, AuditFilter { before, limit, ..AuditFilter::default() }).await
    }

    /// Work that is due or lost its holder, not of paused automations: up to `limit` of each workspace, the oldest of
    /// each first, then the second of each, …. After [`Nodes::hello`] only of those that this node runs, so that what
    /// it cannot run does not stand before what it can. What waits its turn on a record is left out for a while.
    async fn due(&self, limit: u32) -> Result<Vec<Due>, StoreError>;
    /// The same, without what is new of some automations: there is no room for it where its first step leads to. A
    /// store may tell it nevertheless.
    async fn due_but_new(&self, limit: u32, of: Names) -> Result<Vec<Due>, StoreError> {
        drop(of);
        self.due(limit).await
    }
    /// When the next work comes due that was not due yet at `after`.
    async fn next_due(&self, after: Timestamp) -> Result<Option<Timestamp>, StoreError>;
    /// Carries the lease clock on; to be called every [`oncegate_core::time::Tick::INTERVAL`].
    async fn tick(&self) -> Result<(), StoreError>;
    /// Forgets what retention has ended for, a bounded number of each kind; returns the number of the kind of which
    /// most went: `limit` means that there may be more.
    async fn reap(&self, limit: u32) -> Result<u64, StoreError>;

    /// The recovery that the store is in, if it is.
    async fn recovery(&self) -> Result<Option<Recovery>, StoreError>;
    /// A person ends the recovery; `false`: the store is in none. What it parked stays parked.
    async fn end_recovery(&self, reason: String, actor: String) -> Result<bool, StoreError>;
    /// How the store is doing. Looks at every open claim, so it is not for every request.
    async fn vitals(&self) -> Result<Vitals, StoreError>;
    /// Proves that a claim could be written now: writes as much as one needs, and syncs it.
    async fn probe(&self) -> Result<(), StoreError>;
    /// Finishes what was accepted and closes; later calls fail with [`StoreError::Closed`].
    async fn close(&self);
}

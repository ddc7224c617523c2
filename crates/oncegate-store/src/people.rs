//! What comes in through the API from people and their scripts: writes that a repeat does not repeat, and many claims
//! at a time.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, Workspace};
use oncegate_core::time::{Now, Timestamp};

use crate::StoreError;
use crate::access::{NewToken, Revoked};
use crate::api::{
    ActCall, Acted, AdmitCall, Admitted, ClaimCall, ClaimView, Claimed, HistoryRow, Page, Renamed,
};
use crate::bulk::{BulkAct, BulkCall, BulkClaim, BulkCount, BulkRow, BulkStep, Bulked, Undone};
use crate::search::{By, Filter, Found, Groups};

/// One thing that somebody wants written.
#[derive(Clone, Debug)]
pub enum Write {
    /// A person's act on one claim, which may file it under a tag.
    Act {
        /// What, to which claim.
        call: ActCall,
        /// The tag; `None` leaves the one that is there.
        tag: Option<String>,
    },
    /// A claim is filed under a tag, or under none.
    Tag {
        /// Which claim.
        id: ClaimRef,
        /// The tag; `None` takes it away.
        tag: Option<String>,
        /// Why.
        reason: String,
        /// Who.
        actor: String,
    },
    /// A rejected delivery is released.
    Release(AdmitCall),
    /// An automation is paused or resumed.
    SetPaused {
        /// Whose.
        workspace: Workspace,
        /// Which automation.
        automation: AutomationName,
        /// Whether it stands still from now on.
        paused: bool,
        /// Why.
        reason: String,
        /// Who.
        actor: String,
    },
    /// An automation gets another name; what was done under the old one stays done.
    Rename {
        /// Whose.
        workspace: Workspace,
        /// What it is called.
        from: AutomationName,
        /// What it shall be called.
        to: AutomationName,
        /// Why.
        reason: String,
        /// Who.
        actor: String,
    },
    /// An act on many claims begins.
    Bulk(BulkCall),
    /// An act on many claims is taken back.
    UndoBulk {
        /// Whose.
        workspace: Workspace,
        /// Which act.
        id: i64,
        /// Why.
        reason: String,
        /// Who.
        actor: String,
        /// By which token.
        token_id: i64,
    },
    /// A token is made.
    AddToken(NewToken),
    /// A token is ended.
    RevokeToken {
        /// Whose.
        workspace: Workspace,
        /// Which token.
        id: i64,
        /// Even if nobody could administer the server after it.
        although_last: bool,
        /// Why.
        reason: String,
        /// Who.
        actor: String,
    },
}

/// What a [`Write`] led to; the variants stand in the same order.
#[derive(Clone, Debug)]
pub enum Written {
    /// See [`Acted`].
    Act(Acted),
    /// The claim after it, and whether that changed anything; `None`: no such claim.
    Tagged(Option<(Box<ClaimView>, bool)>),
    /// What became of its events; empty: somebody else released it.
    Released(Vec<Admitted>),
    /// Whether that changed anything.
    SetPaused(bool),
    /// See [`Renamed`].
    Renamed(Renamed),
    /// See [`Bulked`].
    Bulk(Bulked),
    /// See [`Undone`].
    UndoBulk(Undone),
    /// Its number; `None`: there is one with this hash already.
    AddedToken(Option<i64>),
    /// See [`Revoked`].
    RevokedToken(Revoked),
}

/// A call as its sender names it, so that a repeat is known as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose.
    pub workspace: Workspace,
    /// What the `Idempotency-Key` said.
    pub key: IdempotencyKey,
    /// SHA-256 of everything that makes it this call.
    pub fingerprint: [u8; 32],
}

/// An answer that a repeat is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// 200 to 299.
    pub status: u16,
    /// The body; `None` if it held a secret, which is never stored.
    pub body: Option<String>,
}

/// Makes the answer that is kept, inside the transaction that writes; `None`: it was refused, nothing is kept, and a
/// repeat is judged anew.
pub type Answering = Arc<dyn Fn(&Written, Now) -> Option<Kept> + Send + Sync>;

/// A write that happens once, however often it is asked for.
#[derive(Clone)]
pub struct Once {
    /// How its sender names it.
    pub request: Request,
    /// How it is answered.
    pub answering: Answering,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("request", &self.request).finish_non_exhaustive()
    }
}

/// What is known about a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was answered before.
    Answered(Kept),
    /// Its key was used for another call.
    Reused,
}

/// What came of asking for a write.
#[derive(Clone, Debug)]
pub enum Wrote {
    /// It was judged now.
    Now(Written, Now),
    /// It had been written before, or its key was used for something else; nothing was written.
    Before(Known),
}

/// Claims on their way out; an error is the last thing that comes.
pub type Export = tokio::sync::mpsc::Receiver<Result<ClaimView, StoreError>>;

/// An automation, as it is known.
#[derive(Clone, Debug)]
pub struct AutomationRow {
    /// Its number; rises with the first claim or pause.
    pub id: i64,
    /// What it is called.
    pub name: AutomationName,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// Since when it stands still.
    pub paused_at: Option<Timestamp>,
    /// How many of its claims stand in each list of the inbox that has any.
    pub inbox: Vec<(InboxList, u64)>,
}

/// The part of the contract for people and their scripts.
#[async_trait]
pub trait People: Send + Sync {
    /// Writes one thing; with [`Once`], only if that request has not written before.
    async fn write(&self, write: Write, once: Option<Once>) -> Result<Wrote, StoreError>;
    /// What is known about a request, if it has written.
    async fn known_request(&self, request: Request) -> Result<Option<Known>, StoreError>;
    /// Claims that fit a filter, a page of them.
    async fn search(&self, workspace: Workspace, filter: Filter) -> Result<Found, StoreError>;
    /// All claims that fit a filter, as they stand at one moment, oldest or newest first. They are read as fast as they
    /// are taken; who stops taking them ends it.
    async fn export(&self, workspace: Workspace, filter: Filter) -> Result<Export, StoreError>;
    /// Some of what happened to a claim, oldest first.
    async fn history_page(
        &self,
        id: ClaimRef,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<HistoryRow>, StoreError>;
    /// Claims that fit a filter, counted in groups.
    async fn groups(&self, workspace: Workspace, filter: Filter, by: By) -> Result<Groups, StoreError>;
    /// What an act on many claims would do now.
    async fn count_bulk(
        &self,
        workspace: Workspace,
        act: BulkAct,
        filter: Filter,
    ) -> Result<BulkCount, StoreError>;
    /// Gives at most `rows` claims of the oldest unfinished act their turn. `None`: every act is finished.
    async fn step_bulk(&self, rows: u32) -> Result<Option<BulkStep>, StoreError>;
    /// One act on many claims.
    async fn bulk(&self, workspace: Workspace, id: i64) -> Result<Option<BulkRow>, StoreError>;
    /// Acts on many claims, newest first.
    async fn bulks(
        &self,
        workspace: Workspace,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkRow>, StoreError>;
    /// The claims of one act, oldest first.
    async fn bulk_claims(
        &self,
        workspace: Workspace,
        id: i64,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<BulkClaim>, StoreError>;
    /// Automations that have been seen, newest first; `only` those a token is bound to.
    async fn automations(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<AutomationRow>, StoreError>;
    /// Decides many claims, in order, each as if alone, in one transaction. An item that fails leaves nothing behind
    /// and fails by itself. No item is taken for a repeat (`same_run`) of another one of the same batch.
    async fn claim_batch(
        &self,
        calls: Vec<ClaimCall>,
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, StoreError>;
}

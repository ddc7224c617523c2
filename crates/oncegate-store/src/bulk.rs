//! A person's act on many claims: counted first, then done some at a time, and undone for what nobody touched since.

use std::collections::BTreeMap;

use oncegate_core::key::Workspace;
use oncegate_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::ClaimView;
use crate::search::Filter;

/// What is done to each claim; the words of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum BulkAct {
    /// Back to `none`.
    Reset {
        /// Also what is done.
        verified: bool,
    },
    /// Reset, and oncegate's own steps start when the runner has room.
    RunNow,
    /// To `error`, filed under a tag.
    MarkError {
        /// The tag.
        tag: String,
    },
    /// It did happen.
    MarkDone,
    /// It shall not happen, or has been looked at.
    Dismiss,
    /// Filed under a tag, or under none.
    Tag {
        /// The tag.
        tag: Option<String>,
    },
    /// An earlier act is taken back.
    Undo,
}

impl BulkAct {
    /// The word for history and audit.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Reset { .. } => "reset",
            Self::RunNow => "run_now",
            Self::MarkError { .. } => "mark_error",
            Self::MarkDone => "mark_done",
            Self::Dismiss => "dismiss",
            Self::Tag { .. } => "tag",
            Self::Undo => "undo",
        }
    }
}

/// A bulk act as a person asks for it, after they have seen the count.
#[derive(Clone, Debug)]
pub struct BulkCall {
    /// Whose.
    pub workspace: Workspace,
    /// What; not [`BulkAct::Undo`].
    pub act: BulkAct,
    /// To which claims.
    pub filter: Filter,
    /// The filter as it was asked, JSON, for people.
    pub told: String,
    /// How many there were when they were counted.
    pub expect: u64,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// By which token.
    pub token_id: i64,
}

/// What a bulk act would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkCount {
    /// Claims that fit the filter.
    pub matched: u64,
    /// Of these, what would be acted on.
    pub would_act: u64,
    /// And what would be refused, by reason.
    pub would_refuse: BTreeMap<String, u64>,
    /// There are more than one act may touch; the numbers are those of the first.
    pub too_many: bool,
}

/// What became of asking for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulked {
    /// It has begun.
    Begun(Box<BulkRow>),
    /// Another number fits by now; nothing was done.
    CountChanged(u64),
    /// More fit than one act may touch; nothing was done.
    TooMany,
}

/// What became of asking for an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It has begun.
    Begun(Box<BulkRow>),
    /// It was undone before, by this one; nothing more was done.
    Before(Box<BulkRow>),
    /// The act itself still goes on.
    Running,
    /// An undo is not undone.
    IsUndo,
    /// What the claims were before is not kept any more.
    TooOld,
    /// The store was restored from a backup since; what the claims were before may have run meanwhile.
    Restored,
    /// No such act.
    NotFound,
}

/// A bulk act, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRow {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub workspace: Workspace,
    /// By which token.
    pub token_id: Option<i64>,
    /// What.
    pub act: BulkAct,
    /// The filter as it was asked, JSON.
    pub told: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// How many claims it is about.
    pub matched: u64,
    /// What became of them so far: fate and reason, with how many. The rest waits, or is forgotten.
    pub fates: BTreeMap<(String, String), u64>,
    /// When it was asked for.
    pub made_at: Timestamp,
    /// When its last claim had its turn.
    pub finished_at: Option<Timestamp>,
    /// The act that it takes back.
    pub undoes: Option<i64>,
    /// The act that takes it back.
    pub undone_by: Option<i64>,
}

impl BulkRow {
    /// How many met with this fate.
    pub fn count(&self, fate: &str) -> u64 {
        self.fates.iter().filter(|((f, _), _)| f == fate).map(|(_, n)| n).sum()
    }
}

/// One claim of a bulk act.
#[derive(Clone, Debug)]
pub struct BulkClaim {
    /// Position in the list.
    pub row: i64,
    /// The claim as it stands now.
    pub view: ClaimView,
    /// `acted`, `refused`, `changed`, `failed`; `None`: its turn has not come.
    pub fate: Option<String>,
    /// Why.
    pub why: Option<String>,
}

/// Some claims had their turn.
#[derive(Clone, Debug)]
pub struct BulkStep {
    /// Those that were changed, as they are now.
    pub changed: Vec<ClaimView>,
}

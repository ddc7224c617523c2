//! Where sources stand that oncegate itself looks at: schedules and polls. A source moves on together with the events
//! it brings, or not at all, so that nothing is left out after a crash, and of nodes that look at once one moves it.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::notice::NoticeKind;

use crate::StoreError;
use crate::api::{AdmitCall, Admitted};

/// Where a source stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// Counts its moves, from 1.
    pub version: i64,
    /// JSON of whoever looks at it; the store never looks inside.
    pub value: String,
}

/// A source moves on.
#[derive(Clone, Debug)]
pub struct Advance {
    /// Whose.
    pub workspace: Workspace,
    /// Which source.
    pub source: String,
    /// The version that was seen; `None`: it stood nowhere yet.
    pub seen: Option<i64>,
    /// JSON: where it stands then.
    pub value: String,
    /// What it brings.
    pub admit: Option<AdmitCall>,
    /// The automation that notices are about.
    pub automation: AutomationName,
    /// What a person shall know.
    pub notices: Vec<(NoticeKind, String)>,
    /// What a person need not know any more.
    pub over: Option<OverNotice>,
}

/// A notice that is taken away, because what it told is over. If the same happens again, it is told as if for the first
/// time.
#[derive(Clone, Debug)]
pub struct OverNotice {
    /// What kind.
    pub kind: NoticeKind,
    /// How its words begin: several sources of one automation share one notice, which tells of the last.
    pub begins: String,
}

/// The part of the contract that is about where sources stand.
#[async_trait]
pub trait Positions: Send + Sync {
    /// Where a source stands; `None`: it was never looked at.
    async fn position(
        &self,
        workspace: Workspace,
        source: String,
    ) -> Result<Option<SourcePosition>, StoreError>;
    /// Moves it, admits what it brings and writes down what is to be known: all or nothing. One answer per event, in
    /// order; `None`: somebody else has moved it since, and nothing was written.
    async fn advance(&self, call: Advance) -> Result<Option<Vec<Admitted>>, StoreError>;
}

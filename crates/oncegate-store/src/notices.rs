//! What a person should know though nothing waits for them.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::notice::NoticeKind;
use oncegate_core::time::Timestamp;
use serde::Serialize;

use crate::StoreError;
use crate::api::Page;

/// One notice.
#[derive(Clone, Debug, Serialize)]
pub struct NoticeRow {
    /// Its number; never used twice.
    pub id: i64,
    /// What kind.
    pub kind: NoticeKind,
    /// About what: an automation, or `*` for several whose own notices were the oldest of too many.
    pub subject: String,
    /// In words, and how to mend it.
    pub detail: String,
    /// When it was seen first.
    pub first_at: Timestamp,
    /// When it was seen last.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
    /// When a person dismissed it. It comes back if the same happens again after it was over for a week.
    pub dismissed_at: Option<Timestamp>,
    /// Who.
    pub dismissed_by: Option<String>,
}

/// Which notices to list.
#[derive(Clone, Debug, Default)]
pub struct NoticeFilter {
    /// Those that were dismissed, too.
    pub dismissed: bool,
    /// Only those about one of these automations: all that the asker may see.
    pub only: Option<Vec<AutomationName>>,
    /// Only those before this number; `None` starts at the newest.
    pub before: Option<i64>,
    /// Rows at most.
    pub limit: u32,
}

/// What became of a dismissal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeDismissed {
    /// Written.
    Written,
    /// It was dismissed before.
    Already,
    /// No such notice, or none that the asker may see.
    NotFound,
}

/// The part of the contract that is about notices.
#[async_trait]
pub trait Notices: Send + Sync {
    /// Writes one down, or counts it; for what is seen outside of a claim.
    async fn notice(
        &self,
        workspace: Workspace,
        kind: NoticeKind,
        subject: String,
        detail: String,
    ) -> Result<(), StoreError>;
    /// Notices of a workspace, newest first.
    async fn notices(
        &self,
        workspace: Workspace,
        filter: NoticeFilter,
    ) -> Result<Page<NoticeRow>, StoreError>;
    /// A person has read one, with its audit row. `only` bounds what the asker may see.
    async fn dismiss_notice(
        &self,
        workspace: Workspace,
        id: i64,
        only: Option<Vec<AutomationName>>,
        reason: String,
        actor: String,
    ) -> Result<NoticeDismissed, StoreError>;
}

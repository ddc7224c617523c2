//! Who may call: workspaces, and the API tokens of each. A token itself is never stored, only its hash.

use async_trait::async_trait;
use oncegate_core::access::Role;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;

use crate::StoreError;

/// An API token, as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Its number in the store; never used twice.
    pub id: i64,
    /// Whose.
    pub workspace: Workspace,
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The only automations it may see and touch; `None`: all.
    pub automations: Option<Vec<AutomationName>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// From when on it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute or so.
    pub last_used_at: Option<Timestamp>,
    /// Since when it is no longer good.
    pub revoked_at: Option<Timestamp>,
}

impl ApiToken {
    /// Whether it still opens anything.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Whose.
    pub workspace: Workspace,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The only automations it may see and touch; `None`: all.
    pub automations: Option<Vec<AutomationName>>,
    /// From when on it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// Who makes it, for the audit.
    pub actor: String,
}

/// A workspace, as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Its number.
    pub workspace: Workspace,
    /// What people call it; unique.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The part of the contract that says who may call.
#[async_trait]
pub trait Access: Send + Sync {
    /// The token with this SHA-256 hash, good or not.
    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<ApiToken>, StoreError>;
    /// The tokens of a workspace, oldest first.
    async fn tokens(&self, workspace: Workspace) -> Result<Vec<ApiToken>, StoreError>;
    /// Makes a token, with its audit row. `None`: there is one with this hash already; it stays as it is.
    async fn add_token(&self, token: NewToken) -> Result<Option<i64>, StoreError>;
    /// Ends a token, with its audit row. `false`: there is no such token in this workspace, or it has ended.
    async fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        reason: String,
        actor: String,
    ) -> Result<bool, StoreError>;
    /// Writes down when tokens were last used; a time before the one that is known changes nothing.
    async fn touch_tokens(&self, used: Vec<(i64, Timestamp)>) -> Result<(), StoreError>;
    /// Every workspace, oldest first.
    async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError>;
    /// Makes a workspace, with its audit row in the default one; one of this name that is there is found instead.
    async fn add_workspace(&self, name: String, actor: String) -> Result<(Workspace, bool), StoreError>;
}

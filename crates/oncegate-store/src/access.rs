//! Who may call: workspaces, and the API tokens of each. A token itself is never stored, only its hash.

use std::collections::BTreeMap;

use async_trait::async_trait;
use oncegate_core::access::{Role, TokenName, WorkspaceName};
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;

use crate::StoreError;
use crate::api::{AuditRow, Page};

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

    /// Whether it may do everything in its workspace, while it is good.
    pub(crate) fn rules(&self) -> bool {
        self.role == Role::Admin && self.automations.is_none()
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
    pub name: TokenName,
    /// What it may do.
    pub role: Role,
    /// The only automations it may see and touch; `None`: all.
    pub automations: Option<Vec<AutomationName>>,
    /// From when on it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// Who makes it, for the audit.
    pub actor: String,
}

/// What the audit says of a new token: whoever reads it later must see what was given away.
pub(crate) fn described(token: &NewToken) -> String {
    let bound = match &token.automations {
        None => String::new(),
        Some(names) => {
            let names: Vec<&str> = names.iter().map(AutomationName::as_str).collect();
            format!(", bound to {}", names.join(", "))
        }
    };
    let ends = token.expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
    format!("{} ({}{bound}{ends})", token.name.as_str(), token.role.as_str())
}

/// What became of the end of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It opens nothing any more.
    Ended,
    /// There is no such token in this workspace, or it has ended before.
    Nothing,
    /// It is the server's last unbound admin that does not expire, and nobody confirmed; nothing was changed.
    LastAdmin,
}

/// What became of the token that the start brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// It was not known, and is made.
    Made(i64),
    /// It is good as it is.
    Good(i64),
    /// It was revoked or had expired, and is good again.
    Restored(i64),
    /// It is known as a token for something else; nothing was changed.
    Other,
}

impl Preset {
    /// Its number.
    pub fn id(self) -> Option<i64> {
        match self {
            Self::Made(id) | Self::Good(id) | Self::Restored(id) => Some(id),
            Self::Other => None,
        }
    }
}

/// Asks for a workspace to be deleted.
#[derive(Clone, Debug)]
pub struct DeleteWorkspace {
    /// Which.
    pub workspace: Workspace,
    /// Although claims of it are live.
    pub although_live: bool,
    /// Why.
    pub reason: String,
    /// Who, for the audit.
    pub actor: String,
}

/// What became of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Its name is free and its tokens open nothing. What it held goes with the next calls of
    /// [`Access::purge`].
    Begun(Held),
    /// So many claims are live, and nobody said "although".
    Live(u64),
    /// There is none, it is deleted already, or it is the default one, which stays.
    Nothing,
}

/// How much a workspace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Claims.
    pub claims: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Tokens.
    pub tokens: u64,
}

/// One thing that a person or a token did, to be written down by itself.
#[derive(Clone, Debug, Default)]
pub struct Deed {
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub subject: String,
    /// Why.
    pub reason: String,
    /// More.
    pub detail: Option<String>,
}

/// Which rows of the audit to read.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only of this actor; a name given by `by` before its token counts as well.
    pub actor: Option<String>,
    /// Only of this action.
    pub action: Option<String>,
    /// Only to this subject.
    pub subject: Option<String>,
    /// Only from then on.
    pub since: Option<Timestamp>,
    /// Only before then.
    pub until: Option<Timestamp>,
    /// Only rows before this position (newest first); `None` starts at the newest.
    pub before: Option<i64>,
    /// Rows at most.
    pub limit: u32,
}

/// What the configuration declares: a name with its kind, e.g. `automation welcome`, and a mark that changes with it.
pub type Declared = BTreeMap<String, String>;

/// What was added, changed or removed.
pub(crate) fn changes(before: &Declared, declared: &Declared) -> Vec<String> {
    let mut changes = vec![];
    for (thing, mark) in declared {
        match before.get(thing) {
            None => changes.push(format!("added {thing}")),
            Some(known) if known != mark => changes.push(format!("changed {thing}")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|thing| !declared.contains_key(*thing));
    changes.extend(gone.map(|thing| format!("removed {thing}")));
    changes
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

/// The part of the contract that says who may call, and what they did.
#[async_trait]
pub trait Access: Send + Sync {
    /// The token with this SHA-256 hash, good or not.
    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<ApiToken>, StoreError>;
    /// The tokens of a workspace, oldest first.
    async fn tokens(&self, workspace: Workspace) -> Result<Vec<ApiToken>, StoreError>;
    /// Makes a token, with its audit row. `None`: there is one with this hash already; it stays as it is.
    async fn add_token(&self, token: NewToken) -> Result<Option<i64>, StoreError>;
    /// Makes the token that the start brings, or makes it good again: whoever starts the server holds its data.
    async fn preset_token(&self, token: NewToken) -> Result<Preset, StoreError>;
    /// Ends a token, with its audit row.
    async fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        although_last: bool,
        reason: String,
        actor: String,
    ) -> Result<Revoked, StoreError>;
    /// Writes down when tokens were last used; a time before the one that is known changes nothing.
    async fn touch_tokens(&self, used: Vec<(i64, Timestamp)>) -> Result<(), StoreError>;

    /// Every workspace that is not deleted, oldest first.
    async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError>;
    /// Makes a workspace, with its audit row in the default one; one of this name that is there is found instead.
    async fn add_workspace(
        &self,
        name: WorkspaceName,
        actor: String,
    ) -> Result<(Workspace, bool), StoreError>;
    /// Begins to delete a workspace, with its audit row in the default one. Nothing of it runs, or opens, from then on.
    async fn delete_workspace(&self, call: DeleteWorkspace) -> Result<Deleted, StoreError>;
    /// Goes on deleting, a bounded number of rows; whether there is more. Reaping does so too, so that it ends although
    /// the process did.
    async fn purge(&self) -> Result<bool, StoreError>;

    /// What people and tokens did, newest first.
    async fn audit_of(&self, workspace: Workspace, filter: AuditFilter)
    -> Result<Page<AuditRow>, StoreError>;
    /// Writes down what was done without writing anything else: exports, refusals.
    async fn note_deeds(&self, workspace: Workspace, deeds: Vec<Deed>) -> Result<(), StoreError>;
    /// Compares what is declared for a workspace with the last start's, keeps it, and writes one audit row with what
    /// was added, changed or removed, which is the answer.
    async fn note_declared(
        &self,
        workspace: Workspace,
        declared: Declared,
    ) -> Result<Vec<String>, StoreError>;
}

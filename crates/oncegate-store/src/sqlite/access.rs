//! API tokens; and the part of the contract that says who may call.

use async_trait::async_trait;
use oncegate_core::access::{Role, WorkspaceName};
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::ts;
use super::store::SqliteStore;
use super::transition::Context;
use super::writer::Manner;
use super::{audit, workspaces};
use crate::StoreError;
use crate::access::{
    Access, ApiToken, AuditFilter, Declared, Deed, DeleteWorkspace, Deleted, NewToken, Preset, Revoked,
    WorkspaceRow, described,
};
use crate::api::{AuditRow, Page};

const SELECT: &str = "SELECT id, workspace_id, name, role, automations, created_at, created_by, expires_at, \
    last_used_at, revoked_at FROM api_tokens";

fn read(r: &Row<'_>) -> Result<ApiToken, StoreError> {
    let bad = |what: &str, id: i64| StoreError::Inconsistent(format!("token {id} has an unreadable {what}"));
    let id = r.get("id")?;
    let role: String = r.get("role")?;
    let opt =
        |name: &str| -> Result<Option<Timestamp>, StoreError> { Ok(r.get::<_, Option<i64>>(name)?.map(ts)) };
    let automations = match r.get::<_, Option<String>>("automations")? {
        None => None,
        // One that does not read must not be taken for "all of them".
        Some(json) => Some(
            serde_json::from_str::<Vec<String>>(&json)
                .ok()
                .and_then(|names| {
                    names
                        .iter()
                        .map(|n| AutomationName::try_from(n.as_str()).ok())
                        .collect::<Option<Vec<_>>>()
                })
                .ok_or_else(|| bad("list of automations", id))?,
        ),
    };
    Ok(ApiToken {
        id,
        workspace: Workspace(r.get("workspace_id")?),
        name: r.get("name")?,
        role: Role::parse(&role).ok_or_else(|| bad("role", id))?,
        automations,
        created_at: ts(r.get("created_at")?),
        created_by: r.get("created_by")?,
        expires_at: opt("expires_at")?,
        last_used_at: opt("last_used_at")?,
        revoked_at: opt("revoked_at")?,
    })
}

pub(super) fn token_by_hash(db: &Connection, hash: &[u8; 32]) -> Result<Option<ApiToken>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT} WHERE hash = ?1"))?;
    statement.query_row([&hash[..]], |r| Ok(read(r))).optional()?.transpose()
}

pub(super) fn tokens(db: &Connection, workspace: Workspace) -> Result<Vec<ApiToken>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT} WHERE workspace_id = ?1 ORDER BY id"))?;
    statement.query_map([workspace.0], |r| Ok(read(r)))?.map(|r| r?).collect()
}

impl Context<'_> {
    pub(super) fn add_token(&self, token: &NewToken) -> Result<Option<i64>, StoreError> {
        let automations = token.automations.as_ref().map(|names| serde_json::json!(names).to_string());
        let added = self.db.execute(
            "INSERT INTO api_tokens (workspace_id, hash, name, role, automations, created_at, created_by, expires_at) \
             SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM workspaces WHERE id = ?1 AND deleted_at IS NULL \
             ON CONFLICT DO NOTHING",
            params![
                token.workspace.0,
                &token.hash[..],
                token.name.as_str(),
                token.role.as_str(),
                automations,
                self.now.wall.as_millis(),
                token.actor,
                token.expires_at.map(Timestamp::as_millis),
            ],
        )?;
        if added == 0 {
            return match token_by_hash(self.db, &token.hash)? {
                Some(_) => Ok(None),
                None => Err(StoreError::Inconsistent(format!("there is no workspace {}", token.workspace.0))),
            };
        }
        let id = self.db.last_insert_rowid();
        let subject = format!("token {id}");
        let detail = described(token);
        self.audit(token.workspace, &token.actor, "token_made", &subject, "", Some(&detail))?;
        Ok(Some(id))
    }

    pub(super) fn preset_token(&self, token: &NewToken) -> Result<Preset, StoreError> {
        let Some(known) = token_by_hash(self.db, &token.hash)? else {
            // It was looked for just now, in this transaction.
            let id = self.add_token(token)?;
            return Ok(id.map_or(Preset::Other, Preset::Made));
        };
        let same = (known.workspace, known.role, &known.automations)
            == (token.workspace, token.role, &token.automations);
        if !same {
            return Ok(Preset::Other);
        }
        if known.is_good(self.now.wall) {
            return Ok(Preset::Good(known.id));
        }
        self.db.execute(
            "UPDATE api_tokens SET revoked_at = NULL, expires_at = NULL WHERE id = ?1",
            [known.id],
        )?;
        let subject = format!("token {}", known.id);
        self.audit(token.workspace, &token.actor, "token_restored", &subject, "", Some(&known.name))?;
        Ok(Preset::Restored(known.id))
    }

    pub(super) fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        although_last: bool,
        reason: &str,
        actor: &str,
    ) -> Result<Revoked, StoreError> {
        let (now, all) = (self.now.wall, tokens(self.db, workspace)?);
        let Some(token) = all.iter().find(|t| t.id == id && t.revoked_at.is_none()) else {
            return Ok(Revoked::Nothing);
        };
        // Others that end by themselves would leave nobody soon.
        let lasting = |t: &&ApiToken| t.rules() && t.revoked_at.is_none() && t.expires_at.is_none();
        let rules = token.rules() && token.is_good(now);
        let others = all.iter().filter(lasting).any(|t| t.id != id);
        if workspace == Workspace::DEFAULT && rules && !others && !although_last {
            return Ok(Revoked::LastAdmin);
        }
        self.db
            .execute("UPDATE api_tokens SET revoked_at = ?2 WHERE id = ?1", params![id, now.as_millis()])?;
        self.audit(workspace, actor, "token_revoked", &format!("token {id}"), reason, Some(&token.name))?;
        Ok(Revoked::Ended)
    }

    pub(super) fn touch_tokens(&self, used: &[(i64, Timestamp)]) -> Result<(), StoreError> {
        for (id, at) in used {
            self.db
                .prepare_cached(
                    "UPDATE api_tokens SET last_used_at = ?2 WHERE id = ?1 AND coalesce(last_used_at, 0) < ?2",
                )?
                .execute(params![id, at.as_millis()])?;
        }
        Ok(())
    }
}

#[async_trait]
impl Access for SqliteStore {
    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<ApiToken>, StoreError> {
        self.readers.read(move |db| token_by_hash(db, &hash)).await
    }

    async fn tokens(&self, workspace: Workspace) -> Result<Vec<ApiToken>, StoreError> {
        self.readers.read(move |db| tokens(db, workspace)).await
    }

    async fn add_token(&self, token: NewToken) -> Result<Option<i64>, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.add_token(&token)).await
    }

    async fn preset_token(&self, token: NewToken) -> Result<Preset, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.preset_token(&token)).await
    }

    async fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        although_last: bool,
        reason: String,
        actor: String,
    ) -> Result<Revoked, StoreError> {
        self.transact(Manner::TELLING, move |cx| {
            cx.revoke_token(workspace, id, although_last, &reason, &actor)
        })
        .await
    }

    async fn touch_tokens(&self, used: Vec<(i64, Timestamp)>) -> Result<(), StoreError> {
        self.transact(Manner::TELLING, move |cx| cx.touch_tokens(&used)).await
    }

    async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError> {
        self.readers.read(workspaces::all).await
    }

    async fn add_workspace(
        &self,
        name: WorkspaceName,
        actor: String,
    ) -> Result<(Workspace, bool), StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.add_workspace(&name, &actor)).await
    }

    async fn delete_workspace(&self, call: DeleteWorkspace) -> Result<Deleted, StoreError> {
        self.transact(Manner::TELLING, move |cx| cx.delete_workspace(&call)).await
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        self.transact(Manner::TELLING, |cx| cx.purge()).await
    }

    async fn audit_of(
        &self,
        workspace: Workspace,
        filter: AuditFilter,
    ) -> Result<Page<AuditRow>, StoreError> {
        self.readers.read(move |db| audit::read(db, workspace, &filter)).await
    }

    async fn note_deeds(&self, workspace: Workspace, deeds: Vec<Deed>) -> Result<(), StoreError> {
        self.transact(Manner::TELLING, move |cx| {
            deeds.iter().try_for_each(|d| {
                cx.audit(workspace, &d.actor, &d.action, &d.subject, &d.reason, d.detail.as_deref())
            })
        })
        .await
    }

    async fn note_declared(
        &self,
        workspace: Workspace,
        declared: Declared,
    ) -> Result<Vec<String>, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.note_declared(workspace, &declared)).await
    }
}

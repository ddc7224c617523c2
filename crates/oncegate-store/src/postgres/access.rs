//! Who may call: API tokens; and the part of the contract that says so.

use std::collections::BTreeMap;

use async_trait::async_trait;
use oncegate_core::access::{Role, WorkspaceName};
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::{Context, read, transact};
use super::error::{Fault, unreadable};
use super::row::{storable, ts};
use super::store::PgStore;
use super::{audit, queries, workspaces};
use crate::StoreError;
use crate::access::{
    Access, ApiToken, AuditFilter, Declared, Deed, DeleteWorkspace, Deleted, NewToken, Preset, Revoked,
    WorkspaceRow, described,
};
use crate::api::{AuditRow, Page};

const COLUMNS: &str = "t.id, t.workspace_id, t.name, t.role, t.automations, t.created_at, t.created_by, t.expires_at, \
    t.last_used_at, t.revoked_at";

fn token(r: &Row) -> Result<ApiToken, Fault> {
    let id: i64 = r.get("id");
    let bad = |what: &str| unreadable(format!("token {id} has an unreadable {what}"));
    let opt = |name: &str| r.get::<_, Option<i64>>(name).map(ts);
    let automations = match r.get::<_, Option<&str>>("automations") {
        None => None,
        // One that does not read must not be taken for "all of them".
        Some(json) => Some(
            serde_json::from_str::<Vec<String>>(json)
                .ok()
                .and_then(|names| names.iter().map(|n| AutomationName::try_from(n.as_str()).ok()).collect())
                .ok_or_else(|| bad("list of automations"))?,
        ),
    };
    Ok(ApiToken {
        id,
        workspace: Workspace(r.get("workspace_id")),
        name: r.get("name"),
        role: Role::parse(r.get("role")).ok_or_else(|| bad("role"))?,
        automations,
        created_at: ts(r.get("created_at")),
        created_by: r.get("created_by"),
        expires_at: opt("expires_at"),
        last_used_at: opt("last_used_at"),
        revoked_at: opt("revoked_at"),
    })
}

/// Whatever is left of a deleted workspace opens nothing.
async fn by_hash(db: &Connection, hash: &[u8; 32]) -> Result<Option<ApiToken>, Fault> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_tokens t JOIN workspaces w ON w.id = t.workspace_id AND w.deleted_at IS NULL \
         WHERE t.hash = $1 ORDER BY t.workspace_id, t.id LIMIT 1"
    );
    queries::row_opt(db, &sql, &[&&hash[..]]).await?.as_ref().map(token).transpose()
}

async fn of_workspace(db: &Connection, workspace: Workspace) -> Result<Vec<ApiToken>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM api_tokens t WHERE t.workspace_id = $1 ORDER BY t.id");
    queries::rows(db, &sql, &[&workspace.0]).await?.iter().map(token).collect()
}

impl Context<'_> {
    /// `None`: this workspace has one with this hash.
    pub(super) async fn add_token(&self, new: &NewToken) -> Result<Option<i64>, Fault> {
        // Whoever deletes the workspace waits until this token is there to go with it.
        let is_open = self
            .query_opt(
                "SELECT 1 FROM workspaces WHERE id = $1 AND deleted_at IS NULL FOR SHARE",
                &[&new.workspace.0],
            )
            .await?;
        if is_open.is_none() {
            return Err(unreadable(format!("there is no workspace {}", new.workspace.0)));
        }
        let automations = new.automations.as_ref().map(|names| serde_json::json!(names).to_string());
        let added = self
            .query_opt(
                "INSERT INTO api_tokens (workspace_id, hash, name, role, automations, created_at, created_by, \
                 expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                 ON CONFLICT (workspace_id, hash) DO NOTHING RETURNING id",
                &[
                    &new.workspace.0,
                    &&new.hash[..],
                    &storable(new.name.as_str()),
                    &new.role.as_str(),
                    &automations,
                    &self.now.wall.as_millis(),
                    &storable(&new.actor),
                    &new.expires_at.map(Timestamp::as_millis),
                ],
            )
            .await?;
        let Some(id) = added.map(|r| r.get::<_, i64>(0)) else { return Ok(None) };
        let subject = format!("token {id}");
        self.audit(new.workspace, &new.actor, "token_made", &subject, "", Some(&described(new))).await?;
        Ok(Some(id))
    }

    /// Of nodes that start at once with the same token, one makes it and the others find it.
    async fn preset_token(&self, new: &NewToken) -> Result<Preset, Fault> {
        let sql = format!(
            "SELECT {COLUMNS} FROM api_tokens t WHERE t.workspace_id = $1 AND t.hash = $2 FOR UPDATE"
        );
        let Some(known) = self.query_opt(&sql, &[&new.workspace.0, &&new.hash[..]]).await? else {
            return match self.add_token(new).await? {
                Some(id) => Ok(Preset::Made(id)),
                None => Err(Fault::Again("the same token was made at the same time".into())),
            };
        };
        let known = token(&known)?;
        if (known.role, &known.automations) != (new.role, &new.automations) {
            return Ok(Preset::Other);
        }
        if known.is_good(self.now.wall) {
            return Ok(Preset::Good(known.id));
        }
        self.execute(
            "UPDATE api_tokens SET revoked_at = NULL, expires_at = NULL WHERE workspace_id = $1 AND id = $2",
            &[&new.workspace.0, &known.id],
        )
        .await?;
        let subject = format!("token {}", known.id);
        self.audit(new.workspace, &new.actor, "token_restored", &subject, "", Some(&known.name)).await?;
        Ok(Preset::Restored(known.id))
    }

    pub(super) async fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        although_last: bool,
        reason: &str,
        actor: &str,
    ) -> Result<Revoked, Fault> {
        // Locked, all of them: of the last two admins, two nodes must not each revoke one.
        let sql =
            format!("SELECT {COLUMNS} FROM api_tokens t WHERE t.workspace_id = $1 ORDER BY t.id FOR UPDATE");
        let all = self.query(&sql, &[&workspace.0]).await?;
        let all = all.iter().map(token).collect::<Result<Vec<_>, _>>()?;
        let Some(ended) = all.iter().find(|t| t.id == id && t.revoked_at.is_none()) else {
            return Ok(Revoked::Nothing);
        };
        let rules = ended.rules() && ended.is_good(self.now.wall);
        // Others that end by themselves would leave nobody soon.
        let lasting = |t: &ApiToken| t.rules() && t.revoked_at.is_none() && t.expires_at.is_none();
        let others = all.iter().any(|t| t.id != id && lasting(t));
        if workspace == Workspace::DEFAULT && rules && !others && !although_last {
            return Ok(Revoked::LastAdmin);
        }
        self.execute(
            "UPDATE api_tokens SET revoked_at = $3 WHERE workspace_id = $1 AND id = $2",
            &[&workspace.0, &id, &self.now.wall.as_millis()],
        )
        .await?;
        self.audit(workspace, actor, "token_revoked", &format!("token {id}"), reason, Some(&ended.name))
            .await?;
        Ok(Revoked::Ended)
    }

    async fn touch_tokens(&self, workspace: i64, used: &[(i64, i64)]) -> Result<(), Fault> {
        for (id, at) in used {
            self.execute(
                "UPDATE api_tokens SET last_used_at = $3 \
                 WHERE workspace_id = $1 AND id = $2 AND coalesce(last_used_at, 0) < $3",
                &[&workspace, id, at],
            )
            .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Access for PgStore {
    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<ApiToken>, StoreError> {
        read!(self, |db| by_hash(&db, &hash).await)
    }

    async fn tokens(&self, workspace: Workspace) -> Result<Vec<ApiToken>, StoreError> {
        read!(self, |db| of_workspace(&db, workspace).await)
    }

    async fn add_token(&self, token: NewToken) -> Result<Option<i64>, StoreError> {
        // Another workspace may have it. A hash of random bytes is not made twice at the same moment.
        if self.token_by_hash(token.hash).await?.is_some() {
            return Ok(None);
        }
        transact!(&self.shared, |cx| cx.add_token(&token).await)
    }

    async fn preset_token(&self, token: NewToken) -> Result<Preset, StoreError> {
        let known = self.token_by_hash(token.hash).await?;
        if known.is_some_and(|known| known.workspace != token.workspace) {
            return Ok(Preset::Other);
        }
        transact!(&self.shared, |cx| cx.preset_token(&token).await)
    }

    async fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        although_last: bool,
        reason: String,
        actor: String,
    ) -> Result<Revoked, StoreError> {
        transact!(&self.shared, |cx| cx.revoke_token(workspace, id, although_last, &reason, &actor).await)
    }

    async fn touch_tokens(&self, used: Vec<(i64, Timestamp)>) -> Result<(), StoreError> {
        let ids: Vec<i64> = used.iter().map(|(id, _)| *id).collect();
        let found = read!(self, |db| {
            let sql = "SELECT workspace_id, id FROM api_tokens WHERE id = ANY($1)";
            queries::rows(&db, sql, &[&ids]).await
        })?;
        let mut of: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for r in &found {
            let (workspace, id) = (r.get(0), r.get(1));
            let at = used.iter().filter(|(used, _)| *used == id).map(|(_, at)| at.as_millis()).max();
            of.entry(workspace).or_default().extend(at.map(|at| (id, at)));
        }
        for (workspace, mut used) in of {
            // In one order, so that nodes wait for each other and not in a circle.
            used.sort_unstable();
            let touched: Result<(), StoreError> =
                transact!(&self.shared, |cx| cx.touch_tokens(workspace, &used).await);
            touched?;
        }
        Ok(())
    }

    async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError> {
        read!(self, |db| workspaces::all(&db).await)
    }

    async fn add_workspace(
        &self,
        name: WorkspaceName,
        actor: String,
    ) -> Result<(Workspace, bool), StoreError> {
        transact!(&self.shared, |cx| cx.add_workspace(&name, &actor).await)
    }

    async fn delete_workspace(&self, call: DeleteWorkspace) -> Result<Deleted, StoreError> {
        workspaces::delete(self, &call).await
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        workspaces::purge(self).await
    }

    async fn audit_of(
        &self,
        workspace: Workspace,
        filter: AuditFilter,
    ) -> Result<Page<AuditRow>, StoreError> {
        read!(self, |db| audit::read(&db, workspace, &filter).await)
    }

    async fn note_deeds(&self, workspace: Workspace, deeds: Vec<Deed>) -> Result<(), StoreError> {
        transact!(&self.shared, |cx| cx.note_deeds(workspace, &deeds).await)
    }

    async fn note_declared(
        &self,
        workspace: Workspace,
        declared: Declared,
    ) -> Result<Vec<String>, StoreError> {
        transact!(&self.shared, |cx| cx.note_declared(workspace, &declared).await)
    }
}

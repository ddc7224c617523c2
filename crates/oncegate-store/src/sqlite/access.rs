//! Workspaces and API tokens.

use oncegate_core::access::Role;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::ts;
use super::transition::Context;
use crate::StoreError;
use crate::access::{ApiToken, NewToken, WorkspaceRow};

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

pub(super) fn workspaces(db: &Connection) -> Result<Vec<WorkspaceRow>, StoreError> {
    let mut statement = db.prepare_cached("SELECT id, name, created_at FROM workspaces ORDER BY id")?;
    let rows = statement.query_map([], |r| {
        Ok(WorkspaceRow { workspace: Workspace(r.get(0)?), name: r.get(1)?, created_at: ts(r.get(2)?) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Context<'_> {
    pub(super) fn add_token(&self, token: &NewToken) -> Result<Option<i64>, StoreError> {
        let automations = token.automations.as_ref().map(|names| serde_json::json!(names).to_string());
        let added = self.db.execute(
            "INSERT INTO api_tokens (workspace_id, hash, name, role, automations, created_at, created_by, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
            params![
                token.workspace.0,
                &token.hash[..],
                token.name,
                token.role.as_str(),
                automations,
                self.now.wall.as_millis(),
                token.actor,
                token.expires_at.map(Timestamp::as_millis),
            ],
        )?;
        if added == 0 {
            return Ok(None);
        }
        let id = self.db.last_insert_rowid();
        let subject = format!("token {id}");
        let detail = format!("{} ({})", token.name, token.role.as_str());
        self.audit(token.workspace, &token.actor, "token_made", &subject, "", Some(&detail))?;
        Ok(Some(id))
    }

    pub(super) fn revoke_token(
        &self,
        workspace: Workspace,
        id: i64,
        reason: &str,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let ended = self.db.execute(
            "UPDATE api_tokens SET revoked_at = ?3 WHERE id = ?2 AND workspace_id = ?1 AND revoked_at IS NULL",
            params![workspace.0, id, self.now.wall.as_millis()],
        )?;
        if ended > 0 {
            self.audit(workspace, actor, "token_revoked", &format!("token {id}"), reason, None)?;
        }
        Ok(ended > 0)
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

    pub(super) fn add_workspace(&self, name: &str, actor: &str) -> Result<(Workspace, bool), StoreError> {
        let known: Option<i64> = self
            .db
            .query_row("SELECT id FROM workspaces WHERE name = ?1", [name], |r| r.get(0))
            .optional()?;
        if let Some(id) = known {
            return Ok((Workspace(id), false));
        }
        self.db.execute(
            "INSERT INTO workspaces (name, created_at) VALUES (?1, ?2)",
            params![name, self.now.wall.as_millis()],
        )?;
        let made = Workspace(self.db.last_insert_rowid());
        self.audit(Workspace::DEFAULT, actor, "workspace_made", name, "", None)?;
        Ok((made, true))
    }
}

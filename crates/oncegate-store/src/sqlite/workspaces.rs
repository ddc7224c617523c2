//! Workspaces: made, deleted, and what is left of a deleted one cleared away bit by bit.

use oncegate_core::access::WorkspaceName;
use oncegate_core::key::Workspace;
use rusqlite::{Connection, OptionalExtension, params};

use super::row::ts;
use super::transition::Context;
use crate::StoreError;
use crate::access::{DeleteWorkspace, Deleted, Held, WorkspaceRow};

/// Rows of claims and of deliveries that are looked at in one transaction of a purge: others wait behind it.
const WINDOW: i64 = 1_000;

pub(super) fn all(db: &Connection) -> Result<Vec<WorkspaceRow>, StoreError> {
    let mut statement = db
        .prepare_cached("SELECT id, name, created_at FROM workspaces WHERE deleted_at IS NULL ORDER BY id")?;
    let rows = statement.query_map([], |r| {
        Ok(WorkspaceRow { workspace: Workspace(r.get(0)?), name: r.get(1)?, created_at: ts(r.get(2)?) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Context<'_> {
    pub(super) fn add_workspace(
        &self,
        name: &WorkspaceName,
        actor: &str,
    ) -> Result<(Workspace, bool), StoreError> {
        let known: Option<i64> = self
            .db
            .query_row("SELECT id FROM workspaces WHERE name = ?1", [name.as_str()], |r| r.get(0))
            .optional()?;
        if let Some(id) = known {
            return Ok((Workspace(id), false));
        }
        self.db.execute(
            "INSERT INTO workspaces (name, created_at) VALUES (?1, ?2)",
            params![name.as_str(), self.now.wall.as_millis()],
        )?;
        let made = Workspace(self.db.last_insert_rowid());
        self.audit(Workspace::DEFAULT, actor, "workspace_made", name.as_str(), "", None)?;
        Ok((made, true))
    }

    pub(super) fn delete_workspace(&self, call: &DeleteWorkspace) -> Result<Deleted, StoreError> {
        let id = call.workspace.0;
        let name: Option<String> = self
            .db
            .query_row("SELECT name FROM workspaces WHERE id = ?1 AND deleted_at IS NULL", [id], |r| r.get(0))
            .optional()?;
        let Some(name) = name.filter(|_| call.workspace != Workspace::DEFAULT) else {
            return Ok(Deleted::Nothing);
        };
        let count = |what: &str| -> Result<u64, StoreError> {
            let sql = format!("SELECT count(*) FROM {what} AND workspace_id = ?1");
            Ok(self.db.query_row(&sql, [id], |r| r.get::<_, i64>(0))?.unsigned_abs())
        };
        let live = count("claims WHERE processing_state = 'processing'")?;
        if live > 0 && !call.although_live {
            return Ok(Deleted::Live(live));
        }
        let held = Held {
            claims: count("claims WHERE true")?,
            deliveries: count("deliveries WHERE true")?,
            tokens: count("api_tokens WHERE true")?,
        };
        let now = self.now.wall.as_millis();
        // A name with a `#` is nobody's: the old one is free at once, and the number stays taken.
        self.db.execute(
            "UPDATE workspaces SET name = '#' || id, deleted_at = ?2, purged_to = 0 WHERE id = ?1",
            params![id, now],
        )?;
        self.db.execute("DELETE FROM api_tokens WHERE workspace_id = ?1", [id])?;
        self.db.execute("DELETE FROM api_requests WHERE workspace_id = ?1", [id])?;
        self.db.execute("DELETE FROM notices WHERE workspace_id = ?1", [id])?;
        self.db.execute("DELETE FROM source_positions WHERE workspace_id = ?1", [id])?;
        self.db.execute("DELETE FROM senders WHERE workspace_id = ?1", [id])?;
        let of_bulk = "bulk_id IN (SELECT id FROM bulk_acts WHERE workspace_id = ?1)";
        self.db.execute(&format!("DELETE FROM bulk_rows WHERE {of_bulk}"), [id])?;
        // An undo goes before what it undoes.
        self.db.execute("DELETE FROM bulk_acts WHERE workspace_id = ?1 AND undoes IS NOT NULL", [id])?;
        self.db.execute("DELETE FROM bulk_acts WHERE workspace_id = ?1", [id])?;
        self.db.execute("DELETE FROM meta WHERE name = 'declared ' || ?1", [id])?;
        // Paused: the runner starts nothing of it while it goes. Their rows stay, because claims refer to them.
        self.db.execute(
            "UPDATE automations SET name = '#' || id, paused_at = coalesce(paused_at, ?2) WHERE workspace_id = ?1",
            params![id, now],
        )?;
        let Held { claims, deliveries, tokens } = held;
        let detail = format!("{claims} claims, {deliveries} deliveries, {tokens} tokens");
        let deleted = "workspace_deleted";
        self.audit(Workspace::DEFAULT, &call.actor, deleted, &name, &call.reason, Some(&detail))?;
        Ok(Deleted::Begun(held))
    }

    /// Walks along the tables by row, because nothing is sorted by workspace; whether there is more to do.
    pub(super) fn purge(&self) -> Result<bool, StoreError> {
        let next: Option<(i64, i64)> = self
            .db
            .prepare_cached("SELECT id, purged_to FROM workspaces WHERE purged_to IS NOT NULL LIMIT 1")?
            .query_row([], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?;
        let Some((workspace, from)) = next else { return Ok(false) };
        let to = from + WINDOW;
        for table in ["deliveries", "claims"] {
            self.db.execute(
                &format!("DELETE FROM {table} WHERE id > ?2 AND id <= ?3 AND workspace_id = ?1"),
                params![workspace, from, to],
            )?;
        }
        let last: i64 = self.db.query_row(
            "SELECT max(coalesce((SELECT max(id) FROM claims), 0), coalesce((SELECT max(id) FROM deliveries), 0))",
            [],
            |r| r.get(0),
        )?;
        self.db.execute(
            "UPDATE workspaces SET purged_to = ?2 WHERE id = ?1",
            params![workspace, (to < last).then_some(to)],
        )?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    /// A table that is added must be said to go with its workspace, or why it stays.
    #[test]
    fn every_table_of_a_workspace_goes_with_it_or_stays_for_a_reason() {
        const GO: [&str; 9] = [
            "api_requests",
            "api_tokens",
            "automations",
            "bulk_acts",
            "claims",
            "deliveries",
            "notices",
            "senders",
            "source_positions",
        ];
        /// Append-only: who did what outlives what it was done to.
        const STAY: [&str; 1] = ["audit"];
        let mut db = rusqlite::Connection::open_in_memory().unwrap();
        super::super::migrations::step_up(&mut db, 0).unwrap();
        let mut statement = db
            .prepare(
                "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
                 WHERE m.type = 'table' AND c.name = 'workspace_id' ORDER BY m.name",
            )
            .unwrap();
        let found: Vec<String> = statement.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        let mut known: Vec<&str> = GO.into_iter().chain(STAY).collect();
        known.sort_unstable();
        assert_eq!(found, known, "say in `delete_workspace` or `purge` what becomes of it");
    }
}

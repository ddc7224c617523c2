//! Workspaces: made, deleted, and what is left of a deleted one cleared away bit by bit.
//!
//! No transaction is in two workspaces, and the audit of a deletion is in the default one. So a deletion is two of
//! them: the mark with its audit row, which is what counts; then the workspace is shut. What comes between or after,
//! of claims that were being made at that moment, is cleared away like all the rest.

use std::time::Duration;

use oncegate_core::access::WorkspaceName;
use oncegate_core::key::Workspace;

use super::connection::Connection;
use super::context::{Context, read, transact};
use super::error::Fault;
use super::queries;
use super::row::ts;
use super::store::PgStore;
use crate::StoreError;
use crate::access::{DeleteWorkspace, Deleted, Held, WorkspaceRow};

/// Rows that one transaction of a purge takes away at most: others wait behind it.
const WINDOW: i64 = 1_000;

/// How long a deleted workspace is looked after: longer than any transaction that began before it was deleted.
const LOOKED_AFTER_FOR: Duration = Duration::from_secs(3_600);

/// What goes with a workspace, and by which columns beside it a row is known. `automations` go last of all, because
/// claims are read with theirs; `audit` stays: who did what outlives what it was done to.
const GO: [(&str, &str); 15] = [
    ("api_tokens", "id"),
    ("api_requests", "idempotency_key"),
    ("bulk_acts", "id"),
    ("bulk_rows", "bulk_id, position"),
    ("declared", "workspace_id"),
    ("deliveries", "id"),
    ("notices", "id"),
    ("source_positions", "source"),
    ("senders", "sender_hash"),
    ("claims", "claim_id"),
    ("payloads", "claim_id"),
    ("history", "claim_id, id"),
    ("step_calls", "claim_id, id"),
    ("pruned", "claim_id"),
    ("record_runs", "record_hash, automation_id, at, claim_id, attempt"),
];

pub(super) async fn all(db: &Connection) -> Result<Vec<WorkspaceRow>, Fault> {
    let sql = "SELECT id, name, created_at FROM workspaces WHERE deleted_at IS NULL ORDER BY id";
    let rows = queries::rows(db, sql, &[]).await?;
    Ok(rows
        .iter()
        .map(|r| WorkspaceRow { workspace: Workspace(r.get(0)), name: r.get(1), created_at: ts(r.get(2)) })
        .collect())
}

/// Marks it as deleted, and shuts it.
pub(super) async fn delete(store: &PgStore, call: &DeleteWorkspace) -> Result<Deleted, StoreError> {
    let counted = read!(store, |db| count(&db, call.workspace).await)?;
    let deleted = transact!(&store.shared, |cx| cx.delete_workspace(call, counted).await)?;
    if let Deleted::Begun(_) = deleted {
        let shut: Result<(), StoreError> = transact!(&store.shared, |cx| cx.shut(call.workspace).await);
        shut?;
    }
    Ok(deleted)
}

/// How many claims are live, and how much there is.
async fn count(db: &Connection, workspace: Workspace) -> Result<(u64, Held), Fault> {
    let of = async |what: &str| -> Result<u64, Fault> {
        let sql = format!("SELECT count(*) FROM {what} AND workspace_id = $1");
        let row = queries::row_opt(db, &sql, &[&workspace.0]).await?;
        Ok(row.map_or(0, |r| r.get::<_, i64>(0)).unsigned_abs())
    };
    let live = of("claims WHERE processing_state = 'processing'").await?;
    let (claims, deliveries) = (of("claims WHERE true").await?, of("deliveries WHERE true").await?);
    Ok((live, Held { claims, deliveries, tokens: of("api_tokens WHERE true").await? }))
}

/// Goes on with what was deleted; whether there is more.
pub(super) async fn purge(store: &PgStore) -> Result<bool, StoreError> {
    let purging = read!(store, |db| {
        queries::rows(&db, "SELECT id FROM workspaces WHERE purging ORDER BY id", &[]).await
    })?;
    for r in purging {
        let workspace = Workspace(r.get(0));
        let cleared: Result<u64, StoreError> = transact!(&store.shared, |cx| cx.clear(workspace).await);
        if cleared? > 0 {
            return Ok(true);
        }
        let rested: Result<(), StoreError> = transact!(&store.shared, |cx| cx.lay_to_rest(workspace).await);
        rested?;
    }
    Ok(false)
}

impl Context<'_> {
    pub(super) async fn add_workspace(
        &self,
        name: &WorkspaceName,
        actor: &str,
    ) -> Result<(Workspace, bool), Fault> {
        let known = self.query_opt("SELECT id FROM workspaces WHERE name = $1", &[&name.as_str()]).await?;
        if let Some(r) = known {
            return Ok((Workspace(r.get(0)), false));
        }
        // If another node makes it at this moment, the index on names has it looked for again. Nothing of a new one is
        // to follow a clock that was set back before.
        let made = self
            .query_one(
                "INSERT INTO workspaces (name, created_at, set_back) \
                 VALUES ($1, $2, (SELECT set_back FROM clock WHERE id = 1)) RETURNING id",
                &[&name.as_str(), &self.now.wall.as_millis()],
            )
            .await?;
        self.audit(Workspace::DEFAULT, actor, "workspace_made", name.as_str(), "", None).await?;
        Ok((Workspace(made.get(0)), true))
    }

    /// The mark, which everything else follows. What was counted was counted just before: a claim that is made at this
    /// very moment counts as made before, and goes with the rest.
    async fn delete_workspace(
        &self,
        call: &DeleteWorkspace,
        (live, held): (u64, Held),
    ) -> Result<Deleted, Fault> {
        let id = call.workspace.0;
        // Waits for those who are making a token or an automation in it.
        let row = self
            .query_opt("SELECT name FROM workspaces WHERE id = $1 AND deleted_at IS NULL FOR UPDATE", &[&id])
            .await?;
        let Some(row) = row.filter(|_| call.workspace != Workspace::DEFAULT) else {
            return Ok(Deleted::Nothing);
        };
        if live > 0 && !call.although_live {
            return Ok(Deleted::Live(live));
        }
        // A name with a `#` is nobody's: the old one is free at once, and the number stays taken.
        self.execute(
            "UPDATE workspaces SET name = '#' || id, deleted_at = $2, purging = true WHERE id = $1",
            &[&id, &self.now.wall.as_millis()],
        )
        .await?;
        let Held { claims, deliveries, tokens } = held;
        let detail = format!("{claims} claims, {deliveries} deliveries, {tokens} tokens");
        let (actor, name): (_, String) = (&call.actor, row.get(0));
        self.audit(Workspace::DEFAULT, actor, "workspace_deleted", &name, &call.reason, Some(&detail))
            .await?;
        Ok(Deleted::Begun(held))
    }

    /// Nothing of a deleted workspace begins any more. Its automations' rows stay for now, because claims are read
    /// with them. Told twice, it does the same.
    async fn shut(&self, workspace: Workspace) -> Result<(), Fault> {
        let id = workspace.0;
        self.execute(
            "UPDATE automations SET name = '#' || id, paused_at = coalesce(paused_at, $2) \
             WHERE workspace_id = $1 AND left(name, 1) <> '#'",
            &[&id, &self.now.wall.as_millis()],
        )
        .await?;
        for table in ["api_tokens", "bulk_acts", "declared"] {
            self.execute(&format!("DELETE FROM {table} WHERE workspace_id = $1"), &[&id]).await?;
        }
        Ok(())
    }

    /// Clears a piece of a deleted workspace away; how many rows went.
    async fn clear(&self, workspace: Workspace) -> Result<u64, Fault> {
        // The node that deleted it may have died before it shut it.
        self.shut(workspace).await?;
        let mut room = WINDOW;
        for (table, key) in GO {
            let sql = format!(
                "DELETE FROM {table} WHERE workspace_id = $1 AND ({key}) IN \
                 (SELECT {key} FROM {table} WHERE workspace_id = $1 LIMIT $2)"
            );
            let gone = self.execute(&sql, &[&workspace.0, &room]).await?;
            room -= i64::try_from(gone).unwrap_or(room);
            if room <= 0 {
                break;
            }
        }
        Ok((WINDOW - room).unsigned_abs())
    }

    /// Nothing was left of it when it was looked at, and whatever began before it was deleted has ended long since.
    async fn lay_to_rest(&self, workspace: Workspace) -> Result<(), Fault> {
        let before = self.now.wall.before(LOOKED_AFTER_FOR).as_millis();
        let rested = self
            .execute(
                "UPDATE workspaces SET purging = false WHERE id = $1 AND purging AND deleted_at <= $2",
                &[&workspace.0, &before],
            )
            .await?;
        if rested > 0 {
            self.execute("DELETE FROM automations WHERE workspace_id = $1", &[&workspace.0]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    /// A table that is added must be said to go with its workspace, or why it stays.
    #[test]
    fn every_table_of_a_workspace_goes_with_it_or_stays_for_a_reason() {
        let text = super::super::migrations::STEPS.concat();
        let mut found: Vec<&str> = text
            .split("CREATE TABLE ")
            .skip(1)
            .filter(|table| table.contains("    workspace_id "))
            .filter_map(|table| table.split_whitespace().next())
            .collect();
        found.sort_unstable();
        let mut known: Vec<&str> = super::GO.iter().map(|(table, _)| *table).collect();
        known.extend(["audit", "automations"]);
        known.sort_unstable();
        assert_eq!(found, known);
    }
}

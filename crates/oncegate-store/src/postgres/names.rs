//! Automations by name: known, made, and told when nobody declared them.

use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::notice;
use tokio_postgres::Row;

use super::context::Context;
use super::error::{Fault, unreadable};
use crate::transition::notice::Made;

impl Context<'_> {
    /// The number of an automation that has been seen.
    pub(super) async fn known_automation(
        &self,
        workspace: Workspace,
        name: &AutomationName,
    ) -> Result<Option<i64>, Fault> {
        let found = self
            .query_opt(
                "SELECT id FROM automations WHERE workspace_id = $1 AND name = $2",
                &[&workspace.0, &name.as_str()],
            )
            .await?;
        Ok(found.map(|r| r.get(0)))
    }

    /// The number of an automation; a new name makes a new one.
    pub(super) async fn automation(&self, workspace: Workspace, name: &AutomationName) -> Result<i64, Fault> {
        if let Some(id) = self.known_automation(workspace, name).await? {
            return Ok(id);
        }
        // A deleted workspace keeps its row. Whoever deletes it at this moment waits, and then pauses this one too.
        let is_open = self
            .query_opt(
                "SELECT 1 FROM workspaces WHERE id = $1 AND deleted_at IS NULL FOR SHARE",
                &[&workspace.0],
            )
            .await?;
        if is_open.is_none() {
            return Err(unreadable(format!("there is no workspace {}", workspace.0)));
        }
        // One that was renamed still has the number of its old name; whoever takes that name is counted on.
        let mut number = self.shared.secret.automation_number(workspace, name);
        loop {
            let made = self
                .query_opt(
                    "INSERT INTO automations (workspace_id, id, name, created_at) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT DO NOTHING RETURNING id",
                    &[&workspace.0, &number, &name.as_str(), &self.now.wall.as_millis()],
                )
                .await?;
            if let Some(r) = made {
                return Ok(r.get(0));
            }
            if let Some(id) = self.known_automation(workspace, name).await? {
                return Ok(id);
            }
            number += 1;
        }
    }

    /// The number of a claim's automation. A name that is new and that nobody declared is told with the one that may
    /// have been meant.
    pub(super) async fn automation_of_claim(
        &self,
        workspace: Workspace,
        name: &AutomationName,
        made: &mut Option<Made>,
    ) -> Result<i64, Fault> {
        if let Some(id) = self.known_automation(workspace, name).await? {
            return Ok(id);
        }
        let declared = self.shared.policies.declared(workspace);
        if !declared.contains(name) {
            let mut known: Vec<String> = declared.iter().map(ToString::to_string).collect();
            known.extend(self.automation_names(workspace).await?);
            let nearest = notice::nearest(name.as_str(), known.iter().map(String::as_str));
            *made = Some(Made { nearest: nearest.map(str::to_owned) });
        }
        self.automation(workspace, name).await
    }

    /// The names of a workspace's automations, the oldest first: as many as a new name is compared to.
    async fn automation_names(&self, workspace: Workspace) -> Result<Vec<String>, Fault> {
        let max = i64::try_from(limits::NAMES_COMPARED_MAX).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "SELECT name FROM automations WHERE workspace_id = $1 ORDER BY created_at, id LIMIT $2",
                &[&workspace.0, &max],
            )
            .await?;
        Ok(rows.iter().map(|r: &Row| r.get(0)).collect())
    }
}

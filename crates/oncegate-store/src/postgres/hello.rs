//! What each node can do, and which nodes there are.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};

use super::error::Fault;
use super::nodes::SILENT_MS;
use super::queries;
use super::row::ts;
use super::store::{PgStore, Shared};
use crate::StoreError;
use crate::nodes::{Abilities, Names, NodeRow, Nodes, STRANDED_MAX};

/// The names as JSON: `[[workspace, name], …]`.
fn listed(names: &Names) -> String {
    let names: Vec<(i64, &str)> = names.iter().map(|(of, name)| (of.0, name.as_str())).collect();
    serde_json::json!(names).to_string()
}

/// What a node can do for an automation that it declares, in one number.
const RUNS: u8 = 1;
const CALLS_BACK: u8 = 2;

/// What a node keeps in `nodes.runs`.
fn written(can: &Abilities) -> String {
    let declared: Vec<(i64, &str, u8)> = can
        .declares
        .iter()
        .map(|name| {
            let runs = u8::from(can.runs.contains(name)) * RUNS;
            (name.0.0, name.1.as_str(), runs | (u8::from(can.calls_back.contains(name)) * CALLS_BACK))
        })
        .collect();
    serde_json::json!(declared).to_string()
}

/// Adds what a node keeps there. What this version cannot read, e.g. of a newer one, it leaves out: it then only says
/// less of what can be run.
fn read(text: &str, can: &mut Abilities) {
    let declared: Vec<(i64, String, u8)> = serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::warn!(%error, "what another node says that it can run is unreadable");
        Vec::new()
    });
    for (workspace, name, does) in declared {
        let Ok(name) = AutomationName::try_from(name.as_str()) else { continue };
        let name = (Workspace(workspace), name);
        if does & RUNS != 0 {
            can.runs.insert(name.clone());
        }
        if does & CALLS_BACK != 0 {
            can.calls_back.insert(name.clone());
        }
        can.declares.insert(name);
    }
}

impl Shared {
    /// What this node can run, once it has said so.
    pub(super) fn runs(&self) -> Option<Arc<str>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fault<T>(&self, outcome: Result<T, Fault>) -> Result<T, StoreError> {
        outcome.map_err(|fault| self.failed(fault))
    }
}

impl PgStore {
    async fn say_hello(&self, can: &Abilities) -> Result<(), Fault> {
        let db = self.shared.reader().await?;
        let (number, start) = self.shared.node;
        let sql = "UPDATE nodes SET runs = $3 WHERE number = $1 AND start = $2";
        db.execute(sql, &[&number, &start, &written(can)]).await?;
        Ok(())
    }

    async fn others(&self) -> Result<Abilities, Fault> {
        let db = self.shared.reader().await?;
        let now = self.shared.ask_time(&db).await?;
        let sql = "SELECT runs FROM nodes WHERE number <> $1 AND ended_at IS NULL AND seen_at > $2";
        let since = now.wall.as_millis() - SILENT_MS;
        let mut can = Abilities::default();
        for r in queries::rows(&db, sql, &[&self.shared.node.0, &since]).await? {
            read(r.get(0), &mut can);
        }
        Ok(can)
    }

    async fn without_runner(&self, runnable: &Names) -> Result<Vec<(Workspace, AutomationName)>, Fault> {
        let db = self.shared.reader().await?;
        let now = self.shared.ask_time(&db).await?;
        let over = self.shared.boot.over();
        let found = queries::rows(
            &db,
            "SELECT a.workspace_id, a.name FROM automations a WHERE a.paused_at IS NULL \
               AND (a.workspace_id, a.id) IN ( \
                 SELECT c.workspace_id, c.automation_id FROM claims c \
                   WHERE c.due_at IS NOT NULL AND c.due_at <= $1 AND c.flow \
                 UNION \
                 SELECT c.workspace_id, c.automation_id FROM claims c \
                   WHERE c.processing_state = 'processing' AND c.flow AND c.due_at IS NULL \
                   AND (c.lease_expires <= $2 OR (c.holder = 'runner' AND c.boot >= $3 AND c.boot < $4))) \
               AND (a.workspace_id, a.name) NOT IN ( \
                 SELECT (j ->> 0)::bigint, j ->> 1 FROM jsonb_array_elements($5::text::jsonb) j) \
             ORDER BY a.workspace_id, a.id LIMIT $6",
            &[
                &now.wall.as_millis(),
                &now.lease.0,
                &over.start,
                &over.end,
                &listed(runnable),
                &i64::from(STRANDED_MAX),
            ],
        )
        .await?;
        // One whose name is unreadable is told where its work is looked for.
        let named = |r: &tokio_postgres::Row| {
            AutomationName::try_from(r.get::<_, &str>(1)).ok().map(|name| (Workspace(r.get(0)), name))
        };
        Ok(found.iter().filter_map(named).collect())
    }

    async fn all_nodes(&self) -> Result<Vec<NodeRow>, Fault> {
        let db = self.shared.reader().await?;
        let now = self.shared.ask_time(&db).await?;
        let since = now.wall.as_millis() - SILENT_MS;
        let sql = "SELECT name, start, seen_at, ended_at IS NULL AND seen_at > $1, version, number = $2 \
            FROM nodes ORDER BY name";
        let found = queries::rows(&db, sql, &[&since, &self.shared.node.0]).await?;
        let row = |r: &tokio_postgres::Row| NodeRow {
            name: r.get(0),
            start: u32::try_from(r.get::<_, i64>(1)).unwrap_or(u32::MAX),
            seen_at: ts(r.get(2)),
            alive: r.get(3),
            version: r.get(4),
            is_me: r.get(5),
        };
        Ok(found.iter().map(row).collect())
    }
}

#[async_trait]
impl Nodes for PgStore {
    fn is_shared(&self) -> bool {
        true
    }

    async fn hello(&self, can: Abilities) -> Result<(), StoreError> {
        // First here, so that nothing is taken meanwhile that cannot be run.
        *self.shared.runs.write().unwrap_or_else(PoisonError::into_inner) = Some(listed(&can.runs).into());
        self.shared.fault(self.say_hello(&can).await)
    }

    async fn elsewhere(&self) -> Result<Abilities, StoreError> {
        self.shared.fault(self.others().await)
    }

    async fn stranded(&self, runnable: Names) -> Result<Vec<(Workspace, AutomationName)>, StoreError> {
        self.shared.fault(self.without_runner(&runnable).await)
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.shared.fault(self.all_nodes().await)
    }
}

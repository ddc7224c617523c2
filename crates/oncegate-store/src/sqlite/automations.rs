//! Automations: the number that a name has, and what people see of them: since when, paused or not, and what needs
//! them there.

use std::collections::HashMap;
use std::sync::LazyLock;

use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::notice as core_notice;
use oncegate_core::time::Now;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::queries::{FAILED, LIST_OF, LIVE, MARKED, clock_params};
use super::row::{self, Stored, ts};
use super::transition::Context;
use crate::StoreError;
use crate::api::Page;
use crate::people::AutomationRow;
use crate::transition::notice::Made;

/// What an automation's row says about starting anything of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) paused: bool,
    pub(super) stale_streak: u32,
}

impl Standing {
    fn read(r: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<Self> {
        Ok(Self { paused: r.get(from)?, stale_streak: r.get(from + 1)? })
    }
}

/// One claim and what its automation's row says, in one statement.
pub(super) fn load_with_standing(
    db: &Connection,
    claim: ClaimRef,
) -> Result<Option<(Stored, Standing)>, StoreError> {
    static LOAD: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT {}, a.paused_at IS NOT NULL, a.stale_streak FROM claims c \
             JOIN automations a ON a.id = c.automation_id WHERE c.claim_id = ?1 AND c.workspace_id = ?2",
            row::COLUMNS
        )
    });
    let mut statement = db.prepare_cached(&LOAD)?;
    let both = |r: &rusqlite::Row<'_>| Ok((row::read(r), Standing::read(r, row::WIDTH)?));
    let found = statement.query_row(params![&claim.id.0[..], claim.workspace.0], both).optional()?;
    found.map(|(stored, standing)| Ok((stored?, standing))).transpose()
}

impl Context<'_> {
    /// The number of an automation; a new name makes a new one.
    pub(super) fn automation(&self, workspace: Workspace, name: &AutomationName) -> Result<i64, StoreError> {
        let known = super::queries::automation(self.db, workspace, name)?;
        if let Some(id) = known {
            return Ok(id);
        }
        // A deleted workspace keeps its row.
        let is_open: bool = self.db.query_row(
            "SELECT EXISTS (SELECT 1 FROM workspaces WHERE id = ?1 AND deleted_at IS NULL)",
            [workspace.0],
            |r| r.get(0),
        )?;
        if !is_open {
            return Err(StoreError::Inconsistent(format!("there is no workspace {}", workspace.0)));
        }
        // One that was renamed still has the number of its old name; whoever takes that name is counted on.
        self.db.execute(
            "INSERT INTO automations (id, workspace_id, name, created_at) \
             VALUES ((SELECT ?4 WHERE NOT EXISTS (SELECT 1 FROM automations WHERE id = ?4)), ?1, ?2, ?3)",
            params![
                workspace.0,
                name.as_str(),
                self.now.wall.as_millis(),
                self.secret.automation_number(workspace, name)
            ],
        )?;
        Ok(self.db.last_insert_rowid())
    }

    /// The number of a claim's automation. A name that is new and that nobody declared is told with the one that may
    /// have been meant.
    pub(super) fn automation_of_claim(
        &self,
        workspace: Workspace,
        name: &AutomationName,
        made: &mut Option<Made>,
    ) -> Result<(i64, Standing), StoreError> {
        if let Some(known) = self.known_automation(workspace, name)? {
            return Ok(known);
        }
        let declared = self.policies.declared(workspace);
        if !declared.contains(name) {
            let mut known: Vec<String> = declared.iter().map(ToString::to_string).collect();
            known.extend(super::queries::automation_names(self.db, workspace)?);
            let nearest = core_notice::nearest(name.as_str(), known.iter().map(String::as_str));
            *made = Some(Made { nearest: nearest.map(str::to_owned) });
        }
        Ok((self.automation(workspace, name)?, Standing::default()))
    }

    pub(super) fn known_automation(
        &self,
        workspace: Workspace,
        name: &AutomationName,
    ) -> Result<Option<(i64, Standing)>, StoreError> {
        Ok(self
            .db
            .prepare_cached(
                "SELECT paused_at IS NOT NULL, stale_streak, id FROM automations WHERE workspace_id = ?1 AND name = ?2",
            )?
            .query_row(params![workspace.0, name.as_str()], |r| Ok((r.get(2)?, Standing::read(r, 0)?)))
            .optional()?)
    }

    pub(super) fn standing(&self, automation: i64) -> Result<Standing, StoreError> {
        Ok(self
            .db
            .prepare_cached("SELECT paused_at IS NOT NULL, stale_streak FROM automations WHERE id = ?1")?
            .query_row([automation], |r| Standing::read(r, 0))?)
    }
}

pub(super) fn list(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
    now: Now,
) -> Result<Page<AutomationRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let only = only.map(|names| serde_json::json!(names).to_string());
    let mut statement = db.prepare_cached(
        "SELECT id, name, created_at, paused_at FROM automations WHERE workspace_id = ?1 AND id < ?2 \
         AND (?3 IS NULL OR name IN (SELECT value FROM json_each(?3))) ORDER BY id DESC LIMIT ?4",
    )?;
    let mut open = open(db, workspace, now)?;
    let mut found = statement.query(params![workspace.0, before.unwrap_or(i64::MAX), only, limit])?;
    let mut rows = Vec::new();
    while let Some(r) = found.next()? {
        let (id, name): (i64, String) = (r.get(0)?, r.get(1)?);
        let name = AutomationName::try_from(name.as_str())
            .map_err(|e| StoreError::Inconsistent(format!("automation {id}: {e}")))?;
        let paused_at = r.get::<_, Option<i64>>(3)?.map(ts);
        let inbox = open.remove(&id).unwrap_or_default();
        rows.push(AutomationRow { id, name, created_at: ts(r.get(2)?), paused_at, inbox });
    }
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// What stands in a list, by automation; read from the indexes that have only open claims.
fn open(
    db: &Connection,
    workspace: Workspace,
    now: Now,
) -> Result<HashMap<i64, Vec<(InboxList, u64)>>, StoreError> {
    let of = |rows: &str| {
        format!(
            "SELECT c.automation_id AS a, {LIST_OF} AS list FROM claims c WHERE c.workspace_id = ?1 AND {rows}"
        )
    };
    let sql = format!(
        "SELECT a, list, count(*) FROM ({} UNION ALL {} UNION ALL {} AND c.processing_state IN ('none', 'done')) \
         WHERE list IS NOT NULL GROUP BY a, list",
        of(LIVE),
        of(FAILED),
        of(MARKED),
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(clock_params(workspace, now)))?;
    let mut open: HashMap<i64, Vec<(InboxList, u64)>> = HashMap::new();
    while let Some(r) = rows.next()? {
        if let Some(list) = InboxList::parse(&r.get::<_, String>(1)?) {
            let count = u64::try_from(r.get::<_, i64>(2)?).unwrap_or_default();
            open.entry(r.get(0)?).or_default().push((list, count));
        }
    }
    Ok(open)
}

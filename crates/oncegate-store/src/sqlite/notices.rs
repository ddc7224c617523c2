//! Notices: one row for each kind and subject, counted; bounded, so that no caller can fill the disk with them.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::NoticeKind;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::ts;
use super::store::SqliteStore;
use super::transition::Context;
use super::writer::Manner;
use crate::StoreError;
use crate::api::Page;
use crate::notices::{NoticeDismissed, NoticeFilter, NoticeRow, Notices};

/// The subject of the notice that the oldest of too many become part of.
const MERGED: &str = "*";

#[async_trait]
impl Notices for SqliteStore {
    async fn notice(
        &self,
        workspace: Workspace,
        kind: NoticeKind,
        subject: String,
        detail: String,
    ) -> Result<(), StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.notice(workspace, kind, &subject, &detail)).await
    }

    async fn notices(
        &self,
        workspace: Workspace,
        filter: NoticeFilter,
    ) -> Result<Page<NoticeRow>, StoreError> {
        self.readers.read(move |db| list(db, workspace, &filter)).await
    }

    async fn dismiss_notice(
        &self,
        workspace: Workspace,
        id: i64,
        only: Option<Vec<AutomationName>>,
        reason: String,
        actor: String,
    ) -> Result<NoticeDismissed, StoreError> {
        self.transact(Manner::ASKING, move |cx| {
            cx.dismiss_notice(workspace, id, only.as_deref(), &reason, &actor)
        })
        .await
    }
}

impl Context<'_> {
    pub(super) fn notice(
        &self,
        workspace: Workspace,
        kind: NoticeKind,
        subject: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let over = self.now.wall.before(kind.is_over_after()).as_millis();
        let is_new = self
            .db
            .prepare_cached(
                "INSERT INTO notices (workspace_id, kind, subject, detail, first_at, last_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (workspace_id, kind, subject) DO UPDATE SET \
                 detail = excluded.detail, count = count + 1, \
                 dismissed_by = CASE WHEN last_at < ?6 THEN NULL ELSE dismissed_by END, \
                 dismissed_at = CASE WHEN last_at < ?6 THEN NULL ELSE dismissed_at END, \
                 last_at = excluded.last_at RETURNING count = 1",
            )?
            .query_row(
                params![workspace.0, kind.as_str(), subject, detail, self.now.wall.as_millis(), over],
                |r| r.get(0),
            )?;
        if is_new { self.merge_oldest(workspace, kind) } else { Ok(()) }
    }

    fn merge_oldest(&self, workspace: Workspace, kind: NoticeKind) -> Result<(), StoreError> {
        let rows: u32 = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM notices WHERE workspace_id = ?1 AND kind = ?2 AND subject <> '*'",
            )?
            .query_row(params![workspace.0, kind.as_str()], |r| r.get(0))?;
        if rows <= limits::NOTICES_OF_A_KIND_MAX {
            return Ok(());
        }
        let (first, last, count): (i64, i64, i64) = self
            .db
            .prepare_cached(
                "DELETE FROM notices WHERE id = (SELECT id FROM notices WHERE workspace_id = ?1 AND kind = ?2 \
                 AND subject <> '*' ORDER BY dismissed_at IS NULL, last_at, id LIMIT 1) \
                 RETURNING first_at, last_at, count",
            )?
            .query_row(params![workspace.0, kind.as_str()], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?;
        self.db
            .prepare_cached(
                "INSERT INTO notices (workspace_id, kind, subject, detail, first_at, last_at, count) \
                 VALUES (?1, ?2, ?3, 'older notices of this kind, counted together', ?4, ?5, ?6) \
                 ON CONFLICT (workspace_id, kind, subject) DO UPDATE SET count = count + excluded.count, \
                 first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)",
            )?
            .execute(params![workspace.0, kind.as_str(), MERGED, first, last, count])?;
        Ok(())
    }

    pub(super) fn dismiss_notice(
        &self,
        workspace: Workspace,
        id: i64,
        only: Option<&[AutomationName]>,
        reason: &str,
        actor: &str,
    ) -> Result<NoticeDismissed, StoreError> {
        let found: Option<(String, String, bool)> = self
            .db
            .prepare_cached(
                "SELECT kind, subject, dismissed_at IS NOT NULL FROM notices WHERE id = ?1 AND workspace_id = ?2",
            )?
            .query_row(params![id, workspace.0], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
            .optional()?;
        let seen = |subject: &str| only.is_none_or(|bound| bound.iter().any(|name| name.as_str() == subject));
        match found.filter(|(_, subject, _)| seen(subject)) {
            None => Ok(NoticeDismissed::NotFound),
            Some((_, _, true)) => Ok(NoticeDismissed::Already),
            Some((kind, subject, false)) => {
                self.db
                    .prepare_cached("UPDATE notices SET dismissed_at = ?2, dismissed_by = ?3 WHERE id = ?1")?
                    .execute(params![id, self.now.wall.as_millis(), actor])?;
                self.audit(workspace, actor, "dismiss_notice", &subject, reason, Some(&kind))?;
                Ok(NoticeDismissed::Written)
            }
        }
    }
}

pub(super) fn list(
    db: &Connection,
    workspace: Workspace,
    filter: &NoticeFilter,
) -> Result<Page<NoticeRow>, StoreError> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX);
    let only = filter.only.as_ref().map(|names| serde_json::json!(names).to_string());
    let mut statement = db.prepare_cached(
        "SELECT id, kind, subject, detail, first_at, last_at, count, dismissed_at, dismissed_by FROM notices \
         WHERE workspace_id = ?1 AND id < ?2 AND (?3 OR dismissed_at IS NULL) \
         AND (?4 IS NULL OR subject IN (SELECT value FROM json_each(?4))) ORDER BY id DESC LIMIT ?5",
    )?;
    let before = filter.before.unwrap_or(i64::MAX);
    let rows = statement
        .query_map(params![workspace.0, before, filter.dismissed, only, limit], |r| Ok(read(r)))?
        .map(|row| row?)
        .collect::<Result<Vec<_>, StoreError>>()?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.id);
    Ok(Page { rows, next })
}

fn read(r: &Row<'_>) -> Result<NoticeRow, StoreError> {
    let kind: String = r.get("kind")?;
    Ok(NoticeRow {
        id: r.get("id")?,
        kind: NoticeKind::parse(&kind)
            .ok_or_else(|| StoreError::Inconsistent(format!("a notice has the kind `{kind}`")))?,
        subject: r.get("subject")?,
        detail: r.get("detail")?,
        first_at: ts(r.get("first_at")?),
        last_at: ts(r.get("last_at")?),
        count: r.get::<_, i64>("count")?.unsigned_abs(),
        dismissed_at: r.get::<_, Option<i64>>("dismissed_at")?.map(ts),
        dismissed_by: r.get("dismissed_by")?,
    })
}

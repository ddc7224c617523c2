//! Notices: one row for each kind and subject, counted; bounded, so that no caller can fill the disk with them.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::NoticeKind;
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::{Context, transact};
use super::error::{Fault, unreadable};
use super::queries;
use super::row::{storable, ts};
use super::store::{PgStore, read};
use crate::StoreError;
use crate::api::Page;
use crate::notices::{NoticeDismissed, NoticeFilter, NoticeRow, Notices};

#[async_trait]
impl Notices for PgStore {
    async fn notice(
        &self,
        workspace: Workspace,
        kind: NoticeKind,
        subject: String,
        detail: String,
    ) -> Result<(), StoreError> {
        transact!(&self.shared, |cx| cx.notice(workspace, kind, &subject, &detail).await)
    }

    async fn notices(
        &self,
        workspace: Workspace,
        filter: NoticeFilter,
    ) -> Result<Page<NoticeRow>, StoreError> {
        read!(self, |db| list(&db, workspace, &filter).await)
    }

    async fn dismiss_notice(
        &self,
        workspace: Workspace,
        id: i64,
        only: Option<Vec<AutomationName>>,
        reason: String,
        actor: String,
    ) -> Result<NoticeDismissed, StoreError> {
        transact!(&self.shared, |cx| cx.dismiss_notice(workspace, id, only.as_deref(), &reason, &actor).await)
    }
}

impl Context<'_> {
    pub(super) async fn notice(
        &self,
        workspace: Workspace,
        kind: NoticeKind,
        subject: &str,
        detail: &str,
    ) -> Result<(), Fault> {
        let over = self.now.wall.before(kind.is_over_after()).as_millis();
        let written = self
            .query_one(
                "INSERT INTO notices AS n (workspace_id, kind, subject, detail, first_at, last_at) \
                 VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (workspace_id, kind, subject) DO UPDATE SET \
                 detail = excluded.detail, count = n.count + 1, \
                 dismissed_by = CASE WHEN n.last_at < $6 THEN NULL ELSE n.dismissed_by END, \
                 dismissed_at = CASE WHEN n.last_at < $6 THEN NULL ELSE n.dismissed_at END, \
                 last_at = excluded.last_at RETURNING count = 1",
                &[
                    &workspace.0,
                    &kind.as_str(),
                    &storable(subject),
                    &storable(detail),
                    &self.now.wall.as_millis(),
                    &over,
                ],
            )
            .await?;
        if written.get(0) { self.merge_oldest(workspace, kind).await } else { Ok(()) }
    }

    async fn merge_oldest(&self, workspace: Workspace, kind: NoticeKind) -> Result<(), Fault> {
        let rows: i64 = self
            .query_one(
                "SELECT count(*) FROM notices WHERE workspace_id = $1 AND kind = $2 AND subject <> '*'",
                &[&workspace.0, &kind.as_str()],
            )
            .await?
            .get(0);
        if rows <= i64::from(limits::NOTICES_OF_A_KIND_MAX) {
            return Ok(());
        }
        // All that are too many, not only one: nodes that each count before the other's is there leave some over. What
        // another node merges, or counts on, at this moment is waited for; what is gone by then is not counted twice.
        let oldest = self
            .query(
                "SELECT id, first_at, last_at, count FROM notices WHERE workspace_id = $1 AND kind = $2 \
                 AND subject <> '*' ORDER BY dismissed_at IS NULL, last_at, id LIMIT $3 FOR UPDATE",
                &[&workspace.0, &kind.as_str(), &(rows - i64::from(limits::NOTICES_OF_A_KIND_MAX))],
            )
            .await?;
        for gone in &oldest {
            self.execute(
                "DELETE FROM notices WHERE workspace_id = $1 AND id = $2",
                &[&workspace.0, &gone.get::<_, i64>(0)],
            )
            .await?;
            let (first, last, count): (i64, i64, i64) = (gone.get(1), gone.get(2), gone.get(3));
            self.execute(
                "INSERT INTO notices AS n (workspace_id, kind, subject, detail, first_at, last_at, count) \
                 VALUES ($1, $2, '*', 'older notices of this kind, counted together', $3, $4, $5) \
                 ON CONFLICT (workspace_id, kind, subject) DO UPDATE SET count = n.count + excluded.count, \
                 first_at = least(n.first_at, excluded.first_at), last_at = greatest(n.last_at, excluded.last_at)",
                &[&workspace.0, &kind.as_str(), &first, &last, &count],
            )
            .await?;
        }
        Ok(())
    }

    /// Locked, so that of two people who dismiss it at once one did, with one row in the audit.
    async fn dismiss_notice(
        &self,
        workspace: Workspace,
        id: i64,
        only: Option<&[AutomationName]>,
        reason: &str,
        actor: &str,
    ) -> Result<NoticeDismissed, Fault> {
        let found = self
            .query_opt(
                "SELECT kind, subject, dismissed_at IS NOT NULL FROM notices WHERE workspace_id = $1 AND id = $2 \
                 FOR UPDATE",
                &[&workspace.0, &id],
            )
            .await?;
        let found: Option<(String, String, bool)> = found.map(|r| (r.get(0), r.get(1), r.get(2)));
        let seen = |subject: &str| only.is_none_or(|bound| bound.iter().any(|name| name.as_str() == subject));
        match found.filter(|(_, subject, _)| seen(subject)) {
            None => Ok(NoticeDismissed::NotFound),
            Some((_, _, true)) => Ok(NoticeDismissed::Already),
            Some((kind, subject, false)) => {
                self.execute(
                    "UPDATE notices SET dismissed_at = $3, dismissed_by = $4 WHERE workspace_id = $1 AND id = $2",
                    &[&workspace.0, &id, &self.now.wall.as_millis(), &storable(actor)],
                )
                .await?;
                self.audit(workspace, actor, "dismiss_notice", &subject, reason, Some(&kind)).await?;
                Ok(NoticeDismissed::Written)
            }
        }
    }
}

async fn list(
    db: &Connection,
    workspace: Workspace,
    filter: &NoticeFilter,
) -> Result<Page<NoticeRow>, Fault> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX);
    let only: Option<Vec<&str>> =
        filter.only.as_ref().map(|names| names.iter().map(AutomationName::as_str).collect());
    let found = queries::rows(
        db,
        "SELECT id, kind, subject, detail, first_at, last_at, count, dismissed_at, dismissed_by FROM notices \
         WHERE workspace_id = $1 AND id < $2 AND ($3 OR dismissed_at IS NULL) \
         AND ($4::text[] IS NULL OR subject = ANY($4::text[])) ORDER BY id DESC LIMIT $5",
        &[&workspace.0, &filter.before.unwrap_or(i64::MAX), &filter.dismissed, &only, &i64::from(limit)],
    )
    .await?;
    let rows = found.iter().map(read_notice).collect::<Result<Vec<_>, Fault>>()?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.id);
    Ok(Page { rows, next })
}

fn read_notice(r: &Row) -> Result<NoticeRow, Fault> {
    let kind: &str = r.get("kind");
    Ok(NoticeRow {
        id: r.get("id"),
        kind: NoticeKind::parse(kind).ok_or_else(|| unreadable(format!("a notice has the kind `{kind}`")))?,
        subject: r.get("subject"),
        detail: r.get("detail"),
        first_at: ts(r.get("first_at")),
        last_at: ts(r.get("last_at")),
        count: r.get::<_, i64>("count").unsigned_abs(),
        dismissed_at: r.get::<_, Option<i64>>("dismissed_at").map(ts),
        dismissed_by: r.get("dismissed_by"),
    })
}

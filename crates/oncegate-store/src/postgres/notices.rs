//! Notices: one row for each kind and subject, counted; bounded, so that no caller can fill the disk with them.

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::NoticeKind;

use super::context::{Context, transact};
use super::error::Fault;
use super::row::storable;
use super::store::PgStore;
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
        _workspace: Workspace,
        _filter: NoticeFilter,
    ) -> Result<Page<NoticeRow>, StoreError> {
        Err(super::not_yet())
    }

    async fn dismiss_notice(
        &self,
        _workspace: Workspace,
        _id: i64,
        _only: Option<Vec<AutomationName>>,
        _reason: String,
        _actor: String,
    ) -> Result<NoticeDismissed, StoreError> {
        Err(super::not_yet())
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
        let over = self.now.wall.before(limits::NOTICE_IS_OVER_AFTER).as_millis();
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
        let oldest = self
            .query_opt(
                "SELECT id FROM notices WHERE workspace_id = $1 AND kind = $2 AND subject <> '*' \
                 ORDER BY dismissed_at IS NULL, last_at, id LIMIT 1 FOR UPDATE",
                &[&workspace.0, &kind.as_str()],
            )
            .await?;
        let Some(oldest) = oldest else { return Ok(()) };
        let gone = self
            .query_one(
                "DELETE FROM notices WHERE workspace_id = $1 AND id = $2 RETURNING first_at, last_at, count",
                &[&workspace.0, &oldest.get::<_, i64>(0)],
            )
            .await?;
        let (first, last, count): (i64, i64, i64) = (gone.get(0), gone.get(1), gone.get(2));
        self.execute(
            "INSERT INTO notices AS n (workspace_id, kind, subject, detail, first_at, last_at, count) \
             VALUES ($1, $2, '*', 'older notices of this kind, counted together', $3, $4, $5) \
             ON CONFLICT (workspace_id, kind, subject) DO UPDATE SET count = n.count + excluded.count, \
             first_at = least(n.first_at, excluded.first_at), last_at = greatest(n.last_at, excluded.last_at)",
            &[&workspace.0, &kind.as_str(), &first, &last, &count],
        )
        .await?;
        Ok(())
    }
}

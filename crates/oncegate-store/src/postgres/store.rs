//! [`PgStore`]: the contract, in terms of transactions and reads on a pool of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oncegate_core::claim::Boot;
use oncegate_core::decide::{Decision, RunReason};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, StoreSecret, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::{self, NoticeKind};
use oncegate_core::time::{Now, Timestamp};
use tokio::sync::Semaphore;

use super::clock::{ClusterClock, WALL_SQL};
use super::connection::Connection;
pub(super) use super::context::read;
use super::context::transact;
use super::desk::Desk;
use super::error::Fault;
use super::options::{self, Options, Target};
use super::pool;
pub(super) use super::shared::Shared;
use super::{migrations, nodes, queries, row};
use crate::StoreError;
use crate::api::{
    ActCall, Acted, AdmitCall, Admitted, ClaimCall, ClaimView, Claimed, DeliveryRow, Due, Filter, FinishCall,
    Finished, HistoryRow, Page, Recovery, Renamed, StepBegin, StepEnd, Store, Target as ClaimTarget,
    UnverifiedCall, Work,
};
use crate::observer::{Happened, Observer};
use crate::vitals::Vitals;

/// What a transaction asks for as it begins.
pub(super) const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The store of a team: many nodes, any of which may die, on one PostgreSQL.
pub struct PgStore {
    pub(super) shared: Arc<Shared>,
    desk: Desk,
}

impl PgStore {
    /// Opens, or makes, the store in a database, and joins its cluster under the node's name.
    ///
    /// # Errors
    /// The URL or the database cannot be worked with, the database is away, or the node's name is in use.
    pub async fn open(options: &Options) -> Result<Self, StoreError> {
        Self::open_observed(options, Arc::new(())).await
    }

    /// The same; what is committed is told to `observer`.
    ///
    /// # Errors
    /// Those of [`PgStore::open`].
    pub async fn open_observed(options: &Options, observer: Arc<dyn Observer>) -> Result<Self, StoreError> {
        options::check_node(&options.node)?;
        let target = Target::parse(&options.url)?;
        let name = target.name();
        let pool = pool::make(target, &options.node, &options.limits)?;
        // Whoever opens a store is told which one.
        migrations::migrate(&pool).await.map_err(|error| match error {
            StoreError::Away(why) => StoreError::Away(format!("{name}: {why}")),
            other => other,
        })?;
        let joined = nodes::join(&pool, options).await?;
        let reading = options.clock.read();
        let shared = Shared {
            secret: StoreSecret::new(joined.secret),
            boot: joined.boot(),
            node: (joined.number, joined.start),
            name: options.node.clone(),
            clock: Arc::clone(&options.clock),
            simulated: options.simulated,
            cluster: ClusterClock::new(joined.anchor, joined.wall, reading.monotonic),
            policies: Arc::clone(&options.policies),
            restores: Arc::new(joined.restores),
            runs: std::sync::RwLock::default(),
            recovering: AtomicBool::new(joined.recovering),
            superseded: AtomicBool::new(false),
            observer,
            set_back: std::sync::atomic::AtomicI64::new(0),
            exports: Arc::new(Semaphore::new(limits::EXPORTS_AT_A_TIME_MAX)),
            patience: options.limits.statement + options.limits.wait,
            pool,
        };
        let shared = Arc::new(shared);
        let store = Self { desk: Desk::open(options.limits.connections), shared };
        store.tick().await?;
        Ok(store)
    }

    async fn reader(&self) -> Result<Connection, StoreError> {
        self.shared.reader().await.map_err(|fault| self.shared.failed(fault))
    }

    /// Remembers the number of an automation, so that its next claims need not ask for it.
    async fn learn(&self, workspace: Workspace, automation: &AutomationName) {
        let number = read!(self, |db| queries::automation(&db, workspace, automation).await);
        if let Ok(Some(number)) = number {
            self.desk.learn(workspace, automation, number);
        }
    }

    /// This node still is who it says it is, and is told to have been seen.
    async fn be_seen(&self, db: &Connection, now: Now) -> Result<(), Fault> {
        let (number, start) = self.shared.node;
        let seen = db
            .execute(
                "UPDATE nodes SET seen_at = $3 WHERE number = $1 AND start = $2",
                &[&number, &start, &now.wall.as_millis()],
            )
            .await?;
        if seen == 0 && !self.shared.superseded.swap(true, Ordering::AcqRel) {
            tracing::error!(
                node = self.shared.name,
                "another process has started as this node: this one takes nothing new; stop one of them, or give it a \
                 name of its own with --node"
            );
        }
        Ok(())
    }

    /// Due times follow a clock that was set back: one workspace after the other, each once, whichever node does it.
    async fn follow_set_back(&self, total: i64) -> Result<(), StoreError> {
        let db = self.reader().await?;
        let sql = "SELECT id FROM workspaces WHERE set_back < $1 ORDER BY id";
        let behind = queries::rows(&db, sql, &[&total]).await.map_err(|f| self.shared.failed(f))?;
        drop(db);
        for r in behind {
            let workspace: i64 = r.get(0);
            let moved: Result<Option<Duration>, StoreError> =
                transact!(&self.shared, |cx| cx.shift_due(workspace, total).await);
            if let Some(by) = moved? {
                tracing::warn!(
                    workspace,
                    by_s = by.as_secs(),
                    "the database's clock was set back; due times went with it"
                );
                self.shared.observer.happened(Happened::SetBack(by));
            }
        }
        Ok(())
    }
}

impl super::context::Context<'_> {
    /// What was to happen in ten minutes still is to happen in ten minutes. Only what was written by the clock that was
    /// ahead, and so seems to come from the future, moves.
    async fn shift_due(&self, workspace: i64, total: i64) -> Result<Option<Duration>, Fault> {
        let row = self
            .query_opt(
                "SELECT set_back FROM workspaces WHERE id = $1 AND set_back < $2 FOR UPDATE",
                &[&workspace, &total],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let back = total - row.get::<_, i64>(0);
        self.execute("UPDATE workspaces SET set_back = $2 WHERE id = $1", &[&workspace, &total]).await?;
        for column in ["due_at", "nudge_at"] {
            let sql = format!(
                "UPDATE claims SET {column} = {column} - $2 \
                 WHERE workspace_id = $1 AND {column} IS NOT NULL AND updated_at > $3"
            );
            self.execute(&sql, &[&workspace, &back, &self.now.wall.as_millis()]).await?;
        }
        let by = Duration::from_millis(back.unsigned_abs());
        if workspace == Workspace::DEFAULT.0 {
            let words = notice::clock_set_back(by);
            self.notice(Workspace::DEFAULT, NoticeKind::ClockSetBack, "clock", &words).await?;
            return Ok(Some(by));
        }
        Ok(None)
    }
}

#[async_trait]
impl Store for PgStore {
    fn secret(&self) -> &StoreSecret {
        &self.shared.secret
    }

    fn boot(&self) -> Boot {
        self.shared.boot
    }

    fn now(&self) -> Now {
        self.shared.estimate()
    }

    async fn claim(&self, call: ClaimCall) -> Result<Option<Claimed>, StoreError> {
        if self.shared.is_superseded() {
            return Err(StoreError::Closed);
        }
        let call = Arc::new(call);
        if let Some(claimed) = self.desk.claim(&self.shared, &call).await? {
            return Ok(Some(claimed));
        }
        let claimed = transact!(&self.shared, |cx| cx.claim(&call).await);
        if let ClaimTarget::Key { workspace, automation, .. } = &call.target
            && is_new_to_the_desk(&claimed, self.desk.knows(*workspace, automation))
        {
            self.learn(*workspace, automation).await;
        }
        claimed
    }

    async fn finish(&self, call: FinishCall) -> Result<Finished, StoreError> {
        transact!(&self.shared, |cx| cx.finish(&call).await)
    }

    async fn act(&self, call: ActCall) -> Result<Acted, StoreError> {
        transact!(&self.shared, |cx| cx.act(&call).await)
    }

    async fn admit(&self, call: AdmitCall) -> Result<Vec<Admitted>, StoreError> {
        transact!(&self.shared, |cx| cx.admit(&call).await)
    }

    async fn keep_unverified(&self, call: UnverifiedCall) -> Result<i64, StoreError> {
        transact!(&self.shared, |cx| cx.keep_unverified(&call).await)
    }

    async fn begin_step(&self, step: StepBegin) -> Result<Option<i64>, StoreError> {
        transact!(&self.shared, |cx| cx.begin_step(&step).await)
    }

    async fn end_step(&self, step: StepEnd) -> Result<bool, StoreError> {
        transact!(&self.shared, |cx| cx.end_step(&step).await)
    }

    async fn end_run(&self, step: StepEnd, last: FinishCall) -> Result<Finished, StoreError> {
        transact!(&self.shared, |cx| match cx.end_step(&step).await {
            Ok(_) => cx.finish(&last).await,
            Err(fault) => Err(fault),
        })
    }

    async fn set_paused(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        paused: bool,
        reason: String,
        actor: String,
    ) -> Result<bool, StoreError> {
        transact!(&self.shared, |cx| cx.set_paused(workspace, &automation, paused, &reason, &actor).await)
    }

    async fn rename_automation(
        &self,
        workspace: Workspace,
        from: AutomationName,
        to: AutomationName,
    ) -> Result<Renamed, StoreError> {
        transact!(&self.shared, |cx| cx
            .rename_automation(workspace, &from, &to, "declared in oncegate.yaml", "configuration")
            .await)
    }

    async fn knows_automation(
        &self,
        workspace: Workspace,
        automation: AutomationName,
    ) -> Result<bool, StoreError> {
        read!(self, |db| Ok(queries::automation(&db, workspace, &automation).await?.is_some()))
    }

    async fn show(&self, id: ClaimRef) -> Result<Option<ClaimView>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            let found = queries::load(&db, id).await?;
            Ok(found.map(|stored| row::judged(stored, now, self.shared.boot)))
        })
    }

    async fn find(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        key: IdempotencyKey,
    ) -> Result<Option<ClaimRef>, StoreError> {
        read!(self, |db| {
            let number = queries::automation(&db, workspace, &automation).await?;
            Ok(number.map(|n| ClaimRef { workspace, id: self.shared.secret.claim_id(workspace, n, &key) }))
        })
    }

    async fn history(&self, id: ClaimRef) -> Result<Vec<HistoryRow>, StoreError> {
        read!(self, |db| queries::history(&db, id).await)
    }

    async fn work(&self, id: ClaimRef) -> Result<Option<Work>, StoreError> {
        read!(self, |db| queries::work(&db, id).await)
    }

    async fn list(&self, workspace: Workspace, filter: Filter) -> Result<Page<ClaimView>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            let found = super::search::search(db, workspace, &filter, now, self.shared.boot).await?;
            Ok(Page { rows: found.rows, next: found.next })
        })
    }

    async fn counts(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
    ) -> Result<Vec<(InboxList, u64)>, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            super::search::counts(&db, workspace, only.as_deref(), now).await
        })
    }

    async fn rejected(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        read!(self, |db| super::intake::rejected(&db, workspace, only.as_deref(), before, limit).await)
    }

    async fn parked_deliveries(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        read!(self, |db| super::intake::parked(&db, workspace, only.as_deref(), before, limit).await)
    }

    async fn deliveries(&self, id: ClaimRef, limit: u32) -> Result<Vec<DeliveryRow>, StoreError> {
        read!(self, |db| super::intake::deliveries(&db, id, limit).await)
    }

    async fn delivery(&self, workspace: Workspace, id: i64) -> Result<Option<DeliveryRow>, StoreError> {
        read!(self, |db| super::intake::delivery(&db, workspace, id).await)
    }

    async fn due(&self, limit: u32) -> Result<Vec<Due>, StoreError> {
        if self.shared.recovering() || self.shared.is_superseded() {
            return Ok(vec![]);
        }
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            queries::due(&db, now, self.shared.boot, self.shared.runs().as_deref(), limit).await
        })
    }

    async fn next_due(&self, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        match self.shared.recovering() || self.shared.is_superseded() {
            true => Ok(None),
            false => read!(self, |db| queries::next_due(&db, after).await),
        }
    }

    async fn tick(&self) -> Result<(), StoreError> {
        let total = read!(self, |db| {
            let (now, total) = self.shared.tick(&db).await?;
            self.be_seen(&db, now).await?;
            let recovery = db.query_opt("SELECT 1 FROM meta WHERE name = 'recovery'", &[]).await?;
            self.shared.recovering.store(recovery.is_some(), Ordering::Release);
            Ok(total)
        })?;
        // Zero at a start: what another node left undone is looked for once.
        if self.shared.set_back.swap(total, Ordering::AcqRel) != total {
            self.follow_set_back(total).await?;
        }
        Ok(())
    }

    async fn reap(&self, limit: u32) -> Result<u64, StoreError> {
        super::upkeep::reap(self, limit).await
    }

    async fn recovery(&self) -> Result<Option<Recovery>, StoreError> {
        read!(self, |db| {
            let row = db.query_opt("SELECT value FROM meta WHERE name = 'recovery'", &[]).await?;
            Ok(nodes::recovery(row.map(|r| r.get(0)))?)
        })
    }

    async fn end_recovery(&self, reason: String, actor: String) -> Result<bool, StoreError> {
        let ended = transact!(&self.shared, |cx| cx.end_recovery(&reason, &actor).await)?;
        self.shared.recovering.store(false, Ordering::Release);
        Ok(ended)
    }

    async fn vitals(&self) -> Result<Vitals, StoreError> {
        read!(self, |db| {
            let now = self.shared.ask_time(&db).await?;
            let clock_is_doubtful = self.shared.cluster.is_doubtful(now);
            let vitals = super::vitals::read(&db, now, self.shared.boot).await?;
            Ok(Vitals { clock_is_doubtful, ..vitals })
        })
    }

    async fn probe(&self) -> Result<(), StoreError> {
        read!(self, |db| {
            let sql = format!(
                "INSERT INTO meta (name, value) VALUES ('probe', ({WALL_SQL})::text) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            );
            db.execute(&sql, &[]).await?;
            Ok(())
        })
    }

    async fn close(&self) {
        // Live time since the last tick counts. Harmless if it fails: then its next start waits a little.
        let _ = self.tick().await;
        let (number, start) = self.shared.node;
        let ended: Result<(), StoreError> = read!(self, |db| {
            let sql = "UPDATE nodes SET ended_at = seen_at WHERE number = $1 AND start = $2";
            db.execute(sql, &[&number, &start]).await?;
            Ok(())
        });
        if let Err(error) = ended {
            tracing::warn!(%error, "could not write down that this node ended in good order");
        }
        self.shared.pool.close();
    }
}

/// A name that the desk does not know, or that means another automation since it was renamed.
fn is_new_to_the_desk(claimed: &Result<Option<Claimed>, StoreError>, known: bool) -> bool {
    let runs_first = |c: &Claimed| matches!(c.decision, Decision::Run(RunReason::First));
    !known || claimed.as_ref().is_ok_and(|claimed| claimed.as_ref().is_some_and(runs_first))
}

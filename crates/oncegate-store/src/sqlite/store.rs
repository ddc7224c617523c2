//! [`SqliteStore`]: the contract, in terms of the writer, the readers and the transitions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use oncegate_core::claim::{Boot, Holder};
use oncegate_core::decide::Start;
use oncegate_core::finish::Call;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, StoreSecret, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::{self, NoticeKind};
use oncegate_core::recovery::Restores;
use oncegate_core::time::{Now, Timestamp};
use rusqlite::Connection;

use super::checkpoints::Checkpoints;
use super::dir::DataDir;
use super::export::Exports;
use super::readers::Readers;
use super::recent::Recent;
use super::room::Room;
use super::stops::Stops;
use super::transition::{self, Context};
use super::writer::{Manner, Writer};
use super::{intake, migrations, payloads, queries, recovery, row, schema_meta, search, upkeep, vitals};
use crate::StoreError;
use crate::api::{
    ActCall, Acted, AdmitCall, Admitted, Begun, ClaimCall, ClaimView, Claimed, DeliveryRow, Due, Filter,
    FinishCall, Finished, First, HistoryRow, Page, PolicyBook, Recovery, Renamed, StepBegin, StepEnd, Store,
    UnverifiedCall, Work,
};
use crate::clock::{Clock, LeaseClock};
use crate::nodes::Names;
use crate::observer::{Happened, Journal, Observer};
use crate::vitals::Vitals;

/// How to open a store.
#[derive(Clone)]
pub struct Options {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// What automations allow.
    pub policies: Arc<dyn PolicyBook>,
    /// 32 random bytes: the store's secret, if this opening makes the store.
    pub fresh_secret: [u8; 32],
    /// Accept a directory that does not survive a restart of the machine.
    pub ephemeral: bool,
    /// Largest size of the database file in bytes; `None` is the disk's.
    pub max_bytes: Option<u64>,
}

/// The embedded store.
pub struct SqliteStore {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Arc<Writer>,
    pub(super) stops: Arc<Stops>,
    pub(super) readers: Readers,
    pub(super) exports: Exports,
    dir: DataDir,
}

pub(super) struct Shared {
    pub(super) secret: StoreSecret,
    pub(super) boot: Boot,
    pub(super) clock: Arc<dyn Clock>,
    lease: LeaseClock,
    policies: Arc<dyn PolicyBook>,
    restores: Arc<Restores>,
    /// Until a person ends the recovery, which is never begun while a store is open.
    recovering: AtomicBool,
    journal: Arc<Journal>,
    /// What this process can run, once it has said so.
    pub(super) runs: std::sync::RwLock<Option<Arc<Names>>>,
    /// One tick at a time: two would find the same clock set back, and move what is due twice.
    ticking: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(super) fn now(&self) -> Now {
        self.lease.now(self.clock.read())
    }

    pub(super) fn context<'a>(&'a self, db: &'a Connection) -> Context<'a> {
        Context {
            db,
            secret: &self.secret,
            policies: &self.policies,
            now: self.now(),
            boot: self.boot,
            clock_is_doubtful: self.lease.is_doubtful(self.clock.read()),
            restores: &self.restores,
            recovering: self.recovering.load(Ordering::Acquire),
            journal: &self.journal,
        }
    }
}

/// Read-only connections; queries are short and a writer never blocks them.
const READERS: u32 = 2;

impl SqliteStore {
    /// Opens, or makes, the store in `dir`.
    ///
    /// # Errors
    /// The directory cannot be used, is locked, is not on a lasting disk, or was written by a newer version.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        Self::open_observed(dir, options, Arc::new(()))
    }

    /// The same; what is committed is told to `observer`.
    ///
    /// # Errors
    /// Those of [`SqliteStore::open`].
    pub fn open_observed(
        dir: &Path,
        options: &Options,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, StoreError> {
        let dir = DataDir::open(dir, options.ephemeral)?;
        let path = dir.make_database()?;
        let reading = options.clock.read();
        // Before SQLite opens it, which may already change a file.
        migrations::not_newer_on_disk(&path)?;
        let mut db = super::connection::connect(&path)?;
        migrations::migrate(&mut db, &dir, reading.wall)?;
        let meta = schema_meta::open(&mut db, dir.path(), options.fresh_secret, reading.wall)?;
        if let Some(bytes) = options.max_bytes {
            let page: i64 = db.pragma_query_value(None, "page_size", |r| r.get(0))?;
            db.pragma_update(None, "max_page_count", i64::try_from(bytes).unwrap_or(i64::MAX) / page)?;
        }
        let readers = Readers::open(&path, READERS)?;
        let exports = Exports::of(path);
        let room = Room::new(&dir, options.max_bytes);
        let shared = Shared {
            secret: meta.secret,
            boot: meta.boot,
            clock: Arc::clone(&options.clock),
            lease: LeaseClock::resume(meta.lease, reading, meta.last_wall),
            policies: Arc::clone(&options.policies),
            restores: Arc::new(meta.restores),
            recovering: AtomicBool::new(meta.recovering),
            journal: Arc::new(Journal::new(observer)),
            runs: std::sync::RwLock::default(),
            ticking: tokio::sync::Mutex::default(),
        };
        let recent = Arc::new(Recent::default());
        recent.watch(&mut db)?;
        let checkpoints = Checkpoints::start(&mut db, &dir.database())?;
        let writer =
            Writer::start((db, checkpoints), room, Arc::clone(&options.clock), Arc::clone(&shared.journal))?;
        let (shared, writer) = (Arc::new(shared), Arc::new(writer));
        let stops = Arc::new(Stops::new(Arc::clone(&shared), Arc::clone(&writer), recent));
        readers.count_before(Arc::clone(&stops));
        Ok(Self { shared, writer, stops, readers, exports, dir })
    }

    /// Runs `work` in the next transaction, with every stop counted that was answered before.
    pub(super) async fn transact<T, F>(&self, manner: Manner, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Context<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        // If it fails, that is told there, and must keep nobody from anything else.
        let _ = self.stops.count().await;
        self.transact_now(manner, work).await
    }

    pub(super) async fn transact_now<T, F>(&self, manner: Manner, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Context<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.writer.write(manner, move |db| work(&shared.context(db))).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn secret(&self) -> &StoreSecret {
        &self.shared.secret
    }

    fn boot(&self) -> Boot {
        self.shared.boot
    }

    fn now(&self) -> Now {
        self.shared.now()
    }

    async fn claim(&self, call: ClaimCall) -> Result<Option<Claimed>, StoreError> {
        let manner = match call.request.start {
            Start::Now(Holder::Runner { .. }) => {
                Manner::ASKING.killed_at("run.before_commit", "run.committed")
            }
            Start::Now(Holder::Caller { .. }) | Start::Queue => Manner::ASKING,
        };
        if let Some(stopped) = self.stops.answer(&self.readers, &call).await {
            return Ok(Some(stopped));
        }
        let call = Arc::new(call);
        let asked = Arc::clone(&call);
        match self.transact_now(manner, move |cx| cx.claim(&asked)).await {
            // What is done can still be said.
            Err(full @ StoreError::Full(_)) => {
                self.stops.look(&self.readers, &call).await.map(Some).ok_or(full)
            }
            Err(error) => Err(error),
            Ok(claimed) => {
                if let Some(claimed) = &claimed {
                    self.stops.saw(&claimed.decision);
                }
                Ok(claimed)
            }
        }
    }

    async fn finish(&self, call: FinishCall) -> Result<Finished, StoreError> {
        let manner = match call.call {
            Call::Done => Manner::TELLING.killed_at("done.before_commit", "done.committed"),
            Call::Defer { .. } => Manner::TELLING.killed_at("defer.before_commit", "defer.committed"),
            Call::Error { .. } => Manner::TELLING.killed_at("error.before_commit", "error.committed"),
            Call::Heartbeat | Call::Review { .. } | Call::HandBack | Call::HandOver => Manner::TELLING,
        };
        self.stops.counted(call.id).await;
        self.transact_now(manner, move |cx| cx.finish(&call)).await
    }

    async fn act(&self, call: ActCall) -> Result<Acted, StoreError> {
        self.transact(Manner::URGENT, move |cx| cx.act(&call)).await
    }

    async fn admit(&self, call: AdmitCall) -> Result<Vec<Admitted>, StoreError> {
        self.transact(Manner::ASKING.killed_at("admit.before_commit", "admit.committed"), move |cx| {
            cx.admit(&call)
        })
        .await
    }

    async fn keep_unverified(&self, call: UnverifiedCall) -> Result<i64, StoreError> {
        self.transact(Manner::ASKING, move |cx| cx.keep_unverified(&call)).await
    }

    async fn begin_step(&self, step: StepBegin) -> Result<Option<i64>, StoreError> {
        self.transact(Manner::URGENT.killed_at("step.before_commit", "step.written"), move |cx| {
            cx.begin_step(&step)
        })
        .await
    }

    async fn end_step(&self, step: StepEnd) -> Result<bool, StoreError> {
        self.transact(Manner::TELLING.killed_at("answer.before_commit", "answer.committed"), move |cx| {
            cx.end_step(&step)
        })
        .await
    }

    async fn begin_run(&self, call: ClaimCall, first: First) -> Result<Option<Begun>, StoreError> {
        self.begin_together(call, first).await
    }

    async fn end_run(&self, step: StepEnd, last: FinishCall) -> Result<Finished, StoreError> {
        self.stops.counted(last.id).await;
        self.transact_now(Manner::TELLING.killed_at("done.before_commit", "done.committed"), move |cx| {
            cx.end_step(&step)?;
            cx.finish(&last)
        })
        .await
    }

    async fn set_paused(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        paused: bool,
        reason: String,
        actor: String,
    ) -> Result<bool, StoreError> {
        self.transact(Manner::URGENT, move |cx| {
            cx.set_paused(workspace, &automation, paused, &reason, &actor)
        })
        .await
    }

    async fn rename_automation(
        &self,
        workspace: Workspace,
        from: AutomationName,
        to: AutomationName,
    ) -> Result<Renamed, StoreError> {
        self.transact(Manner::ASKING, move |cx| {
            cx.rename_automation(workspace, &from, &to, "declared in oncegate.yaml", "configuration")
        })
        .await
    }

    async fn knows_automation(
        &self,
        workspace: Workspace,
        automation: AutomationName,
    ) -> Result<bool, StoreError> {
        self.readers.read(move |db| Ok(queries::automation(db, workspace, &automation)?.is_some())).await
    }

    async fn show(&self, id: ClaimRef) -> Result<Option<ClaimView>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| Ok(row::load(db, id)?.map(|s| transition::judged(s, shared.now(), shared.boot))))
            .await
    }

    async fn find(
        &self,
        workspace: Workspace,
        automation: AutomationName,
        key: IdempotencyKey,
    ) -> Result<Option<ClaimRef>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| {
                let number = queries::automation(db, workspace, &automation)?;
                Ok(number.map(|n| ClaimRef { workspace, id: shared.secret.claim_id(workspace, n, &key) }))
            })
            .await
    }

    async fn history(&self, id: ClaimRef) -> Result<Vec<HistoryRow>, StoreError> {
        self.readers.read(move |db| queries::history(db, id)).await
    }

    async fn work(&self, id: ClaimRef) -> Result<Option<Work>, StoreError> {
        match self.readers.read_at_once(|db| queries::work(db, id)) {
            Some(work) => work,
            None => self.readers.read(move |db| queries::work(db, id)).await,
        }
    }

    async fn list(&self, workspace: Workspace, filter: Filter) -> Result<Page<ClaimView>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| {
                let found = search::search(db, workspace, &filter, shared.now(), shared.boot)?;
                Ok(Page { rows: found.rows, next: found.next })
            })
            .await
    }

    async fn counts(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
    ) -> Result<Vec<(InboxList, u64)>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |db| queries::counts(db, workspace, only.as_deref(), shared.now())).await
    }

    async fn rejected(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.readers.read(move |db| intake::rejected(db, workspace, only.as_deref(), before, limit)).await
    }

    async fn parked_deliveries(
        &self,
        workspace: Workspace,
        only: Option<Vec<AutomationName>>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.readers.read(move |db| intake::parked(db, workspace, only.as_deref(), before, limit)).await
    }

    async fn deliveries(&self, id: ClaimRef, limit: u32) -> Result<Vec<DeliveryRow>, StoreError> {
        self.readers.read(move |db| intake::deliveries(db, id, limit)).await
    }

    async fn delivery(&self, workspace: Workspace, id: i64) -> Result<Option<DeliveryRow>, StoreError> {
        self.readers.read(move |db| intake::delivery(db, workspace, id)).await
    }

    async fn due(&self, limit: u32) -> Result<Vec<Due>, StoreError> {
        self.due_but_new(limit, Names::default()).await
    }

    async fn due_but_new(&self, limit: u32, of: Names) -> Result<Vec<Due>, StoreError> {
        if self.shared.recovering.load(Ordering::Acquire) {
            return Ok(vec![]);
        }
        let shared = Arc::clone(&self.shared);
        self.readers
            .read(move |db| {
                let runs = shared.runs();
                queries::due(db, shared.now(), shared.boot, (runs.as_deref(), &of), limit)
            })
            .await
    }

    async fn next_due(&self, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        match self.shared.recovering.load(Ordering::Acquire) {
            true => Ok(None),
            false => self.readers.read(move |db| upkeep::next_due(db, after)).await,
        }
    }

    async fn tick(&self) -> Result<(), StoreError> {
        let _one = self.shared.ticking.lock().await;
        let reading = self.shared.clock.read();
        let ticked = self.shared.lease.tick(reading);
        let journal = Arc::clone(&self.shared.journal);
        let written = self
            .transact(Manner::TELLING, move |cx| {
                if !ticked.set_back.is_zero() {
                    upkeep::shift_due(cx.db, ticked.set_back, reading.wall)?;
                    journal.note(Happened::SetBack(ticked.set_back));
                }
                if ticked.set_back > limits::CLOCK_SLACK {
                    let words = notice::clock_set_back(ticked.set_back);
                    cx.notice(Workspace::DEFAULT, NoticeKind::ClockSetBack, "clock", &words)?;
                }
                schema_meta::set_clocks(cx.db, ticked.lease, reading.wall)
            })
            .await;
        if written.is_ok() && !ticked.set_back.is_zero() {
            tracing::warn!(
                by_s = ticked.set_back.as_secs(),
                "the wall clock was set back; due times went with it"
            );
            self.shared.lease.settle(ticked.set_back);
        }
        written
    }

    async fn reap(&self, limit: u32) -> Result<u64, StoreError> {
        self.transact(Manner::URGENT, move |cx| match cx.clock_is_doubtful {
            true => Ok(0),
            // What a restored store remembers may be all that is known.
            false if cx.recovering => Ok(0),
            // A deleted workspace goes first: somebody asked for it.
            false if cx.purge()? => Ok(u64::from(limit)),
            false => {
                let reaped = upkeep::reap(cx.db, cx.now, limit, cx.journal)?;
                Ok(reaped.max(payloads::remove(cx, limit)?))
            }
        })
        .await
    }

    async fn recovery(&self) -> Result<Option<Recovery>, StoreError> {
        self.readers.read(recovery::current).await
    }

    async fn end_recovery(&self, reason: String, actor: String) -> Result<bool, StoreError> {
        let ended = self.transact(Manner::URGENT, move |cx| recovery::end(cx, &reason, &actor)).await?;
        self.shared.recovering.store(false, Ordering::Release);
        Ok(ended)
    }

    async fn vitals(&self) -> Result<Vitals, StoreError> {
        let (shared, dir) = (Arc::clone(&self.shared), self.dir.path().to_owned());
        self.readers
            .read(move |db| {
                let clock_is_doubtful = shared.lease.is_doubtful(shared.clock.read());
                Ok(Vitals { clock_is_doubtful, ..vitals::read(db, &dir, shared.now(), shared.boot)? })
            })
            .await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.transact(Manner::ASKING, |cx| vitals::probe(cx.db, cx.now)).await
    }

    async fn close(&self) {
        // Live time since the last tick counts, though the next start would not know of it. Harmless if it fails.
        let _ = self.tick().await;
        // The writer's connection goes last: it is the one that may remove the log.
        let _ = self.stops.count().await;
        self.readers.close().await;
        self.writer.close().await;
    }
}

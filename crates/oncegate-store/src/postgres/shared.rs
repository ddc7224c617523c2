//! What all calls of one node share: the pool, the secret, the cluster's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use oncegate_core::claim::Boot;
use oncegate_core::key::StoreSecret;
use oncegate_core::recovery::Restores;
use oncegate_core::time::Now;
use tokio::sync::Semaphore;

use super::clock::{self, ClusterClock};
use super::connection::Connection;
use super::error::Fault;
use super::store::TIME;
use super::{nodes, queries};
use crate::StoreError;
use crate::api::PolicyBook;
use crate::clock::Clock;
use crate::observer::Observer;

pub(super) struct Shared {
    pub(super) pool: Pool,
    /// How long a statement is waited for.
    pub(super) patience: Duration,
    pub(super) secret: StoreSecret,
    pub(super) boot: Boot,
    pub(super) node: (i32, i64),
    pub(super) name: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) simulated: bool,
    pub(super) cluster: ClusterClock,
    pub(super) policies: Arc<dyn PolicyBook>,
    pub(super) restores: Arc<Restores>,
    /// What this node can run, once it has said so: a JSON list.
    pub(super) runs: std::sync::RwLock<Option<Arc<str>>>,
    /// Until a person ends the recovery; as of the last tick.
    pub(super) recovering: AtomicBool,
    /// Another process has started under this node's name: this one does nothing any more.
    pub(super) superseded: AtomicBool,
    pub(super) observer: Arc<dyn Observer>,
    /// How much the database's clock had been set back, in all, at the last tick.
    pub(super) set_back: AtomicI64,
    /// Exports that may still begin.
    pub(super) exports: Arc<Semaphore>,
}

impl Shared {
    /// The time that stands in for the database's, if one does.
    pub(super) fn simulated_wall(&self) -> Option<i64> {
        self.simulated.then(|| self.clock.read().wall.as_millis())
    }

    /// The database has told the time.
    pub(super) fn heard(&self, now: Now) {
        let _ = self.cluster.at(now.wall.as_millis(), self.clock.read().monotonic);
    }

    pub(super) fn recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Both clocks at a moment that the database named; `None`: [`Shared::tick`] first.
    pub(super) fn at(&self, database: i64) -> Option<Now> {
        let reading = self.clock.read();
        let wall = if self.simulated { reading.wall.as_millis() } else { database };
        self.cluster.at(wall, reading.monotonic)
    }

    /// Both clocks as they should stand now.
    pub(super) fn estimate(&self) -> Now {
        self.cluster.estimate(self.simulated_wall(), self.clock.read().monotonic)
    }

    /// Ticks on a connection that is in no transaction; both clocks after it, and whether the database's clock was set
    /// back since this node ticked last.
    pub(super) async fn tick(&self, db: &Connection) -> Result<(Now, i64), Fault> {
        let reading = self.clock.read();
        let wall = self.simulated.then(|| reading.wall.as_millis());
        let sql = clock::tick_sql();
        let expected = self.cluster.expected(reading.monotonic);
        let ticked = queries::row_opt(db, &sql, &[&wall, &Some(expected)]).await?;
        let ticked = ticked.ok_or_else(|| StoreError::Inconsistent("the row of `clock` is gone".into()))?;
        let (anchor, set_back) = (nodes::anchor(&ticked), ticked.get::<_, i64>(2));
        self.cluster.anchor(anchor, reading.monotonic);
        let now = self.cluster.at(anchor.wall, reading.monotonic).unwrap_or_else(|| self.estimate());
        Ok((now, set_back))
    }

    /// The time, for reads: one more round trip, and the database's word.
    pub(super) async fn ask_time(&self, db: &Connection) -> Result<Now, Fault> {
        let row = queries::row_opt(db, TIME, &[]).await?;
        match row.and_then(|r| self.at(r.get(0))) {
            Some(now) => Ok(now),
            None => Ok(self.tick(db).await?.0),
        }
    }

    /// A connection for reading.
    pub(super) async fn reader(&self) -> Result<Connection, Fault> {
        Connection::of(&self.pool, self.patience).await
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// What a caller is told of a transaction that did not come to its end.
    pub(super) fn failed(&self, fault: Fault) -> StoreError {
        let error = match fault {
            Fault::Failed(error) => error,
            Fault::Again(why) => {
                tracing::warn!(why, "a transaction lost against others again and again");
                StoreError::Busy
            }
        };
        self.observer.failed(&error);
        error
    }

    /// Before another try: a little longer each time, and not all nodes at once.
    pub(super) async fn breathe(&self, tries: u32) {
        // The clock's own noise is random enough to tell two nodes apart.
        let noise = u64::from(self.clock.read().monotonic.subsec_nanos() % 7);
        let nap = Duration::from_millis(u64::from(tries.saturating_sub(1).min(10)) * (1 + noise));
        if !nap.is_zero() {
            tokio::time::sleep(nap).await;
        }
    }
}

//! One transaction of one workspace, safe to try again.
//!
//! Read committed, with the rows that are decided on locked, their versions compared when they are written, and unique
//! indexes for what two may both find absent: nothing here rests on an isolation that a distributed database does not
//! give, or on advisory locks (docs/postgresql.md).

use std::sync::Arc;

use oncegate_core::claim::Boot;
use oncegate_core::time::Now;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::connection::Connection;
use super::error::Fault;
use super::store::Shared;
use crate::StoreError;
use crate::observer::Journal;

/// Parameters of a statement.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// What every transition needs: an open transaction, and what the store is at that moment.
pub(super) struct Context<'a> {
    /// `None` only after the end.
    client: Option<Connection>,
    pub(super) shared: &'a Shared,
    pub(super) now: Now,
    pub(super) boot: Boot,
    pub(super) clock_is_doubtful: bool,
    pub(super) recovering: bool,
    /// What to tell whoever counts, once this is committed.
    pub(super) journal: Journal,
    began: std::time::Duration,
}

impl<'a> Context<'a> {
    /// Begins, and asks for the time, in one round trip.
    pub(super) async fn begin(shared: &'a Shared) -> Result<Self, Fault> {
        let client = shared.reader().await?;
        let began = shared.clock.read().monotonic;
        let mut this = Self {
            client: Some(client),
            shared,
            now: shared.estimate(),
            boot: shared.boot,
            clock_is_doubtful: false,
            recovering: shared.recovering(),
            journal: Journal::new(Arc::clone(&shared.observer)),
            began,
        };
        this.now = match this.start().await? {
            Some(now) => now,
            // The tick is a transaction of its own, on a table that every node writes to.
            None => {
                let client = this.client()?;
                client.batch_execute("ROLLBACK").await?;
                let (ticked, _) = shared.tick(client).await?;
                this.start().await?.unwrap_or(ticked)
            }
        };
        this.clock_is_doubtful = shared.cluster.is_doubtful(this.now);
        Ok(this)
    }

    async fn start(&self) -> Result<Option<Now>, Fault> {
        let time = self.prepare(super::store::TIME).await?;
        let client = self.client()?;
        let (begun, time) = tokio::join!(biased; client.batch_execute("BEGIN"), client.query_one(&time, &[]));
        begun?;
        Ok(self.shared.at(time?.get(0)))
    }

    fn client(&self) -> Result<&Connection, Fault> {
        self.client.as_ref().ok_or_else(|| StoreError::Closed.into())
    }

    async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        self.client()?.prepare_cached(sql).await
    }

    /// Every row.
    pub(super) async fn query(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        self.client()?.query(&statement, params).await
    }

    /// One row, or none.
    pub(super) async fn query_opt(&self, sql: &str, params: &Params<'_>) -> Result<Option<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        self.client()?.query_opt(&statement, params).await
    }

    /// Exactly one row.
    pub(super) async fn query_one(&self, sql: &str, params: &Params<'_>) -> Result<Row, Fault> {
        let statement = self.prepare(sql).await?;
        self.client()?.query_one(&statement, params).await
    }

    /// How many rows it touched.
    pub(super) async fn execute(&self, sql: &str, params: &Params<'_>) -> Result<u64, Fault> {
        let statement = self.prepare(sql).await?;
        self.client()?.execute(&statement, params).await
    }

    /// How many rows it touched, prepared for this once: for statements whose text differs from call to call.
    pub(super) async fn execute_once(&self, sql: &str, params: &Params<'_>) -> Result<u64, Fault> {
        self.client()?.execute(sql, params).await
    }

    /// Begins what can be undone by itself.
    pub(super) async fn savepoint(&self) -> Result<(), Fault> {
        self.client()?.batch_execute("SAVEPOINT alone").await
    }

    /// Keeps what was done since [`Context::savepoint`].
    pub(super) async fn keep(&self) -> Result<(), Fault> {
        self.client()?.batch_execute("RELEASE SAVEPOINT alone").await
    }

    /// Undoes what was done since [`Context::savepoint`].
    pub(super) async fn undo(&self) -> Result<(), Fault> {
        self.client()?.batch_execute("ROLLBACK TO SAVEPOINT alone; RELEASE SAVEPOINT alone").await
    }

    /// Commits. An error may mean that it is committed all the same: the answer can get lost.
    pub(super) async fn commit(mut self) -> Result<(), Fault> {
        let client = self.client()?;
        if let Err(fault) = client.batch_execute("COMMIT").await {
            return Err(match fault {
                // Also where the server says that it goes: it may have committed before it said so.
                Fault::Failed(StoreError::Away(why)) => Fault::Failed(StoreError::Unsure(why)),
                fault => fault,
            });
        }
        let took = self.shared.clock.read().monotonic.saturating_sub(self.began);
        self.journal.committed(1, took);
        // Back to the pool.
        drop(self.client.take());
        Ok(())
    }

    /// Undoes everything; the connection goes back to the pool, or is closed if it does not say that it did.
    pub(super) async fn roll_back(mut self) {
        if let Some(client) = self.client.take()
            // One that was silent a moment ago is not waited for again.
            && (client.is_silent() || client.batch_execute("ROLLBACK").await.is_err())
        {
            client.close();
        }
    }
}

/// Dropped in the midst of a transaction, because whoever asked has gone: the connection is closed, and the database
/// undoes what it did.
impl Drop for Context<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.close();
        }
    }
}

/// How often a transaction that lost against others is tried before the caller is told to come back.
pub(super) const TRIES: u32 = 20;

/// Runs `$body` in a transaction, and again from the start as long as it loses against another one. `$body` is an
/// expression that uses `.await` on methods of `$cx`, evaluates to `Result<_, Fault>`, and must not keep anything from
/// one try to the next.
macro_rules! transact {
    ($shared:expr, |$cx:ident| $body:expr) => {{
        let shared: &$crate::postgres::store::Shared = $shared;
        let mut tries = 0;
        loop {
            let outcome: Result<_, $crate::postgres::error::Fault> = async {
                let $cx = $crate::postgres::context::Context::begin(shared).await?;
                let done: Result<_, $crate::postgres::error::Fault> = $body;
                match done {
                    Ok(done) => {
                        $cx.commit().await?;
                        Ok(done)
                    }
                    Err(fault) => {
                        $cx.roll_back().await;
                        Err(fault)
                    }
                }
            }
            .await;
            match outcome {
                Ok(done) => break Ok(done),
                Err($crate::postgres::error::Fault::Again(why))
                    if tries < $crate::postgres::context::TRIES =>
                {
                    tries += 1;
                    tracing::debug!(tries, why, "a transaction lost against another one and is tried again");
                    shared.breathe(tries).await;
                }
                Err(fault) => break Err(shared.failed(fault)),
            }
        }
    }};
}
pub(super) use transact;

/// Reads: `$body` is an expression that uses `.await` on `$db` and evaluates to `Result<_, Fault>`.
macro_rules! read {
    ($self:expr, |$db:ident| $body:expr) => {{
        let outcome: Result<_, $crate::postgres::error::Fault> = async {
            let $db = $self.shared.reader().await?;
            $body
        }
        .await;
        outcome.map_err(|fault| $self.shared.failed(fault))
    }};
}
pub(super) use read;

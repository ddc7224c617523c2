//! A connection on loan from the pool, and how long it is waited for.
//!
//! The database ends what takes too long, and says so. One that stands still says nothing, and as long as its machine is
//! up, so does the network: whoever asked would wait for ever, and be told neither yes nor no.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool, Transaction};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Portal, Row, Statement, ToStatement};

use super::context::Params;
use super::error::Fault;
use crate::StoreError;

/// Answers, or fails, within a time that no statement of a server that works takes. Once it has not, it is closed
/// instead of going back to the pool: what it was asked may still be done, and its answer would be taken for another's
/// delay.
pub(super) struct Connection {
    /// `None` only after the end.
    object: Option<Object>,
    patience: Patience,
}

/// How long an answer is waited for, and whether one was waited for in vain.
struct Patience {
    most: Duration,
    is_over: AtomicBool,
}

impl Patience {
    async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(self.most, asked).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.is_over.store(true, Ordering::Release);
                let why = format!("it did not answer within {} s", self.most.as_secs());
                Err(StoreError::Away(why).into())
            }
        }
    }
}

impl Connection {
    /// One of the pool's; each statement is waited for this long.
    ///
    /// # Errors
    /// None came free, or none could be made.
    pub(super) async fn of(pool: &Pool, most: Duration) -> Result<Self, Fault> {
        let object = Some(pool.get().await?);
        Ok(Self { object, patience: Patience { most, is_over: AtomicBool::new(false) } })
    }

    fn client(&self) -> Result<&ClientWrapper, Fault> {
        self.object.as_deref().ok_or_else(|| StoreError::Closed.into())
    }

    /// Prepares a statement once for this connection.
    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Statement, Fault> {
        self.patience.answer(self.client()?.prepare_cached(sql)).await
    }

    /// Every row.
    pub(super) async fn query<T>(&self, statement: &T, params: &Params<'_>) -> Result<Vec<Row>, Fault>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.patience.answer(self.client()?.query(statement, params)).await
    }

    /// One row, or none.
    pub(super) async fn query_opt<T>(&self, statement: &T, params: &Params<'_>) -> Result<Option<Row>, Fault>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.patience.answer(self.client()?.query_opt(statement, params)).await
    }

    /// Exactly one row.
    pub(super) async fn query_one<T>(&self, statement: &T, params: &Params<'_>) -> Result<Row, Fault>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.patience.answer(self.client()?.query_one(statement, params)).await
    }

    /// How many rows it touched.
    pub(super) async fn execute<T>(&self, statement: &T, params: &Params<'_>) -> Result<u64, Fault>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.patience.answer(self.client()?.execute(statement, params)).await
    }

    /// Statements that give nothing back.
    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Fault> {
        self.patience.answer(self.client()?.batch_execute(sql)).await
    }

    /// A view of the store as it is at one moment, for more than one statement. Dropped, it ends.
    pub(super) async fn snapshot(&mut self) -> Result<Snapshot<'_>, Fault> {
        let Self { object, patience } = self;
        let client = object.as_deref_mut().ok_or(StoreError::Closed)?;
        let level = IsolationLevel::RepeatableRead;
        let begun = client.build_transaction().isolation_level(level).read_only(true).start();
        Ok(Snapshot { transaction: patience.answer(begun).await?, patience })
    }

    /// Whether an answer was waited for in vain.
    pub(super) fn is_silent(&self) -> bool {
        self.patience.is_over.load(Ordering::Acquire)
    }

    /// Closes it, whatever it is in the midst of; the database undoes what was not committed.
    pub(super) fn close(mut self) {
        drop(self.object.take().map(Object::take));
    }

    /// Takes it out of the pool, which makes another one in its place, and away from what bounds it here.
    pub(super) fn leave(mut self) -> Result<ClientWrapper, Fault> {
        self.object.take().map(Object::take).ok_or_else(|| StoreError::Closed.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_silent() {
            return;
        }
        let Some(object) = self.object.take() else { return };
        // The others stand as still as this one. A new one shows in a moment whether there is somebody to connect to.
        if let Some(pool) = Object::pool(&object) {
            pool.retain(|_, _| false);
        }
        drop(Object::take(object));
    }
}

/// One moment of the store.
pub(super) struct Snapshot<'a> {
    transaction: Transaction<'a>,
    patience: &'a Patience,
}

impl Snapshot<'_> {
    /// Every row.
    pub(super) async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        self.patience.answer(self.transaction.query(sql, params)).await
    }

    /// One row, or none.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Fault> {
        self.patience.answer(self.transaction.query_opt(sql, params)).await
    }

    /// Rows of one statement, to be fetched some at a time.
    pub(super) async fn portal(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Portal, Fault> {
        self.patience.answer(portal(&self.transaction, sql, params)).await
    }

    /// The next rows of a portal.
    pub(super) async fn query_portal(&self, portal: &Portal, rows: i32) -> Result<Vec<Row>, Fault> {
        self.patience.answer(self.transaction.query_portal(portal, rows)).await
    }
}

/// Rows of one statement, as they were when it began, to be fetched some at a time.
pub(super) async fn portal(
    db: &Transaction<'_>,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Portal, tokio_postgres::Error> {
    let statement = db.prepare(sql).await?;
    db.bind(&statement, params).await
}

//! Read-only connections, a few, lent to one query at a time. They never wait for the writer (WAL).

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::stops::Stops;
use crate::StoreError;

pub(super) struct Readers {
    /// What is answered and not counted yet is counted before anybody reads.
    stops: OnceLock<Arc<Stops>>,
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
    count: u32,
}

impl Readers {
    pub(super) fn open(path: &Path, count: u32) -> Result<Self, StoreError> {
        let connections = (0..count).map(|_| connect(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            stops: OnceLock::new(),
            idle: Arc::new(Mutex::new(connections)),
            free: Arc::new(Semaphore::new(count as usize)),
            count,
        })
    }

    pub(super) fn count_before(&self, stops: Arc<Stops>) {
        // Once, when the store opens.
        let _ = self.stops.set(stops);
    }

    /// Waits for the queries that run and ends the rest.
    pub(super) async fn close(&self) {
        // Fair: who asked before this still reads. An error means that it is closed already.
        let _all = self.free.acquire_many(self.count).await;
        self.free.close();
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// Runs a query on a thread that may block.
    pub(super) async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        if let Some(stops) = self.stops.get() {
            // If it fails, that is told there; what is counted can be read all the same.
            let _ = stops.count().await;
        }
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let idle = Arc::clone(&self.idle);
        tokio::task::spawn_blocking(move || {
            let lock = || idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // There are as many permits as connections.
            let connection = lock().pop().ok_or(StoreError::Closed)?;
            let answer = query(&connection);
            lock().push(connection);
            drop(permit);
            answer
        })
        .await
        // Not its message: that may quote a row.
        .map_err(|_| StoreError::Database("a query panicked".into()))?
    }
}

impl Readers {
    /// Runs a query of a few rows here and now, for callers that would wait longer for a thread than for it. `None`:
    /// every connection is lent.
    pub(super) fn read_at_once<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let permit = self.free.try_acquire().ok()?;
        let lock = || self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let connection = lock().pop()?;
        let answer = query(&connection);
        lock().push(connection);
        drop(permit);
        Some(answer)
    }
}

pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    super::connection::keep_plans(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

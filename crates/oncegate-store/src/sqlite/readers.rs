//! Read-only connections, a few, lent to one query at a time. They never wait for the writer (WAL).

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::StoreError;

#[derive(Debug)]
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
    count: u32,
}

impl Readers {
    pub(super) fn open(path: &Path, count: u32) -> Result<Self, StoreError> {
        let connections = (0..count).map(|_| connect(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            idle: Arc::new(Mutex::new(connections)),
            free: Arc::new(Semaphore::new(count as usize)),
            count,
        })
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

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    super::store::keep_plans(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

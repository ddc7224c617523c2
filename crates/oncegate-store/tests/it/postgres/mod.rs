//! What is particular to the store on PostgreSQL.

use std::sync::Arc;

use oncegate_core::secret::Secret;
use oncegate_store::Store;
use oncegate_store::api::PolicyBook;
use oncegate_store::clock::{Clock, ManualClock};
use oncegate_store::postgres::{Limits, Options, PgStore};
use oncegate_testing::{Database, Postgres};

use crate::conformance::{Backend, MORNING, Policies};

mod forgetting;
mod reach;
mod recovery;
mod schema;

/// A database for one cluster, for the conformance suite.
pub(crate) struct Cluster<'s> {
    database: Database<'s>,
}

impl Cluster<'static> {
    pub(crate) fn new() -> Self {
        Self { database: Postgres::shared().database() }
    }
}

impl<'s> Cluster<'s> {
    /// On a server of the test's own.
    pub(crate) fn of(server: &'s Postgres) -> Self {
        Self { database: server.database() }
    }

    /// Runs SQL as the administrator: rows are lines, columns are parted by `|`.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    /// A node that goes by this clock.
    pub(crate) async fn node(&self, name: &str, clock: &Arc<ManualClock>) -> PgStore {
        let clock = Arc::clone(clock) as _;
        PgStore::open(&Options { clock, ..self.options(name) }).await.unwrap()
    }

    /// A node that goes by the clock it is given.
    pub(crate) fn options(&self, node: &str) -> Options {
        Options {
            url: Secret::new(self.database.url().into_bytes()),
            node: node.into(),
            clock: Arc::new(ManualClock::at(MORNING)),
            simulated: true,
            policies: Arc::new(Policies),
            fresh_secret: [7; 32],
            limits: Limits { connections: 4, ..Limits::default() },
        }
    }
}

#[async_trait::async_trait]
impl Backend for Cluster<'static> {
    async fn open(&self, clock: Arc<dyn Clock>, policies: Arc<dyn PolicyBook>) -> Arc<dyn Store> {
        Arc::new(PgStore::open(&Options { clock, policies, ..self.options("a") }).await.unwrap())
    }
}

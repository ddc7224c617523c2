//! A look at a database from outside, for `oncegate doctor`: no node joins, nothing is made or written.

use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;

use super::error::Fault;
use super::migrations::{STEPS, fatal};
use super::moving::MOVING;
use super::nodes::SILENT_MS;
use super::options::{Limits, Target, Tls};
use super::pool;
use super::row::ts;
use crate::StoreError;
use crate::clock::Clock;
use crate::nodes::NodeRow;

/// What a look found.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The server's version, e.g. `15.4`.
    pub version: String,
    /// Whether it is a standby, which cannot be written to.
    pub is_standby: bool,
    /// `on`, `remote_apply`, …: `off` is refused before it comes here.
    pub synchronous_commit: String,
    /// `on`, or a crash of the machine may lose everything.
    pub fsync: String,
    /// Whether what is sent is encrypted.
    pub encrypted: bool,
    /// By how many milliseconds the database's clock is ahead of this machine's, as far as the way there lets tell.
    pub ahead_ms: i64,
    /// How long that way takes, there and back, in milliseconds: the difference is no better known than that.
    pub way_ms: i64,
    /// The schema that is there; `None`: no oncegate has been there yet.
    pub schema: Option<i64>,
    /// The newest schema that this program knows.
    pub schema_known: i64,
    /// Connections that the server takes at most, those for its administrators not counted.
    pub connections_max: i64,
    /// Connections that each node makes at most.
    pub connections_of_a_node: i64,
    /// It is in recovery: nothing of it runs until somebody ends that.
    pub recovering: bool,
    /// A store is being moved into it, or that was taken back: no node starts on it.
    pub unfinished_move: bool,
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Its nodes, by name; none is "me".
    pub nodes: Vec<NodeRow>,
}

/// Looks at a database.
///
/// # Errors
/// It cannot be reached, or cannot be worked with.
pub async fn inspect(url: &Secret, clock: &dyn Clock) -> Result<Inspection, StoreError> {
    look(url, clock).await.map_err(fatal)
}

async fn look(url: &Secret, clock: &dyn Clock) -> Result<Inspection, Fault> {
    let limits = Limits { connections: 1, ..Limits::default() };
    let target = Target::parse(url)?;
    let encrypted = target.tls != Tls::Off;
    let pool = pool::make(target, "doctor", &limits)?;
    let db = pool.get().await?;
    let before = clock.read();
    let at: i64 =
        db.query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]).await?.get(0);
    let after = clock.read();
    let way_ms =
        i64::try_from((after.monotonic.saturating_sub(before.monotonic)).as_millis()).unwrap_or(i64::MAX);
    let r = db
        .query_one(
            "SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('synchronous_commit'), \
             current_setting('fsync'), current_setting('max_connections')::bigint \
               - current_setting('superuser_reserved_connections')::bigint, pg_database_size(current_database())",
            &[],
        )
        .await?;
    let has = |table: &'static str| {
        let db = &db;
        async move {
            let there =
                db.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("oncegate.{table}")]).await?;
            Ok::<bool, Fault>(there.get(0))
        }
    };
    let meta = match has("meta").await? {
        true => {
            db.query("SELECT name, value FROM meta WHERE name IN ('schema', 'recovery', $1)", &[&MOVING])
                .await?
        }
        false => Vec::new(),
    };
    let meta = |name: &str| meta.iter().find(|r| r.get::<_, &str>(0) == name).map(|r| r.get::<_, String>(1));
    let nodes = match has("nodes").await? {
        true => {
            let sql = "SELECT name, start, seen_at, ended_at IS NULL AND seen_at > $1, version FROM nodes ORDER BY name";
            db.query(sql, &[&(at - SILENT_MS)]).await?
        }
        false => Vec::new(),
    };
    let node = |r: &tokio_postgres::Row| NodeRow {
        name: r.get(0),
        start: u32::try_from(r.get::<_, i64>(1)).unwrap_or(u32::MAX),
        seen_at: ts(r.get(2)),
        alive: r.get(3),
        version: r.get(4),
        is_me: false,
    };
    Ok(Inspection {
        version: r.get(0),
        is_standby: r.get(1),
        synchronous_commit: r.get(2),
        fsync: r.get(3),
        encrypted,
        ahead_ms: Timestamp::from_millis(at).as_millis() - before.wall.as_millis() - way_ms / 2,
        way_ms,
        schema: meta("schema").and_then(|value| value.parse().ok()),
        schema_known: i64::try_from(STEPS.len()).unwrap_or(i64::MAX),
        connections_max: r.get(4),
        connections_of_a_node: i64::try_from(Limits::default().connections).unwrap_or(i64::MAX),
        recovering: meta("recovery").is_some(),
        unfinished_move: meta(MOVING).is_some(),
        database_bytes: r.get::<_, i64>(5).unsigned_abs(),
        nodes: nodes.iter().map(node).collect(),
    })
}

//! Nodes: many processes on one database, each known by its name.

use std::time::Duration;

use deadpool_postgres::Pool;
use oncegate_core::claim::{Boot, NodeNumber};
use oncegate_core::recovery::Restores;

use super::clock::{self, Anchor, WALL_SQL};
use super::error::Fault;
use super::migrations::fatal;
use super::options::Options;
use crate::StoreError;
use crate::api::{Recovery, Workspace};

/// A node that has not been heard of for this long does not run any more: three ticks.
pub(super) const SILENT_MS: i64 = 15_000;

/// What a node knows once it is one of the cluster.
pub(super) struct Joined {
    pub(super) number: i32,
    pub(super) start: i64,
    pub(super) secret: [u8; 32],
    pub(super) anchor: Anchor,
    pub(super) wall: i64,
    pub(super) restores: Restores,
    pub(super) recovering: bool,
}

impl Joined {
    /// This start of this node.
    pub(super) fn boot(&self) -> Boot {
        // Neither comes near its end; one that did would have leases end by their TTL.
        let start = u32::try_from(self.start).unwrap_or(u32::MAX);
        Boot { node: NodeNumber(self.number.unsigned_abs()), start }
    }
}

/// Joins the cluster. If another process runs under this name, waits as long as it takes to tell one that was killed
/// from one that lives.
///
/// # Errors
/// The name is in use, or the database fails.
pub(super) async fn join(pool: &Pool, options: &Options) -> Result<Joined, StoreError> {
    let mut waited = Duration::ZERO;
    let mut heard = None;
    loop {
        match try_join(pool, options).await {
            Ok(Ok(joined)) => return Ok(joined),
            Ok(Err(seen_at)) => {
                let first = *heard.get_or_insert(seen_at);
                if seen_at > first {
                    return Err(StoreError::Refused(format!(
                        "another oncegate runs as node `{}` on this database; give this one a name of its own with \
                         --node, or stop that one",
                        options.node
                    )));
                }
                if waited.is_zero() {
                    tracing::info!(
                        node = options.node,
                        "this node did not end in good order; waiting until it is sure to be gone"
                    );
                }
                waited += Duration::from_millis(500);
                options.clock.sleep(Duration::from_millis(500)).await;
            }
            Err(Fault::Again(why)) if waited < Duration::from_secs(20) => {
                tracing::debug!(why, "joining again");
                waited += Duration::from_millis(50);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(fault) => return Err(fatal(fault)),
        }
    }
}

/// `Err` within: somebody ran under this name a moment ago, and did not end in good order.
async fn try_join(pool: &Pool, options: &Options) -> Result<Result<Joined, i64>, Fault> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let simulated = options.simulated.then(|| options.clock.read().wall.as_millis());
    let wall: i64 =
        tx.query_one(&format!("SELECT coalesce($1::bigint, {WALL_SQL})"), &[&simulated]).await?.get(0);
    let secret = data_encoding::HEXLOWER.encode(&options.fresh_secret);
    tx.execute("INSERT INTO meta (name, value) VALUES ('secret', $1) ON CONFLICT DO NOTHING", &[&secret])
        .await?;
    tx.execute("INSERT INTO clock (id, lease, wall) VALUES (1, 0, $1) ON CONFLICT DO NOTHING", &[&wall])
        .await?;
    tx.execute(
        "INSERT INTO workspaces (id, name, created_at) VALUES ($1, 'default', $2) ON CONFLICT DO NOTHING",
        &[&Workspace::DEFAULT.0, &wall],
    )
    .await?;
    // From here on one after the other: whoever joins holds the clock.
    tx.query_one("SELECT 1 FROM clock WHERE id = 1 FOR UPDATE", &[]).await?;
    if let Some(text) = super::moving::mark(&tx).await? {
        return Err(super::moving::unfinished(&text).into());
    }
    let mine = tx
        .query_opt(
            "SELECT number, start, seen_at, ended_at IS NULL AND seen_at > $2::bigint - $3::bigint FROM nodes WHERE name = $1",
            &[&options.node, &wall, &SILENT_MS],
        )
        .await?;
    // A test's clock stands still while a process of the test is made anew.
    if let Some(r) = &mine
        && r.get::<_, bool>(3)
        && !options.simulated
    {
        return Ok(Err(r.get(2)));
    }
    let others: bool = tx
        .query_one(
            "SELECT EXISTS (SELECT 1 FROM nodes WHERE name <> $1 AND ended_at IS NULL AND seen_at > $2::bigint - $3::bigint)",
            &[&options.node, &wall, &SILENT_MS],
        )
        .await?
        .get(0);
    let version = env!("CARGO_PKG_VERSION");
    let (number, start): (i32, i64) = match mine {
        Some(r) => (r.get(0), r.get::<_, i64>(1) + 1),
        None => (tx.query_one("SELECT coalesce(max(number), 0) + 1 FROM nodes", &[]).await?.get(0), 1),
    };
    tx.execute(
        "INSERT INTO nodes (number, name, start, seen_at, version) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (number) DO UPDATE SET start = excluded.start, seen_at = excluded.seen_at, ended_at = NULL, \
         version = excluded.version, runs = '[]'",
        &[&number, &options.node, &start, &wall, &version],
    )
    .await?;
    // Nobody was there to tick: the time in between did not count, and ages nothing.
    if !others {
        tx.execute(clock::WAKE, &[&wall]).await?;
    }
    let ticked = tx.query_one(&clock::tick_sql(), &[&Some(wall), &None::<i64>]).await?;
    let value = |name: &'static str| {
        let tx = &tx;
        async move { tx.query_opt("SELECT value FROM meta WHERE name = $1", &[&name]).await }
    };
    let secret = value("secret").await?.map(|r| r.get::<_, String>(0)).unwrap_or_default();
    let restores = value("restores").await?.map(|r| r.get::<_, String>(0));
    let recovering = value("recovery").await?.is_some();
    let joined = Joined {
        number,
        start,
        secret: self::secret(&secret)
            .ok_or_else(|| StoreError::Inconsistent("the store's secret is not 32 bytes long".into()))?,
        anchor: anchor(&ticked),
        wall,
        restores: match restores {
            Some(text) => serde_json::from_str(&text).map_err(super::error::unreadable)?,
            None => Restores::default(),
        },
        recovering,
    };
    tx.commit().await?;
    Ok(Ok(joined))
}

/// The store's secret, as it stands in `meta`.
pub(super) fn secret(text: &str) -> Option<[u8; 32]> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Reads what a tick returns.
pub(super) fn anchor(ticked: &tokio_postgres::Row) -> Anchor {
    Anchor { lease: ticked.get(0), wall: ticked.get(1), doubtful_until: ticked.get(3) }
}

/// The recovery that a store is in, as it stands in `meta`.
pub(super) fn recovery(text: Option<String>) -> Result<Option<Recovery>, StoreError> {
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| {
        StoreError::Inconsistent(format!("what the store says of its recovery is unreadable: {e}"))
    })
}

//! The handful of values a store keeps about itself.

use std::path::Path;

use oncegate_core::claim::Boot;
use oncegate_core::key::StoreSecret;
use oncegate_core::limits;
use oncegate_core::recovery::Restores;
use oncegate_core::time::{LeaseInstant, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreError;
use crate::api::Workspace;

/// What a store reads about itself when it opens.
pub(super) struct Meta {
    pub(super) secret: StoreSecret,
    pub(super) boot: Boot,
    pub(super) lease: LeaseInstant,
    /// The wall clock at the last tick.
    pub(super) last_wall: Option<Timestamp>,
    pub(super) restores: Restores,
    pub(super) recovering: bool,
}

/// Makes the secret and the default workspace at the first opening, and counts this start. Refuses a store in `dir`
/// that was moved elsewhere.
pub(super) fn open(
    db: &mut Connection,
    dir: &Path,
    fresh_secret: [u8; 32],
    now: Timestamp,
) -> Result<Meta, StoreError> {
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    super::moving::not_moved(&tx, dir)?;
    tx.execute(
        "INSERT INTO meta (name, value) VALUES ('secret', ?1) ON CONFLICT DO NOTHING",
        params![&fresh_secret[..]],
    )?;
    tx.execute(
        "INSERT INTO workspaces (id, name, created_at) VALUES (?1, 'default', ?2) ON CONFLICT DO NOTHING",
        params![Workspace::DEFAULT.0, now.as_millis()],
    )?;
    tx.execute(
        "INSERT INTO meta (name, value) VALUES ('boot', 1) ON CONFLICT DO UPDATE SET value = value + 1",
        [],
    )?;
    let secret: Vec<u8> = value(&tx, "secret")?.unwrap_or_default();
    let boot: i64 = value(&tx, "boot")?.unwrap_or_default();
    let lease: i64 = value(&tx, "lease")?.unwrap_or_default();
    let last_wall: Option<i64> = value(&tx, "wall")?;
    let set_back = last_wall.map(|ms| Timestamp::from_millis(ms).since(now)).unwrap_or_default();
    if set_back > limits::CLOCK_SLACK {
        super::upkeep::shift_due(&tx, set_back, now)?;
        // Or a start that ends before its first tick would move them again.
        set_clocks(&tx, LeaseInstant(lease), now)?;
    }
    let restores = super::recovery::restores(&tx)?;
    let recovering = super::recovery::current(&tx)?.is_some();
    tx.commit()?;
    let secret = <[u8; 32]>::try_from(secret)
        .map_err(|_| StoreError::Inconsistent("the store's secret is not 32 bytes long".into()))?;
    // One process owns this store, so it is the only node. No number of starts comes near the end of it; one that did
    // would have leases end by their TTL.
    let boot = Boot::alone(u32::try_from(boot).unwrap_or(u32::MAX));
    Ok(Meta {
        secret: StoreSecret::new(secret),
        boot,
        lease: LeaseInstant(lease),
        last_wall: last_wall.map(Timestamp::from_millis),
        restores,
        recovering,
    })
}

/// Writes one of the values.
pub(super) fn set_value(db: &Connection, name: &str, value: &dyn rusqlite::ToSql) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value",
    )?
    .execute(params![name, value])?;
    Ok(())
}

/// Reads one of the values.
pub(super) fn value<T: rusqlite::types::FromSql>(
    db: &Connection,
    name: &str,
) -> Result<Option<T>, StoreError> {
    Ok(db.query_row("SELECT value FROM meta WHERE name = ?1", [name], |r| r.get(0)).optional()?)
}

/// Writes both clocks down: the lease clock goes on from there, the wall clock is compared to it.
pub(super) fn set_clocks(db: &Connection, lease: LeaseInstant, wall: Timestamp) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO meta (name, value) VALUES ('lease', ?1), ('wall', ?2) \
         ON CONFLICT DO UPDATE SET value = excluded.value",
    )?
    .execute([lease.0, wall.as_millis()])?;
    Ok(())
}

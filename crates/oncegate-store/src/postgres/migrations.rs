//! The schema, made and carried on by whichever node starts first. It stands in a schema of its own, `oncegate`, so
//! that it can share a database.

use deadpool_postgres::{Object, Pool};

use super::error::Fault;
use crate::StoreError;

/// Each step in turn; a released one is never changed.
pub(super) const STEPS: [&str; 6] = [
    include_str!("../../migrations/postgres/0001_store.sql"),
    include_str!("../../migrations/postgres/0002_order.sql"),
    include_str!("../../migrations/postgres/0003_review.sql"),
    include_str!("../../migrations/postgres/0004_fair.sql"),
    include_str!("../../migrations/postgres/0005_positions.sql"),
    include_str!("../../migrations/postgres/0006_set_aside.sql"),
];

/// The oldest server that is known to do all that is asked of it (`server_version_num`).
const OLDEST: i32 = 140_000;

/// Makes what is missing. Several nodes may do this at once: what one makes, the others find.
pub(super) async fn migrate(pool: &Pool) -> Result<(), StoreError> {
    let mut tries = 0;
    loop {
        let client = pool.get().await.map_err(Fault::from).map_err(fatal)?;
        fit(&client).await?;
        match step_up(&client).await {
            Ok(()) => return Ok(()),
            // Another node was quicker: whatever it made, a second look finds.
            Err(_) if tries < 20 && !client.is_closed() => {
                tries += 1;
                let _ = client.batch_execute("ROLLBACK").await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(fault) => return Err(fatal(fault)),
        }
    }
}

pub(super) fn fatal(fault: Fault) -> StoreError {
    match fault {
        Fault::Failed(error) => error,
        Fault::Again(why) => StoreError::Database(why),
    }
}

async fn fit(client: &Object) -> Result<(), StoreError> {
    let found = client
        .query_one("SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), version()", &[])
        .await
        .map_err(|e| fatal(e.into()))?;
    let (version, is_standby, words): (i32, bool, String) = (found.get(0), found.get(1), found.get(2));
    if version < OLDEST {
        return Err(StoreError::Refused(format!(
            "the database is {words}; oncegate needs PostgreSQL 14 or later: upgrade it, or use another one"
        )));
    }
    if is_standby {
        return Err(StoreError::Refused(
            "the database is a standby that cannot be written to; name the primary in --store".into(),
        ));
    }
    Ok(())
}

async fn step_up(client: &Object) -> Result<(), Fault> {
    let known = STEPS.len();
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS oncegate").await?;
    client.batch_execute("BEGIN").await?;
    let has_meta: bool =
        client.query_one("SELECT to_regclass('oncegate.meta') IS NOT NULL", &[]).await?.get(0);
    let found: usize = match has_meta {
        false => 0,
        true => {
            // The row is locked, so that two nodes do not take the same step.
            let row =
                client.query_opt("SELECT value FROM meta WHERE name = 'schema' FOR UPDATE", &[]).await?;
            row.and_then(|r| r.get::<_, String>(0).parse().ok()).unwrap_or(0)
        }
    };
    if found > known {
        return Err(Fault::Failed(StoreError::Refused(format!(
            "the database was written by a newer oncegate (schema {found}, this one knows {known}); run that version \
             on this node, too"
        ))));
    }
    for step in &STEPS[found..] {
        client.batch_execute(step).await?;
    }
    if found < known {
        client
            .execute(
                "INSERT INTO meta (name, value) VALUES ('schema', $1) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                &[&known.to_string()],
            )
            .await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

//! Payloads, and what steps were answered, go some time after done. Keys, states, results, history and fingerprints
//! stay: duplicates are told apart as before.

use std::collections::BTreeSet;

use oncegate_core::key::{AutomationName, Workspace};

use super::context::{Context, read, transact};
use super::error::Fault;
use super::queries;
use super::store::PgStore;
use crate::StoreError;

/// A claim, and the moment before which its automation's payloads go.
type Due = (Vec<u8>, i64);

/// Removes at most `limit` of a workspace; as many as that means that there may be more. What a person still has to
/// look at keeps what there is to see.
pub(super) async fn remove(store: &PgStore, workspace: Workspace, limit: i64) -> Result<u64, StoreError> {
    if limit == 0 {
        return Ok(0);
    }
    let due = read!(store, |db| {
        let now = store.shared.ask_time(&db).await?;
        let sql = "SELECT id, name FROM automations WHERE workspace_id = $1";
        let (mut ids, mut cuts) = (vec![], vec![]);
        for r in queries::rows(&db, sql, &[&workspace.0]).await? {
            let number: i64 = r.get(0);
            let Ok(name) = AutomationName::try_from(r.get::<_, &str>(1)) else {
                tracing::error!(
                    automation = number,
                    "payloads of an automation with an unreadable name stay"
                );
                continue;
            };
            let policy = store.shared.policies.policy(workspace, &name);
            ids.push(number);
            cuts.push(now.wall.before(policy.payload_retention()).as_millis());
        }
        let rows = queries::rows(
            &db,
            "SELECT c.claim_id, a.cut FROM unnest($2::bigint[], $3::bigint[]) AS a (id, cut) CROSS JOIN LATERAL \
             (SELECT claim_id FROM claims WHERE workspace_id = $1 AND automation_id = a.id AND done_at <= a.cut \
             AND done_at IS NOT NULL AND payload_removed_at IS NULL AND mismatch_at IS NULL AND late_at IS NULL \
             ORDER BY done_at LIMIT $4) c LIMIT $4",
            &[&workspace.0, &ids, &cuts, &limit],
        )
        .await?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect::<Vec<Due>>())
    })?;
    if due.is_empty() {
        return Ok(0);
    }
    let removed: u64 = transact!(&store.shared, |cx| cx.remove_payloads(workspace, &due).await)?;
    let found = due.len() as u64;
    Ok(if found >= limit.unsigned_abs() { found } else { removed })
}

impl Context<'_> {
    /// How many of the claims had something to remove.
    async fn remove_payloads(&self, workspace: Workspace, due: &[Due]) -> Result<u64, Fault> {
        if self.clock_is_doubtful {
            return Ok(0);
        }
        let (ids, cuts): (Vec<&[u8]>, Vec<i64>) = due.iter().map(|(id, cut)| (&id[..], *cut)).unzip();
        // A person who wants one of them run again waits for this, or this passes it over.
        let locked = self
            .query(
                "SELECT c.claim_id FROM claims c JOIN unnest($2::bytea[], $3::bigint[]) AS u (id, cut) \
                 ON c.claim_id = u.id WHERE c.workspace_id = $1 AND c.done_at <= u.cut \
                 AND c.payload_removed_at IS NULL AND c.mismatch_at IS NULL AND c.late_at IS NULL \
                 ORDER BY c.position FOR UPDATE OF c SKIP LOCKED",
                &[&workspace.0, &ids, &cuts],
            )
            .await?;
        let ids: Vec<&[u8]> = locked.iter().map(|r| r.get(0)).collect();
        let mut had: BTreeSet<Vec<u8>> = BTreeSet::new();
        for sql in [
            "DELETE FROM payloads WHERE workspace_id = $1 AND claim_id = ANY($2) RETURNING claim_id",
            "UPDATE step_calls SET answer = NULL WHERE workspace_id = $1 AND claim_id = ANY($2) \
             AND answer IS NOT NULL RETURNING claim_id",
            // Of other payloads that came under this key, and were looked at.
            "UPDATE deliveries SET headers = NULL, body = NULL, body_hash = NULL WHERE workspace_id = $1 \
             AND claim_id = ANY($2) AND verdict = 'mismatch' AND body IS NOT NULL RETURNING claim_id",
        ] {
            had.extend(self.query(sql, &[&workspace.0, &ids]).await?.iter().map(|r| r.get::<_, Vec<u8>>(0)));
        }
        let removed: Vec<&[u8]> = had.iter().map(|id| &id[..]).collect();
        self.execute(
            "UPDATE claims SET payload_removed_at = CASE WHEN claim_id = ANY($3) THEN $4::bigint ELSE 0 END \
             WHERE workspace_id = $1 AND claim_id = ANY($2)",
            &[&workspace.0, &ids, &removed, &self.now.wall.as_millis()],
        )
        .await?;
        Ok(had.len() as u64)
    }
}

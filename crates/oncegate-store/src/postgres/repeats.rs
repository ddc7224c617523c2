//! Finds the claim that another one repeats by its automation's second-level rule.

use oncegate_core::decide::Original;
use oncegate_core::key::{ClaimRef, IdempotencyKey};

use super::context::Context;
use super::error::{Fault, unreadable};
use super::row::{Stored, claim_id};
use super::transition::Place;
use crate::transition::claim::Repeat;

impl Context<'_> {
    /// Holds the automation's row until the end: whoever else holds it decides before this, or after.
    pub(super) async fn hold_automation(&self, place: &Place) -> Result<(), Fault> {
        let sql = "SELECT id FROM automations WHERE workspace_id = $1 AND id = $2 FOR UPDATE";
        self.query_one(sql, &[&place.workspace.0, &place.automation_id]).await?;
        Ok(())
    }

    /// The claim that one repeats. Two that are like each other come under different keys, so no row and no index tells
    /// them apart: whoever looks holds the automation's row until the end, and the second finds the first.
    pub(super) async fn original(
        &self,
        wanted: Repeat,
        (id, place): (ClaimRef, &Place),
        stored: Option<&Stored>,
    ) -> Result<Option<Original>, Fault> {
        let workspace = place.workspace.0;
        let found = match wanted {
            Repeat::None => None,
            Repeat::Known(original) => {
                self.query_opt(
                    "SELECT claim_id, idempotency_key FROM claims WHERE workspace_id = $1 AND claim_id = $2",
                    &[&workspace, &&original.0[..]],
                )
                .await?
            }
            Repeat::Like(likeness) => {
                self.hold_automation(place).await?;
                let (position, seen) =
                    stored.map_or((i64::MAX, self.now.wall), |s| (s.view.row, s.view.created_at));
                self.query_opt(
                    "SELECT claim_id, idempotency_key FROM claims WHERE workspace_id = $1 AND automation_id = $2 \
                     AND likeness = $3 AND repeat_of IS NULL AND created_at > $4 AND position < $5 \
                     AND claim_id <> $6 ORDER BY created_at, position LIMIT 1",
                    &[
                        &workspace,
                        &place.automation_id,
                        &&likeness.hash[..],
                        &seen.before(likeness.within).as_millis(),
                        &position,
                        &&id.id.0[..],
                    ],
                )
                .await?
            }
        };
        let Some(found) = found else { return Ok(None) };
        let id = claim_id(found.get(0))?;
        let key = IdempotencyKey::try_from(found.get::<_, &str>(1))
            .map_err(|e| unreadable(format!("claim {id}: {e}")))?;
        Ok(Some(Original { id, key }))
    }
}

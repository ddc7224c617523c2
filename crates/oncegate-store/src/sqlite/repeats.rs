//! Finds the claim that another one repeats by its automation's second-level rule.

use oncegate_core::decide::Original;
use oncegate_core::key::{ClaimId, ClaimRef, IdempotencyKey};
use rusqlite::{OptionalExtension, params};

use super::row::Stored;
use super::transition::{Context, Place};
use crate::StoreError;
use crate::transition::claim::Repeat;

impl Context<'_> {
    /// The claim that one repeats.
    pub(super) fn original(
        &self,
        wanted: Repeat,
        (id, place): (ClaimRef, &Place),
        stored: Option<&Stored>,
    ) -> Result<Option<Original>, StoreError> {
        let found: Option<([u8; 16], String)> = match wanted {
            Repeat::None => None,
            Repeat::Known(original) => self
                .db
                .prepare_cached(
                    "SELECT claim_id, idempotency_key FROM claims WHERE claim_id = ?1 AND workspace_id = ?2",
                )?
                .query_row(params![&original.0[..], place.workspace.0], |r| Ok((r.get(0)?, r.get(1)?)))
                .optional()?,
            Repeat::Like(likeness) => {
                let (row, seen) = stored.map_or((i64::MAX, self.now.wall), |s| (s.row, s.view.created_at));
                let since = seen.before(likeness.within).as_millis();
                self.db
                    .prepare_cached(
                        "SELECT claim_id, idempotency_key FROM claims WHERE workspace_id = ?1 AND automation_id = ?2 \
                         AND likeness = ?3 AND repeat_of IS NULL AND created_at > ?4 AND id < ?5 AND claim_id <> ?6 \
                         ORDER BY created_at, id LIMIT 1",
                    )?
                    .query_row(
                        params![
                            place.workspace.0,
                            place.automation_id,
                            &likeness.hash[..],
                            since,
                            row,
                            &id.id.0[..]
                        ],
                        |r| Ok((r.get(0)?, r.get(1)?)),
                    )
                    .optional()?
            }
        };
        let Some((id, key)) = found else { return Ok(None) };
        let key = IdempotencyKey::try_from(key.as_str())
            .map_err(|e| StoreError::Inconsistent(format!("claim {}: {e}", ClaimId(id))))?;
        Ok(Some(Original { id: ClaimId(id), key }))
    }
}

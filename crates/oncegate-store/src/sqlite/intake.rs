//! Deliveries: verified requests with their events, and those that are kept apart.

use oncegate_core::decide::{Decision, Request, Start, StopReason};
use oncegate_core::key::{AutomationName, ClaimId};
use oncegate_core::limits;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::ts;
use super::transition::Context;
use crate::StoreError;
use crate::api::{
    AdmitCall, AdmitEvent, Admitted, ClaimCall, DeliveryRow, Page, Payload, Target, UnverifiedCall, Workspace,
};

struct Delivered<'a> {
    verdict: &'a str,
    reason: Option<&'a str>,
    claim: Option<ClaimId>,
    with_body: bool,
}

impl Context<'_> {
    /// Each event is judged alone, by the same decision as everywhere; all are written together.
    pub(super) fn admit(&self, call: &AdmitCall) -> Result<Vec<Admitted>, StoreError> {
        if let Some(release) = &call.releases {
            let settled = self.db.execute(
                "UPDATE deliveries SET verdict = 'released', settled_at = ?2 \
                 WHERE id = ?1 AND workspace_id = ?3 AND verdict IN ('rejected', 'unverified')",
                params![release.delivery, self.now.wall.as_millis(), call.workspace.0],
            )?;
            // Two people pressed at once: the second releases nothing.
            if settled == 0 {
                return Ok(Vec::new());
            }
            self.audit(
                call.workspace,
                &call.actor,
                "release",
                &format!("delivery {}", release.delivery),
                &release.reason,
                None,
            )?;
        }
        call.events.iter().map(|event| self.admit_event(call, event)).collect()
    }

    fn admit_event(&self, call: &AdmitCall, event: &AdmitEvent) -> Result<Admitted, StoreError> {
        let key = match &event.identity {
            Ok(key) => key.clone(),
            Err(why) => {
                let row = Delivered { verdict: "rejected", reason: Some(why), claim: None, with_body: true };
                return Ok(Admitted::Rejected { delivery: self.deliver(call, &row)? });
            }
        };
        let claimed = self.claim(&ClaimCall {
            target: Target::Key { workspace: call.workspace, automation: call.automation.clone(), key },
            request: Request {
                start: Start::Queue,
                fingerprint: Some(event.fingerprint),
                record: event.record.clone(),
                ttl: None,
                correction: false,
            },
            run_url: None,
            payload: Some(Payload { body: call.body.clone(), json: event.json.clone() }),
            actor: call.actor.clone(),
            again: false,
        })?;
        let Some(claimed) = claimed else {
            return Err(StoreError::Inconsistent("a claim by key was not found".into()));
        };
        let id = claimed.id;
        match claimed.decision {
            Decision::Run(_) | Decision::Queued(_) => {
                // What waits already is not made to wait twice.
                let verdict = if claimed.changed { "accepted" } else { "duplicate" };
                self.deliver(call, &Delivered { verdict, reason: None, claim: Some(id), with_body: false })?;
                match claimed.changed {
                    true => Ok(Admitted::Accepted { id }),
                    false => Ok(Admitted::Stopped { id, reason: StopReason::InProgress }),
                }
            }
            Decision::Stop { reason, .. } => {
                let mismatch = reason == StopReason::PayloadMismatch;
                let verdict = if mismatch { "mismatch" } else { "duplicate" };
                let reason_word = Some(reason.as_str());
                self.deliver(
                    call,
                    &Delivered { verdict, reason: reason_word, claim: Some(id), with_body: mismatch },
                )?;
                Ok(Admitted::Stopped { id, reason })
            }
        }
    }

    fn deliver(&self, call: &AdmitCall, row: &Delivered<'_>) -> Result<i64, StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, claim_id, verdict, reason, \
                 headers, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                call.workspace.0,
                call.source,
                call.automation.as_str(),
                self.now.wall.as_millis(),
                row.claim.as_ref().map(|id| &id.0[..]),
                row.verdict,
                row.reason,
                row.with_body.then_some(&call.headers),
                row.with_body.then_some(&call.body),
            ])?;
        Ok(self.db.last_insert_rowid())
    }

    /// Keeps the newest; a flood of forged requests pushes out only its own kind.
    pub(super) fn keep_unverified(&self, call: &UnverifiedCall) -> Result<i64, StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, verdict, reason, headers, body) \
                 VALUES (?1, ?2, ?3, ?4, 'unverified', ?5, ?6, ?7)",
            )?
            .execute(params![
                call.workspace.0,
                call.source,
                call.automation.as_str(),
                self.now.wall.as_millis(),
                call.reason,
                call.headers,
                call.body,
            ])?;
        let id = self.db.last_insert_rowid();
        self.db
            .prepare_cached(
                "DELETE FROM deliveries WHERE verdict = 'unverified' AND id <= (SELECT id FROM deliveries \
                 WHERE verdict = 'unverified' ORDER BY id DESC LIMIT 1 OFFSET ?1)",
            )?
            .execute([limits::UNVERIFIED_KEPT_MAX])?;
        Ok(id)
    }
}

const SELECT: &str =
    "SELECT id, source, automation, received_at, verdict, reason, headers, body, settled_at FROM deliveries";

fn read(r: &Row<'_>) -> Result<DeliveryRow, StoreError> {
    let automation: String = r.get("automation")?;
    Ok(DeliveryRow {
        id: r.get("id")?,
        source: r.get("source")?,
        automation: AutomationName::try_from(automation.as_str())
            .map_err(|e| StoreError::Inconsistent(e.to_string()))?,
        received_at: ts(r.get("received_at")?),
        verdict: r.get("verdict")?,
        reason: r.get("reason")?,
        headers: r.get("headers")?,
        body: r.get("body")?,
        settled_at: r.get::<_, Option<i64>>("settled_at")?.map(ts),
    })
}

/// What waits for a person, without bodies.
pub(super) fn rejected(
    db: &Connection,
    workspace: Workspace,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let sql = format!(
        "{} WHERE verdict IN ('rejected', 'unverified') AND workspace_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
        SELECT.replace("headers, body", "NULL AS headers, NULL AS body")
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement
        .query_map(params![workspace.0, before.unwrap_or(i64::MAX), limit], |r| Ok(read(r)))?
        .map(|r| r?)
        .collect::<Result<Vec<_>, StoreError>>()?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// One delivery with its body.
pub(super) fn delivery(
    db: &Connection,
    workspace: Workspace,
    id: i64,
) -> Result<Option<DeliveryRow>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT} WHERE workspace_id = ?1 AND id = ?2"))?;
    statement.query_row(params![workspace.0, id], |r| Ok(read(r))).optional()?.transpose()
}

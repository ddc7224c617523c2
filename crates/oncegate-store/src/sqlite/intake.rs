//! Deliveries: verified requests with their events, and those that are kept apart.

use std::cell::OnceCell;

use oncegate_core::decide::{Decision, Request, Start, StopReason};
use oncegate_core::finish;
use oncegate_core::key::{self, AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::webhook::Aside;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::ts;
use super::transition::Context;
use crate::StoreError;
use crate::api::{
    AdmitCall, AdmitEvent, Admitted, ClaimCall, DeliveryRow, Page, Payload, Target, UnverifiedCall,
};
use crate::intake::{Room, fitting};
use crate::observer::Happened;

/// The columns of a delivery's row, of all deliveries.
const SELECT: &str = "SELECT id, source, automation, received_at, repeats, coalesce(last_at, received_at) AS last_at, \
    CASE WHEN verdict = 'rejected' AND parked IS NOT NULL THEN parked ELSE verdict END AS verdict, \
    reason, delivery_id, headers, body, settled_at FROM deliveries";

/// The same without the two columns that are large.
fn select_without_bodies() -> String {
    SELECT.replace("headers, body", "NULL AS headers, NULL AS body")
}

/// An event on its way in.
struct Arrival<'a> {
    call: &'a AdmitCall,
    event: &'a AdmitEvent,
    /// Only asked for if the body is kept, and then once: a body may have 25 MiB.
    hash: OnceCell<[u8; 32]>,
}

impl Arrival<'_> {
    fn body(&self) -> &[u8] {
        self.call.body_of(self.event)
    }

    fn hash(&self) -> &[u8] {
        self.hash.get_or_init(|| key::sha256(self.body()))
    }
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
        let arrival = |event| Arrival { call, event, hash: OnceCell::new() };
        call.events.iter().map(|event| self.admit_event(&arrival(event))).collect()
    }

    fn admit_event(&self, arrival: &Arrival<'_>) -> Result<Admitted, StoreError> {
        let Arrival { call, event, .. } = arrival;
        if let Some(aside) = &event.aside {
            return self.set_aside(arrival, aside.kind, &aside.why);
        }
        let key = match &event.identity {
            Ok(key) => key.clone(),
            Err(why) => {
                self.journal.note(Happened::Delivered("rejected"));
                let delivery = self.keep_rejected(arrival, &finish::cut(why), None)?;
                return Ok(Admitted::Rejected { delivery });
            }
        };
        let count = match &event.sender {
            None => None,
            Some(sender) => match self.sender_count(call, sender, &key)? {
                Some(count) => Some((sender, count)),
                None => return self.set_aside(arrival, Aside::Sender, &sender.why()),
            },
        };
        let claimed = self.claim(&ClaimCall {
            target: Target::Key { workspace: call.workspace, automation: call.automation.clone(), key },
            request: Request {
                start: Start::Queue,
                fingerprint: Some(event.fingerprint),
                record: event.record.clone(),
                ttl: None,
                correction: false,
                likeness: event.likeness,
                identity: event.about,
                dated: event.dated,
            },
            run_url: None,
            parent: None,
            payload: Some(Payload { body: call.body_of(event).to_vec(), json: event.json.clone() }),
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
                match claimed.changed {
                    true => {
                        self.journal.note(Happened::Delivered("accepted"));
                        self.note_arrival((call, event), "accepted", None, id)?;
                        if let Some((sender, count)) = count {
                            self.sender_ran(call, sender, count)?;
                        }
                        Ok(Admitted::Accepted { id })
                    }
                    false => {
                        self.note_duplicate((call, event), None, id)?;
                        Ok(Admitted::Stopped { id, reason: StopReason::InProgress })
                    }
                }
            }
            Decision::Stop { reason, .. } => {
                match reason {
                    StopReason::PayloadMismatch => {
                        self.keep_mismatch(arrival, reason.as_str(), id)?;
                    }
                    // Known to be of another record: perhaps an effect that did not happen.
                    StopReason::Duplicate if claimed.changed => {
                        self.keep_mismatch(arrival, "record_identity_changed", id)?;
                    }
                    _ => self.note_duplicate((call, event), Some(reason.as_str()), id)?,
                }
                Ok(Admitted::Stopped { id, reason })
            }
        }
    }

    fn set_aside(&self, arrival: &Arrival<'_>, kind: Aside, why: &str) -> Result<Admitted, StoreError> {
        self.journal.note(Happened::Delivered(kind.as_str()));
        let delivery = self.keep_rejected(arrival, &finish::cut(why), Some(kind))?;
        Ok(Admitted::SetAside { kind, delivery })
    }

    /// The claim counts every one of them as a stop; so that a replayed request cannot fill the disk, only the first
    /// have a row.
    fn note_duplicate(
        &self,
        came: (&AdmitCall, &AdmitEvent),
        reason: Option<&str>,
        claim: ClaimRef,
    ) -> Result<(), StoreError> {
        self.journal.note(Happened::Delivered("duplicate"));
        let noted: u32 = self
            .db
            .prepare_cached("SELECT count(*) FROM deliveries WHERE claim_id = ?1 AND verdict = 'duplicate'")?
            .query_row([&claim.id.0[..]], |r| r.get(0))?;
        match noted < limits::STOP_HISTORY_ROWS_MAX {
            true => self.note_arrival(came, "duplicate", reason, claim),
            false => Ok(()),
        }
    }

    /// A row without a body: the claim has the payload.
    fn note_arrival(
        &self,
        (call, event): (&AdmitCall, &AdmitEvent),
        verdict: &str,
        reason: Option<&str>,
        claim: ClaimRef,
    ) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, claim_id, verdict, \
                 reason, delivery_id) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                call.workspace.0,
                call.source,
                call.automation.as_str(),
                self.now.wall.as_millis(),
                &claim.id.0[..],
                verdict,
                reason,
                event.delivery_id,
            ])?;
        Ok(())
    }

    /// Waits for a person, for ever. One request is one row while it waits, however often it comes.
    fn keep_rejected(
        &self,
        arrival: &Arrival<'_>,
        reason: &str,
        aside: Option<Aside>,
    ) -> Result<i64, StoreError> {
        let call = arrival.call;
        let known = self
            .db
            .prepare_cached(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = ?5 WHERE workspace_id = ?1 AND source = ?2 \
                 AND body_hash = ?3 AND reason = ?4 AND verdict = 'rejected' RETURNING id",
            )?
            .query_row(
                params![call.workspace.0, call.source, arrival.hash(), reason, self.now.wall.as_millis()],
                |r| r.get(0),
            )
            .optional()?;
        match known {
            Some(id) => Ok(id),
            None => self.keep_body(arrival, "rejected", (reason, aside), None),
        }
    }

    /// Each body that the claim was stopped for is kept once.
    fn keep_mismatch(&self, arrival: &Arrival<'_>, reason: &str, claim: ClaimRef) -> Result<(), StoreError> {
        self.journal.note(Happened::Delivered("mismatch"));
        let known = self
            .db
            .prepare_cached(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = ?5 WHERE claim_id = ?1 AND source = ?2 \
                 AND body_hash = ?3 AND reason = ?4 AND verdict = 'mismatch'",
            )?
            .execute(params![
                &claim.id.0[..],
                arrival.call.source,
                arrival.hash(),
                reason,
                self.now.wall.as_millis()
            ])?;
        if known == 0 {
            self.keep_body(arrival, "mismatch", (reason, None), Some(claim))?;
        }
        Ok(())
    }

    fn keep_body(
        &self,
        arrival: &Arrival<'_>,
        verdict: &str,
        (reason, aside): (&str, Option<Aside>),
        claim: Option<ClaimRef>,
    ) -> Result<i64, StoreError> {
        let call = arrival.call;
        self.db
            .prepare_cached(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, claim_id, verdict, \
                 reason, body_hash, headers, body, parked, delivery_id) \
                 VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
                call.workspace.0,
                call.source,
                call.automation.as_str(),
                self.now.wall.as_millis(),
                claim.as_ref().map(|c| &c.id.0[..]),
                verdict,
                reason,
                arrival.hash(),
                call.headers,
                arrival.body(),
                aside.map(Aside::as_str),
                arrival.event.delivery_id,
            ])?;
        Ok(self.db.last_insert_rowid())
    }

    /// Keeps the newest of each source; a flood of forged requests pushes out only what else came to its source. The
    /// first of equal bodies stays as it came: its signature is judged as of its arrival.
    pub(super) fn keep_unverified(&self, call: &UnverifiedCall) -> Result<i64, StoreError> {
        self.journal.note(Happened::Delivered("unverified"));
        let hash = call.hash();
        let known = self
            .db
            .prepare_cached(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = ?4 WHERE workspace_id = ?1 AND source = ?2 \
                 AND body_hash = ?3 AND verdict = 'unverified' RETURNING id",
            )?
            .query_row(
                params![call.workspace.0, call.source, &hash[..], self.now.wall.as_millis()],
                |r| r.get(0),
            )
            .optional()?;
        if let Some(id) = known {
            return Ok(id);
        }
        let (mut headers, mut reason) = (call.headers.clone(), finish::cut(&call.reason));
        if let Some((fitting, note)) = fitting(&headers) {
            headers = fitting;
            reason = format!("{reason} ({note})");
        }
        self.db
            .prepare_cached(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, verdict, reason, \
                 body_hash, bytes, headers, body) VALUES (?1, ?2, ?3, ?4, ?4, 'unverified', ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                call.workspace.0,
                call.source,
                call.automation.as_str(),
                self.now.wall.as_millis(),
                reason,
                &hash[..],
                (headers.len() + call.body.len()) as i64,
                headers,
                call.body,
            ])?;
        let id = self.db.last_insert_rowid();
        self.push_out(call)?;
        Ok(id)
    }

    /// The newest always stays; no body that is taken in is as large as the quota.
    fn push_out(&self, call: &UnverifiedCall) -> Result<(), StoreError> {
        let mut newest_first = self.db.prepare_cached(
            "SELECT id, bytes FROM deliveries WHERE verdict = 'unverified' AND workspace_id = ?1 AND source = ?2 \
             ORDER BY id DESC",
        )?;
        let mut rows = newest_first.query(params![call.workspace.0, call.source])?;
        let (mut room, mut first_out) = (Room::default(), None);
        while let Some(r) = rows.next()? {
            if !room.fits(r.get("bytes")?) {
                first_out = Some(r.get::<_, i64>("id")?);
                break;
            }
        }
        drop(rows);
        if let Some(id) = first_out {
            self.db
                .prepare_cached(
                    "DELETE FROM deliveries WHERE verdict = 'unverified' AND workspace_id = ?1 AND source = ?2 \
                     AND id <= ?3",
                )?
                .execute(params![call.workspace.0, call.source, id])?;
        }
        Ok(())
    }
}

fn read(r: &Row<'_>) -> Result<DeliveryRow, StoreError> {
    let automation: String = r.get("automation")?;
    Ok(DeliveryRow {
        id: r.get("id")?,
        source: r.get("source")?,
        automation: AutomationName::try_from(automation.as_str())
            .map_err(|e| StoreError::Inconsistent(e.to_string()))?,
        received_at: ts(r.get("received_at")?),
        repeats: r.get::<_, i64>("repeats")?.unsigned_abs(),
        last_at: ts(r.get("last_at")?),
        delivery_id: r.get("delivery_id")?,
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
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, StoreError> {
    waiting(db, "verdict IN ('rejected', 'unverified') AND parked IS NULL", workspace, only, before, limit)
}

/// What is parked, without bodies.
pub(super) fn parked(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, StoreError> {
    waiting(db, "parked IS NOT NULL AND verdict = 'rejected'", workspace, only, before, limit)
}

fn waiting(
    db: &Connection,
    which: &str,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, StoreError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    // NULL: all of them. The index of what is open is walked either way.
    let names = only.map(|only| serde_json::json!(only).to_string());
    let sql = format!(
        "{} WHERE {which} AND workspace_id = ?1 AND id < ?2 \
         AND (?4 IS NULL OR automation IN (SELECT value FROM json_each(?4))) ORDER BY id DESC LIMIT ?3",
        select_without_bodies()
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement
        .query_map(params![workspace.0, before.unwrap_or(i64::MAX), limit, names], |r| Ok(read(r)))?
        .map(|r| r?)
        .collect::<Result<Vec<_>, StoreError>>()?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// The deliveries of a claim, without bodies.
pub(super) fn deliveries(db: &Connection, id: ClaimRef, limit: u32) -> Result<Vec<DeliveryRow>, StoreError> {
    let sql = format!(
        "{} WHERE claim_id = ?1 AND workspace_id = ?2 ORDER BY id DESC LIMIT ?3",
        select_without_bodies()
    );
    let mut statement = db.prepare_cached(&sql)?;
    statement
        .query_map(params![&id.id.0[..], id.workspace.0, limit], |r| Ok(read(r)))?
        .map(|r| r?)
        .collect::<Result<Vec<_>, StoreError>>()
}

/// All deliveries of a claim with their bodies, oldest first.
pub(super) fn whole_deliveries(db: &Connection, id: ClaimRef) -> Result<Vec<DeliveryRow>, StoreError> {
    let mut statement =
        db.prepare_cached(&format!("{SELECT} WHERE claim_id = ?1 AND workspace_id = ?2 ORDER BY id"))?;
    statement
        .query_map(params![&id.id.0[..], id.workspace.0], |r| Ok(read(r)))?
        .map(|r| r?)
        .collect::<Result<Vec<_>, StoreError>>()
}

/// Deliveries that belong to no claim, with their bodies, among the `rows` after one; and the last row looked at.
pub(super) fn loose_deliveries(
    db: &Connection,
    workspace: Workspace,
    after: i64,
    rows: u32,
) -> Result<(Vec<DeliveryRow>, Option<i64>), StoreError> {
    let last: Option<i64> = db
        .prepare_cached("SELECT max(id) FROM (SELECT id FROM deliveries WHERE id > ?1 ORDER BY id LIMIT ?2)")?
        .query_row(params![after, rows], |r| r.get(0))?;
    let sql = format!(
        "{SELECT} WHERE id > ?1 AND id <= ?2 AND workspace_id = ?3 AND (claim_id IS NULL \
         OR NOT EXISTS (SELECT 1 FROM claims c WHERE c.claim_id = deliveries.claim_id)) ORDER BY id"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let found = statement
        .query_map(params![after, last.unwrap_or(after), workspace.0], |r| Ok(read(r)))?
        .map(|r| r?)
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok((found, last))
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

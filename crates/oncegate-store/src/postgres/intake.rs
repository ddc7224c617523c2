//! Deliveries: verified requests with their events, and those that are kept apart.
//!
//! The same request may come to two nodes at the same moment. Its claims tell its events apart, as everywhere; what is
//! kept without a claim is counted by an update first, and by the unique index of what waits if both found nothing.

use std::sync::OnceLock;

use oncegate_core::decide::{Decision, Request, Start, StopReason};
use oncegate_core::finish;
use oncegate_core::key::{self, AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::webhook::Aside;
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::{Context, Params};
use super::error::{Fault, unreadable};
use super::queries;
use super::row::{storable, ts};
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

/// An event on its way in.
struct Arrival<'a> {
    call: &'a AdmitCall,
    event: &'a AdmitEvent,
    /// Only asked for if the body is kept, and then once: a body may have 25 MiB.
    hash: OnceLock<[u8; 32]>,
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
    /// Each event is judged alone, by the same decision as everywhere; all are written together. Claims are locked in
    /// the order of the events: two requests with the same ones the other way round are a deadlock, and tried again.
    pub(super) async fn admit(&self, call: &AdmitCall) -> Result<Vec<Admitted>, Fault> {
        if let Some(release) = &call.releases {
            let settled = self
                .execute(
                    "UPDATE deliveries SET verdict = 'released', settled_at = $3 \
                     WHERE workspace_id = $1 AND id = $2 AND verdict IN ('rejected', 'unverified')",
                    &[&call.workspace.0, &release.delivery, &self.now.wall.as_millis()],
                )
                .await?;
            // Two people pressed at once: the second waits for the row, finds it settled, and releases nothing.
            if settled == 0 {
                return Ok(Vec::new());
            }
            let subject = format!("delivery {}", release.delivery);
            self.audit(call.workspace, &call.actor, "release", &subject, &release.reason, None).await?;
        }
        let mut answers = Vec::with_capacity(call.events.len());
        for event in &call.events {
            answers.push(self.admit_event(&Arrival { call, event, hash: OnceLock::new() }).await?);
        }
        Ok(answers)
    }

    async fn admit_event(&self, arrival: &Arrival<'_>) -> Result<Admitted, Fault> {
        let Arrival { call, event, .. } = arrival;
        if let Some(aside) = &event.aside {
            return self.set_aside(arrival, aside.kind, &aside.why).await;
        }
        let key = match &event.identity {
            Ok(key) => key.clone(),
            Err(why) => {
                self.journal.note(Happened::Delivered("rejected"));
                let delivery = self.keep_rejected(arrival, &finish::cut(why), None).await?;
                return Ok(Admitted::Rejected { delivery });
            }
        };
        let count = match &event.sender {
            None => None,
            Some(sender) => match self.sender_count(call, sender, &key).await? {
                Some(count) => Some((sender, count)),
                None => return self.set_aside(arrival, Aside::Sender, &sender.why()).await,
            },
        };
        let claimed = self
            .claim(&ClaimCall {
                target: Target::Key { workspace: call.workspace, automation: call.automation.clone(), key },
                request: Request {
                    start: Start::Queue,
                    fingerprint: Some(event.fingerprint),
                    record: event.record.clone(),
                    ttl: None,
                    correction: false,
                    dated: event.dated,
                    likeness: event.likeness,
                    identity: event.about,
                },
                run_url: None,
                parent: None,
                payload: Some(Payload { body: call.body_of(event).to_vec(), json: event.json.clone() }),
                actor: call.actor.clone(),
                again: false,
            })
            .await?;
        let Some(claimed) = claimed else {
            return Err(unreadable("a claim by key was not found"));
        };
        let id = claimed.id;
        match claimed.decision {
            Decision::Run(_) | Decision::Queued(_) => {
                // What waits already is not made to wait twice.
                match claimed.changed {
                    true => {
                        self.journal.note(Happened::Delivered("accepted"));
                        self.note_arrival((call, event), "accepted", None, id).await?;
                        if let Some((sender, count)) = count {
                            self.sender_ran(call, sender, count).await?;
                        }
                        Ok(Admitted::Accepted { id })
                    }
                    false => {
                        self.note_duplicate((call, event), None, id).await?;
                        Ok(Admitted::Stopped { id, reason: StopReason::InProgress })
                    }
                }
            }
            Decision::Stop { reason, .. } => {
                match reason {
                    StopReason::PayloadMismatch => {
                        self.keep_mismatch(arrival, reason.as_str(), id).await?;
                    }
                    // Known to be of another record: perhaps an effect that did not happen.
                    StopReason::Duplicate if claimed.changed => {
                        self.keep_mismatch(arrival, "record_identity_changed", id).await?;
                    }
                    _ => self.note_duplicate((call, event), Some(reason.as_str()), id).await?,
                }
                Ok(Admitted::Stopped { id, reason })
            }
        }
    }

    async fn set_aside(&self, arrival: &Arrival<'_>, kind: Aside, why: &str) -> Result<Admitted, Fault> {
        self.journal.note(Happened::Delivered(kind.as_str()));
        let delivery = self.keep_rejected(arrival, &finish::cut(why), Some(kind)).await?;
        Ok(Admitted::SetAside { kind, delivery })
    }

    /// The claim counts every one of them as a stop; so that a replayed request cannot fill the disk, only the first
    /// have a row. The claim is locked, so nobody counts at the same time.
    async fn note_duplicate(
        &self,
        came: (&AdmitCall, &AdmitEvent),
        reason: Option<&str>,
        claim: ClaimRef,
    ) -> Result<(), Fault> {
        self.journal.note(Happened::Delivered("duplicate"));
        let noted: i64 = self
            .query_one(
                "SELECT count(*) FROM deliveries WHERE workspace_id = $1 AND claim_id = $2 \
                 AND verdict = 'duplicate'",
                &[&claim.workspace.0, &&claim.id.0[..]],
            )
            .await?
            .get(0);
        match noted < i64::from(limits::STOP_HISTORY_ROWS_MAX) {
            true => self.note_arrival(came, "duplicate", reason, claim).await,
            false => Ok(()),
        }
    }

    /// A row without a body: the claim has the payload.
    async fn note_arrival(
        &self,
        (call, event): (&AdmitCall, &AdmitEvent),
        verdict: &str,
        reason: Option<&str>,
        claim: ClaimRef,
    ) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, claim_id, verdict, \
             reason, delivery_id) VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8)",
            &[
                &call.workspace.0,
                &call.source,
                &call.automation.as_str(),
                &self.now.wall.as_millis(),
                &&claim.id.0[..],
                &verdict,
                &reason,
                &event.delivery_id.as_deref().map(storable),
            ],
        )
        .await?;
        Ok(())
    }

    /// Waits for a person, for ever. One request is one row while it waits, however often it comes, and to however
    /// many nodes at once. If it is released at this very moment, the update waits, and the request waits anew.
    async fn keep_rejected(
        &self,
        arrival: &Arrival<'_>,
        reason: &str,
        aside: Option<Aside>,
    ) -> Result<i64, Fault> {
        let call = arrival.call;
        let reason = storable(reason);
        let known = self
            .query_opt(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = $5 WHERE workspace_id = $1 AND source = $2 \
                 AND body_hash = $3 AND md5(reason) = md5($4::text) AND reason = $4 AND verdict = 'rejected' RETURNING id",
                &[&call.workspace.0, &call.source, &arrival.hash(), &reason, &self.now.wall.as_millis()],
            )
            .await?;
        match known {
            Some(row) => Ok(row.get(0)),
            None => {
                self.open_workspace(call.workspace).await?;
                self.keep_body(arrival, "rejected", (&reason, aside), None).await
            }
        }
    }

    /// Each body that the claim was stopped for is kept once.
    async fn keep_mismatch(&self, arrival: &Arrival<'_>, reason: &str, claim: ClaimRef) -> Result<(), Fault> {
        self.journal.note(Happened::Delivered("mismatch"));
        let known = self
            .execute(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = $6 WHERE workspace_id = $1 AND claim_id = $2 \
                 AND source = $3 AND body_hash = $4 AND md5(reason) = md5($5::text) AND reason = $5 \
                 AND verdict = 'mismatch'",
                &[
                    &claim.workspace.0,
                    &&claim.id.0[..],
                    &arrival.call.source,
                    &arrival.hash(),
                    &reason,
                    &self.now.wall.as_millis(),
                ],
            )
            .await?;
        if known == 0 {
            self.keep_body(arrival, "mismatch", (reason, None), Some(claim)).await?;
        }
        Ok(())
    }

    /// If another node kept the same meanwhile, the unique index says so, and all is looked at again: then its row is
    /// there to count on.
    async fn keep_body(
        &self,
        arrival: &Arrival<'_>,
        verdict: &str,
        (reason, aside): (&str, Option<Aside>),
        claim: Option<ClaimRef>,
    ) -> Result<i64, Fault> {
        let call = arrival.call;
        let claim = claim.as_ref().map(|c| &c.id.0[..]);
        let kept = self
            .query_one(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, claim_id, verdict, \
                 reason, body_hash, headers, body, parked, delivery_id) \
                 VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
                 RETURNING id",
                &[
                    &call.workspace.0,
                    &call.source,
                    &call.automation.as_str(),
                    &self.now.wall.as_millis(),
                    &claim,
                    &verdict,
                    &reason,
                    &arrival.hash(),
                    &storable(&call.headers),
                    &arrival.body(),
                    &aside.map(Aside::as_str),
                    &arrival.event.delivery_id.as_deref().map(storable),
                ],
            )
            .await?;
        Ok(kept.get(0))
    }

    /// A deleted workspace keeps its row and takes nothing new: nobody would ever look at it, or clear it away.
    async fn open_workspace(&self, workspace: Workspace) -> Result<(), Fault> {
        let sql = "SELECT 1 FROM workspaces WHERE id = $1 AND deleted_at IS NULL";
        match self.query_opt(sql, &[&workspace.0]).await? {
            Some(_) => Ok(()),
            None => Err(unreadable(format!("there is no workspace {}", workspace.0))),
        }
    }

    /// Keeps the newest of each source; a flood of forged requests pushes out only what else came to its source. The
    /// first of equal bodies stays as it came: its signature is judged as of its arrival.
    pub(super) async fn keep_unverified(&self, call: &UnverifiedCall) -> Result<i64, Fault> {
        self.journal.note(Happened::Delivered("unverified"));
        let hash = call.hash();
        let known = self
            .query_opt(
                "UPDATE deliveries SET repeats = repeats + 1, last_at = $4 WHERE workspace_id = $1 AND source = $2 \
                 AND body_hash = $3 AND verdict = 'unverified' RETURNING id",
                &[&call.workspace.0, &call.source, &&hash[..], &self.now.wall.as_millis()],
            )
            .await?;
        if let Some(row) = known {
            return Ok(row.get(0));
        }
        self.open_workspace(call.workspace).await?;
        let (mut headers, mut reason) = (call.headers.clone(), finish::cut(&call.reason));
        if let Some((fitting, note)) = fitting(&headers) {
            headers = fitting;
            reason = format!("{reason} ({note})");
        }
        let bytes = i64::try_from(headers.len() + call.body.len()).unwrap_or(i64::MAX);
        // As in `keep_body`: the same from another node at this moment is told apart by the unique index.
        let kept = self
            .query_one(
                "INSERT INTO deliveries (workspace_id, source, automation, received_at, last_at, verdict, reason, \
                 body_hash, bytes, headers, body) VALUES ($1, $2, $3, $4, $4, 'unverified', $5, $6, $7, $8, $9) \
                 RETURNING id",
                &[
                    &call.workspace.0,
                    &call.source,
                    &call.automation.as_str(),
                    &self.now.wall.as_millis(),
                    &storable(&reason),
                    &&hash[..],
                    &bytes,
                    &storable(&headers),
                    &call.body,
                ],
            )
            .await?;
        self.push_out(call).await?;
        Ok(kept.get(0))
    }

    /// What another node keeps at this moment is not seen: then the quota is passed until the next one comes.
    async fn push_out(&self, call: &UnverifiedCall) -> Result<(), Fault> {
        let newest_first = self
            .query(
                "SELECT id, bytes FROM deliveries WHERE verdict = 'unverified' AND workspace_id = $1 AND source = $2 \
                 ORDER BY id DESC LIMIT $3",
                &[&call.workspace.0, &call.source, &(i64::from(limits::UNVERIFIED_KEPT_MAX) + 1)],
            )
            .await?;
        let mut room = Room::default();
        if let Some(first_out) = newest_first.iter().find(|r| !room.fits(r.get(1))) {
            self.execute(
                "DELETE FROM deliveries WHERE verdict = 'unverified' AND workspace_id = $1 AND source = $2 \
                 AND id <= $3",
                &[&call.workspace.0, &call.source, &first_out.get::<_, i64>(0)],
            )
            .await?;
        }
        Ok(())
    }
}

fn without_bodies() -> String {
    SELECT.replace("headers, body", "NULL::text AS headers, NULL::bytea AS body")
}

fn read(r: &Row) -> Result<DeliveryRow, Fault> {
    Ok(DeliveryRow {
        delivery_id: r.get("delivery_id"),
        id: r.get("id"),
        source: r.get("source"),
        automation: AutomationName::try_from(r.get::<_, &str>("automation"))
            .map_err(|e| StoreError::Inconsistent(e.to_string()))?,
        received_at: ts(r.get("received_at")),
        repeats: r.get::<_, i64>("repeats").unsigned_abs(),
        last_at: ts(r.get("last_at")),
        verdict: r.get("verdict"),
        reason: r.get("reason"),
        headers: r.get("headers"),
        body: r.get("body"),
        settled_at: r.get::<_, Option<i64>>("settled_at").map(ts),
    })
}

async fn read_all(db: &Connection, sql: &str, params: &Params<'_>) -> Result<Vec<DeliveryRow>, Fault> {
    queries::rows(db, sql, params).await?.iter().map(read).collect()
}

/// What waits for a person, without bodies.
pub(super) async fn rejected(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    let which = "verdict IN ('rejected', 'unverified') AND parked IS NULL";
    waiting(db, which, workspace, only, before, limit).await
}

/// What is parked, without bodies.
pub(super) async fn parked(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    waiting(db, "parked IS NOT NULL AND verdict = 'rejected'", workspace, only, before, limit).await
}

async fn waiting(
    db: &Connection,
    which: &str,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    before: Option<i64>,
    limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    // NULL: all of them. The index of what is open is walked either way.
    let names: Option<Vec<&str>> = only.map(|only| only.iter().map(AutomationName::as_str).collect());
    let sql = format!(
        "{} WHERE {which} AND workspace_id = $1 AND id < $2 \
         AND ($4::text[] IS NULL OR automation = ANY($4::text[])) ORDER BY id DESC LIMIT $3",
        without_bodies()
    );
    let before = before.unwrap_or(i64::MAX);
    let rows = read_all(db, &sql, &[&workspace.0, &before, &i64::from(limit), &names]).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|r| r.id);
    Ok(Page { rows, next })
}

/// The deliveries of a claim, without bodies.
pub(super) async fn deliveries(db: &Connection, id: ClaimRef, limit: u32) -> Result<Vec<DeliveryRow>, Fault> {
    let sql =
        format!("{} WHERE workspace_id = $1 AND claim_id = $2 ORDER BY id DESC LIMIT $3", without_bodies());
    read_all(db, &sql, &[&id.workspace.0, &&id.id.0[..], &i64::from(limit)]).await
}

/// All deliveries of a claim with their bodies, oldest first.
pub(super) async fn whole_deliveries(db: &Connection, id: ClaimRef) -> Result<Vec<DeliveryRow>, Fault> {
    let sql = format!("{SELECT} WHERE workspace_id = $1 AND claim_id = $2 ORDER BY id");
    read_all(db, &sql, &[&id.workspace.0, &&id.id.0[..]]).await
}

/// Deliveries that belong to no claim, with their bodies, among the workspace's `rows` after one; and the last row
/// looked at. Two statements: the caller's transaction sees one moment.
pub(super) async fn loose_deliveries(
    db: &Connection,
    workspace: Workspace,
    after: i64,
    rows: u32,
) -> Result<(Vec<DeliveryRow>, Option<i64>), Fault> {
    let last = queries::row_opt(
        db,
        "SELECT max(id) FROM (SELECT id FROM deliveries WHERE workspace_id = $1 AND id > $2 \
         ORDER BY id LIMIT $3) looked_at",
        &[&workspace.0, &after, &i64::from(rows)],
    )
    .await?;
    let last: Option<i64> = last.and_then(|r| r.get(0));
    let sql = format!(
        "{SELECT} d WHERE d.workspace_id = $1 AND d.id > $2 AND d.id <= $3 AND (d.claim_id IS NULL \
         OR NOT EXISTS (SELECT 1 FROM claims c WHERE c.workspace_id = d.workspace_id \
         AND c.claim_id = d.claim_id)) ORDER BY d.id"
    );
    let found = read_all(db, &sql, &[&workspace.0, &after, &last.unwrap_or(after)]).await?;
    Ok((found, last))
}

/// One delivery with its body.
pub(super) async fn delivery(
    db: &Connection,
    workspace: Workspace,
    id: i64,
) -> Result<Option<DeliveryRow>, Fault> {
    let sql = format!("{SELECT} WHERE workspace_id = $1 AND id = $2");
    queries::row_opt(db, &sql, &[&workspace.0, &id]).await?.as_ref().map(read).transpose()
}

//! Step memory: one row per call, written before it is sent.

use oncegate_core::key::ClaimRef;
use tokio_postgres::Row;

use super::context::Context;
use super::error::Fault;
use super::row::{Extra, storable, ts};
use crate::api::{REVIEW, StepBegin, StepCall, StepEnd, StepOutcome, WAIT};
use crate::observer::{self, Happened};
use crate::step_calls::steps_of;
use crate::transition::step;

impl Context<'_> {
    /// `None`: the attempt no longer holds, so nothing may be sent.
    pub(super) async fn begin_step(&self, begin: &StepBegin) -> Result<Option<i64>, Fault> {
        let Some(stored) = self.lock(begin.id).await? else { return Ok(None) };
        let before = &stored.view.claim;
        let Some(claim) = step::begun(before, begin.fence, self.now) else { return Ok(None) };
        let written = self
            .query_one(
                "INSERT INTO step_calls (workspace_id, claim_id, step, attempt, resets, idempotency_key, target, \
                 sent_at, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'in_flight') RETURNING id",
                &[
                    &begin.id.workspace.0,
                    &&begin.id.id.0[..],
                    &begin.step,
                    &i64::from(begin.fence.attempt),
                    &i64::from(before.resets),
                    &begin.idempotency_key,
                    &storable(&begin.target),
                    &self.now.wall.as_millis(),
                ],
            )
            .await?;
        if claim != *before {
            self.update(&stored, &claim, &Extra::default(), None, "runner").await?;
        }
        Ok(Some(written.get(0)))
    }

    /// What is known is written whoever holds the claim by now: it happened, or it did not.
    pub(super) async fn end_step(&self, end: &StepEnd) -> Result<bool, Fault> {
        let Some(stored) = self.lock(end.id).await? else { return Ok(false) };
        // A late answer replaces "unknown" by what is known; a row that ended is not changed.
        let learnt = self
            .execute(
                "UPDATE step_calls SET outcome = $4, status = $5, answer = $6, note = $7, finished_at = $8 \
                 WHERE workspace_id = $1 AND claim_id = $2 AND id = $3 AND outcome IN ('in_flight', 'unknown')",
                &[
                    &end.id.workspace.0,
                    &&end.id.id.0[..],
                    &end.call,
                    &outcome_word(end.outcome),
                    &end.status.map(i32::from),
                    &end.answer,
                    &end.note.as_deref().map(storable),
                    &self.now.wall.as_millis(),
                ],
            )
            .await?;
        let before = &stored.view.claim;
        let holds = step::holds(before, end.fence);
        if learnt == 0 {
            return Ok(holds);
        }
        if let Some(ended) = observer::step_ended(end.outcome) {
            self.journal.note(ended);
        }
        let some_unknown = step::asks_for_unknown(before, end.outcome) && self.has_unknown(end.id).await?;
        let writes = step::ended(before, end, some_unknown, self.now);
        if let Some(line) = &writes.late {
            self.late(end.id, line, "runner").await?;
        }
        if let Some(claim) = &writes.claim {
            self.update(&stored, claim, &Extra::default(), None, "runner").await?;
        }
        Ok(holds)
    }

    /// A person answered what the claim's step asked last: it has succeeded, with that.
    pub(super) async fn answered(&self, id: ClaimRef, answer: &str, since: u32) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO step_calls (workspace_id, claim_id, step, attempt, resets, idempotency_key, target, sent_at, \
             outcome, answer, finished_at) SELECT workspace_id, claim_id, step, attempt, resets, '', target, $4, \
             'succeeded', $5, $4 FROM step_calls q WHERE workspace_id = $1 AND claim_id = $2 AND target = $3 \
             AND answer IS NULL AND NOT EXISTS (SELECT 1 FROM step_calls a WHERE a.workspace_id = $1 \
               AND a.claim_id = $2 AND a.target = $3 AND a.step = q.step AND a.answer IS NOT NULL AND a.resets >= $6) \
             ORDER BY id DESC LIMIT 1",
            &[
                &id.workspace.0,
                &&id.id.0[..],
                &REVIEW,
                &self.now.wall.as_millis(),
                &answer.as_bytes(),
                &i64::from(since),
            ],
        )
        .await?;
        Ok(())
    }

    /// A new attempt begins: whatever an earlier one sent without hearing back is unknown from now on.
    pub(super) async fn give_up_in_flight(&self, id: ClaimRef) -> Result<bool, Fault> {
        let given_up = self
            .execute(
                "UPDATE step_calls SET outcome = 'unknown', finished_at = $3, \
                 note = 'the attempt ended before an answer was written down' \
                 WHERE workspace_id = $1 AND claim_id = $2 AND outcome = 'in_flight' AND target NOT IN ($4, $5)",
                &[&id.workspace.0, &&id.id.0[..], &self.now.wall.as_millis(), &WAIT, &REVIEW],
            )
            .await?;
        for _ in 0..given_up {
            self.journal.note(Happened::StepEnded("unknown"));
        }
        Ok(given_up > 0)
    }

    /// Whether some step's effect is unknown. One that succeeded on a later call is known, whatever came before.
    async fn has_unknown(&self, id: ClaimRef) -> Result<bool, Fault> {
        let found = self
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM step_calls c WHERE c.workspace_id = $1 AND c.claim_id = $2 \
                 AND c.outcome = 'unknown' AND NOT EXISTS (SELECT 1 FROM step_calls s WHERE s.workspace_id = $1 \
                 AND s.claim_id = $2 AND s.step = c.step AND s.outcome = 'succeeded'))",
                &[&id.workspace.0, &&id.id.0[..]],
            )
            .await?;
        Ok(found.get(0))
    }

    /// The steps that were sent, or may have been, since the reset from which steps count; in the order of the first
    /// send.
    pub(super) async fn sent(&self, id: ClaimRef, since: u32) -> Result<Vec<String>, Fault> {
        let rows = self
            .query(
                "SELECT step FROM step_calls WHERE workspace_id = $1 AND claim_id = $2 AND resets >= $3 \
                 AND outcome <> 'failed' AND target NOT IN ($4, $5) GROUP BY step ORDER BY min(id)",
                &[&id.workspace.0, &&id.id.0[..], &i64::from(since), &WAIT, &REVIEW],
            )
            .await?;
        Ok(steps_of(rows.iter().map(|r| r.get(0))))
    }
}

/// The calls of a claim, oldest first; `$1` its workspace, `$2` its id.
pub(super) const OF_CLAIM: &str = "SELECT id, step, attempt, resets, idempotency_key, target, sent_at, outcome, status, \
    answer, note, finished_at FROM step_calls WHERE workspace_id = $1 AND claim_id = $2 ORDER BY id";

/// Reads a row of [`OF_CLAIM`].
pub(super) fn read(r: &Row) -> StepCall {
    let number = |name: &str| u32::try_from(r.get::<_, i64>(name)).unwrap_or(u32::MAX);
    StepCall {
        id: r.get("id"),
        step: r.get("step"),
        attempt: number("attempt"),
        resets: number("resets"),
        idempotency_key: r.get("idempotency_key"),
        target: r.get("target"),
        sent_at: ts(r.get("sent_at")),
        // The column's CHECK allows four words.
        outcome: match r.get("outcome") {
            "succeeded" => StepOutcome::Succeeded,
            "failed" => StepOutcome::Failed,
            "unknown" => StepOutcome::Unknown,
            _ => StepOutcome::InFlight,
        },
        status: r.get::<_, Option<i32>>("status").and_then(|s| u16::try_from(s).ok()),
        answer: r.get("answer"),
        note: r.get("note"),
        finished_at: r.get::<_, Option<i64>>("finished_at").map(ts),
    }
}

fn outcome_word(outcome: StepOutcome) -> &'static str {
    match outcome {
        StepOutcome::InFlight => "in_flight",
        StepOutcome::Succeeded => "succeeded",
        StepOutcome::Failed => "failed",
        StepOutcome::Unknown => "unknown",
    }
}

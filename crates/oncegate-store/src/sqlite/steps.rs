//! Step memory: one row per call, written before it is sent.

use rusqlite::{Connection, Row, params};

use super::row::{self, Extra, ts};
use super::transition::Context;
use crate::StoreError;
use crate::api::{REVIEW, StepBegin, StepCall, StepEnd, StepOutcome, WAIT};
use crate::observer::{self, Happened};
use crate::step_calls::steps_of;
use crate::transition::step;

impl Context<'_> {
    /// `None`: the attempt no longer holds, so nothing may be sent.
    pub(super) fn begin_step(&self, begin: &StepBegin) -> Result<Option<i64>, StoreError> {
        let Some(stored) = row::load(self.db, begin.id)? else { return Ok(None) };
        let before = &stored.view.claim;
        let Some(claim) = step::begun(before, begin.fence, self.now) else { return Ok(None) };
        self.db
            .prepare_cached(
                "INSERT INTO step_calls (claim_row, step, attempt, resets, idempotency_key, target, sent_at, outcome) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'in_flight')",
            )?
            .execute(params![
                stored.row,
                begin.step,
                begin.fence.attempt,
                before.resets,
                begin.idempotency_key,
                begin.target,
                self.now.wall.as_millis(),
            ])?;
        let call = self.db.last_insert_rowid();
        if claim != *before {
            self.update(&stored, &claim, &Extra::default(), None, "runner")?;
        }
        Ok(Some(call))
    }

    /// What is known is written whoever holds the claim by now: it happened, or it did not.
    pub(super) fn end_step(&self, end: &StepEnd) -> Result<bool, StoreError> {
        let Some(stored) = row::load(self.db, end.id)? else { return Ok(false) };
        // A late answer replaces "unknown" by what is known; a row that ended is not changed.
        let learnt = self
            .db
            .prepare_cached(
                "UPDATE step_calls SET outcome = ?3, status = ?4, answer = ?5, note = ?6, finished_at = ?7 \
                 WHERE id = ?1 AND claim_row = ?2 AND outcome IN ('in_flight', 'unknown')",
            )?
            .execute(params![
                end.call,
                stored.row,
                outcome_word(end.outcome),
                end.status,
                end.answer,
                end.note,
                self.now.wall.as_millis(),
            ])?;
        let before = &stored.view.claim;
        let holds = step::holds(before, end.fence);
        if learnt == 0 {
            return Ok(holds);
        }
        if let Some(ended) = observer::step_ended(end.outcome) {
            self.journal.note(ended);
        }
        let some_unknown = step::asks_for_unknown(before, end.outcome) && has_unknown(self.db, stored.row)?;
        let writes = step::ended(before, end, some_unknown, self.now);
        if let Some(line) = &writes.late {
            self.late(stored.row, line, "runner")?;
        }
        if let Some(claim) = &writes.claim {
            self.update(&stored, claim, &Extra::default(), None, "runner")?;
        }
        Ok(holds)
    }

    /// A person answered what the claim's step asked last: it has succeeded, with that.
    pub(super) fn answered(&self, claim_row: i64, answer: &str, since: u32) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO step_calls (claim_row, step, attempt, resets, idempotency_key, target, sent_at, outcome, \
                 answer, finished_at) SELECT claim_row, step, attempt, resets, '', target, ?3, 'succeeded', ?4, ?3 \
                 FROM step_calls q WHERE claim_row = ?1 AND target = ?2 AND answer IS NULL AND NOT EXISTS ( \
                   SELECT 1 FROM step_calls a WHERE a.claim_row = ?1 AND a.target = ?2 AND a.step = q.step \
                   AND a.answer IS NOT NULL AND a.resets >= ?5) \
                 ORDER BY id DESC LIMIT 1",
            )?
            .execute(params![claim_row, REVIEW, self.now.wall.as_millis(), answer.as_bytes(), since])?;
        Ok(())
    }

    /// A new attempt begins: whatever an earlier one sent without hearing back is unknown from now on.
    pub(super) fn give_up_in_flight(&self, claim_row: i64) -> Result<bool, StoreError> {
        let given_up = self
            .db
            .prepare_cached(
                "UPDATE step_calls SET outcome = 'unknown', finished_at = ?2, \
                 note = 'the attempt ended before an answer was written down' \
                 WHERE claim_row = ?1 AND outcome = 'in_flight' AND target NOT IN (?3, ?4)",
            )?
            .execute(params![claim_row, self.now.wall.as_millis(), WAIT, REVIEW])?;
        for _ in 0..given_up {
            self.journal.note(Happened::StepEnded("unknown"));
        }
        Ok(given_up > 0)
    }
}

/// Whether some step's effect is unknown. One that succeeded on a later call is known, whatever came before.
fn has_unknown(db: &Connection, claim_row: i64) -> Result<bool, StoreError> {
    Ok(db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM step_calls c WHERE claim_row = ?1 AND outcome = 'unknown' AND NOT EXISTS \
             (SELECT 1 FROM step_calls s WHERE s.claim_row = ?1 AND s.step = c.step AND s.outcome = 'succeeded'))",
        )?
        .query_row([claim_row], |r| r.get(0))?)
}

/// The steps that were sent, or may have been, since the reset from which steps count; in the order of the first send.
pub(super) fn sent(db: &Connection, claim_row: i64, since: u32) -> Result<Vec<String>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT step FROM step_calls WHERE claim_row = ?1 AND resets >= ?2 AND outcome <> 'failed' \
         AND target NOT IN (?3, ?4) GROUP BY step ORDER BY min(id)",
    )?;
    let steps = statement.query_map(params![claim_row, since, WAIT, REVIEW], |r| r.get(0))?;
    Ok(steps_of(steps.collect::<Result<Vec<_>, _>>()?))
}

/// The calls of a claim, oldest first.
pub(super) fn of_claim(db: &Connection, claim_row: i64) -> Result<Vec<StepCall>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT id, step, attempt, resets, idempotency_key, target, sent_at, outcome, status, answer, note, \
         finished_at FROM step_calls WHERE claim_row = ?1 ORDER BY id",
    )?;
    let calls = statement.query_map([claim_row], read)?.collect::<Result<Vec<_>, _>>()?;
    Ok(calls)
}

fn read(r: &Row<'_>) -> rusqlite::Result<StepCall> {
    let outcome: String = r.get("outcome")?;
    Ok(StepCall {
        id: r.get("id")?,
        step: r.get("step")?,
        attempt: r.get("attempt")?,
        resets: r.get("resets")?,
        idempotency_key: r.get("idempotency_key")?,
        target: r.get("target")?,
        sent_at: ts(r.get("sent_at")?),
        // The column's CHECK allows four words.
        outcome: match outcome.as_str() {
            "succeeded" => StepOutcome::Succeeded,
            "failed" => StepOutcome::Failed,
            "unknown" => StepOutcome::Unknown,
            _ => StepOutcome::InFlight,
        },
        status: r.get("status")?,
        answer: r.get("answer")?,
        note: r.get("note")?,
        finished_at: r.get::<_, Option<i64>>("finished_at")?.map(ts),
    })
}

fn outcome_word(outcome: StepOutcome) -> &'static str {
    match outcome {
        StepOutcome::InFlight => "in_flight",
        StepOutcome::Succeeded => "succeeded",
        StepOutcome::Failed => "failed",
        StepOutcome::Unknown => "unknown",
    }
}

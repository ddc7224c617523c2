//! A claim as columns, and the two statements that write them.

use std::sync::LazyLock;

use oncegate_core::claim::{Claim, Holder, Parked, State};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::key::{StoreSecret, Workspace};
use oncegate_core::time::{Timestamp, millis};
use tokio_postgres::types::ToSql;

use super::row::storable;

/// What is written about a claim besides the core's row.
#[derive(Default)]
pub(super) struct Extra<'a> {
    pub(super) run_url: Option<&'a str>,
    pub(super) result: Option<&'a str>,
}

/// A claim as columns: what an insert and an update share, so that no field can be written by one and forgotten by
/// the other. The names are those of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) processing_state: &'static str,
    pub(super) attempt: i64,
    pub(super) generation: i64,
    pub(super) resets: i64,
    pub(super) steps_since: i64,
    pub(super) key_generation: i64,
    pub(super) fingerprint: Option<Vec<u8>>,
    pub(super) record: Option<String>,
    pub(super) record_hash: Option<Vec<u8>>,
    pub(super) retries_used: i64,
    pub(super) stale_retries_used: i64,
    pub(super) resumes_used: i64,
    pub(super) step_succeeded: bool,
    pub(super) step_unknown: bool,
    pub(super) flow: bool,
    pub(super) dismissed: bool,
    pub(super) opened_at: i64,
    pub(super) due_at: Option<i64>,
    pub(super) holder: Option<&'static str>,
    pub(super) boot: Option<i64>,
    pub(super) run_id: Option<String>,
    pub(super) processing_started_at: Option<i64>,
    pub(super) lease_renewed: Option<i64>,
    pub(super) lease_ttl: Option<i64>,
    pub(super) lease_expires: Option<i64>,
    pub(super) parent: Option<Vec<u8>>,
    pub(super) parent_ends: Option<i64>,
    pub(super) nudge_at: Option<i64>,
    pub(super) nudges: i64,
    pub(super) same_runs: i64,
    pub(super) heard_from: bool,
    pub(super) done_at: Option<i64>,
    pub(super) retain_until: Option<i64>,
    pub(super) error_at: Option<i64>,
    pub(super) error_cause: Option<&'static str>,
    pub(super) note: Option<String>,
    pub(super) parked: Option<&'static str>,
    pub(super) mismatch_at: Option<i64>,
    pub(super) late_at: Option<i64>,
    pub(super) likeness: Option<Vec<u8>>,
    pub(super) repeat_of: Option<Vec<u8>>,
    pub(super) identity: Option<Vec<u8>>,
}

impl Columns {
    pub(super) fn of(secret: &StoreSecret, workspace: Workspace, claim: &Claim) -> Self {
        let lease = match &claim.state {
            State::Processing(lease) => Some(lease),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        };
        let at_claim = match &claim.state {
            State::Done { at_claim, .. } => at_claim.as_ref(),
            State::None { .. } | State::Processing(_) | State::Error { .. } => None,
        };
        let parent = lease.and_then(|l| l.parent.as_ref());
        let (holder, boot, run_id) = match lease.map(|l| &l.holder) {
            Some(Holder::Caller { run_id }) => (Some("caller"), None, run_id.as_ref()),
            Some(Holder::Runner { boot }) => (Some("runner"), Some(boot.to_i64()), None),
            None => (None, None, at_claim.map(|a| &a.run_id)),
        };
        let record_hash = match (&claim.record, lease) {
            (Some(record), Some(lease)) if lease.keeps_record() => {
                Some(secret.record_hash(workspace, record).to_vec())
            }
            _ => None,
        };
        let mut columns = Self {
            processing_state: claim.processing_state().as_str(),
            attempt: claim.attempt.into(),
            generation: claim.generation.into(),
            resets: claim.resets.into(),
            steps_since: claim.steps_since.into(),
            key_generation: claim.key_generation.into(),
            fingerprint: claim.fingerprint.map(|f| Fingerprint::to_bytes(f).to_vec()),
            record: claim.record.as_ref().map(|r| r.as_str().to_owned()),
            record_hash,
            retries_used: claim.retries_used.into(),
            stale_retries_used: claim.stale_retries_used.into(),
            resumes_used: claim.resumes_used.into(),
            step_succeeded: claim.progress.succeeded,
            step_unknown: claim.progress.unknown,
            flow: claim.flow,
            dismissed: claim.dismissed,
            opened_at: claim.open_since.as_millis(),
            holder,
            boot,
            run_id: run_id.map(|id| id.as_str().to_owned()),
            processing_started_at: lease.map(|l| l.started_at.as_millis()),
            lease_renewed: lease.map(|l| l.renewed.0).or(at_claim.map(|a| a.claimed.0)),
            lease_ttl: lease.map(|l| l.ttl).or(at_claim.map(|a| a.ttl)).map(|ttl| millis(ttl.get())),
            lease_expires: lease.map(|l| l.expires().0),
            parent: parent.map(|p| p.id.0.to_vec()),
            parent_ends: parent.map(|p| p.ends.0),
            nudge_at: claim.nudge.map(|n| n.due.as_millis()),
            nudges: claim.nudge.map_or(0, |n| n.unanswered.into()),
            same_runs: lease.map(|l| l.same_runs).or(at_claim.map(|a| a.same_runs)).unwrap_or(0).into(),
            heard_from: lease.is_some_and(|l| l.heard_from),
            parked: claim.parked.map(Parked::as_str),
            mismatch_at: claim.mismatch_at.map(Timestamp::as_millis),
            late_at: claim.late_at.map(Timestamp::as_millis),
            likeness: claim.likeness.map(Vec::from),
            repeat_of: claim.repeat_of.map(|id| id.0.to_vec()),
            identity: claim.identity.map(|print| print.0.to_vec()),
            ..Self::default()
        };
        match &claim.state {
            State::None { due } => columns.due_at = due.map(Timestamp::as_millis),
            State::Processing(lease) => columns.due_at = lease.deferred_until.map(Timestamp::as_millis),
            State::Done { at, retain_until, .. } => {
                columns.done_at = Some(at.as_millis());
                columns.retain_until = Some(retain_until.as_millis());
            }
            State::Error { at, due, cause, note } => {
                columns.error_at = Some(at.as_millis());
                columns.due_at = due.map(Timestamp::as_millis);
                columns.error_cause = Some(cause.as_str());
                columns.note = Some(storable(note).into_owned());
            }
        }
        columns
    }

    /// The values in the order of [`Columns::NAMES`].
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 42] {
        [
            &self.processing_state,
            &self.attempt,
            &self.generation,
            &self.resets,
            &self.steps_since,
            &self.key_generation,
            &self.fingerprint,
            &self.record,
            &self.record_hash,
            &self.retries_used,
            &self.stale_retries_used,
            &self.resumes_used,
            &self.step_succeeded,
            &self.step_unknown,
            &self.flow,
            &self.dismissed,
            &self.opened_at,
            &self.due_at,
            &self.holder,
            &self.boot,
            &self.run_id,
            &self.processing_started_at,
            &self.lease_renewed,
            &self.lease_ttl,
            &self.lease_expires,
            &self.parent,
            &self.parent_ends,
            &self.nudge_at,
            &self.nudges,
            &self.same_runs,
            &self.heard_from,
            &self.done_at,
            &self.retain_until,
            &self.error_at,
            &self.error_cause,
            &self.note,
            &self.parked,
            &self.mismatch_at,
            &self.late_at,
            &self.likeness,
            &self.repeat_of,
            &self.identity,
        ]
    }

    /// The columns of [`Columns::values`].
    pub(super) const NAMES: [&'static str; 42] = [
        "processing_state",
        "attempt",
        "generation",
        "resets",
        "steps_since",
        "key_generation",
        "fingerprint",
        "record",
        "record_hash",
        "retries_used",
        "stale_retries_used",
        "resumes_used",
        "step_succeeded",
        "step_unknown",
        "flow",
        "dismissed",
        "opened_at",
        "due_at",
        "holder",
        "boot",
        "run_id",
        "processing_started_at",
        "lease_renewed",
        "lease_ttl",
        "lease_expires",
        "parent",
        "parent_ends",
        "nudge_at",
        "nudges",
        "same_runs",
        "heard_from",
        "done_at",
        "retain_until",
        "error_at",
        "error_cause",
        "note",
        "parked",
        "mismatch_at",
        "late_at",
        "likeness",
        "repeat_of",
        "identity",
    ];
}

/// The statement that makes a claim: `$1`–`$42` are [`Columns::values`], then workspace, id, automation, key, run URL,
/// result, now. No row: another transaction made it first.
pub(super) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let places: Vec<String> = (1..=Columns::NAMES.len()).map(|n| format!("${n}")).collect();
    format!(
        "INSERT INTO claims ({}, workspace_id, claim_id, automation_id, idempotency_key, run_url, result, version, \
         created_at, updated_at) VALUES ({}, $43, $44, $45, $46, $47, $48, 1, $49, $49) \
         ON CONFLICT (workspace_id, claim_id) DO NOTHING RETURNING position",
        Columns::NAMES.join(", "),
        places.join(", "),
    )
});

/// The statement that replaces a claim's row: `$1`–`$42` are [`Columns::values`], then workspace, id, version, run
/// URL, result, now. It compares and swaps the version, so that no node can overwrite what it did not load.
pub(super) static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let set: Vec<String> = Columns::NAMES
        .iter()
        .enumerate()
        .map(|(i, name)| match *name {
            // A claim that ended keeps the run that it ended in.
            "run_id" => {
                let n = i + 1;
                format!("run_id = CASE WHEN $1 = 'processing' OR ${n}::text IS NOT NULL THEN ${n}::text ELSE run_id END")
            }
            name => format!("{name} = ${}", i + 1),
        })
        .collect();
    format!(
        "UPDATE claims SET {}, version = version + 1, run_url = COALESCE($46, run_url), \
         result = CASE WHEN $1 <> 'done' THEN NULL \
         WHEN processing_state = 'done' AND attempt = $2 THEN result ELSE $47::text END, updated_at = $48 \
         WHERE workspace_id = $43 AND claim_id = $44 AND version = $45",
        set.join(", "),
    )
});

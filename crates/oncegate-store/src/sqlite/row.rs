//! Between the row of `claims` and the core's [`Claim`]. A row that does not read is an error that names it.

use oncegate_core::claim::{
    AtClaim, Boot, Claim, ErrorCause, Holder, Lease, Nudge, Parent, Parked, Progress, State,
};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::identity::IdentityPrint;
use oncegate_core::key::{
    AutomationName, ClaimId, ClaimRef, IdempotencyKey, RecordName, RunId, StoreSecret, Workspace,
};
use oncegate_core::policy::Ttl;
use oncegate_core::time::{LeaseInstant, Now, Timestamp, millis};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use std::sync::LazyLock;
use std::time::Duration;

use super::numbers::{Column, number, numbered};
use crate::StoreError;
use crate::api::ClaimView;

/// A claim's row with what the core does not see.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) row: i64,
    pub(super) version: i64,
    pub(super) automation_id: i64,
    pub(super) view: ClaimView,
}

/// Every column that [`read`] wants, `c` being `claims` and `a` its automation.
pub(super) const COLUMNS: &str = "c.id, c.claim_id, c.workspace_id, c.automation_id, c.idempotency_key, \
    c.processing_state, c.version, c.attempt, c.generation, c.resets, c.steps_since, c.key_generation, c.fingerprint, \
    c.record, c.record_hash, \
    c.retries_used, c.stale_retries_used, c.resumes_used, c.step_succeeded, c.step_unknown, c.flow, c.dismissed, \
    c.opened_at, c.due_at, c.holder, c.boot, c.run_id, c.run_url, c.processing_started_at, c.lease_renewed, \
    c.lease_ttl, c.parent, c.parent_ends, c.nudge_at, c.nudges, c.same_runs, c.heard_from, c.done_at, c.retain_until, c.result, c.error_at, c.error_cause, \
    c.note, c.parked, c.mismatch_at, c.late_at, c.stops, c.first_stop_at, c.last_stop_at, c.created_at, \
    c.tag, c.updated_at, c.payload_removed_at, c.likeness, c.repeat_of, c.identity, a.name, \
    (SELECT o.idempotency_key FROM claims o WHERE o.claim_id = c.repeat_of AND o.workspace_id = c.workspace_id) \
    AS repeat_of_key";

macro_rules! column {
    ($name:literal) => {
        const { Column::named(COLUMNS, $name) }
    };
}

/// The last column has no name of its own table.
const REPEAT_OF_KEY: Column = Column { at: column!("name").at + 1, name: "repeat_of_key" };

/// How many columns [`SELECT`] gives.
pub(super) const WIDTH: usize = REPEAT_OF_KEY.at + 1;

macro_rules! at {
    ($name:literal) => {
        column!($name).at
    };
}

/// Rows that [`read`] reads, from where they are.
pub(super) static SELECT: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM claims c JOIN automations a ON a.id = c.automation_id"));

pub(super) fn ts(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn bad(what: &str, id: &ClaimId) -> StoreError {
    StoreError::Inconsistent(format!("claim {id} has an unreadable {what}"))
}

/// Reads a row made by [`SELECT`]; `inbox` is judged by the caller, who knows the time.
pub(super) fn read(r: &Row<'_>) -> Result<Stored, StoreError> {
    let id: [u8; 16] = r.get(at!("claim_id"))?;
    let id = ClaimId(id);
    let label = &id;
    let opt_ts = |column: Column| -> Result<Option<Timestamp>, StoreError> {
        Ok(r.get::<_, Option<i64>>(column.at)?.map(ts))
    };
    let need = |column: Column| -> Result<Timestamp, StoreError> {
        opt_ts(column)?.ok_or_else(|| bad(column.name, label))
    };
    let due = opt_ts(column!("due_at"))?;
    let keeps_record = !matches!(r.get_ref(at!("record_hash"))?, ValueRef::Null);
    let record = text(r, column!("record"), |t| RecordName::try_from(t).ok(), label)?;
    let state = match words(r, column!("processing_state"), label)?.unwrap_or_default() {
        "none" => State::None { due },
        "processing" => {
            let run_id = text(r, column!("run_id"), |t| RunId::try_from(t).ok(), label)?;
            let holder = match words(r, column!("holder"), label)? {
                Some("caller") => Holder::Caller { run_id },
                _ => Holder::Runner { boot: Boot::from_i64(r.get(at!("boot"))?) },
            };
            let parent = parent(r, record.is_some() && !keeps_record)?;
            State::Processing(Lease {
                holder,
                started_at: need(column!("processing_started_at"))?,
                renewed: LeaseInstant(r.get(at!("lease_renewed"))?),
                ttl: ttl(r.get(at!("lease_ttl"))?, label)?,
                same_runs: r.get(at!("same_runs"))?,
                heard_from: r.get(at!("heard_from"))?,
                deferred_until: due,
                // A claim that lost its record has no parent any more.
                holds_record: record.is_none() || keeps_record || parent.is_some(),
                parent,
            })
        }
        "done" => State::Done {
            at: need(column!("done_at"))?,
            retain_until: need(column!("retain_until"))?,
            at_claim: at_claim(r, label)?,
        },
        "error" => State::Error {
            at: need(column!("error_at"))?,
            due,
            cause: text(r, column!("error_cause"), cause, label)?.ok_or_else(|| bad("error_cause", label))?,
            note: r.get::<_, Option<String>>(at!("note"))?.unwrap_or_default(),
        },
        _ => return Err(bad("processing_state", label)),
    };
    let fingerprint = match r.get_ref(at!("fingerprint"))?.as_bytes_or_null() {
        Ok(None) => None,
        Ok(Some(bytes)) => Some(Fingerprint::from_bytes(bytes).ok_or_else(|| bad("fingerprint", label))?),
        Err(_) => return Err(bad("fingerprint", label)),
    };
    let claim = Claim {
        id,
        state,
        attempt: r.get(at!("attempt"))?,
        generation: r.get(at!("generation"))?,
        fingerprint,
        record,
        likeness: r.get(at!("likeness"))?,
        repeat_of: r.get::<_, Option<[u8; 16]>>(at!("repeat_of"))?.map(ClaimId),
        identity: r.get::<_, Option<[u8; 16]>>(at!("identity"))?.map(IdentityPrint),
        retries_used: r.get(at!("retries_used"))?,
        stale_retries_used: r.get(at!("stale_retries_used"))?,
        resumes_used: r.get(at!("resumes_used"))?,
        resets: r.get(at!("resets"))?,
        steps_since: r.get(at!("steps_since"))?,
        key_generation: r.get(at!("key_generation"))?,
        progress: Progress { succeeded: r.get(at!("step_succeeded"))?, unknown: r.get(at!("step_unknown"))? },
        flow: r.get(at!("flow"))?,
        open_since: need(column!("opened_at"))?,
        parked: text(r, column!("parked"), Parked::parse, label)?,
        nudge: match opt_ts(column!("nudge_at"))? {
            Some(due) => Some(Nudge { due, unanswered: r.get(at!("nudges"))? }),
            None => None,
        },
        mismatch_at: opt_ts(column!("mismatch_at"))?,
        late_at: opt_ts(column!("late_at"))?,
        dismissed: r.get(at!("dismissed"))?,
    };
    let name = text(r, column!("name"), |t| AutomationName::try_from(t).ok(), label)?;
    let key = text(r, column!("idempotency_key"), |t| IdempotencyKey::try_from(t).ok(), label)?;
    let repeat_of = text(r, REPEAT_OF_KEY, |t| IdempotencyKey::try_from(t).ok(), label)?;
    let view = ClaimView {
        workspace: Workspace(r.get(at!("workspace_id"))?),
        row: r.get(at!("id"))?,
        claim,
        automation: name.ok_or_else(|| bad("automation", label))?,
        key: key.ok_or_else(|| bad("idempotency_key", label))?,
        repeat_of,
        inbox: None,
        run_url: r.get(at!("run_url"))?,
        result: r.get(at!("result"))?,
        stops: u64::try_from(r.get::<_, i64>(at!("stops"))?).unwrap_or_default(),
        first_stop_at: opt_ts(column!("first_stop_at"))?,
        last_stop_at: opt_ts(column!("last_stop_at"))?,
        tag: r.get(at!("tag"))?,
        created_at: need(column!("created_at"))?,
        updated_at: need(column!("updated_at"))?,
        // Zero says that there was none to remove.
        payload_removed_at: opt_ts(column!("payload_removed_at"))?.filter(|at| at.as_millis() != 0),
    };
    Ok(Stored {
        row: view.row,
        version: r.get(at!("version"))?,
        automation_id: r.get(at!("automation_id"))?,
        view,
    })
}

fn ttl(ms: i64, label: &ClaimId) -> Result<Ttl, StoreError> {
    let ttl = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    Ttl::overridden(ttl).map_err(|_| bad("lease_ttl", label))
}

/// One that has a record, and does not keep others off it itself, shares its parent's.
fn parent(r: &Row<'_>, shares_record: bool) -> Result<Option<Parent>, StoreError> {
    let (Some(id), Some(ends)) = (r.get::<_, Option<[u8; 16]>>(at!("parent"))?, r.get(at!("parent_ends"))?)
    else {
        return Ok(None);
    };
    Ok(Some(Parent { id: ClaimId(id), ends: LeaseInstant(ends), shares_record }))
}

/// A claim that was done at once keeps what tells its own run from another.
fn at_claim(r: &Row<'_>, label: &ClaimId) -> Result<Option<AtClaim>, StoreError> {
    let Some(claimed) = r.get(at!("lease_renewed"))? else { return Ok(None) };
    let Some(run_id) = text(r, column!("run_id"), |t| RunId::try_from(t).ok(), label)? else {
        return Ok(None);
    };
    let (ttl, same_runs) = (ttl(r.get(at!("lease_ttl"))?, label)?, r.get(at!("same_runs"))?);
    Ok(Some(AtClaim { run_id, claimed: LeaseInstant(claimed), ttl, same_runs }))
}

/// Text where it lies, without a copy.
fn words<'r>(r: &'r Row<'_>, column: Column, label: &ClaimId) -> Result<Option<&'r str>, StoreError> {
    r.get_ref(column.at)?.as_str_or_null().map_err(|_| bad(column.name, label))
}

fn text<T>(
    r: &Row<'_>,
    column: Column,
    parse: impl Fn(&str) -> Option<T>,
    label: &ClaimId,
) -> Result<Option<T>, StoreError> {
    match words(r, column, label)? {
        None => Ok(None),
        Some(t) => parse(t).map(Some).ok_or_else(|| bad(column.name, label)),
    }
}

fn cause(word: &str) -> Option<ErrorCause> {
    use ErrorCause::{
        AskedToWait, Failed, Marked, MarkedAfterDone, OutcomeUnknown, Restored, Shutdown, Stale,
    };
    [Failed, OutcomeUnknown, Stale, Shutdown, AskedToWait, Marked, MarkedAfterDone, Restored]
        .into_iter()
        .find(|c| c.as_str() == word)
}

/// Loads one claim; another workspace's is not there.
pub(super) fn load(db: &Connection, claim: ClaimRef) -> Result<Option<Stored>, StoreError> {
    static LOAD: LazyLock<String> =
        LazyLock::new(|| format!("{} WHERE c.claim_id = ?1 AND c.workspace_id = ?2", *SELECT));
    let mut statement = db.prepare_cached(&LOAD)?;
    let found = statement.query_row(params![&claim.id.0[..], claim.workspace.0], |r| Ok(read(r)));
    found.optional()?.transpose()
}

/// What is written about a claim besides the core's row.
#[derive(Default)]
pub(super) struct Extra<'a> {
    pub(super) run_url: Option<&'a str>,
    pub(super) result: Option<&'a str>,
}

/// A new claim.
pub(super) fn insert(
    db: &Connection,
    secret: &StoreSecret,
    place: (Workspace, i64, &IdempotencyKey),
    claim: &Claim,
    extra: &Extra<'_>,
    now: Now,
) -> Result<i64, StoreError> {
    let (workspace, automation, key) = place;
    static INSERT: LazyLock<String> = LazyLock::new(|| {
        numbered(
            &PARAMS,
            "INSERT INTO claims (claim_id, workspace_id, automation_id, idempotency_key, processing_state, version, \
         attempt, generation, resets, steps_since, key_generation, fingerprint, record, record_hash, retries_used, stale_retries_used, \
         resumes_used, step_succeeded, step_unknown, flow, dismissed, opened_at, due_at, holder, boot, run_id, \
         run_url, processing_started_at, lease_renewed, lease_ttl, lease_expires, parent, parent_ends, nudge_at, nudges, same_runs, heard_from, done_at, \
         retain_until, result, error_at, error_cause, note, parked, mismatch_at, late_at, likeness, repeat_of, identity, created_at, updated_at) \
         VALUES (:claim_id, :workspace, :automation, :key, :state, 1, :attempt, :generation, :resets, :steps_since, :key_generation, :fingerprint, \
         :record, :record_hash, :retries, :stale_retries, :resumes, :succeeded, :unknown, :flow, :dismissed, \
         :opened, :due, :holder, :boot, :run_id, :run_url, :started, :renewed, :ttl, :expires, :parent, :parent_ends, :nudge_at, :nudges, :same_runs, \
         :heard, :done_at, :retain, :result, :error_at, :cause, :note, :parked, :mismatch, :late, :likeness, \
         :repeat_of, :identity, :now, :now)",
        )
    });
    let mut statement = db.prepare_cached(&INSERT)?;
    statement.raw_bind_parameter(const { number(&PARAMS, "claim_id") }, &claim.id.0[..])?;
    statement.raw_bind_parameter(const { number(&PARAMS, "automation") }, automation)?;
    statement.raw_bind_parameter(const { number(&PARAMS, "key") }, key.as_str())?;
    bind_claim(&mut statement, secret, workspace, claim, extra, now)?;
    statement.raw_execute()?;
    Ok(db.last_insert_rowid())
}

/// Replaces a claim's row. Compares and swaps the version, so that no store can overwrite what it did not load.
pub(super) fn update(
    db: &Connection,
    secret: &StoreSecret,
    stored: &Stored,
    claim: &Claim,
    extra: &Extra<'_>,
    now: Now,
) -> Result<(), StoreError> {
    static UPDATE: LazyLock<String> = LazyLock::new(|| {
        numbered(
            &PARAMS,
            "UPDATE claims SET processing_state = :state, version = version + 1, attempt = :attempt, \
         generation = :generation, resets = :resets, steps_since = :steps_since, key_generation = :key_generation, \
         fingerprint = :fingerprint, record = :record, \
         record_hash = :record_hash, retries_used = :retries, stale_retries_used = :stale_retries, \
         resumes_used = :resumes, step_succeeded = :succeeded, step_unknown = :unknown, flow = :flow, \
         dismissed = :dismissed, opened_at = :opened, due_at = :due, holder = :holder, boot = :boot, \
         run_id = CASE WHEN :state = 'processing' OR :run_id IS NOT NULL THEN :run_id ELSE run_id END, \
         run_url = COALESCE(:run_url, run_url), \
         processing_started_at = :started, lease_renewed = :renewed, lease_ttl = :ttl, lease_expires = :expires, \
         parent = :parent, parent_ends = :parent_ends, nudge_at = :nudge_at, nudges = :nudges, \
         same_runs = :same_runs, heard_from = :heard, done_at = :done_at, retain_until = :retain, \
         result = CASE WHEN :state <> 'done' THEN NULL \
         WHEN processing_state = 'done' AND attempt = :attempt THEN result ELSE :result END, \
         error_at = :error_at, error_cause = :cause, note = :note, parked = :parked, mismatch_at = :mismatch, \
         late_at = :late, likeness = :likeness, repeat_of = :repeat_of, identity = :identity, updated_at = :now \
         WHERE id = :row AND version = :version AND workspace_id = :workspace",
        )
    });
    let mut statement = db.prepare_cached(&UPDATE)?;
    statement.raw_bind_parameter(const { number(&PARAMS, "row") }, stored.row)?;
    statement.raw_bind_parameter(const { number(&PARAMS, "version") }, stored.version)?;
    bind_claim(&mut statement, secret, stored.view.workspace, claim, extra, now)?;
    match statement.raw_execute()? {
        1 => Ok(()),
        _ => Err(StoreError::Inconsistent(format!("claim {} changed under a transaction", claim.id))),
    }
}

/// What stands as `:name` in [`insert`] and [`update`], in the order of its numbers: first what [`bind_claim`] binds.
/// By name each binding would be looked for, for every claim.
const PARAMS: [&str; SHARED + 5] = [
    "workspace",
    "state",
    "attempt",
    "generation",
    "resets",
    "steps_since",
    "key_generation",
    "fingerprint",
    "record",
    "record_hash",
    "retries",
    "stale_retries",
    "resumes",
    "succeeded",
    "unknown",
    "flow",
    "dismissed",
    "opened",
    "due",
    "holder",
    "boot",
    "run_id",
    "run_url",
    "started",
    "renewed",
    "ttl",
    "expires",
    "parent",
    "parent_ends",
    "nudge_at",
    "nudges",
    "same_runs",
    "heard",
    "done_at",
    "retain",
    "result",
    "error_at",
    "cause",
    "note",
    "parked",
    "mismatch",
    "late",
    "likeness",
    "repeat_of",
    "identity",
    "now",
    "claim_id",
    "automation",
    "key",
    "row",
    "version",
];
/// How many of them [`bind_claim`] binds.
const SHARED: usize = 46;

/// Binds what `insert` and `update` share, so that no field can be written by one and forgotten by the other.
fn bind_claim(
    statement: &mut CachedStatement<'_>,
    secret: &StoreSecret,
    workspace: Workspace,
    claim: &Claim,
    extra: &Extra<'_>,
    now: Now,
) -> Result<(), StoreError> {
    let lease = match &claim.state {
        State::Processing(lease) => Some(lease),
        State::None { .. } | State::Done { .. } | State::Error { .. } => None,
    };
    let (done_at, retain_until, at_claim) = match &claim.state {
        State::Done { at, retain_until, at_claim } => {
            (Some(at.as_millis()), Some(retain_until.as_millis()), at_claim.as_ref())
        }
        State::None { .. } | State::Processing(_) | State::Error { .. } => (None, None, None),
    };
    let parent = lease.and_then(|l| l.parent.as_ref());
    let (error_at, cause, note) = match &claim.state {
        State::Error { at, cause, note, .. } => {
            (Some(at.as_millis()), Some(cause.as_str()), Some(note.as_str()))
        }
        State::None { .. } | State::Processing(_) | State::Done { .. } => (None, None, None),
    };
    let due = match &claim.state {
        State::None { due } | State::Error { due, .. } => *due,
        State::Processing(lease) => lease.deferred_until,
        State::Done { .. } => None,
    };
    let (holder, boot, run_id) = match lease.map(|l| &l.holder) {
        Some(Holder::Caller { run_id }) => (Some("caller"), None, run_id.as_ref().map(RunId::as_str)),
        Some(Holder::Runner { boot }) => (Some("runner"), Some(boot.to_i64()), None),
        None => (None, None, at_claim.map(|a| a.run_id.as_str())),
    };
    let record_hash = match (&claim.record, lease) {
        (Some(record), Some(lease)) if lease.keeps_record() => Some(secret.record_hash(workspace, record)),
        _ => None,
    };
    let fingerprint = claim.fingerprint.map(Fingerprint::to_bytes);
    let params: [(&str, &dyn rusqlite::ToSql); SHARED] = [
        ("workspace", &workspace.0),
        ("state", &claim.processing_state().as_str()),
        ("attempt", &claim.attempt),
        ("generation", &claim.generation),
        ("resets", &claim.resets),
        ("steps_since", &claim.steps_since),
        ("key_generation", &claim.key_generation),
        ("fingerprint", &fingerprint.as_ref().map(|f| &f[..])),
        ("record", &claim.record.as_ref().map(RecordName::as_str)),
        ("record_hash", &record_hash.as_ref().map(|h| &h[..])),
        ("retries", &claim.retries_used),
        ("stale_retries", &claim.stale_retries_used),
        ("resumes", &claim.resumes_used),
        ("succeeded", &claim.progress.succeeded),
        ("unknown", &claim.progress.unknown),
        ("flow", &claim.flow),
        ("dismissed", &claim.dismissed),
        ("opened", &claim.open_since.as_millis()),
        ("due", &due.map(Timestamp::as_millis)),
        ("holder", &holder),
        ("boot", &boot),
        ("run_id", &run_id),
        ("run_url", &extra.run_url),
        ("started", &lease.map(|l| l.started_at.as_millis())),
        ("renewed", &lease.map(|l| l.renewed.0).or(at_claim.map(|a| a.claimed.0))),
        ("ttl", &lease.map(|l| l.ttl).or(at_claim.map(|a| a.ttl)).map(|ttl| millis(ttl.get()))),
        ("expires", &lease.map(|l| l.expires().0)),
        ("parent", &parent.map(|p| &p.id.0[..])),
        ("parent_ends", &parent.map(|p| p.ends.0)),
        ("nudge_at", &claim.nudge.map(|n| n.due.as_millis())),
        ("nudges", &claim.nudge.map_or(0, |n| n.unanswered)),
        ("same_runs", &lease.map(|l| l.same_runs).or(at_claim.map(|a| a.same_runs)).unwrap_or(0)),
        ("heard", &lease.is_some_and(|l| l.heard_from)),
        ("done_at", &done_at),
        ("retain", &retain_until),
        ("result", &extra.result),
        ("error_at", &error_at),
        ("cause", &cause),
        ("note", &note),
        ("parked", &claim.parked.map(Parked::as_str)),
        ("mismatch", &claim.mismatch_at.map(Timestamp::as_millis)),
        ("late", &claim.late_at.map(Timestamp::as_millis)),
        ("likeness", &claim.likeness.as_ref().map(|like| &like[..])),
        ("repeat_of", &claim.repeat_of.as_ref().map(|id| &id.0[..])),
        ("identity", &claim.identity.as_ref().map(|print| &print.0[..])),
        ("now", &now.wall.as_millis()),
    ];
    for (at, (name, value)) in params.into_iter().enumerate() {
        if PARAMS[at] != name {
            return Err(StoreError::Inconsistent(format!(
                "parameter {name} stands where {} belongs",
                PARAMS[at]
            )));
        }
        statement.raw_bind_parameter(at + 1, value)?;
    }
    Ok(())
}

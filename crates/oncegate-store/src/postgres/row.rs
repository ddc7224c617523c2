//! Between the row of `claims` and the core's [`Claim`]. A row that does not read is an error that names it.

use std::sync::LazyLock;
use std::time::Duration;

use oncegate_core::claim::{
    AtClaim, Boot, Claim, ErrorCause, Holder, Lease, Nudge, Parent, Parked, Progress, State,
};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::identity::IdentityPrint;
use oncegate_core::key::{AutomationName, ClaimId, IdempotencyKey, RecordName, RunId, Workspace};
use oncegate_core::policy::Ttl;
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use tokio_postgres::Row;

pub(super) use super::columns::{Columns, Extra, INSERT, UPDATE};
use super::error::{Fault, unreadable};
use crate::api::ClaimView;

/// A claim's row with what the core does not see.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) version: i64,
    pub(super) automation_id: i64,
    pub(super) view: ClaimView,
}

impl Stored {
    pub(super) fn id(&self) -> ClaimId {
        self.view.claim.id
    }
}

/// Every column that [`read`] wants, in its order, `c` being `claims` and `a` its automation.
pub(super) const COLUMNS: &str = "c.claim_id, c.workspace_id, c.position, c.automation_id, c.idempotency_key, \
    c.processing_state, c.version, c.attempt, c.generation, c.resets, c.steps_since, c.key_generation, c.fingerprint, \
    c.record, c.record_hash IS NOT NULL AS keeps_record, c.retries_used, c.stale_retries_used, c.resumes_used, \
    c.step_succeeded, c.step_unknown, c.flow, c.dismissed, c.opened_at, c.due_at, c.holder, c.boot, c.run_id, \
    c.run_url, c.processing_started_at, c.lease_renewed, c.lease_ttl, c.parent, c.parent_ends, c.nudge_at, c.nudges, \
    c.same_runs, c.heard_from, c.done_at, c.retain_until, c.result, c.error_at, c.error_cause, c.note, c.parked, \
    c.mismatch_at, c.late_at, c.stops, c.first_stop_at, c.last_stop_at, c.created_at, c.tag, c.updated_at, \
    c.payload_removed_at, c.likeness, c.repeat_of, c.identity, a.name, \
    (SELECT o.idempotency_key FROM claims o WHERE o.workspace_id = c.workspace_id AND o.claim_id = c.repeat_of) \
    AS repeat_of_key";

/// Rows that [`read`] reads, from where they are.
pub(super) static SELECT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM claims c JOIN automations a \
         ON a.workspace_id = c.workspace_id AND a.id = c.automation_id"
    )
});

pub(super) fn ts(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// A count as the core has it.
fn count(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn bad(what: &str, id: ClaimId) -> Fault {
    unreadable(format!("claim {id} has an unreadable {what}"))
}

/// A column, or the error that names it.
fn get<'r, T: tokio_postgres::types::FromSql<'r>>(r: &'r Row, name: &str, id: ClaimId) -> Result<T, Fault> {
    r.try_get(name).map_err(|_| bad(name, id))
}

/// A claim's id.
pub(super) fn claim_id(bytes: &[u8]) -> Result<ClaimId, Fault> {
    bytes.try_into().map(ClaimId).map_err(|_| unreadable("a claim's id is not 16 bytes long"))
}

/// Reads a row made by [`SELECT`]; `inbox` is judged by the caller, who knows the time.
pub(super) fn read(r: &Row) -> Result<Stored, Fault> {
    let id = claim_id(r.try_get("claim_id").map_err(unreadable)?)?;
    let opt_ts =
        |name: &str| -> Result<Option<Timestamp>, Fault> { Ok(get::<Option<i64>>(r, name, id)?.map(ts)) };
    let need = |name: &str| -> Result<Timestamp, Fault> { opt_ts(name)?.ok_or_else(|| bad(name, id)) };
    let number = |name: &str| -> Result<u32, Fault> { Ok(count(get(r, name, id)?)) };
    let due = opt_ts("due_at")?;
    let keeps_record: bool = get(r, "keeps_record", id)?;
    let record = text(r, "record", |t| RecordName::try_from(t).ok(), id)?;
    let state = match get::<&str>(r, "processing_state", id)? {
        "none" => State::None { due },
        "processing" => {
            let run_id = text(r, "run_id", |t| RunId::try_from(t).ok(), id)?;
            let holder = match get::<&str>(r, "holder", id)? {
                "caller" => Holder::Caller { run_id },
                _ => Holder::Runner { boot: boot(get(r, "boot", id)?) },
            };
            let parent = parent(r, record.is_some() && !keeps_record, id)?;
            State::Processing(Lease {
                holder,
                started_at: need("processing_started_at")?,
                renewed: LeaseInstant(get(r, "lease_renewed", id)?),
                ttl: ttl(get(r, "lease_ttl", id)?, id)?,
                same_runs: number("same_runs")?,
                heard_from: get(r, "heard_from", id)?,
                deferred_until: due,
                // A claim that lost its record has no parent any more.
                holds_record: record.is_none() || keeps_record || parent.is_some(),
                parent,
            })
        }
        "done" => State::Done {
            at: need("done_at")?,
            retain_until: need("retain_until")?,
            at_claim: at_claim(r, id)?,
        },
        "error" => State::Error {
            at: need("error_at")?,
            due,
            cause: text(r, "error_cause", cause, id)?.ok_or_else(|| bad("error_cause", id))?,
            note: get::<Option<String>>(r, "note", id)?.unwrap_or_default(),
        },
        _ => return Err(bad("processing_state", id)),
    };
    let fingerprint = match get::<Option<&[u8]>>(r, "fingerprint", id)? {
        Some(bytes) => Some(Fingerprint::from_bytes(bytes).ok_or_else(|| bad("fingerprint", id))?),
        None => None,
    };
    let claim = Claim {
        id,
        state,
        attempt: number("attempt")?,
        generation: number("generation")?,
        fingerprint,
        record,
        likeness: hash(r, "likeness", id)?,
        repeat_of: hash(r, "repeat_of", id)?.map(ClaimId),
        identity: hash(r, "identity", id)?.map(IdentityPrint),
        retries_used: number("retries_used")?,
        stale_retries_used: number("stale_retries_used")?,
        resumes_used: number("resumes_used")?,
        resets: number("resets")?,
        steps_since: number("steps_since")?,
        key_generation: number("key_generation")?,
        progress: Progress { succeeded: get(r, "step_succeeded", id)?, unknown: get(r, "step_unknown", id)? },
        flow: get(r, "flow", id)?,
        open_since: need("opened_at")?,
        parked: text(r, "parked", Parked::parse, id)?,
        nudge: match opt_ts("nudge_at")? {
            Some(due) => Some(Nudge { due, unanswered: number("nudges")? }),
            None => None,
        },
        mismatch_at: opt_ts("mismatch_at")?,
        late_at: opt_ts("late_at")?,
        dismissed: get(r, "dismissed", id)?,
    };
    let view = ClaimView {
        workspace: Workspace(get(r, "workspace_id", id)?),
        row: get(r, "position", id)?,
        claim,
        automation: AutomationName::try_from(get::<&str>(r, "name", id)?)
            .map_err(|_| bad("automation", id))?,
        key: IdempotencyKey::try_from(get::<&str>(r, "idempotency_key", id)?)
            .map_err(|_| bad("idempotency_key", id))?,
        repeat_of: text(r, "repeat_of_key", |t| IdempotencyKey::try_from(t).ok(), id)?,
        inbox: None,
        run_url: get(r, "run_url", id)?,
        result: get(r, "result", id)?,
        stops: get::<i64>(r, "stops", id)?.unsigned_abs(),
        first_stop_at: opt_ts("first_stop_at")?,
        last_stop_at: opt_ts("last_stop_at")?,
        tag: get(r, "tag", id)?,
        created_at: need("created_at")?,
        updated_at: need("updated_at")?,
        // Zero says that there was none to remove.
        payload_removed_at: opt_ts("payload_removed_at")?.filter(|at| at.as_millis() != 0),
    };
    Ok(Stored { version: get(r, "version", id)?, automation_id: get(r, "automation_id", id)?, view })
}

fn hash(r: &Row, name: &str, id: ClaimId) -> Result<Option<[u8; 16]>, Fault> {
    let found = get::<Option<&[u8]>>(r, name, id)?;
    found.map(|bytes| bytes.try_into().map_err(|_| bad(name, id))).transpose()
}

fn boot(n: Option<i64>) -> Boot {
    Boot::from_i64(n.unwrap_or_default())
}

fn ttl(ms: i64, id: ClaimId) -> Result<Ttl, Fault> {
    let ttl = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    Ttl::overridden(ttl).map_err(|_| bad("lease_ttl", id))
}

/// One that has a record, and does not keep others off it itself, shares its parent's.
fn parent(r: &Row, shares_record: bool, id: ClaimId) -> Result<Option<Parent>, Fault> {
    let (above, ends) = (get::<Option<&[u8]>>(r, "parent", id)?, get::<Option<i64>>(r, "parent_ends", id)?);
    let (Some(above), Some(ends)) = (above, ends) else { return Ok(None) };
    Ok(Some(Parent { id: claim_id(above)?, ends: LeaseInstant(ends), shares_record }))
}

/// A claim that was done at once keeps what tells its own run from another.
fn at_claim(r: &Row, id: ClaimId) -> Result<Option<AtClaim>, Fault> {
    let Some(claimed) = get(r, "lease_renewed", id)? else { return Ok(None) };
    let Some(run_id) = text(r, "run_id", |t| RunId::try_from(t).ok(), id)? else { return Ok(None) };
    let (ttl, same_runs) = (ttl(get(r, "lease_ttl", id)?, id)?, count(get(r, "same_runs", id)?));
    Ok(Some(AtClaim { run_id, claimed: LeaseInstant(claimed), ttl, same_runs }))
}

fn text<T>(r: &Row, name: &str, parse: impl Fn(&str) -> Option<T>, id: ClaimId) -> Result<Option<T>, Fault> {
    match get::<Option<&str>>(r, name, id)? {
        None => Ok(None),
        Some(t) => parse(t).map(Some).ok_or_else(|| bad(name, id)),
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

/// Text as PostgreSQL can hold it: it has no way to keep a null byte in text, which SQLite and JSON have.
pub(super) fn storable(text: &str) -> std::borrow::Cow<'_, str> {
    match text.contains('\0') {
        false => text.into(),
        true => text.replace('\0', "\u{fffd}").into(),
    }
}

/// The view with the list it stands in.
pub(super) fn judged(stored: Stored, now: Now, boot: Boot) -> ClaimView {
    let mut view = stored.view;
    view.inbox = oncegate_core::inbox::list_of(&view.claim, now, boot);
    view
}

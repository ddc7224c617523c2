//! The statement that makes many new claims at once, and what it is given.

use std::borrow::Cow;
use std::sync::LazyLock;

use oncegate_core::key::{ClaimId, Workspace};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::clock::{Anchor, COUNTS_MS};
use super::connection::Connection;
use super::error::Fault;
use super::row::{self, Columns};
use crate::api::Payload;

/// One new claim. Instants are those of a claim made at the anchor; the statement moves them to its own moment.
pub(super) struct Item<'a> {
    pub(super) claim_id: [u8; 16],
    pub(super) automation_id: i64,
    pub(super) automation: &'a str,
    pub(super) key: &'a str,
    pub(super) run_url: Option<Cow<'a, str>>,
    pub(super) actor: Cow<'a, str>,
    pub(super) kind: &'static str,
    pub(super) reason: Option<&'static str>,
    pub(super) attempt: i64,
    pub(super) payload: Option<&'a Payload>,
    /// Of the record it is about, whether it keeps others off it or not.
    pub(super) record_hash: Option<[u8; 16]>,
    pub(super) counts_run: bool,
    pub(super) loop_max: i64,
    pub(super) loop_within: i64,
    pub(super) columns: Columns,
}

/// The columns of a plain first run, if these are: whatever the statement does not write must have its default.
pub(super) fn plain(columns: Columns) -> Option<Columns> {
    let rest = Columns {
        processing_state: "",
        attempt: 0,
        generation: 0,
        fingerprint: None,
        record: None,
        record_hash: None,
        flow: false,
        opened_at: 0,
        holder: None,
        boot: None,
        run_id: None,
        processing_started_at: None,
        lease_renewed: None,
        lease_ttl: None,
        lease_expires: None,
        done_at: None,
        retain_until: None,
        ..columns.clone()
    };
    (rest == Columns::default()).then_some(columns)
}

/// What the claims of one statement have in common. Nearly always all of a moment do, and what is said once need not be
/// taken apart and kept for each row: on the server that is a fifth of a claim's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    kind: &'static str,
    reason: Option<&'static str>,
    attempt: i64,
    state: &'static str,
    generation: i64,
    flow: bool,
    opened_at: i64,
    holder: Option<&'static str>,
    boot: Option<i64>,
    started_at: Option<i64>,
    renewed: Option<i64>,
    done_at: Option<i64>,
}

impl Item<'_> {
    /// Only items of one shape go into one statement.
    pub(super) fn shape(&self) -> Shape {
        Shape {
            kind: self.kind,
            reason: self.reason,
            attempt: self.attempt,
            state: self.columns.processing_state,
            generation: self.columns.generation,
            flow: self.columns.flow,
            opened_at: self.columns.opened_at,
            holder: self.columns.holder,
            boot: self.columns.boot,
            started_at: self.columns.processing_started_at,
            renewed: self.columns.lease_renewed,
            done_at: self.columns.done_at,
        }
    }
}

/// `$1` is the time, if it is not the database's; `$2` the workspace; `$3` the anchor's wall clock; `$4`–`$15` the
/// [`Shape`]; the rest are arrays with an element for each claim. A `whole` statement has what claims with a payload or
/// a record need besides.
fn sql(whole: bool) -> String {
    let (arrays, names, columns, values, and, also) = match whole {
        false => ("", "", "", "", "", ""),
        true => (
            ", $25::bytea[], $26::text[], $27::bytea[], $28::bytea[], $29::text[], $30::bytea[], $31::bool[], \
             $32::bigint[], $33::bigint[]",
            ", fingerprint, record, record_hash, body, json, about, counts_run, loop_max, loop_within",
            ", fingerprint, record, record_hash",
            ", u.fingerprint, u.record, u.record_hash",
            "AND (u.about IS NULL OR u.loop_max > (SELECT count(*) FROM record_runs r WHERE r.workspace_id = $2 \
             AND r.record_hash = u.about AND r.automation_id = u.automation_id \
             AND r.at > t.ms - u.loop_within AND r.at <= t.ms)) ",
            ", payload AS (INSERT INTO payloads (workspace_id, claim_id, body, json, stored_at) \
             SELECT new.workspace_id, new.claim_id, u.body, u.json, new.created_at \
             FROM new JOIN u ON u.claim_id = new.claim_id WHERE u.body IS NOT NULL), \
             run AS (INSERT INTO record_runs (workspace_id, record_hash, automation_id, at, claim_id, attempt) \
             SELECT new.workspace_id, u.about, u.automation_id, new.created_at, new.claim_id, $6::bigint \
             FROM new JOIN u ON u.claim_id = new.claim_id WHERE u.counts_run AND u.about IS NOT NULL \
             ON CONFLICT DO NOTHING)",
        ),
    };
    // `t` is worked out once: a planner that may would do so for each row and each column that it is in.
    format!(
        "WITH t AS MATERIALIZED (SELECT ms, ms - $3::bigint AS passed FROM (SELECT coalesce($1::bigint, \
         (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS ms) AS database), \
         u AS (SELECT * FROM unnest($16::bytea[], $17::bigint[], $18::text[], $19::text[], $20::text[], $21::text[], \
         $22::text[], $23::bigint[], $24::bigint[]{arrays}) \
         AS u(claim_id, automation_id, automation, key, run_url, actor, run_id, ttl, retain_until{names})), \
         new AS (INSERT INTO claims (workspace_id, claim_id, automation_id, idempotency_key, processing_state, version, \
         attempt, generation, flow, opened_at, holder, boot, run_id, run_url, processing_started_at, lease_renewed, \
         lease_ttl, lease_expires, done_at, retain_until, created_at, updated_at{columns}) \
         SELECT a.workspace_id, u.claim_id, u.automation_id, u.key, $7::text, 1, \
         $6::bigint, $8::bigint, $9::bool, $10::bigint + t.passed, $11::text, $12::bigint, u.run_id, u.run_url, \
         $13::bigint + t.passed, $14::bigint + t.passed, u.ttl, \
         CASE WHEN $13::bigint IS NOT NULL THEN $14::bigint + u.ttl + t.passed END, \
         $15::bigint + t.passed, u.retain_until + t.passed, t.ms, t.ms{values} \
         FROM automations a JOIN u ON u.automation_id = a.id AND u.automation = a.name CROSS JOIN t \
         WHERE a.workspace_id = $2 AND a.paused_at IS NULL AND t.passed BETWEEN 0 AND {COUNTS_MS} \
         AND NOT EXISTS (SELECT 1 FROM pruned p WHERE p.workspace_id = $2 AND p.claim_id = u.claim_id) \
         AND (u.run_id IS NULL OR NOT EXISTS (SELECT 1 FROM claims c WHERE c.workspace_id = $2 \
         AND c.run_id = u.run_id)) {and}\
         ON CONFLICT DO NOTHING RETURNING workspace_id, claim_id, position, created_at), \
         told AS (INSERT INTO history (workspace_id, claim_id, at, kind, reason, attempt, actor) \
         SELECT new.workspace_id, new.claim_id, new.created_at, $4::text, $5::text, $6::bigint, u.actor \
         FROM new JOIN u ON u.claim_id = new.claim_id){also} \
         SELECT claim_id, position, created_at FROM new"
    )
}

static PLAIN: LazyLock<String> = LazyLock::new(|| sql(false));
static WHOLE: LazyLock<String> = LazyLock::new(|| sql(true));

/// Makes those that nothing stands in the way of: their ids, positions and the moment. All are of this shape.
pub(super) async fn insert(
    db: &Connection,
    workspace: Workspace,
    shape: Shape,
    items: &[&Item<'_>],
    anchor: Anchor,
    simulated: Option<i64>,
) -> Result<Vec<(ClaimId, i64, i64)>, Fault> {
    fn all<'i, 'a, T>(items: &'i [&'i Item<'a>], of: impl Fn(&'i Item<'a>) -> T) -> Vec<T> {
        items.iter().copied().map(of).collect()
    }
    let is_whole = |item: &Item<'_>| item.payload.is_some() || item.record_hash.is_some();
    let whole = items.iter().any(|item| is_whole(item) || item.columns.fingerprint.is_some());
    let statement = db.prepare_cached(if whole { &WHOLE } else { &PLAIN }).await?;
    let (claim_id, automation_id) = (all(items, |i| &i.claim_id[..]), all(items, |i| i.automation_id));
    let (automation, key) = (all(items, |i| i.automation), all(items, |i| i.key));
    let (run_url, actor) = (all(items, |i| i.run_url.as_deref()), all(items, |i| &*i.actor));
    let (run_id, ttl) = (all(items, |i| i.columns.run_id.as_deref()), all(items, |i| i.columns.lease_ttl));
    let retain_until = all(items, |i| i.columns.retain_until);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &simulated,
        &workspace.0,
        &anchor.wall,
        &shape.kind,
        &shape.reason,
        &shape.attempt,
        &shape.state,
        &shape.generation,
        &shape.flow,
        &shape.opened_at,
        &shape.holder,
        &shape.boot,
        &shape.started_at,
        &shape.renewed,
        &shape.done_at,
        &claim_id,
        &automation_id,
        &automation,
        &key,
        &run_url,
        &actor,
        &run_id,
        &ttl,
        &retain_until,
    ];
    if !whole {
        return made(db.query(&statement, &params).await?);
    }
    let fingerprint = all(items, |i| i.columns.fingerprint.as_deref());
    let record = all(items, |i| i.columns.record.as_deref());
    let record_hash = all(items, |i| i.columns.record_hash.as_deref());
    let body = all(items, |i| i.payload.map(|p| &p.body[..]));
    let json = all(items, |i| i.payload.map(|p| p.json.as_str()));
    let about = all(items, |i| i.record_hash.as_ref().map(|h| &h[..]));
    let counts_run = all(items, |i| i.counts_run);
    let (loop_max, loop_within) = (all(items, |i| i.loop_max), all(items, |i| i.loop_within));
    let more: [&(dyn ToSql + Sync); 9] =
        [&fingerprint, &record, &record_hash, &body, &json, &about, &counts_run, &loop_max, &loop_within];
    params.extend(more);
    made(db.query(&statement, &params).await?)
}

fn made(rows: Vec<Row>) -> Result<Vec<(ClaimId, i64, i64)>, Fault> {
    rows.iter().map(|r| Ok((row::claim_id(r.get(0))?, r.get(1), r.get(2)))).collect()
}

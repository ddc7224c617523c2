//! The statement that makes many new claims at once, and what it is given.

use std::borrow::Cow;
use std::sync::LazyLock;

use oncegate_core::key::{ClaimId, Workspace};

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

/// `$1` is the time, if it is not the database's; `$2` the workspace; `$3` the anchor's wall clock; the rest are arrays
/// with an element for each claim. `{more}` are what claims with a payload or a record need besides.
fn sql(whole: bool) -> String {
    let (arrays, names, and, also) = match whole {
        false => ("", "", "", ""),
        true => (
            ", $28::bytea[], $29::text[], $30::bytea[], $31::bool[], $32::bigint[], $33::bigint[]",
            ", body, json, about, counts_run, loop_max, loop_within",
            "AND (u.about IS NULL OR u.loop_max > (SELECT count(*) FROM record_runs r WHERE r.workspace_id = $2 \
             AND r.record_hash = u.about AND r.automation_id = u.automation_id \
             AND r.at > t.ms - u.loop_within AND r.at <= t.ms)) ",
            ", payload AS (INSERT INTO payloads (workspace_id, claim_id, body, json, stored_at) \
             SELECT new.workspace_id, new.claim_id, u.body, u.json, new.created_at \
             FROM new JOIN u ON u.claim_id = new.claim_id WHERE u.body IS NOT NULL), \
             run AS (INSERT INTO record_runs (workspace_id, record_hash, automation_id, at, claim_id, attempt) \
             SELECT new.workspace_id, u.about, u.automation_id, new.created_at, new.claim_id, u.attempt \
             FROM new JOIN u ON u.claim_id = new.claim_id WHERE u.counts_run AND u.about IS NOT NULL \
             ON CONFLICT DO NOTHING)",
        ),
    };
    format!(
        "WITH t AS (SELECT coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS ms), \
         u AS (SELECT * FROM unnest($4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], \
         $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bytea[], $16::text[], \
         $17::bytea[], $18::bool[], $19::bigint[], $20::text[], $21::bigint[], $22::text[], $23::bigint[], \
         $24::bigint[], $25::bigint[], $26::bigint[], $27::bigint[]{arrays}) \
         AS u(claim_id, automation_id, automation, key, run_url, actor, kind, reason, state, attempt, generation, \
         fingerprint, record, record_hash, flow, opened_at, holder, boot, run_id, started_at, renewed, ttl, done_at, \
         retain_until{names})), \
         new AS (INSERT INTO claims (workspace_id, claim_id, automation_id, idempotency_key, processing_state, version, \
         attempt, generation, fingerprint, record, record_hash, flow, opened_at, holder, boot, run_id, run_url, \
         processing_started_at, lease_renewed, lease_ttl, lease_expires, done_at, retain_until, created_at, updated_at) \
         SELECT a.workspace_id, u.claim_id, u.automation_id, u.key, u.state, 1, u.attempt, u.generation, u.fingerprint, \
         u.record, u.record_hash, u.flow, u.opened_at + (t.ms - $3::bigint), u.holder, u.boot, u.run_id, u.run_url, \
         u.started_at + (t.ms - $3::bigint), u.renewed + (t.ms - $3::bigint), u.ttl, \
         CASE WHEN u.started_at IS NOT NULL THEN u.renewed + u.ttl + (t.ms - $3::bigint) END, \
         u.done_at + (t.ms - $3::bigint), u.retain_until + (t.ms - $3::bigint), t.ms, t.ms \
         FROM automations a JOIN u ON u.automation_id = a.id AND u.automation = a.name CROSS JOIN t \
         WHERE a.workspace_id = $2 AND a.paused_at IS NULL AND t.ms - $3::bigint BETWEEN 0 AND {COUNTS_MS} \
         AND NOT EXISTS (SELECT 1 FROM pruned p WHERE p.workspace_id = $2 AND p.claim_id = u.claim_id) \
         AND (u.run_id IS NULL OR NOT EXISTS (SELECT 1 FROM claims c WHERE c.workspace_id = $2 \
         AND c.run_id = u.run_id)) {and}\
         ON CONFLICT DO NOTHING RETURNING workspace_id, claim_id, position, created_at), \
         told AS (INSERT INTO history (workspace_id, claim_id, at, kind, reason, attempt, actor) \
         SELECT new.workspace_id, new.claim_id, new.created_at, u.kind, u.reason, u.attempt, u.actor \
         FROM new JOIN u ON u.claim_id = new.claim_id){also} \
         SELECT claim_id, position, created_at FROM new"
    )
}

static PLAIN: LazyLock<String> = LazyLock::new(|| sql(false));
static WHOLE: LazyLock<String> = LazyLock::new(|| sql(true));

/// Makes those that nothing stands in the way of: their ids, positions and the moment.
pub(super) async fn insert(
    db: &Connection,
    workspace: Workspace,
    items: &[Item<'_>],
    anchor: Anchor,
    simulated: Option<i64>,
) -> Result<Vec<(ClaimId, i64, i64)>, Fault> {
    fn all<'i, 'a, T>(items: &'i [Item<'a>], of: impl Fn(&'i Item<'a>) -> T) -> Vec<T> {
        items.iter().map(of).collect()
    }
    let whole = items.iter().any(|item| item.payload.is_some() || item.record_hash.is_some());
    let statement = db.prepare_cached(if whole { &WHOLE } else { &PLAIN }).await?;
    let (claim_id, automation_id) = (all(items, |i| &i.claim_id[..]), all(items, |i| i.automation_id));
    let (automation, key) = (all(items, |i| i.automation), all(items, |i| i.key));
    let (run_url, actor) = (all(items, |i| i.run_url.as_deref()), all(items, |i| &*i.actor));
    let (kind, reason) = (all(items, |i| i.kind), all(items, |i| i.reason));
    let (state, attempt) = (all(items, |i| i.columns.processing_state), all(items, |i| i.attempt));
    let generation = all(items, |i| i.columns.generation);
    let fingerprint = all(items, |i| i.columns.fingerprint.as_deref());
    let record = all(items, |i| i.columns.record.as_deref());
    let record_hash = all(items, |i| i.columns.record_hash.as_deref());
    let (flow, opened_at) = (all(items, |i| i.columns.flow), all(items, |i| i.columns.opened_at));
    let (holder, boot) = (all(items, |i| i.columns.holder), all(items, |i| i.columns.boot));
    let run_id = all(items, |i| i.columns.run_id.as_deref());
    let started_at = all(items, |i| i.columns.processing_started_at);
    let (renewed, ttl) = (all(items, |i| i.columns.lease_renewed), all(items, |i| i.columns.lease_ttl));
    let (done_at, retain_until) = (all(items, |i| i.columns.done_at), all(items, |i| i.columns.retain_until));
    let body = all(items, |i| i.payload.map(|p| &p.body[..]));
    let json = all(items, |i| i.payload.map(|p| p.json.as_str()));
    let about = all(items, |i| i.record_hash.as_ref().map(|h| &h[..]));
    let counts_run = all(items, |i| i.counts_run);
    let (loop_max, loop_within) = (all(items, |i| i.loop_max), all(items, |i| i.loop_within));
    let mut params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![
        &simulated,
        &workspace.0,
        &anchor.wall,
        &claim_id,
        &automation_id,
        &automation,
        &key,
        &run_url,
        &actor,
        &kind,
        &reason,
        &state,
        &attempt,
        &generation,
        &fingerprint,
        &record,
        &record_hash,
        &flow,
        &opened_at,
        &holder,
        &boot,
        &run_id,
        &started_at,
        &renewed,
        &ttl,
        &done_at,
        &retain_until,
    ];
    if whole {
        let more: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&body, &json, &about, &counts_run, &loop_max, &loop_within];
        params.extend(more);
    }
    let made = db.query(&statement, &params).await?;
    made.iter().map(|r| Ok((row::claim_id(r.get(0))?, r.get(1), r.get(2)))).collect()
}

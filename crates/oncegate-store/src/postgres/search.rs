//! Looking for claims. A walk goes along one index in the order of the list; what else is asked of a row is judged on
//! the way, by the database. How far a walk goes is bounded, so that no search holds a connection for long.

use oncegate_core::claim::{Boot, ProcessingState};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::time::{Now, millis};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, Snapshot};
use super::error::{Fault, unreadable};
use super::queries;
use super::row::{self, judged, storable, ts};
use crate::search::{Age, By, Filter, Found, Group, Groups};

/// Since when a claim has stood in its state: each of these is set in that state only.
const SINCE: &str = "coalesce(c.processing_started_at, c.done_at, c.error_at, c.opened_at)";

pub(super) const LIVE: &str = "c.processing_state = 'processing'";
pub(super) const FAILED: &str = "c.processing_state = 'error'";
pub(super) const MARKED: &str =
    "(c.mismatch_at IS NOT NULL OR c.late_at IS NOT NULL OR c.parked IS NOT NULL)";

/// Rows that can be in a list at all, in the words of the partial index that has them.
const fn candidates(list: InboxList) -> &'static str {
    match list {
        InboxList::Stuck => LIVE,
        InboxList::Error => FAILED,
        InboxList::Mismatch | InboxList::Parked | InboxList::Late => MARKED,
        InboxList::Rejected => "FALSE",
    }
}

/// The list a row stands in, in SQL: the same answer as [`oncegate_core::inbox::list_of`], which the conformance suite
/// compares on random rows. `NULL`: in none.
pub(super) fn list_of(now: Now) -> String {
    let (lease, ahead) = (now.lease.0, now.wall.as_millis().saturating_add(millis(limits::CLOCK_SLACK)));
    format!(
        "CASE WHEN c.processing_state = 'processing' AND (c.processing_started_at > {ahead} \
             OR (c.lease_expires <= {lease} AND c.due_at IS NULL)) THEN 'stuck' \
         WHEN c.processing_state = 'error' THEN 'error' \
         WHEN c.mismatch_at IS NOT NULL THEN 'mismatch' \
         WHEN c.parked IS NOT NULL AND NOT c.dismissed THEN 'parked' \
         WHEN c.late_at IS NOT NULL THEN 'late' END"
    )
}

type Value = Box<dyn ToSql + Send + Sync>;

/// A filter as conditions on `claims c`, with the values bound to them; `$1` is the workspace.
pub(super) struct Conditions {
    values: Vec<Value>,
    /// How many of the values the walk uses; they come first.
    of_walk: usize,
    /// What the index gives.
    walk: String,
    /// What is asked of each row.
    hit: String,
    /// The order of the list.
    order: &'static str,
}

impl Conditions {
    pub(super) fn of(workspace: Workspace, filter: &Filter, now: Now) -> Self {
        let order = if filter.oldest_first { "ASC" } else { "DESC" };
        let (walk, hit) = ("c.workspace_id = $1".to_owned(), "TRUE".to_owned());
        let mut c = Self { values: vec![Box::new(workspace.0)], of_walk: 0, walk, hit, order };
        c.walk_along(filter);
        c.of_walk = c.values.len();
        c.ask_of_each(filter, now);
        c
    }

    fn bind(&mut self, value: impl ToSql + Send + Sync + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// The narrowest index first.
    fn walk_along(&mut self, filter: &Filter) {
        let open = match (filter.inbox, filter.state) {
            (Some(list), _) => Some(candidates(list)),
            (None, Some(ProcessingState::Processing)) => Some(LIVE),
            (None, Some(ProcessingState::Error)) => Some(FAILED),
            (None, Some(ProcessingState::None | ProcessingState::Done) | None) if filter.cause.is_some() => {
                Some(FAILED)
            }
            (None, _) if filter.parked.is_some() => Some(MARKED),
            (None, _) => None,
        };
        let narrowed = if let Some(run_id) = &filter.run_id {
            format!("c.run_id = {}", self.bind(run_id.as_str().to_owned()))
        } else if let Some(record) = &filter.record {
            format!("c.record = {}", self.bind(record.as_str().to_owned()))
        } else if let Some(tag) = &filter.tag {
            format!("c.tag = {}", self.bind(storable(tag).into_owned()))
        } else if let Some(open) = open {
            open.to_owned()
        } else if let Some(name) = &filter.automation {
            let at = self.bind(name.as_str().to_owned());
            format!("c.automation_id = (SELECT id FROM automations WHERE workspace_id = $1 AND name = {at})")
        } else {
            "TRUE".to_owned()
        };
        let after = match (filter.before, filter.oldest_first) {
            (None, _) => "TRUE".to_owned(),
            (Some(position), false) => format!("c.position < {position}"),
            (Some(position), true) => format!("c.position > {position}"),
        };
        self.walk = format!("{} AND {narrowed} AND {after}", self.walk);
    }

    fn ask(&mut self, condition: &str, value: impl ToSql + Send + Sync + 'static) {
        let at = self.bind(value);
        self.hit.push_str(" AND ");
        self.hit.push_str(&condition.replace('@', &at));
    }

    fn ask_of_each(&mut self, filter: &Filter, now: Now) {
        if let Some(list) = filter.inbox {
            self.ask(&format!("({}) = @", list_of(now)), list.as_str());
        }
        if let Some(state) = filter.state {
            self.ask("c.processing_state = @", state.as_str());
        }
        if let Some(name) = &filter.automation {
            let known = "c.automation_id = (SELECT id FROM automations WHERE workspace_id = $1 AND name = @)";
            self.ask(known, name.as_str().to_owned());
        }
        if let Some(only) = &filter.only {
            self.ask(&format!("c.automation_id {}", NAMED.replace("$2", "@")), names(only));
        }
        if let Some(record) = &filter.record {
            self.ask("c.record = @", record.as_str().to_owned());
        }
        if let Some(tag) = &filter.tag {
            self.ask("c.tag = @", storable(tag).into_owned());
        }
        if let Some(cause) = filter.cause {
            self.ask("c.error_cause = @", cause.as_str());
        }
        if let Some(parked) = filter.parked {
            self.ask("c.parked = @", parked.as_str());
        }
        if let Some(before) = filter.since_before {
            self.ask(&format!("{SINCE} < @"), before.as_millis());
        }
        if let Some(after) = filter.since_after {
            self.ask(&format!("{SINCE} >= @"), after.as_millis());
        }
        if let Some(text) = &filter.text {
            // By the rules of "C" only ASCII letters have a case: so the text is folded, and so SQLite folds.
            let has = |column: &str| format!("strpos(lower(coalesce({column}, '') COLLATE \"C\"), @) > 0");
            let any = ["c.idempotency_key", "c.record", "c.run_url", "c.note"].map(has).join(" OR ");
            self.ask(&format!("({any})"), storable(&text.to_ascii_lowercase()).into_owned());
        }
    }

    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|v| &**v as &(dyn ToSql + Sync)).collect()
    }

    /// The rows that are looked at, as a table: `max` at most, in order.
    fn walked(&self, max: u32) -> String {
        let Self { walk, order, .. } = self;
        format!("(SELECT * FROM claims c WHERE {walk} ORDER BY c.position {order} LIMIT {max})")
    }

    /// Every row that fits, however many are looked at, `c` being its claim; `limit` at most.
    pub(super) fn every(&self, columns: &str, limit: Option<u32>) -> String {
        let Self { walk, hit, order, .. } = self;
        let limit = limit.map_or(String::new(), |n| format!(" LIMIT {n}"));
        format!(
            "SELECT {columns} FROM claims c JOIN automations a \
             ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
             WHERE {walk} AND {hit} ORDER BY c.position {order}{limit}"
        )
    }

    /// Where a walk of `max` rows ended, and when that row was made; `None`: it came to the end before. To be asked in
    /// the snapshot in which the walk went.
    async fn end(&self, db: &Snapshot<'_>, max: u32) -> Result<Option<(i64, i64)>, Fault> {
        let Self { walk, order, .. } = self;
        let sql = format!(
            "SELECT c.position, c.created_at FROM claims c WHERE {walk} ORDER BY c.position {order} \
             OFFSET {} LIMIT 1",
            max.saturating_sub(1)
        );
        let params: Vec<_> = self.params().into_iter().take(self.of_walk).collect();
        Ok(db.query_opt(&sql, &params).await?.map(|r| (r.get(0), r.get(1))))
    }
}

/// Of these automations; `$2` are their names.
pub(super) const NAMED: &str =
    "IN (SELECT id FROM automations WHERE workspace_id = $1 AND name = ANY($2::text[]))";

pub(super) fn names(only: &[AutomationName]) -> Vec<String> {
    only.iter().map(|name| name.as_str().to_owned()).collect()
}

pub(super) async fn search(
    mut db: Connection,
    workspace: Workspace,
    filter: &Filter,
    now: Now,
    boot: Boot,
) -> Result<Found, Fault> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX);
    let c = Conditions::of(workspace, filter, now);
    let (walked, order) = (c.walked(limits::SEARCH_ROWS_MAX), c.order);
    let sql = format!(
        "SELECT {} FROM (SELECT * FROM {walked} c WHERE {} ORDER BY c.position {order} LIMIT {limit}) c \
         JOIN automations a ON a.workspace_id = c.workspace_id AND a.id = c.automation_id \
         ORDER BY c.position {order}",
        row::COLUMNS,
        c.hit,
    );
    let db = db.snapshot().await?;
    let found = db.query(&sql, &c.params()).await?;
    let mut rows = Vec::with_capacity(found.len());
    for r in &found {
        match row::read(r) {
            Ok(stored) => rows.push(judged(stored, now, boot)),
            // One bad row never stops a list; the counts still have it.
            Err(error) => tracing::error!(?error, "a claim is left out of a list"),
        }
    }
    if found.len() == limit as usize {
        let next = found.last().map(|r| r.get("position"));
        return Ok(Found { rows, next, searched_until: None });
    }
    let end = c.end(&db, limits::SEARCH_ROWS_MAX).await?;
    Ok(Found { rows, next: end.map(|(position, _)| position), searched_until: end.map(|(_, made)| ts(made)) })
}

pub(super) async fn groups(
    mut db: Connection,
    workspace: Workspace,
    filter: &Filter,
    by: By,
    now: Now,
) -> Result<Groups, Fault> {
    let c = Conditions::of(workspace, filter, now);
    let (walked, wall) = (c.walked(limits::GROUP_ROWS_MAX), now.wall.as_millis());
    let automation = if by.automation { "automation_id" } else { "NULL::bigint" };
    let age = match by.age {
        true => format!("width_bucket({wall} - since, ARRAY{:?}::bigint[])", Age::BEGIN_MS),
        false => "NULL::integer".to_owned(),
    };
    let sql = format!(
        "SELECT g.automation_id, a.name, g.rows, g.oldest FROM ( \
           SELECT {automation} AS automation_id, {age} AS age, count(*) AS rows, min(since) AS oldest FROM ( \
             SELECT c.automation_id, {SINCE} AS since FROM {walked} c WHERE {}) s GROUP BY 1, 2) g \
         LEFT JOIN automations a ON a.workspace_id = $1 AND a.id = g.automation_id",
        c.hit,
    );
    let db = db.snapshot().await?;
    let (mut groups, mut total) = (Vec::new(), 0);
    for r in db.query(&sql, &c.params()).await? {
        let automation = match r.get::<_, Option<i64>>(0) {
            Some(id) => Some(name_of(&r, 1, id)?),
            None => None,
        };
        let (count, oldest) = (r.get::<_, i64>(2).unsigned_abs(), r.get::<_, i64>(3));
        // The oldest of a group is as old as the group is.
        let age = by.age.then(|| Age::of_millis(wall.saturating_sub(oldest)));
        groups.push(Group { automation, age, count, oldest_at: ts(oldest) });
        total += count;
    }
    crate::search::sort(&mut groups);
    let counted_until = c.end(&db, limits::GROUP_ROWS_MAX).await?.map(|(_, made)| ts(made));
    Ok(Groups { groups, total, counted_until })
}

/// An automation's name.
pub(super) fn name_of(r: &Row, column: usize, id: i64) -> Result<AutomationName, Fault> {
    let name: &str = r.try_get(column).map_err(unreadable)?;
    AutomationName::try_from(name).map_err(|e| unreadable(format!("automation {id}: {e}")))
}

pub(super) async fn counts(
    db: &Connection,
    workspace: Workspace,
    only: Option<&[AutomationName]>,
    now: Now,
) -> Result<Vec<(InboxList, u64)>, Fault> {
    let names = only.map(names);
    let (of_claims, of_deliveries) = match &names {
        None => (String::new(), ""),
        Some(_) => (format!(" AND c.automation_id {NAMED}"), " AND automation = ANY($2::text[])"),
    };
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&workspace.0];
    params.extend(names.as_ref().map(|names| names as &(dyn ToSql + Sync)));
    let list = list_of(now);
    let of = |rows: &str| {
        format!("SELECT {list} AS list FROM claims c WHERE c.workspace_id = $1 AND {rows}{of_claims}")
    };
    let sql = format!(
        "SELECT list, count(*) FROM ({} UNION ALL {} UNION ALL {} AND c.processing_state IN ('none', 'done')) l \
         WHERE list IS NOT NULL GROUP BY list",
        of(LIVE),
        of(FAILED),
        of(MARKED),
    );
    let mut found = vec![];
    for r in db.query(&sql, &params).await? {
        if let Some(list) = InboxList::parse(r.get(0)) {
            found.push((list, r.get::<_, i64>(1)));
        }
    }
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE parked IS NOT NULL AND verdict = 'rejected') FROM deliveries \
         WHERE workspace_id = $1 AND verdict IN ('rejected', 'unverified'){of_deliveries}"
    );
    if let Some(r) = queries::row_opt(db, &sql, &params).await? {
        let (all, parked): (i64, i64) = (r.get(0), r.get(1));
        found.extend([(InboxList::Rejected, all - parked), (InboxList::Parked, parked)]);
    }
    let count = |list| found.iter().filter(|(l, _)| *l == list).map(|(_, n)| n.unsigned_abs()).sum();
    Ok(InboxList::ALL.into_iter().map(|list| (list, count(list))).collect())
}

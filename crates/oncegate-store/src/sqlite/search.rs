//! Looking for claims. A walk goes along one index, row by row, in the order of the list; what else is asked of a row
//! is judged on the way. How far a walk goes is bounded by its caller, so that no search holds a reader for long.

use std::collections::HashMap;

use oncegate_core::claim::{Boot, ProcessingState};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Now;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::queries::{FAILED, LIST_OF, LIVE, MARKED, candidates, clock_params};
use super::row::{self, ts};
use super::transition::judged;
use crate::StoreError;
use crate::search::{Age, By, Filter, Found, Group, Groups};

/// Since when a claim has stood in its state: each of these is set in that state only.
const SINCE: &str = "coalesce(c.processing_started_at, c.done_at, c.error_at, c.opened_at)";

/// Conditions with the values bound to them.
struct Conditions {
    values: Vec<Value>,
    /// What the index gives.
    walk: String,
    /// What is asked of each row.
    hit: String,
}

impl Conditions {
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn ask(&mut self, condition: &str, value: impl Into<Value>) {
        let at = self.bind(value);
        self.hit.push_str(&format!(" AND {}", condition.replace('@', &at)));
    }

    /// `?4` is the position where the walk begins, `?5` the number of rows after which it ends.
    fn of(workspace: Workspace, filter: &Filter, now: Now, begin: i64, max: u32) -> Self {
        let mut values: Vec<Value> = clock_params(workspace, now).into();
        values.extend([filter.before.unwrap_or(begin).into(), i64::from(max).into()]);
        let hit = "c.workspace_id = ?1 AND ?2 IS NOT NULL AND ?3 IS NOT NULL".to_owned();
        let mut c = Self { values, walk: String::new(), hit };
        c.walk = c.walk_of(filter);
        if let Some(list) = filter.inbox {
            c.ask(&format!("({LIST_OF}) IS @"), list.as_str().to_owned());
        }
        if let Some(state) = filter.state {
            c.ask("c.processing_state = @", state.as_str().to_owned());
        }
        if let Some(name) = &filter.automation {
            c.ask("a.name = @", name.as_str().to_owned());
        }
        if let Some(only) = &filter.only {
            c.ask("a.name IN (SELECT value FROM json_each(@))", serde_json::json!(only).to_string());
        }
        if let Some(record) = &filter.record {
            c.ask("c.record IS @", record.as_str().to_owned());
        }
        if let Some(tag) = &filter.tag {
            c.ask("c.tag IS @", tag.clone());
        }
        if let Some(cause) = filter.cause {
            c.ask("c.error_cause IS @", cause.as_str().to_owned());
        }
        if let Some(parked) = filter.parked {
            c.ask("c.parked IS @", parked.as_str().to_owned());
        }
        if let Some(before) = filter.since_before {
            c.ask(&format!("{SINCE} < @"), before.as_millis());
        }
        if let Some(after) = filter.since_after {
            c.ask(&format!("{SINCE} >= @"), after.as_millis());
        }
        if let Some(text) = &filter.text {
            let has = |column: &str| format!("instr(lower(coalesce({column}, '')), @) > 0");
            let any = ["c.idempotency_key", "c.record", "c.run_url", "c.note"].map(has).join(" OR ");
            c.ask(&format!("({any})"), text.to_ascii_lowercase());
        }
        c
    }

    /// The narrowest index first.
    fn walk_of(&mut self, filter: &Filter) -> String {
        if let Some(run_id) = &filter.run_id {
            let at = self.bind(run_id.as_str().to_owned());
            return format!("c.run_id = {at}");
        }
        if let Some(record) = &filter.record {
            let at = self.bind(record.as_str().to_owned());
            return format!("c.workspace_id = ?1 AND c.record = {at}");
        }
        if let Some(tag) = &filter.tag {
            let at = self.bind(tag.clone());
            return format!("c.workspace_id = ?1 AND c.tag = {at}");
        }
        let open = match (filter.inbox, filter.state) {
            // What is rejected is never a claim; SQLite sees the constant before it reads anything.
            (Some(InboxList::Rejected), _) => Some("FALSE"),
            (Some(list), _) => Some(candidates(list)),
            (None, Some(ProcessingState::Processing)) => Some(LIVE),
            (None, Some(ProcessingState::Error)) => Some(FAILED),
            (None, Some(ProcessingState::None | ProcessingState::Done) | None) if filter.cause.is_some() => {
                Some(FAILED)
            }
            (None, _) if filter.parked.is_some() => Some(MARKED),
            (None, _) => None,
        };
        if let Some(open) = open {
            return format!("c.workspace_id = ?1 AND {open}");
        }
        match &filter.automation {
            Some(name) => {
                let at = self.bind(name.as_str().to_owned());
                format!(
                    "c.automation_id = (SELECT id FROM automations WHERE workspace_id = ?1 AND name = {at})"
                )
            }
            None => "TRUE".to_owned(),
        }
    }
}

/// How a walk went.
pub(super) struct Walked {
    /// The last row that was looked at: its position and when it was made.
    pub(super) last: Option<(i64, i64)>,
    /// The walk came to its bound, or was ended by `each`.
    pub(super) ended_early: bool,
}

/// Walks over at most `max` rows; `each` sees those that fit and says whether to go on. `columns` may use `c` and `a`.
pub(super) fn walk(
    db: &Connection,
    workspace: Workspace,
    filter: &Filter,
    now: Now,
    (columns, max): (&str, u32),
    mut each: impl FnMut(&Row<'_>) -> Result<bool, StoreError>,
) -> Result<Walked, StoreError> {
    let (sign, order, begin) = match filter.oldest_first {
        false => ("<", "DESC", i64::MAX),
        true => (">", "ASC", 0),
    };
    let c = Conditions::of(workspace, filter, now, begin, max);
    let sql = format!(
        "SELECT {columns}, c.id AS position, c.created_at AS made_at, ({}) AS hit FROM claims c \
         CROSS JOIN automations a ON a.id = c.automation_id \
         WHERE {} AND c.id {sign} ?4 ORDER BY c.id {order} LIMIT ?5",
        c.hit, c.walk,
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(c.values))?;
    let (mut last, mut looked_at) = (None, 0);
    while let Some(r) = rows.next()? {
        looked_at += 1;
        last = Some((r.get("position")?, r.get("made_at")?));
        if r.get::<_, bool>("hit")? && !each(r)? {
            return Ok(Walked { last, ended_early: true });
        }
    }
    Ok(Walked { last, ended_early: looked_at == max })
}

pub(super) fn search(
    db: &Connection,
    workspace: Workspace,
    filter: &Filter,
    now: Now,
    boot: Boot,
) -> Result<Found, StoreError> {
    let limit = filter.limit.clamp(1, limits::PAGE_ROWS_MAX) as usize;
    let (mut rows, mut seen) = (Vec::new(), 0);
    let walked = walk(db, workspace, filter, now, (row::COLUMNS, limits::SEARCH_ROWS_MAX), |r| {
        seen += 1;
        match row::read(r) {
            Ok(stored) => rows.push(judged(stored, now, boot)),
            // One bad row never stops a list; the counts still have it.
            Err(error) => tracing::error!(%error, "a claim is left out of a list"),
        }
        Ok(seen < limit)
    })?;
    let last = walked.last.filter(|_| walked.ended_early);
    let searched_until = last.filter(|_| seen < limit).map(|(_, made)| ts(made));
    Ok(Found { rows, next: last.map(|(position, _)| position), searched_until })
}

pub(super) fn groups(
    db: &Connection,
    workspace: Workspace,
    filter: &Filter,
    by: By,
    now: Now,
) -> Result<Groups, StoreError> {
    let mut found: HashMap<(Option<i64>, Option<Age>), (u64, i64)> = HashMap::new();
    let columns = format!("c.automation_id, {SINCE} AS since");
    let (wall, mut total) = (now.wall.as_millis(), 0);
    let walked = walk(db, workspace, filter, now, (&columns, limits::GROUP_ROWS_MAX), |r| {
        let since: i64 = r.get("since")?;
        let automation = by.automation.then(|| r.get("automation_id")).transpose()?;
        let age = by.age.then(|| Age::of_millis(wall.saturating_sub(since)));
        let (count, oldest) = found.entry((automation, age)).or_insert((0, since));
        (*count, *oldest, total) = (*count + 1, since.min(*oldest), total + 1);
        Ok(true)
    })?;
    let mut name = db.prepare_cached("SELECT name FROM automations WHERE id = ?1")?;
    let mut groups = Vec::with_capacity(found.len());
    for ((automation, age), (count, oldest)) in found {
        let automation = match automation {
            None => None,
            Some(id) => {
                let text: String = name.query_row([id], |r| r.get(0))?;
                let read = AutomationName::try_from(text.as_str());
                Some(read.map_err(|e| StoreError::Inconsistent(format!("automation {id}: {e}")))?)
            }
        };
        groups.push(Group { automation, age, count, oldest_at: ts(oldest) });
    }
    crate::search::sort(&mut groups);
    let counted_until = walked.last.filter(|_| walked.ended_early).map(|(_, made)| ts(made));
    Ok(Groups { groups, total, counted_until })
}

//! Rows of claims that are done and were asked for lately, so that a storm of duplicates is not a storm of reads.
//!
//! A row is here only while it is what the store would read. SQLite itself says which rows the writer touches, whatever
//! statement does it, before they are committed: a row that is touched goes at once, and does not come back until what
//! touched it is over. What is kept is what a reader read, so it may be from before that; hence [`Stamp`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncegate_core::key::ClaimRef;
use oncegate_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::hooks::Action;

use super::automations::Standing;
use super::row::Stored;
use crate::StoreError;

/// So many rows are kept; beyond it all are let go, and those that still matter come again.
const ROWS_MAX: usize = 4_096;
/// A row with more than this many bytes of text of its callers' is read each time.
const ROW_BYTES_MAX: usize = 4_096;

/// Everything that is known of a claim that is done and stopped.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) stored: Arc<Stored>,
    pub(super) standing: Standing,
}

/// A moment, by what was touched until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

#[derive(Default)]
struct Rows {
    by_claim: HashMap<ClaimRef, Kept>,
    by_row: HashMap<i64, ClaimRef>,
    /// Touched by the transaction that is open, or by the last one: when exactly that was committed is not known.
    touched: HashSet<i64>,
    /// The same of more than single rows.
    all_touched: bool,
    /// That transaction commits: whatever is touched next belongs to another.
    ends: bool,
    touches: u64,
    /// Stops are being counted in the store: what is read now may have them or not.
    counting: bool,
    /// Which commits of others the writer has seen.
    version: Option<i64>,
}

/// Keeps them.
#[derive(Default)]
pub(super) struct Recent {
    rows: Mutex<Rows>,
    /// What the writer touches at this moment are counts of stops, which [`Counting`] brings here.
    counts: AtomicBool,
}

/// Stops on their way to the store.
pub(super) struct Counting<'a>(&'a Recent);

/// The writer's thread counts stops until this is dropped.
pub(super) struct Counts<'a>(&'a Recent);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.counts.store(false, Relaxed);
    }
}

impl Counting<'_> {
    /// So many stops of a claim are committed.
    pub(super) fn committed(&self, claim: ClaimRef, count: u64, first: Timestamp, last: Timestamp) {
        if let Some(kept) = self.0.lock().by_claim.get_mut(&claim) {
            let view = &mut Arc::make_mut(&mut kept.stored).view;
            view.stops += count;
            view.first_stop_at = Some(view.first_stop_at.map_or(first, |at| at.min(first)));
            view.last_stop_at = view.last_stop_at.max(Some(last));
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let mut rows = self.0.lock();
        rows.counting = false;
        rows.touches += 1;
    }
}

impl Recent {
    /// Lets the writer's connection tell what it touches.
    ///
    /// # Errors
    /// SQLite's.
    pub(super) fn watch(self: &Arc<Self>, writer: &mut Connection) -> Result<(), StoreError> {
        let recent = Arc::clone(self);
        writer
            .update_hook(Some(move |action, _: &str, table: &str, row| recent.touched(action, table, row)))?;
        let recent = Arc::clone(self);
        writer.commit_hook(Some(move || {
            recent.lock().commit();
            false
        }))?;
        Ok(())
    }

    fn touched(&self, action: Action, table: &str, row: i64) {
        // A row that is new is not here, and changes no other.
        let all = match (action, table) {
            (Action::SQLITE_INSERT, _) => return,
            (Action::SQLITE_UPDATE, "claims") if self.counts.load(Relaxed) => return,
            (Action::SQLITE_UPDATE, "claims") => false,
            (_, "claims" | "automations") => true,
            _ => return,
        };
        self.lock().touch(row, all);
    }

    /// To be taken before a row is read.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp(self.lock().touches)
    }

    pub(super) fn get(&self, claim: ClaimRef) -> Option<Kept> {
        self.lock().by_claim.get(&claim).cloned()
    }

    /// Keeps what was read after `stamp` was taken, unless it may be out of date.
    pub(super) fn keep(&self, stamp: Stamp, claim: ClaimRef, kept: Kept) {
        let view = &kept.stored.view;
        let texts = [view.result.as_ref(), view.run_url.as_ref(), view.tag.as_ref()];
        let bytes: usize = texts.into_iter().flatten().map(String::len).sum();
        let row = kept.stored.row;
        let mut rows = self.lock();
        let changes = rows.counting || rows.all_touched || rows.touched.contains(&row);
        if changes || rows.touches != stamp.0 || bytes > ROW_BYTES_MAX {
            return;
        }
        if rows.by_claim.len() >= ROWS_MAX {
            rows.clear();
        }
        rows.by_row.insert(row, claim);
        rows.by_claim.insert(claim, kept);
    }

    /// To be held from before stops are counted until their count is committed.
    pub(super) fn counting(&self) -> Counting<'_> {
        self.lock().counting = true;
        Counting(self)
    }

    /// Lets go of everything if another program wrote to the database, which nobody told: to be called by the writer's
    /// thread from time to time.
    ///
    /// # Errors
    /// SQLite's.
    pub(super) fn heed_others(&self, writer: &Connection) -> Result<(), StoreError> {
        let version = writer.pragma_query_value(None, "data_version", |r| r.get(0))?;
        let mut rows = self.lock();
        if rows.version.replace(version) != Some(version) {
            rows.clear();
        }
        Ok(())
    }

    /// To be held on the writer's thread while it changes counts of stops and nothing else.
    pub(super) fn counts(&self) -> Counts<'_> {
        self.counts.store(true, Relaxed);
        Counts(self)
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn touch(&mut self, row: i64, all: bool) {
        if std::mem::take(&mut self.ends) {
            self.others_are_over();
        }
        self.touches += 1;
        match all {
            true => {
                self.all_touched = true;
                self.clear();
            }
            false => {
                self.touched.insert(row);
                if let Some(claim) = self.by_row.remove(&row) {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    /// A transaction is about to be committed. If it touched nothing here, what is remembered is of one before it.
    fn commit(&mut self) {
        if std::mem::replace(&mut self.ends, true) {
            self.others_are_over();
        }
    }

    /// What earlier transactions touched is as they left it; who read before this moment may have read it before that.
    fn others_are_over(&mut self) {
        self.touched.clear();
        self.all_touched = false;
        self.touches += 1;
    }

    fn clear(&mut self) {
        self.by_claim.clear();
        self.by_row.clear();
    }
}

#[cfg(test)]
mod tests {
    use oncegate_core::key::{ClaimId, Workspace};

    use super::*;
    use crate::sqlite::automations::load_with_standing;

    const ID: ClaimRef = ClaimRef { workspace: Workspace::DEFAULT, id: ClaimId([7; 16]) };

    /// A row of a claim, numbered 1.
    fn kept() -> Kept {
        let mut db = Connection::open_in_memory().unwrap();
        crate::sqlite::migrations::step_up(&mut db, 0).unwrap();
        db.execute_batch(
            "PRAGMA foreign_keys = OFF; INSERT INTO automations (id, workspace_id, name, created_at) VALUES (1, 1, 'a', 0);
             INSERT INTO claims (id, claim_id, workspace_id, automation_id, idempotency_key, processing_state, version,
                 attempt, generation, opened_at, created_at, updated_at, done_at, retain_until)
             VALUES (1, x'07070707070707070707070707070707', 1, 1, 'k', 'done', 1, 1, 0, 0, 0, 0, 0, 0);",
        )
        .unwrap();
        let (stored, standing) = load_with_standing(&db, ID).unwrap().unwrap();
        Kept { stored: Arc::new(stored), standing }
    }

    fn is_there_after(steps: &str, kept: &Kept) -> bool {
        let mut writer = Connection::open_in_memory().unwrap();
        writer
            .execute_batch(
                "CREATE TABLE claims (id INTEGER PRIMARY KEY, n); CREATE TABLE automations (id INTEGER PRIMARY KEY, n);
                 CREATE TABLE history (id INTEGER PRIMARY KEY, n); INSERT INTO automations VALUES (1, 0);
                 INSERT INTO claims VALUES (1, 0), (2, 0); INSERT INTO history VALUES (1, 0); BEGIN;",
            )
            .unwrap();
        let recent = Arc::new(Recent::default());
        recent.watch(&mut writer).unwrap();
        let mut stamp = recent.stamp();
        let mut counting = None;
        for step in steps.split(' ') {
            let write = match step {
                "read" => {
                    stamp = recent.stamp();
                    continue;
                }
                "keep" => {
                    recent.keep(stamp, ID, kept.clone());
                    continue;
                }
                "count" => {
                    counting = Some(recent.counting());
                    continue;
                }
                "counted" => {
                    counting = None;
                    continue;
                }
                "counts" => {
                    let _counts = recent.counts();
                    writer.execute("UPDATE claims SET n = 1 WHERE id = 1", []).unwrap();
                    continue;
                }
                "touch" => "UPDATE claims SET n = 1 WHERE id = 1",
                "other" => "UPDATE claims SET n = 1 WHERE id = 2",
                "new" => "INSERT INTO claims VALUES (3, 0)",
                "gone" => "DELETE FROM claims WHERE id = 2",
                "paused" => "UPDATE automations SET n = 1",
                "history" => "UPDATE history SET n = 1",
                "commit" => "COMMIT; BEGIN",
                "rollback" => "ROLLBACK; BEGIN",
                step => panic!("{step}"),
            };
            writer.execute_batch(write).unwrap();
        }
        drop(counting);
        recent.get(ID).is_some()
    }

    #[test]
    fn a_row_is_there_only_while_nothing_can_have_changed_it_since_it_was_read() {
        let kept = kept();
        for (steps, there) in [
            ("read keep", true),
            ("read keep other commit", true),
            ("read keep new history commit", true),
            ("read keep touch", false),
            ("read keep gone", false),
            ("read keep paused", false),
            // What was read before may be from before.
            ("read touch keep", false),
            ("read touch commit keep", false),
            ("read touch commit other commit keep", false),
            ("read paused commit other commit keep", false),
            // What is not committed is not read; and when it is committed is not known.
            ("touch read keep", false),
            ("touch read commit keep", false),
            ("touch commit read keep", false),
            ("paused read keep", false),
            ("paused commit read keep", false),
            // Another transaction began, so that one is over.
            ("touch commit other read keep", true),
            ("paused commit other read keep", true),
            ("touch other read keep", false),
            ("touch commit history commit read keep", true),
            ("touch commit read history commit keep", false),
            ("paused commit history commit read keep", true),
            ("touch rollback other commit other read keep", true),
            // Counts of stops change nothing but what is counted here too.
            ("read keep count counts commit counted", true),
            ("count read keep counts commit counted", false),
            ("read count counts commit counted keep", false),
            ("read keep counts touch", false),
        ] {
            assert_eq!(is_there_after(steps, &kept), there, "{steps}");
        }
    }

    #[test]
    fn rows_that_are_large_or_too_many_are_not_piled_up() {
        let (recent, kept) = (Recent::default(), kept());
        for n in 0..3 * ROWS_MAX {
            let mut one = kept.clone();
            Arc::make_mut(&mut one.stored).row = i64::try_from(n).unwrap();
            let id = ClaimId((n as u128).to_be_bytes());
            recent.keep(recent.stamp(), ClaimRef { id, ..ID }, one);
            assert!(recent.lock().by_claim.len() <= ROWS_MAX && recent.lock().by_row.len() <= ROWS_MAX);
        }
        let mut large = kept;
        Arc::make_mut(&mut large.stored).view.result = Some("x".repeat(ROW_BYTES_MAX + 1));
        recent.keep(recent.stamp(), ID, large);
        assert!(recent.get(ID).is_none());
    }
}

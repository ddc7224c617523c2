//! Stops of what is done, answered without the writer: from a reader, by the same transition, on what is committed when
//! the call comes. That one was stopped is counted in the store a moment later, many in one transaction; whoever reads
//! the store, or acts on it, waits for that. A crash may lose what was not counted yet, never a claim.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use oncegate_core::decide::{Decision, StopReason};
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::automations::load_with_standing;
use super::readers::Readers;
use super::recent::{Kept, Recent};
use super::row::{self, Stored};
use super::store::Shared;
use super::transition::{Context, Place, judged};
use super::writer::{Manner, Writer};
use crate::StoreError;
use crate::api::{ClaimCall, Claimed, Target};
use crate::observer::{self, Happened};
use crate::transition::claim::{self, Keep, Loaded, Pruned};
use crate::transition::{Line, Rules, notice};

/// Stops are counted in the store after this time at the latest, if nobody looks before.
const COUNTED_WITHIN: Duration = Duration::from_millis(100);
/// And again after this time, if that failed.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// So many claims may have stops that are not counted yet; beyond it the writer stops them, and counts at once.
const CLAIMS_MAX: usize = 4_096;
/// Looking is worth its while after a stop, and for so many calls after it: callers that only claim what is new should
/// not pay for it.
const LOOKS_AFTER_STOP: i32 = 16;

/// Stops of one claim that were answered and are not counted in the store yet.
#[derive(Clone, Debug)]
struct Stopped {
    count: u64,
    first: Timestamp,
    last: Timestamp,
    /// The first of them, for the history.
    lines: Vec<Told>,
    decided: Option<Happened>,
}

#[derive(Clone, Debug)]
struct Told {
    at: Timestamp,
    attempt: u32,
    actor: String,
}

impl Stopped {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.lines.extend(other.lines);
        self.lines.truncate(limits::STOP_HISTORY_ROWS_MAX as usize);
    }
}

/// Counts them.
pub(super) struct Stops {
    shared: Arc<Shared>,
    writer: Arc<Writer>,
    pending: Mutex<HashMap<ClaimRef, Stopped>>,
    /// Answered and not committed: in `pending`, or on their way through the writer.
    open: AtomicUsize,
    /// Held by whoever brings them to the writer.
    counting: tokio::sync::Mutex<()>,
    looks: AtomicI32,
    numbers: Numbers,
    recent: Arc<Recent>,
    /// A task is there that will count what is open.
    is_soon: AtomicBool,
}

/// The numbers that automations had when they were last looked up. A guess: whoever uses one compares the name.
#[derive(Default)]
struct Numbers(RwLock<HashMap<Workspace, HashMap<AutomationName, i64>>>);

impl Numbers {
    fn of(&self, workspace: Workspace, name: &AutomationName) -> Option<i64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&workspace)?.get(name).copied()
    }

    fn note(&self, workspace: Workspace, name: &AutomationName, number: i64) {
        if self.of(workspace, name) != Some(number) {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            known.entry(workspace).or_default().insert(name.clone(), number);
        }
    }
}

/// What a reader finds about a call.
enum Look {
    /// It is stopped, and nothing else.
    Stopped(Box<Claimed>, Stopped),
    /// It is for this claim, and more than that.
    Other(ClaimRef),
    /// It does not say for which claim it is, or there is none yet.
    Unknown,
}

impl Stops {
    pub(super) fn new(shared: Arc<Shared>, writer: Arc<Writer>, recent: Arc<Recent>) -> Self {
        Self {
            shared,
            writer,
            pending: Mutex::default(),
            open: AtomicUsize::new(0),
            counting: tokio::sync::Mutex::default(),
            looks: AtomicI32::new(0),
            numbers: Numbers::default(),
            recent,
            is_soon: AtomicBool::new(false),
        }
    }

    /// The answer to a call for what is done. `None`: it is the writer's to decide, and what the claim was stopped for
    /// before is counted.
    pub(super) async fn answer(self: &Arc<Self>, readers: &Readers, call: &ClaimCall) -> Option<Claimed> {
        match self.looks.load(Relaxed) <= 0 && self.open.load(SeqCst) == 0 {
            true => None,
            false => self.look(readers, call).await,
        }
    }

    /// The same, whatever calls came to lately.
    pub(super) async fn look(self: &Arc<Self>, readers: &Readers, call: &ClaimCall) -> Option<Claimed> {
        // Whatever goes wrong here, the writer finds too, and says.
        let found = readers.read_at_once(|db| {
            if let Some(found) =
                self.shared.context(db).stopped_by_its_row(call, &self.numbers, &self.recent)?
            {
                return Ok(found);
            }
            let snapshot = db.unchecked_transaction()?;
            self.shared.context(&snapshot).stopped_already(call, &self.numbers)
        });
        match found? {
            Ok(Look::Stopped(claimed, stopped)) => self.stop(*claimed, stopped),
            Ok(Look::Other(id)) => {
                // So that its history stands in order.
                if self.lock().contains_key(&id) {
                    let _ = self.count().await;
                }
                None
            }
            Ok(Look::Unknown) | Err(_) => None,
        }
    }

    fn stop(self: &Arc<Self>, mut claimed: Claimed, stopped: Stopped) -> Option<Claimed> {
        let mut pending = self.lock();
        if pending.len() >= CLAIMS_MAX {
            return None;
        }
        let all = match pending.entry(claimed.id) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().add(stopped);
                entry.get().clone()
            }
            Entry::Vacant(entry) => entry.insert(stopped).clone(),
        };
        self.open.fetch_add(1, SeqCst);
        drop(pending);
        if let Some(view) = &mut claimed.view {
            view.stops += all.count;
            view.first_stop_at = view.first_stop_at.or(Some(all.first));
            view.last_stop_at = view.last_stop_at.max(Some(all.last));
        }
        self.saw(&claimed.decision);
        if !self.is_soon.swap(true, SeqCst) {
            tokio::spawn(Arc::clone(self).count_soon());
        }
        Some(claimed)
    }

    /// Before something else is written about a claim, or read.
    pub(super) async fn counted(self: &Arc<Self>, id: ClaimRef) {
        if self.open.load(SeqCst) > 0 && self.lock().contains_key(&id) {
            let _ = self.count().await;
        }
    }

    /// Whether it pays to look depends on what calls come to.
    pub(super) fn saw(&self, decision: &Decision) {
        match decision {
            Decision::Stop { reason: StopReason::Duplicate, .. } => {
                self.looks.store(LOOKS_AFTER_STOP, Relaxed)
            }
            _ if self.looks.load(Relaxed) > 0 => {
                self.looks.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
    }

    async fn count_soon(self: Arc<Self>) {
        loop {
            tokio::time::sleep(COUNTED_WITHIN).await;
            match self.count().await {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(_) => tokio::time::sleep(TRIED_AGAIN_AFTER).await,
            }
            if self.open.load(SeqCst) > 0 {
                continue;
            }
            self.is_soon.store(false, SeqCst);
            // One that was answered in between saw that this task was still there.
            if self.open.load(SeqCst) == 0 || self.is_soon.swap(true, SeqCst) {
                return;
            }
        }
    }

    /// Returns once every stop that was answered before is in the store. A task of its own does it: who asks may
    /// hang up.
    ///
    /// # Errors
    /// The store's; they stay to be counted.
    pub(super) async fn count(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.open.load(SeqCst) == 0 {
            return Ok(());
        }
        let stops = Arc::clone(self);
        let counted = tokio::spawn(async move { stops.count_all().await });
        counted.await.map_err(|_| StoreError::Closed)?
    }

    async fn count_all(&self) -> Result<(), StoreError> {
        let _one = self.counting.lock().await;
        let taken = Arc::new(std::mem::take(&mut *self.lock()));
        let answered: u64 = taken.values().map(|stopped| stopped.count).sum();
        if answered == 0 {
            return Ok(());
        }
        let (shared, counted) = (Arc::clone(&self.shared), Arc::clone(&taken));
        let (recent, counting) = (Arc::clone(&self.recent), self.recent.counting());
        let count = move |db: &Connection| {
            recent.heed_others(db)?;
            let _counts = recent.counts();
            shared.context(db).count_stops(&counted)
        };
        let written = self.writer.write(Manner::COUNTING, count).await;
        match &written {
            Ok(()) => {
                for (id, stopped) in &*taken {
                    counting.committed(*id, stopped.count, stopped.first, stopped.last);
                }
                self.open.fetch_sub(usize::try_from(answered).unwrap_or(usize::MAX), SeqCst);
            }
            Err(error) => {
                tracing::error!(%error, stops = answered, "stops could not be counted yet");
                let mut pending = self.lock();
                for (id, mut stopped) in Arc::unwrap_or_clone(taken) {
                    if let Some(later) = pending.remove(&id) {
                        stopped.add(later);
                    }
                    pending.insert(id, stopped);
                }
            }
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimRef, Stopped>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context<'_> {
    /// The same as [`Context::stopped_already`] by one row, which is kept or read in one statement, a snapshot by
    /// itself: nearly every duplicate needs no more. `None`: this one does.
    fn stopped_by_its_row(
        &self,
        call: &ClaimCall,
        numbers: &Numbers,
        recent: &Recent,
    ) -> Result<Option<Look>, StoreError> {
        let Target::Key { workspace, automation, key } = &call.target else { return Ok(None) };
        let Some(automation_id) = numbers.of(*workspace, automation) else { return Ok(None) };
        let id = ClaimRef { workspace: *workspace, id: self.secret.claim_id(*workspace, automation_id, key) };
        if call.parent.is_some() || call.again {
            return Ok(Some(Look::Other(id)));
        }
        let (stamp, known) = (recent.stamp(), recent.get(id));
        let is_kept = known.is_some();
        let kept = match known {
            Some(kept) => kept,
            None => match load_with_standing(self.db, id)? {
                Some((stored, standing)) => Kept { stored: Arc::new(stored), standing },
                None => return Ok(Some(Look::Unknown)),
            },
        };
        let view = &kept.stored.view;
        // It may have been renamed since its number was noted.
        if view.automation != *automation || claim::wanted(&call.request, Some(&view.claim)).asks() {
            return Ok(None);
        }
        let (workspace, automation, key) = (*workspace, automation.clone(), key.clone());
        let place = Place { workspace, automation_id, standing: kept.standing, automation, key };
        let look = self.stopped_at(id, &place, &kept.stored, call)?;
        if !is_kept && matches!(look, Look::Stopped(..)) {
            recent.keep(stamp, id, kept);
        }
        Ok(Some(look))
    }

    /// The answer, if all that this call does is to be stopped because the effect happened.
    fn stopped_already(&self, call: &ClaimCall, numbers: &Numbers) -> Result<Look, StoreError> {
        let Target::Key { workspace, automation, key } = &call.target else { return Ok(Look::Unknown) };
        let Some((automation_id, standing)) = self.known_automation(*workspace, automation)? else {
            return Ok(Look::Unknown);
        };
        numbers.note(*workspace, automation, automation_id);
        let id = ClaimRef { workspace: *workspace, id: self.secret.claim_id(*workspace, automation_id, key) };
        if call.parent.is_some() || call.again {
            return Ok(Look::Other(id));
        }
        let Some(stored) = row::load(self.db, id)? else { return Ok(Look::Unknown) };
        let (workspace, automation, key) = (*workspace, automation.clone(), key.clone());
        let place = Place { workspace, automation_id, standing, automation, key };
        self.stopped_at(id, &place, &stored, call)
    }

    fn stopped_at(
        &self,
        id: ClaimRef,
        place: &Place,
        stored: &Stored,
        call: &ClaimCall,
    ) -> Result<Look, StoreError> {
        let policy = self.policies.policy(place.workspace, &place.automation);
        let (holder, facts) = self.facts((id, place), Some(stored), None, call, &policy)?;
        let loaded = Loaded { record_holder: holder.as_ref().map(|s| &s.view.claim), ..facts };
        let name = || format!("{} of {}", place.key, place.automation);
        let writes = claim::claim(&Rules::CORE, &loaded, call, name, &policy, self.now);
        let duplicate = matches!(writes.decision, Decision::Stop { reason: StopReason::Duplicate, .. });
        let nothing_else = writes.claim.is_none()
            && writes.record_taken.is_none()
            && writes.payload == Keep::Not
            && writes.pruned == Pruned::Stays
            && writes.stopped
            && !(writes.give_up_steps || writes.first_run || writes.went_stale)
            && notice::of_claim(&place.automation, None, &loaded, &writes).is_empty();
        if !(duplicate && nothing_else) {
            return Ok(Look::Other(id));
        }
        let at = self.now.wall;
        let attempts = writes.lines.iter().map(|line| line.attempt);
        let stopped = Stopped {
            count: 1,
            first: at,
            last: at,
            lines: attempts.map(|attempt| Told { at, attempt, actor: call.actor.clone() }).collect(),
            decided: observer::decided(call, &writes.decision, false),
        };
        let (decision, now) = (writes.decision, self.now);
        let view = Some(judged(stored.clone(), self.now, self.boot));
        let claimed = Claimed { decision, view, changed: false, id, token: None, note: None, now };
        Ok(Look::Stopped(Box::new(claimed), stopped))
    }

    fn count_stops(&self, stopped: &HashMap<ClaimRef, Stopped>) -> Result<(), StoreError> {
        for (id, stopped) in stopped {
            let counted: Option<(i64, i64)> = self
                .db
                .prepare_cached(
                    "UPDATE claims SET stops = stops + ?3, first_stop_at = min(coalesce(first_stop_at, ?4), ?4), \
                     last_stop_at = max(coalesce(last_stop_at, ?5), ?5) WHERE claim_id = ?1 AND workspace_id = ?2 \
                     RETURNING id, stops",
                )?
                .query_row(
                    params![
                        &id.id.0[..],
                        id.workspace.0,
                        i64::try_from(stopped.count).unwrap_or(i64::MAX),
                        stopped.first.as_millis(),
                        stopped.last.as_millis()
                    ],
                    |r| Ok((r.get(0)?, r.get(1)?)),
                )
                .optional()?;
            // Forgotten meanwhile, with its history.
            let Some((row, stops)) = counted else { continue };
            let before = u64::try_from(stops).unwrap_or_default().saturating_sub(stopped.count);
            let rows = u64::from(limits::STOP_HISTORY_ROWS_MAX).saturating_sub(before);
            for told in stopped.lines.iter().take(usize::try_from(rows).unwrap_or(usize::MAX)) {
                let reason = Some(StopReason::Duplicate.as_str());
                let line = Line { kind: "stop", reason, attempt: told.attempt, note: None };
                self.history_at(row, told.at, &line, &told.actor)?;
            }
            for _ in 0..stopped.count {
                if let Some(decided) = stopped.decided {
                    self.journal.note(decided);
                }
            }
        }
        Ok(())
    }
}

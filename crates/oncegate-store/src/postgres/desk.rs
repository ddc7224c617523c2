//! New claims, taken together: what a node's callers claim at the same moment goes to the database in one statement, in
//! one round trip, as one commit.
//!
//! Almost every claim is the first of its key. For those the decision is known before anything is looked up, provided
//! that nothing stands in its way: no row of the key, no mark that it was forgotten, no pause, nobody on its record, no
//! other claim of its run. The statement writes the row that the core decided on where the database finds that so, and
//! nothing where it does not; what it left out is decided anew, alone, in a transaction that looks
//! ([`super::transition`]). The database's time at that moment is added to every instant by the statement itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use oncegate_core::claim::Claim;
use oncegate_core::decide::{Decision, RunReason};
use oncegate_core::inbox;
use oncegate_core::key::{AutomationName, ClaimId, ClaimRef, IdempotencyKey, Workspace};
use oncegate_core::limits;
use oncegate_core::policy::Policy;
use oncegate_core::time::{LeaseInstant, Now, Timestamp, millis};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::clock::Anchor;
use super::desk_sql::{self, Item};
use super::error::Fault;
use super::row::Columns;
use super::store::Shared;
use crate::StoreError;
use crate::api::{ClaimCall, ClaimView, Claimed, Target};
use crate::observer;
use crate::transition::claim::{self, Keep, Loaded, Pruned, Writes};
use crate::transition::{Line, Rules};

/// Statements under way at the same time: one is written while the other waits for the disk. What comes meanwhile is
/// gathered for the next.
const DESKS: usize = 2;
/// Most claims in one statement: bounds how long the first of them waits for the last.
const GROUP_MAX: usize = 256;
/// Most bytes of payloads in one statement; a larger payload goes alone.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Most calls waiting; beyond it callers are told to come back (503).
const QUEUE_MAX: usize = 8_192;

/// What came of a call.
enum Fate {
    /// It runs.
    Made(Box<Claimed>),
    /// Something stands in its way; it has to be looked at.
    Look,
    /// It failed.
    Failed(StoreError),
}

struct Waiting {
    call: Arc<ClaimCall>,
    place: Place,
    reply: oneshot::Sender<Fate>,
}

#[derive(Clone)]
struct Place {
    workspace: Workspace,
    automation_id: i64,
    automation: AutomationName,
    key: IdempotencyKey,
    id: ClaimId,
}

/// Takes new claims.
pub(super) struct Desk {
    queue: mpsc::Sender<Waiting>,
    /// Numbers of automations, as this node last saw them; the statement checks that the name is still the same.
    numbers: RwLock<HashMap<(Workspace, AutomationName), i64>>,
    /// The database does not take the statement (a distributed one may not).
    refused: Arc<AtomicBool>,
}

impl Desk {
    /// Opens the desks; they close when this is dropped.
    pub(super) fn open(shared: &Arc<Shared>) -> Self {
        let (queue, calls) = mpsc::channel::<Waiting>(QUEUE_MAX);
        let (calls, refused) = (Arc::new(Mutex::new(calls)), Arc::new(AtomicBool::new(false)));
        for _ in 0..DESKS {
            let (calls, shared, refused) = (Arc::clone(&calls), Arc::downgrade(shared), Arc::clone(&refused));
            tokio::spawn(async move {
                loop {
                    // Whoever has the lock gathers; the others are with the database.
                    let mut calls = calls.lock().await;
                    let Some(first) = calls.recv().await else { return };
                    let mut group = vec![first];
                    let mut bytes = size(&group[0].call);
                    while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
                        let Ok(next) = calls.try_recv() else { break };
                        bytes += size(&next.call);
                        group.push(next);
                    }
                    drop(calls);
                    let Some(shared) = shared.upgrade() else { return };
                    serve(&shared, group, &refused).await;
                }
            });
        }
        Self { queue, numbers: RwLock::default(), refused }
    }

    /// Tries to take a new claim in one round trip. `None`: it has to be looked at.
    pub(super) async fn claim(
        &self,
        shared: &Shared,
        call: &Arc<ClaimCall>,
    ) -> Result<Option<Claimed>, StoreError> {
        let Some(place) = self.place(shared, call) else { return Ok(None) };
        let (reply, fate) = oneshot::channel();
        self.queue.try_send(Waiting { call: Arc::clone(call), place, reply }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        match fate.await {
            Ok(Fate::Made(claimed)) => Ok(Some(*claimed)),
            Ok(Fate::Look) => Ok(None),
            Ok(Fate::Failed(error)) => Err(error),
            Err(_) => Err(StoreError::Closed),
        }
    }

    /// Where a new claim would go, if this is a call that may be one.
    fn place(&self, shared: &Shared, call: &ClaimCall) -> Option<Place> {
        let Target::Key { workspace, automation, key } = &call.target else { return None };
        if call.parent.is_some()
            || call.again
            || shared.recovering()
            || !shared.restores.gaps.is_empty()
            || self.refused.load(Ordering::Relaxed)
        {
            return None;
        }
        let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
        let number = *numbers.get(&(*workspace, automation.clone()))?;
        let id = shared.secret.claim_id(*workspace, number, key);
        Some(Place {
            workspace: *workspace,
            automation_id: number,
            automation: automation.clone(),
            key: key.clone(),
            id,
        })
    }

    /// Remembers the number of an automation.
    pub(super) fn learn(&self, workspace: Workspace, automation: &AutomationName, number: i64) {
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever makes up names for ever must not fill the memory.
        if numbers.len() >= limits::NAMES_COMPARED_MAX {
            numbers.clear();
        }
        numbers.insert((workspace, automation.clone()), number);
    }

    /// Whether its number is remembered.
    pub(super) fn knows(&self, workspace: Workspace, automation: &AutomationName) -> bool {
        let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
        numbers.contains_key(&(workspace, automation.clone()))
    }
}

fn size(call: &ClaimCall) -> usize {
    call.payload.as_ref().map_or(0, |payload| payload.body.len() + payload.json.len())
}

/// Decides as if nothing stood in the way; `None` if that is not a plain first run.
fn first<'c>(
    shared: &Shared,
    call: &'c ClaimCall,
    place: &Place,
    policy: &Policy,
    now: Now,
) -> Option<Writes<'c>> {
    let loaded = Loaded {
        id: place.id,
        claim: None,
        stops: 0,
        pruned_done_at: None,
        record_holder: None,
        first_runs_of_record: 0,
        paused: false,
        stale_streak: 0,
        run_id_is_constant: false,
        clock_is_doubtful: false,
        parent: None,
        boot: shared.boot,
        restores: &shared.restores,
        recovering: false,
        repeat_of: None,
    };
    let name = || format!("{} of {}", place.key, place.automation);
    let writes = claim::claim(&Rules::CORE, &loaded, call, name, policy, now);
    let plain = matches!(writes.decision, Decision::Run(RunReason::First))
        && writes.claim.is_some()
        && writes.record_taken.is_none()
        && !writes.stopped
        && !writes.went_stale
        && writes.pruned == Pruned::Stays
        && writes.lines.len() == 1;
    plain.then_some(writes)
}

/// Both clocks at an instant that the database named, while an anchor holds.
fn at(anchor: Anchor, wall: i64) -> Now {
    Now { wall: Timestamp::from_millis(wall), lease: LeaseInstant(anchor.lease + wall - anchor.wall) }
}

async fn serve(shared: &Shared, group: Vec<Waiting>, refused: &AtomicBool) {
    let mut workspaces: HashMap<Workspace, Vec<Waiting>> = HashMap::new();
    for waiting in group {
        workspaces.entry(waiting.place.workspace).or_default().push(waiting);
    }
    for (workspace, mut group) in workspaces {
        // Whoever has gone claims nothing.
        group.retain(|one| !one.reply.is_closed());
        // In one order on every node: two that meet in the same keys wait for each other, and not in a circle.
        group.sort_by_key(|one| one.place.id);
        let mut of_its_key = Vec::with_capacity(group.len());
        for one in group {
            match of_its_key.last().is_some_and(|last: &Waiting| last.place.id == one.place.id) {
                // A second one of the same key is looked at once the first is there.
                true => answer(one, Fate::Look),
                false => of_its_key.push(one),
            }
        }
        together(shared, workspace, of_its_key, refused).await;
    }
}

fn answer(one: Waiting, fate: Fate) {
    // A caller that hung up meanwhile has its effect in the store; `same_run` is for that.
    let _ = one.reply.send(fate);
}

/// One statement for the claims of one workspace, each of another key.
async fn together(shared: &Shared, workspace: Workspace, group: Vec<Waiting>, refused: &AtomicBool) {
    let anchor = shared.cluster.anchored();
    let now = at(anchor, anchor.wall);
    let items: Vec<Item<'_>> = group
        .iter()
        .filter_map(|one| {
            let policy = shared.policies.policy(workspace, &one.place.automation);
            let writes = first(shared, &one.call, &one.place, &policy, now)?;
            item(shared, one, &writes, &policy)
        })
        .collect();
    let began = shared.clock.read().monotonic;
    let db = match items.is_empty() {
        true => None,
        false => match shared.reader().await {
            Ok(db) => Some(db),
            Err(fault) => {
                let error = shared.failed(fault);
                drop(items);
                return group.into_iter().for_each(|one| answer(one, Fate::Failed(error.clone())));
            }
        },
    };
    let made = match &db {
        None => Ok(Vec::new()),
        Some(db) => desk_sql::insert(db, workspace, &items, anchor, shared.simulated_wall()).await,
    };
    let calls = items.len();
    drop(items);
    match made {
        Ok(made) => {
            let took = shared.clock.read().monotonic.saturating_sub(began);
            let mut made: HashMap<ClaimId, (i64, i64)> =
                made.into_iter().map(|(id, position, wall)| (id, (position, wall))).collect();
            for one in group {
                let Some((position, wall)) = made.remove(&one.place.id) else {
                    answer(one, Fate::Look);
                    continue;
                };
                let now = at(anchor, wall);
                shared.heard(now);
                let fate = match tell(shared, &one, position, now) {
                    Some(claimed) => {
                        if let Some(counts) = observer::decided(&one.call, &claimed.decision, true) {
                            shared.observer.happened(counts);
                        }
                        Fate::Made(Box::new(claimed))
                    }
                    // Cannot be: the same call was decided so a moment ago. Whoever asks again is told the truth.
                    None => Fate::Failed(StoreError::Inconsistent("a claim was decided in two ways".into())),
                };
                answer(one, fate);
            }
            shared.observer.committed(calls, took);
        }
        Err(fault) => {
            if is_refusal(&fault) && !refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "this database takes no claims together; each is a transaction of its own from now on"
                );
            }
            for one in group {
                let fate = match &fault {
                    // The statement was sent, and nobody said what came of it.
                    Fault::Failed(StoreError::Away(why)) => Fate::Failed(StoreError::Unsure(why.clone())),
                    Fault::Failed(error @ (StoreError::Busy | StoreError::Closed | StoreError::Full(_))) => {
                        Fate::Failed(error.clone())
                    }
                    // Nothing of it was written: one of them alone may be the reason.
                    Fault::Failed(_) | Fault::Again(_) => Fate::Look,
                };
                answer(one, fate);
            }
        }
    }
}

fn is_refusal(fault: &Fault) -> bool {
    matches!(fault, Fault::Failed(StoreError::Database(words)) if words.contains("(0A000)"))
}

/// What the statement writes for one call.
fn item<'w>(shared: &Shared, one: &'w Waiting, writes: &Writes<'_>, policy: &Policy) -> Option<Item<'w>> {
    let (claim, line) = (writes.claim.as_ref()?, writes.lines.first()?);
    let Line { kind, reason, attempt, note: None } = line else { return None };
    let columns = Columns::of(&shared.secret, one.place.workspace, claim);
    let payload = one.call.payload.as_ref().filter(|_| writes.payload != Keep::Not);
    if payload.is_some_and(|payload| payload.json.contains('\0')) {
        return None;
    }
    // What is done at its claim holds no record: its runs are counted one after the other.
    if claim.record.is_some() && columns.record_hash.is_none() {
        return None;
    }
    let record_hash =
        claim.record.as_ref().map(|record| shared.secret.record_hash(one.place.workspace, record));
    Some(Item {
        claim_id: one.place.id.0,
        automation_id: one.place.automation_id,
        automation: one.place.automation.as_str(),
        key: one.place.key.as_str(),
        run_url: one.call.run_url.as_deref().map(super::row::storable),
        actor: super::row::storable(&one.call.actor),
        kind,
        reason: *reason,
        attempt: i64::from(*attempt),
        payload,
        record_hash,
        counts_run: writes.first_run,
        loop_max: i64::from(policy.loop_limit.runs),
        loop_within: millis(policy.loop_limit.within),
        columns: desk_sql::plain(columns)?,
    })
}

/// The answer, from the same decision at the moment that the database wrote it.
fn tell(shared: &Shared, one: &Waiting, position: i64, now: Now) -> Option<Claimed> {
    let policy = shared.policies.policy(one.place.workspace, &one.place.automation);
    let writes = first(shared, &one.call, &one.place, &policy, now)?;
    let claim: Claim = writes.claim?;
    let id = ClaimRef { workspace: one.place.workspace, id: one.place.id };
    let token = shared.secret.token(id, claim.fence());
    let view = ClaimView {
        workspace: one.place.workspace,
        row: position,
        inbox: inbox::list_of(&claim, now, shared.boot),
        claim,
        automation: one.place.automation.clone(),
        key: one.place.key.clone(),
        repeat_of: None,
        run_url: one.call.run_url.clone(),
        result: None,
        stops: 0,
        first_stop_at: None,
        last_stop_at: None,
        tag: None,
        created_at: now.wall,
        updated_at: now.wall,
        payload_removed_at: None,
    };
    Some(Claimed {
        decision: writes.decision,
        view: Some(view),
        changed: true,
        id,
        token: Some(token),
        note: None,
        now,
    })
}

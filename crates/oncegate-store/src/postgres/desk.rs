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
use tokio::sync::oneshot;

use super::clock::Anchor;
use super::desk_sql::{self, Item, Shape};
use super::error::Fault;
use super::queues::{Queues, Seat};
use super::row::Columns;
use super::store::Shared;
use crate::StoreError;
use crate::api::{ClaimCall, ClaimView, Claimed, Target};
use crate::observer;
use crate::transition::claim::{self, Keep, Loaded, Pruned, Writes};
use crate::transition::{Line, Rules};

/// What came of a call.
enum Fate {
    /// It runs.
    Made(Box<Claimed>),
    /// Something stands in its way; it has to be looked at.
    Look,
    /// It failed.
    Failed(StoreError),
}

/// A call that waits for its statement.
pub(super) struct Waiting {
    call: Arc<ClaimCall>,
    place: Place,
    /// As it was when the call came: what it is told must be what was written, whatever is reloaded in between.
    policy: Arc<Policy>,
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

impl Waiting {
    pub(super) fn workspace(&self) -> Workspace {
        self.place.workspace
    }

    /// Bytes of payload.
    pub(super) fn size(&self) -> usize {
        self.call.payload.as_ref().map_or(0, |payload| payload.body.len() + payload.json.len())
    }
}

/// Takes new claims.
pub(super) struct Desk {
    queues: Arc<Queues>,
    /// Numbers of automations, as this node last saw them; the statement checks that the name is still the same.
    numbers: RwLock<HashMap<(Workspace, AutomationName), i64>>,
    /// The database does not take the statement (a distributed one may not).
    refused: Arc<AtomicBool>,
}

impl Desk {
    /// Opens the desk; it may use half of so many connections.
    pub(super) fn open(connections: usize) -> Self {
        let queues = Arc::new(Queues::new((connections / 2).max(1)));
        Self { queues, numbers: RwLock::default(), refused: Arc::default() }
    }

    /// Tries to take a new claim in one round trip. `None`: it has to be looked at.
    pub(super) async fn claim(
        &self,
        shared: &Arc<Shared>,
        call: &Arc<ClaimCall>,
    ) -> Result<Option<Claimed>, StoreError> {
        let Some(place) = self.place(shared, call) else { return Ok(None) };
        let (reply, fate) = oneshot::channel();
        let policy = shared.policies.policy(place.workspace, &place.automation);
        if let Some(seat) = self.queues.join(Waiting { call: Arc::clone(call), place, policy, reply })? {
            tokio::spawn(sit(seat, Arc::clone(shared), Arc::clone(&self.refused)));
        }
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

/// Decides as if nothing stood in the way; `None` if that is not a plain first run.
fn first<'w>(shared: &Shared, one: &'w Waiting, now: Now) -> Option<Writes<'w>> {
    let Waiting { call, place, policy, .. } = one;
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
        earlier_waits: false,
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

/// Serves a workspace's queue until others do, or nobody waits.
async fn sit(mut seat: Seat, shared: Arc<Shared>, refused: Arc<AtomicBool>) {
    while let Some((mut group, place)) = seat.next().await {
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
        together(&shared, seat.workspace(), of_its_key, &refused).await;
        drop(place);
    }
}

fn answer(one: Waiting, fate: Fate) {
    // A caller that hung up meanwhile has its effect in the store; `same_run` is for that.
    let _ = one.reply.send(fate);
}

/// One statement for the claims of one workspace, each of another key; several where they differ in more than that.
async fn together(shared: &Shared, workspace: Workspace, group: Vec<Waiting>, refused: &AtomicBool) {
    let anchor = shared.cluster.anchored();
    let now = at(anchor, anchor.wall);
    let items: Vec<Item<'_>> =
        group.iter().filter_map(|one| item(shared, one, &first(shared, one, now)?)).collect();
    let mut shapes: Vec<(Shape, Vec<&Item<'_>>)> = Vec::with_capacity(1);
    for item in &items {
        let shape = item.shape();
        match shapes.iter_mut().find(|(of, _)| *of == shape) {
            Some((_, alike)) => alike.push(item),
            None => shapes.push((shape, vec![item])),
        }
    }
    // What is in none of these has to be looked at.
    let mut made: HashMap<ClaimId, (i64, i64)> = HashMap::with_capacity(items.len());
    let mut failed: HashMap<ClaimId, StoreError> = HashMap::new();
    for (shape, alike) in shapes {
        let began = shared.clock.read().monotonic;
        let fault = match shared.reader().await {
            Ok(db) => {
                match desk_sql::insert(&db, workspace, shape, &alike, anchor, shared.simulated_wall()).await {
                    Ok(rows) => {
                        let took = shared.clock.read().monotonic.saturating_sub(began);
                        made.extend(rows.into_iter().map(|(id, position, wall)| (id, (position, wall))));
                        shared.observer.committed(alike.len(), took);
                        continue;
                    }
                    Err(fault) => {
                        refusal(&fault, refused);
                        after(fault)
                    }
                }
            }
            Err(fault) => Some(shared.failed(fault)),
        };
        if let Some(error) = fault {
            failed.extend(alike.iter().map(|item| (ClaimId(item.claim_id), error.clone())));
        }
    }
    drop(items);
    for one in group {
        let fate = match (made.remove(&one.place.id), failed.remove(&one.place.id)) {
            (Some((position, wall)), _) => told(shared, &one, position, at(anchor, wall)),
            (None, Some(error)) => Fate::Failed(error),
            (None, None) => Fate::Look,
        };
        answer(one, fate);
    }
}

/// What the callers of a statement that failed are told; `None`: nothing of it was written, and one of them alone may
/// be the reason, so each is looked at.
fn after(fault: Fault) -> Option<StoreError> {
    match fault {
        // The statement was sent, and nobody said what came of it.
        Fault::Failed(StoreError::Away(why)) => Some(StoreError::Unsure(why)),
        Fault::Failed(error @ (StoreError::Busy | StoreError::Closed | StoreError::Full(_))) => Some(error),
        Fault::Failed(_) | Fault::Again(_) => None,
    }
}

/// Remembers that this database does not take the statement.
fn refusal(fault: &Fault, refused: &AtomicBool) {
    if is_refusal(fault) && !refused.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "this database takes no claims together; each is a transaction of its own from now on"
        );
    }
}

fn is_refusal(fault: &Fault) -> bool {
    matches!(fault, Fault::Failed(StoreError::Database(words)) if words.contains("(0A000)"))
}

/// What the statement writes for one call.
fn item<'w>(shared: &Shared, one: &'w Waiting, writes: &Writes<'_>) -> Option<Item<'w>> {
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
        loop_max: i64::from(one.policy.loop_limit.runs),
        loop_within: millis(one.policy.loop_limit.within),
        columns: desk_sql::plain(columns)?,
    })
}

/// It was written; what it is told, and counted.
fn told(shared: &Shared, one: &Waiting, position: i64, now: Now) -> Fate {
    shared.heard(now);
    let Some(claimed) = tell(shared, one, position, now) else {
        // Cannot be: the same call was decided so a moment ago. Whoever asks again is told the truth.
        return Fate::Failed(StoreError::Inconsistent("a claim was decided in two ways".into()));
    };
    if let Some(counts) = observer::decided(&one.call, &claimed.decision, true) {
        shared.observer.happened(counts);
    }
    Fate::Made(Box::new(claimed))
}

/// The answer, from the same decision at the moment that the database wrote it.
fn tell(shared: &Shared, one: &Waiting, position: i64, now: Now) -> Option<Claimed> {
    let writes = first(shared, one, now)?;
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

//! The store, in memory: loads from the row map what the transitions want, and writes what they say.

use std::sync::{Arc, LazyLock};

use oncegate_core::claim::{Claim, Holder};
use oncegate_core::decide::{Decision, Request, RunReason, Start};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::Call;
use oncegate_core::key::{AutomationName, ClaimId, IdempotencyKey, RecordName, RunId};
use oncegate_core::policy::Jitter;
use oncegate_core::recovery::Restores;
use oncegate_core::reset::Act;
use oncegate_core::time::Now;
use oncegate_store::api::{
    ActCall, ClaimCall, ClaimRef, FinishCall, StepEnd, StepOutcome, Target, Workspace,
};
use oncegate_store::transition::claim::{self, Loaded, Pruned};
use oncegate_store::transition::{Rules, act, finish, step};

use crate::ghost::{Broken, Promise};
use crate::judge;
use crate::scope::{Kind, RunIds, Scope};
use crate::tally::Tally;
use crate::world::{Held, World, holds_record};

/// Who asks for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A caller's run.
    Caller(u32),
    /// oncegate's own runner.
    Runner,
    /// An event that comes by webhook.
    Event,
    /// A person who offers another payload.
    Correction,
}

/// The rules that are searched, and what is counted on the way.
pub struct Search<'a> {
    /// What may happen.
    pub scope: &'a Scope,
    /// By which rules.
    pub rules: Rules,
    /// What was reached.
    pub tally: Tally,
}

/// The id of a key.
pub fn claim_id(key: usize) -> ClaimId {
    ClaimId([u8::try_from(key).unwrap_or_default() + 1; 16])
}

static RUN_IDS: LazyLock<Vec<RunId>> =
    LazyLock::new(|| (0..64).filter_map(|n| RunId::try_from(format!("run-{n}").as_str()).ok()).collect());

/// The run id of a run.
pub fn run_id(run: u32) -> RunId {
    RUN_IDS[run as usize % RUN_IDS.len()].clone()
}

struct Names {
    automation: AutomationName,
    keys: Vec<IdempotencyKey>,
    record: RecordName,
    payloads: [Fingerprint; 2],
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    // Four short literals; none is refused by the checks that these types make.
    #[expect(clippy::unwrap_used, reason = "literals")]
    let named = || Names {
        automation: AutomationName::try_from("a").unwrap(),
        keys: vec![IdempotencyKey::try_from("a").unwrap(), IdempotencyKey::try_from("b").unwrap()],
        // Neither is blank or long, and 17 bytes are a fingerprint.
        record: RecordName::try_from("r").unwrap(),
        payloads: [1, 2].map(|n: u8| Fingerprint::from_bytes(&[&[1][..], &[n; 16][..]].concat()).unwrap()),
    };
    named()
});

fn at(key: usize) -> ClaimRef {
    ClaimRef { workspace: Workspace::DEFAULT, id: claim_id(key) }
}

/// No backup is ever restored here; what a restore makes of claims stands in the core's own table.
static NO_RESTORES: LazyLock<Arc<Restores>> = LazyLock::new(Arc::default);

impl Search<'_> {
    fn call(&self, key: usize, who: Who, other_payload: bool, boot: oncegate_core::claim::Boot) -> ClaimCall {
        let (start, target) = match who {
            Who::Runner => (Start::Now(Holder::Runner { boot }), Target::Id(at(key))),
            Who::Caller(_) | Who::Event | Who::Correction => {
                let start = match (who, self.scope.run_ids) {
                    (Who::Caller(run), RunIds::Own) => {
                        Start::Now(Holder::Caller { run_id: Some(run_id(run)) })
                    }
                    (Who::Caller(_), RunIds::Constant) => {
                        Start::Now(Holder::Caller { run_id: Some(run_id(0)) })
                    }
                    _ => Start::Queue,
                };
                let (automation, key) = (NAMES.automation.clone(), NAMES.keys[key].clone());
                (start, Target::Key { workspace: Workspace::DEFAULT, automation, key })
            }
        };
        let bare = other_payload && self.scope.has(Kind::Bare);
        let named = who != Who::Runner && !bare;
        let request = Request {
            start,
            fingerprint: named.then(|| NAMES.payloads[usize::from(other_payload)]),
            record: (named && self.scope.record).then(|| NAMES.record.clone()),
            ttl: None,
            correction: who == Who::Correction,
            likeness: None,
            identity: None,
            dated: None,
        };
        ClaimCall {
            target,
            request,
            run_url: None,
            parent: None,
            payload: None,
            actor: String::new(),
            again: false,
        }
    }

    fn loaded<'w>(&self, world: &'w World, key: usize, call: &ClaimCall) -> Loaded<'w> {
        let claim = world.claim(key);
        let wanted = claim::wanted(&call.request, claim);
        let holder = wanted.record.and_then(|_| world.record_holder(key));
        let within = self.scope.policy(world).loop_limit.within;
        let (since, until) = (world.now.wall.before(within), world.now.wall);
        let runs = world.first_runs.iter().filter(|at| **at > since && **at <= until).count();
        let horizon = claim::run_id_horizon(world.now);
        let ended_with = |run_id: &RunId| {
            let others = (0..world.rows.len()).filter(|k| *k != key).filter_map(|k| world.rows[k].as_ref());
            others
                .filter(|row| row.run_id.as_ref() == Some(run_id))
                .any(|row| judge::ended_at(&row.claim).is_some_and(|at| at < horizon))
        };
        Loaded {
            id: claim_id(key),
            claim,
            stops: 0,
            pruned_done_at: world.pruned[key].filter(|_| wanted.pruned),
            record_holder: holder.and_then(|k| world.claim(k)),
            first_runs_of_record: wanted.record.map_or(0, |_| u32::try_from(runs).unwrap_or(u32::MAX)),
            earlier_waits: wanted.order && world.earlier_waits(key),
            repeat_of: None,
            paused: world.paused,
            stale_streak: world.streak,
            run_id_is_constant: wanted.run_id.is_some_and(ended_with),
            clock_is_doubtful: world.doubtful,
            parent: None,
            boot: world.boot,
            restores: &NO_RESTORES,
            recovering: false,
        }
    }

    /// A claim. The token, if it may run.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn claim(
        &mut self,
        world: &mut World,
        key: usize,
        who: Who,
        other_payload: bool,
    ) -> Result<Option<Held>, Broken> {
        let call = self.call(key, who, other_payload, world.boot);
        let policy = self.scope.policy(world);
        let loaded = self.loaded(world, key, &call);
        let now = world.now;
        let mut writes = claim::claim(&self.rules, &loaded, &call, String::new, policy, now);
        self.tally.decided(&writes.decision);
        let holder = world.record_holder(key).filter(|_| writes.record_taken.is_some());
        let before = world.claim(key).cloned();
        if writes.give_up_steps
            && let Some(row) = &mut world.rows[key]
            && std::mem::take(&mut row.in_flight)
        {
            row.unknown = true;
            writes.steps_were_given_up();
        }
        let asked = judge::Asked { key, who, policy, before: before.as_ref(), request: &call.request };
        let held = judge::claim(world, &asked, &writes, holder)?;
        if let (Some((claim, _)), Some(holder)) = (writes.record_taken, holder) {
            world.put(holder, claim);
        }
        if let Some(claim) = writes.claim {
            // The unique index of the store: one holder per record.
            let taken = holds_record(&claim) && world.record_holder(key).is_some();
            Promise::OneClaimPerRecord.holds(!taken, || "two claims hold the record".to_owned())?;
            world.put(key, claim);
        }
        if writes.first_run {
            // What left the window counts no more; no scope with a loop limit in reach sets its clock back.
            let since = now.wall.before(policy.loop_limit.within);
            world.first_runs.retain(|at| *at > since);
            world.began.retain(|at| *at > since);
            world.first_runs.push(now.wall);
        }
        world.streak += u32::from(writes.went_stale);
        match writes.pruned {
            Pruned::Stays => {}
            Pruned::Goes => world.pruned[key] = None,
            Pruned::Comes(done_at) => world.pruned[key] = Some(done_at),
        }
        Ok(held)
    }

    /// A finish call. Whether the token held.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn finish(&mut self, world: &mut World, key: usize, held: Held, call: Call) -> Result<bool, Broken> {
        // A claim that was forgotten answers nobody.
        let Some(before) = world.claim(key).cloned() else { return Ok(false) };
        let fence = held.fence;
        let call =
            FinishCall { id: at(key), fence, call, jitter: Jitter::NONE, result: None, actor: String::new() };
        let policy = self.scope.policy(world);
        let writes = finish::finish(&self.rules, &before, &call, policy, world.now);
        self.tally.answered(writes.answer);
        judge::finish(world, key, held, &before, &call.call, &writes)?;
        if writes.ends_stale_streak {
            world.streak = 0;
        }
        if let Some(claim) = writes.claim {
            world.put(key, claim);
        }
        Ok(!writes.late)
    }

    /// What a person does; a refusal changes nothing.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn act(&mut self, world: &mut World, key: usize, act: &Act) -> Result<(), Broken> {
        let Some(before) = world.claim(key).cloned() else { return Ok(()) };
        let call = ActCall { id: at(key), act: act.clone(), reason: String::new(), actor: String::new() };
        let policy = self.scope.policy(world);
        match act::act(&self.rules, &before, &call, policy, world.now, world.boot) {
            Err(_) => self.tally.count("act refused"),
            Ok(mut writes) => {
                self.tally.count(writes.line.kind);
                if writes.give_up_steps
                    && let Some(row) = &mut world.rows[key]
                    && std::mem::take(&mut row.in_flight)
                {
                    row.unknown = true;
                    writes.steps_were_given_up();
                }
                judge::act(world, key, act, &before, &writes.claim)?;
                world.put(key, writes.claim);
            }
        }
        Ok(())
    }

    /// The runner's step was answered, whoever holds the claim by now.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn step_ended(
        &mut self,
        world: &mut World,
        key: usize,
        held: Held,
        outcome: StepOutcome,
    ) -> Result<bool, Broken> {
        let now = world.now;
        let Some(row) = &mut world.rows[key] else { return Ok(false) };
        if !std::mem::take(&mut row.in_flight) {
            // It was given up as unknown; now it is known.
            row.unknown = false;
        }
        row.succeeded |= outcome == StepOutcome::Succeeded;
        row.unknown |= outcome == StepOutcome::Unknown;
        let some_unknown = step::asks_for_unknown(&row.claim, outcome) && row.unknown && !row.succeeded;
        let holds = step::holds(&row.claim, held.fence);
        let (status, answer, note) = (None, None, None);
        let end = StepEnd { id: at(key), fence: held.fence, call: 0, outcome, status, answer, note };
        let writes = step::ended(&row.claim, &end, some_unknown, now);
        judge::step(world, key, held, holds, outcome)?;
        if let Some(claim) = writes.claim {
            world.put(key, claim);
        }
        Ok(holds)
    }

    /// A call is about to be sent.
    pub fn step_begins(&self, world: &mut World, key: usize, held: Held) -> bool {
        let now = world.now;
        let Some(row) = &mut world.rows[key] else { return false };
        let begun = step::begun(&row.claim, held.fence, now);
        row.in_flight = begun.is_some();
        let Some(claim) = begun else { return false };
        world.put(key, claim);
        true
    }
}

/// Whether a claim was given for running.
pub fn started(decision: &Decision) -> Option<RunReason> {
    match decision {
        Decision::Run(reason) => Some(*reason),
        Decision::Queued(_) | Decision::Stop { .. } => None,
    }
}

/// Forgets what is done and past its retention, as the store's reaper does.
pub fn reap(world: &mut World, key: usize) {
    let Now { wall, .. } = world.now;
    let Some((done_at, until)) = world.claim(key).and_then(judge::remembered) else { return };
    let marked = |c: &Claim| c.mismatch_at.is_some() || c.late_at.is_some();
    if until <= wall && !world.doubtful && !world.claim(key).is_some_and(marked) {
        world.rows[key] = None;
        world.pruned[key] = Some(done_at);
        world.ghosts[key].current = None;
    }
}

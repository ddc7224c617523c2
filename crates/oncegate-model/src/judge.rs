//! Judges each move by what really happened ([`Ghost`](crate::ghost::Ghost)), not by what the rows say.

use oncegate_core::claim::{Claim, ErrorCause, Holder, Lease, Liveness, State};
use oncegate_core::decide::{Decision, Request, RunReason, StopReason};
use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::limits;
use oncegate_core::policy::{Finish, OnStale, Policy};
use oncegate_core::reset::Act;
use oncegate_core::time::Timestamp;
use oncegate_store::api::StepOutcome;
use oncegate_store::transition::{claim, finish};

use crate::apply::{Who, started};
use crate::ghost::{Broken, Grant, Promise};
use crate::world::{Held, World};

/// A claim call with what was found.
pub struct Asked<'a> {
    /// Of which key.
    pub key: usize,
    /// Who asks.
    pub who: Who,
    /// By which policy.
    pub policy: &'a Policy,
    /// The claim's row.
    pub before: Option<&'a Claim>,
    /// What is asked.
    pub request: &'a Request,
}

/// When a claim ended, if it did.
pub fn ended_at(claim: &Claim) -> Option<Timestamp> {
    match claim.state {
        State::Done { at, .. } | State::Error { at, .. } => Some(at),
        State::None { .. } | State::Processing(_) => None,
    }
}

/// Since when it is done, and until when that is remembered.
pub fn remembered(claim: &Claim) -> Option<(Timestamp, Timestamp)> {
    match claim.state {
        State::Done { at, retain_until, .. } => Some((at, retain_until)),
        State::None { .. } | State::Processing(_) | State::Error { .. } => None,
    }
}

fn lease(claim: Option<&Claim>) -> Option<&Lease> {
    match claim.map(|c| &c.state) {
        Some(State::Processing(lease)) => Some(lease),
        _ => None,
    }
}

/// A claim. Gives out the token, if there is one.
///
/// # Errors
/// It breaks a promise.
pub fn claim(
    world: &mut World,
    asked: &Asked<'_>,
    writes: &claim::Writes<'_>,
    holder: Option<usize>,
) -> Result<Option<Held>, Broken> {
    let key = asked.key;
    let was_done = asked.before.is_some_and(|c| matches!(c.state, State::Done { .. }));
    let is_done = writes.claim.as_ref().is_none_or(|c| matches!(c.state, State::Done { .. }));
    world.ghosts[key].asked = true;
    if asked.before.is_none() {
        world.ghosts[key].arrived = world.ghosts.iter().map(|g| g.arrived).max().unwrap_or_default() + 1;
    }
    if was_done && !is_done {
        let ghost = &mut world.ghosts[key];
        Promise::DoneOnce.holds(ghost.forgettable, || "what is done was forgotten before its time".into())?;
        ghost.start_over();
        (ghost.happened, ghost.forgettable) = (false, false);
    }
    if writes.lines.iter().any(|line| line.kind == "reset") {
        let clean = asked.before.is_some_and(|c| c.progress.is_clean());
        let open = asked.before.is_some_and(|c| matches!(c.state, State::None { .. } | State::Error { .. }));
        Promise::PersonsWord
            .holds(asked.who == Who::Correction, || "a payload was replaced by nobody".into())?;
        Promise::OnePayload.holds(open && clean, || {
            "a payload was replaced under an effect that may have happened".into()
        })?;
        let ghost = &mut world.ghosts[key];
        Promise::DoneOnce.holds(!ghost.happened, || "a correction reopened what is done".into())?;
        ghost.start_over();
        ghost.dismissed = false;
    }
    let silent = lease(asked.before).is_some_and(|l| {
        matches!(l.holder, Holder::Caller { .. }) && l.liveness(world.now, world.boot) == Liveness::Stale
    });
    let ran = started(&writes.decision);
    let taken_up =
        ran.is_some() || matches!(writes.claim.as_ref().map(|c| &c.state), Some(State::Error { .. }));
    match writes.decision {
        Decision::Stop { reason: StopReason::LoopSuspected, .. } => world.ghosts[key].looped = true,
        // Whoever comes again later and is stopped for something else is judged by that.
        Decision::Stop { .. } if matches!(asked.who, Who::Caller(_)) => world.ghosts[key].looped = false,
        Decision::Run(_) | Decision::Queued(_) | Decision::Stop { .. } => {}
    }
    let held = match (ran, &writes.claim) {
        (Some(RunReason::SameRun), Some(after)) => Some(again(world, asked, after)?),
        (Some(reason), Some(after)) => {
            may_start(world, asked, reason)?;
            counted(world, asked, reason)?;
            Some(granted(world, asked, after)?)
        }
        (Some(_), None) => {
            return Promise::OneToken.holds(false, || "a run that leaves no row".into()).map(|()| None);
        }
        (None, _) => None,
    };
    if let Some(holder) = holder {
        let dead = lease(world.claim(holder)).is_some_and(|l| l.expires() <= world.now.lease);
        Promise::LiveIsLeftAlone
            .holds(dead, || "a record was taken before its holder's TTL was over".into())?;
        world.ghosts[holder].current = None;
    }
    if silent && taken_up {
        world.silent += 1;
    }
    Ok(held)
}

/// A holder that repeats its own claim.
fn again(world: &mut World, asked: &Asked<'_>, after: &Claim) -> Result<Held, Broken> {
    let Who::Caller(run) = asked.who else {
        return Err(Broken { promise: Promise::OneToken, how: "same_run for no caller".into() });
    };
    let Some(grant) = world.ghosts[asked.key].current.as_mut().filter(|g| g.fence == after.fence()) else {
        return Err(Broken {
            promise: Promise::OldTokenIsVoid,
            how: "same_run gave out a void token".into(),
        });
    };
    Promise::OneToken.holds(grant.run == Some(run), || "same_run gave one token to two runs".into())?;
    Promise::OneToken.holds(!grant.heard, || "same_run after the holder was heard from".into())?;
    grant.repeats += 1;
    Promise::BoundedRuns.holds(grant.repeats <= 2, || "same_run a third time".into())?;
    Ok(Held { fence: grant.fence, grant: grant.number })
}

fn may_start(world: &mut World, asked: &Asked<'_>, reason: RunReason) -> Result<(), Broken> {
    let (now, boot, policy) = (world.now, world.boot, asked.policy);
    let grant = world.ghosts[asked.key].current.map(|grant| grant.number);
    let elsewhere = world.other.running[asked.key].is_some_and(|running| Some(running.held.grant) == grant);
    let ghost = &mut world.ghosts[asked.key];
    let by_caller = matches!(asked.who, Who::Caller(_));
    Promise::NotYet.holds(!world.paused, || "it started while it is paused".into())?;
    if ghost.happened && ghost.forgettable {
        ghost.start_over();
        (ghost.happened, ghost.forgettable) = (false, false);
    }
    Promise::DoneOnce.holds(!ghost.happened, || format!("{reason:?} after it was done"))?;
    Promise::PersonsWord.holds(!ghost.dismissed, || "it started although it was dismissed".into())?;
    Promise::PersonsWord.holds(!ghost.asks, || "it went on before its question was answered".into())?;
    Promise::PersonsWord.holds(!ghost.looped || by_caller, || "a loop went on by itself".into())?;
    ghost.looped = false;
    let Some(before) = asked.before else { return Ok(()) };
    // What has begun has had its turn.
    if before.flow && before.record.is_some() && !matches!(before.state, State::Processing(_)) {
        let arrived = world.ghosts[asked.key].arrived;
        let earlier = (0..world.rows.len()).filter(|k| world.ghosts[*k].arrived < arrived);
        let waits = earlier.filter_map(|k| world.claim(k)).any(|c| world.goes_by_itself(c));
        Promise::InOrder.holds(!waits, || format!("{reason:?} before what came earlier"))?;
    }
    let half_done = by_caller && before.flow && !before.progress.is_clean();
    Promise::OwnSteps.holds(!half_done, || "a caller runs what oncegate's steps have begun".into())?;
    let other =
        matches!((before.fingerprint, asked.request.fingerprint), (Some(a), Some(b)) if a.differs_from(&b));
    let fresh_start = matches!(before.state, State::Done { .. }) || asked.who == Who::Correction;
    Promise::OnePayload.holds(!other || fresh_start, || "it runs with another payload".into())?;
    match &before.state {
        State::Processing(lease) => {
            let deferred = lease.deferred_until.is_some();
            let alive = matches!(lease.liveness(now, boot), Liveness::Fresh { .. });
            let elsewhere = elsewhere && now.lease < lease.expires();
            Promise::LiveIsLeftAlone.holds(!(alive || elsewhere) || deferred, || {
                format!(
                    "{reason:?} while its holder lives{}",
                    if elsewhere { ", on another node" } else { "" }
                )
            })?;
            let due = lease.deferred_until.is_none_or(|until| until <= now.wall && asked.who == Who::Runner);
            Promise::NotYet.holds(due, || "a wait that the target asked for was cut short".into())?;
            let stale = !deferred && !alive && reason == RunReason::StaleRetry;
            let hold = policy.on_stale == OnStale::Hold;
            Promise::PersonsWord.holds(!(stale && hold), || "on_stale: hold did not hold".into())?;
            let by_silent = matches!(lease.holder, Holder::Caller { .. });
            let told = by_silent && world.silent >= limits::STALE_STREAK_MAX;
            Promise::PersonsWord
                .holds(!(stale && told), || "a stale retry for callers that never finish".into())
        }
        State::Error { due, .. } => {
            Promise::NotYet
                .holds(due.is_none_or(|due| due <= now.wall), || "a retry before its time".into())?;
            Promise::PersonsWord.holds(due.is_some() || asked.who == Who::Correction, || {
                "an error that waits for a person ran".into()
            })
        }
        State::None { .. } | State::Done { .. } => Ok(()),
    }
}

fn counted(world: &mut World, asked: &Asked<'_>, reason: RunReason) -> Result<(), Broken> {
    let (now, within) = (world.now.wall, asked.policy.loop_limit.within);
    let deferred = lease(asked.before).is_some_and(|l| l.deferred_until.is_some());
    let ghost = &mut world.ghosts[asked.key];
    match reason {
        RunReason::First | RunReason::FirstAfterRetention => ghost.firsts += 1,
        RunReason::Retry => ghost.retries += 1,
        RunReason::StaleRetry => ghost.stale_retries += 1,
        RunReason::Resumed if deferred => {}
        RunReason::Resumed => ghost.resumes += 1,
        RunReason::SameRun => {}
    }
    let allowed = asked.policy.retries.count();
    let runs = (ghost.firsts, ghost.retries, ghost.stale_retries, ghost.resumes);
    // A policy that was edited down asks for no more retries; those that were spent are spent.
    let retries = reason != RunReason::Retry || runs.1 <= allowed;
    Promise::BoundedRuns.holds(
        runs.0 <= 1 && retries && runs.1 <= 3 && runs.2 <= 1 && runs.3 <= 3,
        || {
            format!(
                "(first runs, retries, stale retries, resumes) are {runs:?}, with {allowed} retries allowed"
            )
        },
    )?;
    let named = asked.request.record.is_some() || asked.before.is_some_and(|c| c.record.is_some());
    if named && matches!(reason, RunReason::First | RunReason::FirstAfterRetention) {
        world.began.push(now);
        let since = now.before(within);
        let runs = world.began.iter().filter(|at| **at > since && **at <= now).count();
        let limit = asked.policy.loop_limit.runs as usize;
        // Whoever reset it or corrected it has looked at it.
        let looked_at = reason == RunReason::First
            && (asked.who == Who::Correction || asked.before.is_some_and(|claim| claim.resets > 0));
        Promise::NoLoop.holds(looked_at || runs <= limit, || {
            format!("{runs} first runs of a record, {limit} allowed")
        })?;
    }
    Ok(())
}

fn granted(world: &mut World, asked: &Asked<'_>, after: &Claim) -> Result<Held, Broken> {
    let (key, fence) = (asked.key, after.fence());
    let old = world.tokens().any(|(k, held)| k == key && held.fence == fence);
    Promise::OneToken.holds(!old, || format!("{fence:?} was given out twice"))?;
    let run = match asked.who {
        Who::Caller(run) => Some(run),
        Who::Runner | Who::Event | Who::Correction => None,
    };
    let ghost = &mut world.ghosts[key];
    ghost.grants += 1;
    ghost.current = Some(Grant { number: ghost.grants, run, fence, repeats: 0, heard: false });
    ghost.happened |= asked.policy.finish == Finish::AtClaim && run.is_some();
    Ok(Held { fence, grant: ghost.grants })
}

/// A finish call.
///
/// # Errors
/// It breaks a promise.
pub fn finish(
    world: &mut World,
    key: usize,
    held: Held,
    before: &Claim,
    call: &Call,
    writes: &finish::Writes<'_>,
) -> Result<(), Broken> {
    let after = writes.claim.as_ref().unwrap_or(before);
    let ghost = &mut world.ghosts[key];
    let Some(grant) = ghost.current.as_mut().filter(|grant| grant.number == held.grant) else {
        let refused = writes.answer == Answer::LostClaim;
        Promise::OldTokenIsVoid
            .holds(refused, || format!("{call:?} with an old token: {:?}", writes.answer))?;
        let listed = after.late_at.is_some();
        Promise::NothingIsLost.holds(listed, || "a late call is not listed".into())?;
        let kept = Claim { late_at: before.late_at, ..after.clone() } == *before;
        return Promise::OldTokenIsVoid.holds(kept, || "a late call changed the claim".into());
    };
    let refused = writes.answer == Answer::LostClaim;
    Promise::CurrentTokenHolds.holds(!refused, || format!("{call:?} with the current token was refused"))?;
    grant.heard = true;
    if let (Call::HandOver, Answer::Accepted) = (call, writes.answer) {
        grant.run = None;
    }
    ghost.asks &= matches!(after.state, State::Processing(_));
    ghost.asks |= matches!((call, writes.answer), (Call::Review { .. }, Answer::Accepted));
    let done = |c: &Claim| matches!(c.state, State::Done { .. });
    Promise::DoneOnce.holds(!done(before) || done(after), || format!("{call:?} undid what is done"))?;
    if *call == Call::Done {
        Promise::CurrentTokenHolds
            .holds(done(after), || "done with the current token left it undone".into())?;
        (ghost.happened, ghost.forgettable) = (true, ghost.forgettable && done(before));
        world.silent = if done(before) { world.silent } else { 0 };
    } else if let State::Error { .. } = before.state {
        Promise::BoundedRuns.holds(after == before, || format!("{call:?} on an error changed it"))?;
    }
    if let (Call::Error { failure: Failed::Final | Failed::Unknown, .. }, State::Error { due, .. }) =
        (call, &after.state)
        && before.state != after.state
    {
        Promise::PersonsWord.holds(due.is_none(), || "a final failure retries by itself".into())?;
    }
    Ok(())
}

/// A person's act that was not refused.
///
/// # Errors
/// It breaks a promise.
pub fn act(world: &mut World, key: usize, act: &Act, before: &Claim, after: &Claim) -> Result<(), Broken> {
    let ghost = &mut world.ghosts[key];
    // Nobody is at work on what waits for a person.
    let alive = !ghost.asks
        && lease(Some(before))
            .is_some_and(|l| matches!(l.liveness(world.now, world.boot), Liveness::Fresh { .. }));
    let marked = matches!(before.state, State::Error { cause: ErrorCause::MarkedAfterDone, .. });
    match act {
        Act::Reset { confirm_holder, verified, .. } | Act::FromStart { confirm_holder, verified, .. } => {
            Promise::DoneOnce.holds(!ghost.happened || *verified, || "done was reset unverified".into())?;
            let named = confirm_holder.is_some() && *confirm_holder == before.holder_name();
            Promise::LiveIsLeftAlone.holds(!alive || named, || "a live holder was reset unnamed".into())?;
            (ghost.happened, ghost.forgettable, ghost.dismissed) = (false, false, false);
            ghost.start_over();
        }
        Act::MarkError { .. } => {
            ghost.dismissed = false;
            ghost.start_over();
        }
        Act::MarkDone => {
            (ghost.happened, ghost.forgettable, ghost.dismissed) = (true, false, false);
            ghost.current = None;
        }
        Act::Approve => ghost.asks = false,
        Act::Dismiss | Act::Decline => {
            ghost.asks = false;
            Promise::LiveIsLeftAlone.holds(!alive, || "a live holder's claim was dismissed".into())?;
            let done = matches!(before.state, State::Done { .. });
            if !done && !marked && !before.dismissed {
                ghost.start_over();
            }
            ghost.dismissed |= !done;
        }
    }
    let happened = ghost.happened && !ghost.forgettable;
    let done = matches!(after.state, State::Done { .. });
    let known = matches!(after.state, State::Error { cause: ErrorCause::MarkedAfterDone, .. });
    Promise::DoneOnce.holds(!happened || done || known, || format!("{act:?} forgot that the effect happened"))
}

/// A step that was answered.
///
/// # Errors
/// It breaks a promise.
pub fn step(
    world: &mut World,
    key: usize,
    held: Held,
    holds: bool,
    outcome: StepOutcome,
) -> Result<(), Broken> {
    let ghost = &mut world.ghosts[key];
    let current = ghost.current.is_some_and(|grant| grant.number == held.grant);
    Promise::OldTokenIsVoid.holds(current || !holds, || "a step of a lost attempt may go on".into())?;
    if outcome == StepOutcome::Succeeded {
        ghost.resumes = 0;
    }
    Ok(())
}

/// What holds in every state.
///
/// # Errors
/// It does not.
pub fn state(world: &World) -> Result<(), Broken> {
    let now = world.now;
    for (key, held) in world.tokens() {
        let Some(claim) = world.claim(key) else { continue };
        let current = world.ghosts[key].current.is_some_and(|grant| grant.number == held.grant);
        let fits = claim.fence() == held.fence && !matches!(claim.state, State::None { .. });
        Promise::OldTokenIsVoid.holds(current || !fits, || format!("an old token of key {key} fits"))?;
        Promise::CurrentTokenHolds
            .holds(!current || fits, || format!("the token of key {key} does not fit"))?;
    }
    let fresh = |key: &usize| {
        let lease =
            lease(world.claim(*key)).filter(|_| world.claim(*key).is_some_and(|c| c.record.is_some()));
        lease.is_some_and(|l| matches!(l.liveness(now, world.boot), Liveness::Fresh { .. }))
    };
    let live = (0..world.rows.len()).filter(fresh).count();
    Promise::OneClaimPerRecord.holds(live <= 1, || format!("{live} claims are live on the record"))?;
    (0..world.rows.len()).try_for_each(|key| is_found(world, key))
}

/// A key that somebody asked for is done, at work, dismissed, due, or in a list.
fn is_found(world: &World, key: usize) -> Result<(), Broken> {
    let ghost = &world.ghosts[key];
    let Some(claim) = world.claim(key) else {
        let known = !ghost.asked || (world.pruned[key].is_some() && ghost.happened);
        return Promise::NothingIsLost.holds(known, || format!("key {key} was asked for and is not known"));
    };
    let listed = oncegate_core::inbox::list_of(claim, world.now, world.boot).is_some();
    let found = match &claim.state {
        State::Done { .. } => true,
        State::Error { .. } => listed,
        State::None { due } => listed || claim.dismissed || (due.is_some() && claim.flow),
        State::Processing(lease) => {
            let alive = matches!(lease.liveness(world.now, world.boot), Liveness::Fresh { .. });
            // What is at work is not also somebody's to replay.
            let apart = !alive || claim.parked.is_none() || ghost.asks;
            Promise::NothingIsLost.holds(apart, || format!("key {key} is at work and in the parked list"))?;
            (alive && !ghost.asks)
                || listed
                || (claim.flow && !ghost.asks && matches!(lease.holder, Holder::Runner { .. }))
        }
    };
    Promise::NothingIsLost
        .holds(found, || format!("key {key} is {} and nowhere listed", claim.processing_state()))
}

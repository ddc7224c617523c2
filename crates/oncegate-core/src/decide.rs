//! The one function that decides what may run (DESIGN §3). Every store, way in, node and simulator calls it:
//! one table of answers, identical on every path. The first matching line wins.

use std::time::Duration;

use crate::claim::{AtClaim, Claim, ErrorCause, Holder, Lease, Liveness, Nudge, Parked, State};
use crate::key::ClaimId;
use crate::limits;
use crate::needs_review;
use crate::order;
use crate::policy::{Finish, OnMismatch, OnStale, Policy, in_words};
use crate::recovery;
use crate::reset::{has_happened, reopened};
use crate::sameness::{
    HALF_DONE, IDENTITY_CHANGED, is_half_done_elsewhere, is_of_another_record, mismatch_note, mismatches,
};
use crate::time::{Now, Timestamp};

pub use crate::decision::*;

/// How a candidate came past lines 1 to 6.
struct Candidate {
    claim: Claim,
    reason: RunReason,
    corrected: bool,
    /// It is `processing` and the caller that held it went silent.
    caller_went_stale: bool,
}

/// Decides. Pure: the same facts, request, policy and time give the same verdict.
pub fn decide(facts: &Facts, request: &Request, policy: &Policy, now: Now) -> Verdict {
    match known(facts, request, policy, now) {
        Err(verdict) => *verdict,
        // Only the runner knows which steps have happened; a caller would do them again.
        Ok(candidate) if is_half_done_elsewhere(&candidate.claim, request) => {
            *stop(StopReason::InProgress, Some(LOOK_AGAIN), Some(HALF_DONE.to_owned()), None)
        }
        Ok(candidate) => start(facts, request, policy, now, candidate),
    }
}

fn stop(
    reason: StopReason,
    retry_after: Option<Duration>,
    note: Option<String>,
    claim: Option<Claim>,
) -> Box<Verdict> {
    let changes = Changes { claim, ..Changes::default() };
    Box::new(Verdict { decision: Decision::Stop { reason, retry_after, note }, changes })
}

/// Lines 1 to 6: what is known about the key itself.
fn known(facts: &Facts, request: &Request, policy: &Policy, now: Now) -> Result<Candidate, Box<Verdict>> {
    let candidate =
        |claim: Claim, reason| Ok(Candidate { claim, reason, corrected: false, caller_went_stale: false });
    let Some(claim) = &facts.claim else {
        let reason = match facts.pruned_done_at {
            Some(_) => RunReason::FirstAfterRetention,
            None => RunReason::First,
        };
        let mut claim = Claim::new(facts.id, now);
        if let Some(done_at) = facts.pruned_done_at {
            // The tokens of the forgotten claim must not fit this one, which has its id and counts from 1 again.
            claim.generation = u32::try_from(done_at.as_secs()).unwrap_or(u32::MAX / 2);
        }
        return candidate(claim, reason);
    };
    // A row whose retention has ended counts as pruned, whenever the reaper gets to it.
    if let State::Done { retain_until, .. } = &claim.state
        && *retain_until <= now.wall
        && !facts.clock_is_doubtful
    {
        let mut claim = reopened(claim.clone(), None, now);
        (claim.fingerprint, claim.record, claim.identity) = (None, None, None);
        (claim.likeness, claim.repeat_of) = (None, None);
        return candidate(claim, RunReason::FirstAfterRetention);
    }
    // Line 1.
    if policy.on_mismatch == OnMismatch::Stop && mismatches(claim, request) {
        let open = matches!(claim.state, State::None { .. } | State::Error { .. }) && !has_happened(claim);
        if !(request.correction && open && claim.progress.is_clean()) {
            let note = mismatch_note(claim, request);
            let mut marked = claim.clone();
            marked.mismatch_at = Some(now.wall);
            return Err(stop(StopReason::PayloadMismatch, None, Some(note), Some(marked)));
        }
        let mut claim = reopened(claim.clone(), None, now);
        claim.mismatch_at = None;
        return Ok(Candidate { claim, reason: RunReason::First, corrected: true, caller_went_stale: false });
    }
    // Line 2.
    if claim.dismissed {
        return Err(stop(StopReason::Dismissed, None, None, None));
    }
    match &claim.state {
        State::Done { at_claim: Some(asked), .. } if repeats_its_claim(facts, request, asked, now) => {
            candidate(claim.clone(), RunReason::SameRun)
        }
        State::Done { .. } => Err(duplicate(claim, request, now)),
        State::Processing(lease) => processing(facts, request, policy, now, claim, lease),
        State::Error { due: Some(due), cause, .. } => match due.since(now.wall) {
            Duration::ZERO if *cause == ErrorCause::Shutdown && claim.resumes_used >= limits::RESUMES_MAX => {
                let note = format!("handed back {} times without finishing a step", claim.resumes_used);
                Err(into_review(claim, *cause, note, false, now))
            }
            Duration::ZERO
                if *cause == ErrorCause::Failed && claim.retries_used >= policy.retries.count() =>
            {
                // The policy was edited down since the due time was set.
                let note = format!(
                    "out of retries: {} used, {} allowed",
                    claim.retries_used,
                    policy.retries.count()
                );
                Err(into_review(claim, *cause, note, false, now))
            }
            Duration::ZERO if *cause == ErrorCause::Shutdown => candidate(claim.clone(), RunReason::Resumed),
            Duration::ZERO => candidate(claim.clone(), RunReason::Retry),
            // Line 5.
            wait => {
                let waiting = waits_for_its_tool(claim, request, policy, *due);
                Err(stop(StopReason::BackingOff, Some(wait), None, waiting))
            }
        },
        // Line 6.
        State::Error { due: None, note, .. } => {
            Err(stop(StopReason::NeedsReview, None, Some(note.clone()), None))
        }
        // Whether it happened before the restore only a person can find out.
        State::None { .. }
            if claim.parked == Some(Parked::Restored)
                && request.start != Start::Queue
                && facts.hold != Some(Hold::Recovery) =>
        {
            Err(stop(StopReason::NeedsReview, None, Some(recovery::PARKED_NOTE.to_owned()), None))
        }
        // Held back when it was seen again after its retention; it still is that when it starts.
        State::None { .. } if facts.pruned_done_at.is_some() => {
            candidate(claim.clone(), RunReason::FirstAfterRetention)
        }
        State::None { .. } => candidate(claim.clone(), RunReason::First),
    }
}

/// Line 2. That it may be somebody else's effect which has not happened is never passed over in silence.
fn duplicate(claim: &Claim, request: &Request, now: Now) -> Box<Verdict> {
    if !is_of_another_record(claim, request) {
        return stop(StopReason::Duplicate, None, None, None);
    }
    let marked = Claim { mismatch_at: Some(now.wall), ..claim.clone() };
    stop(StopReason::Duplicate, None, Some(IDENTITY_CHANGED.to_owned()), Some(marked))
}

/// Lines 3, 4 and 6 for a claim that somebody holds.
fn processing(
    facts: &Facts,
    request: &Request,
    policy: &Policy,
    now: Now,
    claim: &Claim,
    lease: &Lease,
) -> Result<Candidate, Box<Verdict>> {
    let candidate = |reason, caller_went_stale| {
        Ok(Candidate { claim: claim.clone(), reason, corrected: false, caller_went_stale })
    };
    match lease.liveness(now, facts.boot) {
        Liveness::Fresh { left } => {
            if let Some(until) = lease.deferred_until {
                let runner = matches!(request.start, Start::Now(Holder::Runner { .. }));
                // A target is not waited for longer than that; a person is.
                return match until.since(now.wall).min(policy.sla) {
                    Duration::ZERO if runner => candidate(RunReason::Resumed, false),
                    wait => Err(stop(StopReason::InProgress, Some(wait.max(MOMENT)), None, None)),
                };
            }
            if is_same_run(facts, request, lease) {
                return candidate(RunReason::SameRun, false);
            }
            let note = lease.clock_problem(now).map(|ahead| {
                format!(
                    "clock problem: processing_started_at lies {} ahead of the store's clock",
                    in_words(ahead)
                )
            });
            Err(stop(StopReason::InProgress, Some(left.max(MOMENT)), note, None))
        }
        Liveness::Orphaned if claim.resumes_used < limits::RESUMES_MAX => {
            candidate(RunReason::Resumed, false)
        }
        Liveness::Orphaned => {
            let note =
                format!("resumed {} times after a restart without finishing a step", claim.resumes_used);
            Err(into_review(claim, ErrorCause::Stale, note, false, now))
        }
        Liveness::Stale => {
            let by_caller = matches!(lease.holder, Holder::Caller { .. });
            let note = if policy.on_stale == OnStale::Hold {
                "outcome unknown: the holder went silent and this automation must not repeat itself \
                 (on_stale: hold); check whether it happened first"
            } else if claim.stale_retries_used > 0 {
                "stale twice: the holder of the stale retry went silent too"
            } else if by_caller && facts.stale_streak >= limits::STALE_STREAK_MAX {
                "this automation's callers never call done, so its stale claims are not retried; add the done \
                 call, or declare `finish: at_claim`"
            } else {
                return candidate(RunReason::StaleRetry, by_caller);
            };
            Err(into_review(claim, ErrorCause::Stale, note.to_owned(), by_caller, now))
        }
    }
}

/// What is told instead of "at once", so that nobody asks again in a tight loop.
const MOMENT: Duration = Duration::from_secs(1);

/// Line 3: the answer to a claim can itself get lost; its own holder may repeat it.
fn is_same_run(facts: &Facts, request: &Request, lease: &Lease) -> bool {
    let Start::Now(Holder::Caller { run_id: Some(asked) }) = &request.start else { return false };
    let Holder::Caller { run_id: Some(held) } = &lease.holder else { return false };
    let may_be_lost = !lease.heard_from && lease.holds_record && lease.same_runs < limits::SAME_RUN_MAX;
    asked == held && !facts.run_id_is_constant && may_be_lost
}

/// Line 6 for a stale claim: it becomes an error that waits for a person.
fn into_review(claim: &Claim, cause: ErrorCause, note: String, went_stale: bool, now: Now) -> Box<Verdict> {
    let mut claim = claim.clone();
    let note = needs_review::begin(&mut claim, cause, note, now);
    let mut verdict = stop(StopReason::NeedsReview, None, Some(note), Some(claim));
    verdict.changes.went_stale = went_stale;
    verdict
}

/// Line 3 where the first claim counts as done at once: an effect whose `run` never arrived would be lost for good.
fn repeats_its_claim(facts: &Facts, request: &Request, asked: &AtClaim, now: Now) -> bool {
    let since_restore = facts.claim.as_ref().is_some_and(|c| facts.restores.know_of(c.generation));
    let again = since_restore && run_id_of(request).is_some_and(|run_id| *run_id == asked.run_id);
    let may_be_lost =
        now.lease < asked.claimed.after(asked.ttl.get()) && asked.same_runs < limits::SAME_RUN_MAX;
    again && !facts.run_id_is_constant && may_be_lost
}

/// A caller stopped for a passing reason does not come back by itself: its tool is called back, or its claim stands in
/// the parked list.
fn waits_for_its_tool(claim: &Claim, request: &Request, policy: &Policy, due: Timestamp) -> Option<Claim> {
    let caller = matches!(request.start, Start::Now(Holder::Caller { .. }));
    if !caller || claim.flow || (claim.parked.is_some() && !policy.retrigger) {
        return None;
    }
    let mut waiting = claim.clone();
    call_back(&mut waiting, policy, due);
    (waiting != *claim).then_some(waiting)
}

/// The tool was heard of just now: whatever was sent to it before is answered.
fn call_back(claim: &mut Claim, policy: &Policy, due: Timestamp) {
    (claim.parked, claim.nudge) = match policy.retrigger {
        true => (None, Some(Nudge { due, unanswered: 0 })),
        false => (Some(Parked::NeedsReplay), None),
    };
}

/// Lines 7 to 11: only what would run comes here.
fn start(facts: &Facts, request: &Request, policy: &Policy, now: Now, candidate: Candidate) -> Verdict {
    let Candidate { mut claim, reason, corrected, caller_went_stale } = candidate;
    let found = (claim.fingerprint, claim.record.clone(), claim.identity);
    claim.fingerprint = request.fingerprint.or(claim.fingerprint);
    claim.identity = request.identity.or(claim.identity);
    // As it was when it was first seen: the window begins there.
    claim.likeness = claim.likeness.or(request.likeness.map(|like| like.hash));
    claim.record = request.record.clone().or(claim.record);
    // What a live claim holds was judged when it started; only a new attempt may take on another record.
    let stays_as_found = |claim: &mut Claim| {
        if matches!(claim.state, State::Processing(_)) {
            (claim.fingerprint, claim.record, claim.identity) = found.clone();
        }
    };
    let with =
        |decision, claim| Verdict { decision, changes: Changes { claim, corrected, ..Changes::default() } };
    let original = repeats(facts, reason);
    claim.repeat_of = original.or(claim.repeat_of);
    let Start::Now(holder) = &request.start else {
        stays_as_found(&mut claim);
        if recovery::may_have_been_done(facts, request) {
            claim.flow = true;
            claim.parked = Some(Parked::Restored);
            return with(Decision::Queued(reason), Some(claim));
        }
        if original.is_some() {
            claim.flow = true;
            park(&mut claim, Parked::Repeat);
            let news = (facts.claim.as_ref() != Some(&claim)).then_some(claim);
            return with(Decision::Queued(reason), news);
        }
        let queued = queue(facts, claim, now);
        return with(Decision::Queued(reason), queued);
    };
    // The holder goes on with what it already has; nothing new starts.
    if reason == RunReason::SameRun {
        stays_as_found(&mut claim);
        match &mut claim.state {
            State::Processing(lease) => {
                lease.renewed = now.lease;
                lease.same_runs += 1;
            }
            State::Done { at_claim: Some(asked), .. } => asked.same_runs += 1,
            State::None { .. } | State::Done { .. } | State::Error { .. } => {}
        }
        return with(Decision::Run(reason), Some(claim));
    }
    let first = matches!(reason, RunReason::First | RunReason::FirstAfterRetention);
    // Who reset it has looked at it: then line 8 does not count.
    let unseen = first && (reason != RunReason::First || claim.resets == 0);
    if let Some((stop, retry_after, parked)) = held_back(facts, policy, now, &claim, (unseen, original)) {
        stays_as_found(&mut claim);
        let caller = matches!(holder, Holder::Caller { .. });
        // Only what the runner will really come back to needs nobody's replay.
        let ours = claim.flow && !matches!(claim.state, State::None { due: None });
        // Whatever else holds it back, nobody comes back to a repeat but a person.
        match parked.or(original.map(|_| Parked::Repeat)) {
            Some(parked) => park(&mut claim, parked),
            None if caller && !claim.flow => call_back(&mut claim, policy, now.wall.after(LOOK_AGAIN)),
            None if caller && !ours => claim.parked = Some(Parked::NeedsReplay),
            None if caller => {}
            None => postpone(&mut claim, now, retry_after.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)),
        }
        let note = match stop {
            StopReason::Repeat => facts.repeat_of.as_ref().map(Original::note),
            StopReason::LoopSuspected => Some(policy.loop_limit.note()),
            _ => (facts.hold == Some(Hold::Recovery)).then(|| recovery::HELD_NOTE.to_owned()),
        };
        return with(Decision::Stop { reason: stop, retry_after, note }, Some(claim));
    }
    let record_taken_from = match &facts.record_holder {
        Some(holder) if claim.record.is_some() => Some(holder.id),
        Some(_) | None => None,
    };
    // Tokens of attempts that the backup does not know must not fit those that are given after the restore.
    claim.generation = claim.generation.max(facts.restores.generation_floor);
    run(&mut claim, reason, holder.clone(), (facts, request), policy, now);
    Verdict {
        decision: Decision::Run(reason),
        changes: Changes {
            claim: Some(claim),
            record_taken_from,
            went_stale: caller_went_stale,
            first_run: first,
            corrected,
        },
    }
}

/// How soon the runner looks again at work that was held back; the holder may finish long before its lease.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The runner comes back to it by itself.
fn postpone(claim: &mut Claim, now: Now, wait: Duration) {
    let until = now.wall.after(wait);
    match &mut claim.state {
        State::None { due } => *due = Some(until),
        State::Error { due: Some(due), .. } => *due = until,
        State::Processing(lease) if lease.deferred_until.is_some() => {
            (lease.deferred_until, lease.renewed) = (Some(until), now.lease.after(wait));
        }
        // Orphans and stale ones are found by the sweep, not by a due time.
        State::Processing(_) | State::Error { due: None, .. } | State::Done { .. } => {}
    }
}

/// Between lines 7 and 8 (DESIGN §4): the effect that this one repeats by the second-level rule. Asked as long as no
/// person has looked: a reset lets it run. What was forgotten after its retention is known, and so no repeat.
fn repeats(facts: &Facts, reason: RunReason) -> Option<ClaimId> {
    let claim = facts.claim.as_ref();
    let looked_at = claim.is_some_and(|c| c.resets > 0 && c.parked != Some(Parked::Repeat));
    if reason != RunReason::First || looked_at {
        return None;
    }
    facts.repeat_of.as_ref().map(|original| original.id).or(claim.and_then(|c| c.repeat_of))
}

/// It waits for a person.
fn park(claim: &mut Claim, parked: Parked) {
    (claim.parked, claim.nudge) = (Some(parked), None);
    if let State::None { due } = &mut claim.state {
        *due = None;
    }
}

/// The event is stored and waits for the runner; what already waits or works is left alone.
fn queue(facts: &Facts, mut claim: Claim, now: Now) -> Option<Claim> {
    let newly_ours = !claim.flow;
    claim.flow = true;
    claim.nudge = None;
    match &mut claim.state {
        State::None { due: Some(_) } if facts.claim.is_some() => newly_ours.then_some(claim),
        State::None { due } => {
            // A loop or an incident is a person's to end; the event waits with the claim.
            if matches!(claim.parked, Some(Parked::LoopSuspected | Parked::Incident | Parked::Restored)) {
                return newly_ours.then_some(claim);
            }
            *due = Some(now.wall);
            claim.parked = None;
            Some(claim)
        }
        State::Processing(_) | State::Error { .. } | State::Done { .. } => newly_ours.then_some(claim),
    }
}

/// Lines 7 to 10.
fn held_back(
    facts: &Facts,
    policy: &Policy,
    now: Now,
    claim: &Claim,
    (unseen, original): (bool, Option<ClaimId>),
) -> Option<(StopReason, Option<Duration>, Option<Parked>)> {
    match facts.hold {
        Some(Hold::Paused) => return Some((StopReason::Paused, None, None)),
        Some(Hold::Incident) => return Some((StopReason::Incident, None, Some(Parked::Incident))),
        Some(Hold::Recovery) => {
            let parked = recovery::is_unknown(facts).then_some(Parked::Restored);
            return Some((StopReason::Paused, None, parked));
        }
        None => {}
    }
    if original.is_some() {
        return Some((StopReason::Repeat, None, Some(Parked::Repeat)));
    }
    if unseen && claim.record.is_some() && facts.first_runs_of_record >= policy.loop_limit.runs {
        return Some((StopReason::LoopSuspected, None, Some(Parked::LoopSuspected)));
    }
    match facts.flag {
        FlagSeen::BusyElsewhere => return Some((StopReason::FlagBusy, Some(policy.ttl.get()), None)),
        FlagSeen::Unreadable => return Some((StopReason::FlagUnreadable, Some(MOMENT), None)),
        FlagSeen::Clear => {}
    }
    let holder = facts.record_holder.as_ref().filter(|_| claim.record.is_some());
    let busy = holder.and_then(|holder| match holder.lease.liveness(now, facts.boot) {
        Liveness::Fresh { left } => Some(left.max(MOMENT)),
        // Past its TTL it is believed no longer than anybody's.
        Liveness::Orphaned if now.lease >= holder.lease.expires() => None,
        // An orphan of our own runner is about to be resumed, within moments; its record stays its own.
        Liveness::Orphaned => Some(MOMENT),
        Liveness::Stale => None,
    });
    let its_turn = || order::waits_its_turn(facts, claim, policy, now).then_some(LOOK_AGAIN);
    busy.or_else(its_turn).map(|wait| (StopReason::RecordBusy, Some(wait.min(policy.ttl.get())), None))
}

/// Line 11.
fn run(
    claim: &mut Claim,
    reason: RunReason,
    holder: Holder,
    (facts, request): (&Facts, &Request),
    policy: &Policy,
    now: Now,
) {
    claim.attempt += 1;
    match reason {
        RunReason::Retry => claim.retries_used += 1,
        RunReason::StaleRetry => claim.stale_retries_used += 1,
        // A wait the target asked for is no crash; only orphans and hand-backs count as resumes.
        RunReason::Resumed if claim.is_deferred() => {}
        RunReason::Resumed => claim.resumes_used += 1,
        RunReason::First | RunReason::FirstAfterRetention | RunReason::SameRun => {}
    }
    (claim.parked, claim.nudge) = (None, None);
    let ttl = request.ttl.unwrap_or(policy.ttl);
    claim.state = match (policy.finish, holder) {
        (Finish::AtClaim, Holder::Caller { run_id }) => State::Done {
            at: now.wall,
            retain_until: now.wall.after(policy.retention()),
            at_claim: run_id.map(|run_id| AtClaim { run_id, claimed: now.lease, ttl, same_runs: 0 }),
        },
        (Finish::AtClaim | Finish::Caller, holder) => State::Processing(Lease {
            holder,
            started_at: now.wall,
            renewed: now.lease,
            ttl,
            same_runs: 0,
            heard_from: false,
            deferred_until: None,
            holds_record: true,
            parent: facts.parent.clone(),
        }),
    };
}

/// The other side of [`Changes::record_taken_from`]: the claim whose record was taken after its lease went stale. Its
/// token is void; it stays `processing` and is listed as stuck.
pub fn without_record(mut claim: Claim) -> Claim {
    claim.generation += 1;
    if let State::Processing(lease) = &mut claim.state {
        lease.holds_record = false;
        lease.parent = None;
    }
    claim
}

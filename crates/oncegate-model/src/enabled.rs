//! What can happen next in a world.

use oncegate_core::claim::{Claim, ErrorCause, State};
use oncegate_store::api::StepOutcome;

use crate::judge;
use crate::moves::{Deed, Move, Word};
use crate::scope::{Kind, Scope};
use crate::world::{CALLERS, Caller, Running, World};

/// What can happen next; what surely changes nothing is left out.
pub fn moves(scope: &Scope, world: &World) -> Vec<Move> {
    let mut found = enabled(scope, world);
    if world.left.faults == 0 {
        found.retain(|made| !made.is_fault(world));
    }
    found
}

fn enabled(scope: &Scope, world: &World) -> Vec<Move> {
    let mut found = vec![Move::Tick];
    let keys = || 0..scope.keys;
    let two = scope.has(Kind::OtherPayload) || scope.has(Kind::Bare);
    let payloads: &[bool] = if two { &[false, true] } else { &[false] };
    let losses: &[bool] = if scope.has(Kind::Lose) { &[false, true] } else { &[false] };
    let mut idle = None;
    for caller in 0..scope.callers.min(CALLERS) {
        match world.callers[caller] {
            // Callers between two runs are alike.
            Caller::Idle if idle.is_some() => {}
            Caller::Idle => {
                idle = Some(caller);
                for (key, other) in keys().flat_map(|key| payloads.iter().map(move |p| (key, *p))) {
                    found.extend(losses.iter().map(|lost| Move::Claim { caller, key, other, lost: *lost }));
                }
            }
            Caller::Lost { key, .. } => {
                found.extend(losses.iter().map(|lost| Move::Claim {
                    caller,
                    key,
                    other: false,
                    lost: *lost,
                }));
                found.push(Move::End(caller));
            }
            Caller::Holds { .. } => {
                found.extend([Move::Say(caller, Word::Done), Move::End(caller)]);
                if scope.has(Kind::Lose) {
                    found.push(Move::Forget(caller));
                }
                if scope.has(Kind::Fail) {
                    found.extend([Word::Retryable, Word::Final].map(|word| Move::Say(caller, word)));
                }
                if scope.has(Kind::Beat) {
                    found.push(Move::Say(caller, Word::Heartbeat));
                }
            }
        }
    }
    for key in keys() {
        if scope.has(Kind::Event) {
            found.extend(payloads.iter().map(|other| Move::Event { key, other: *other }));
        }
        match world.running[key] {
            None if world.is_due(key) => found.push(Move::Take(key)),
            None => {}
            Some(running) => runner_moves(scope, world, key, running, idle, &mut found),
        }
        if let Some(claim) = world.claim(key) {
            if judge::remembered(claim).is_some_and(|(_, until)| until <= world.now.wall) {
                found.push(Move::Reap(key));
            }
            if world.left.acts > 0 {
                found.extend(deeds(scope, claim).into_iter().map(|deed| Move::Act(key, deed)));
            }
        }
        if world.left.acts > 0 && scope.has(Kind::OtherPayload) {
            found.push(Move::Correct(key));
        }
    }
    if scope.has(Kind::Restart) {
        found.extend([true, false].map(|downtime| Move::Restart { downtime }));
    }
    if scope.has(Kind::Nodes) {
        found.push(Move::Turn);
    }
    if scope.has(Kind::Pause) {
        found.push(Move::Pause(!world.paused));
    }
    if world.left.skews > 0 {
        found.extend([Move::SetBack, Move::Leap]);
    }
    if world.left.long_waits > 0 {
        found.push(Move::LongWait);
    }
    if world.left.edits > 0 {
        found.push(Move::Edit);
    }
    found
}

fn runner_moves(
    scope: &Scope,
    world: &World,
    key: usize,
    running: Running,
    idle: Option<usize>,
    found: &mut Vec<Move>,
) {
    if running.sending {
        let outcomes = [StepOutcome::Succeeded, StepOutcome::Failed, StepOutcome::Unknown];
        found.extend(outcomes.map(|outcome| Move::Answer(key, outcome)));
        return;
    }
    // A step that succeeded is not sent again.
    if scope.has(Kind::Step) && world.rows[key].as_ref().is_some_and(|row| !row.succeeded) {
        found.push(Move::Send(key));
    }
    let mut words = vec![Word::Done];
    for (kind, said) in [
        (Kind::Fail, &[Word::Retryable, Word::Final, Word::Unknown][..]),
        (Kind::Beat, &[Word::Heartbeat]),
        (Kind::Defer, &[Word::Defer]),
        (Kind::HandBack, &[Word::HandBack]),
        (Kind::Review, &[Word::Review]),
    ] {
        words.extend(said.iter().filter(|_| scope.has(kind)));
    }
    found.extend(words.into_iter().map(|word| Move::RunnerSays(key, word)));
    if let (true, Some(caller)) = (scope.has(Kind::HandOver), idle) {
        found.push(Move::HandOver(key, caller));
    }
}

fn deeds(scope: &Scope, claim: &Claim) -> Vec<Deed> {
    let flow: &[bool] = if claim.flow { &[false, true] } else { &[false] };
    let held = matches!(claim.state, State::Processing(_));
    let marked = matches!(claim.state, State::Error { cause: ErrorCause::MarkedAfterDone, .. });
    let done = marked || matches!(claim.state, State::Done { .. });
    let mut found = Vec::new();
    for now in flow.iter().copied() {
        found.push(Deed::Reset { now, named: false, verified: false });
        if held {
            found.push(Deed::Reset { now, named: true, verified: false });
        }
        if done {
            found.push(Deed::Reset { now, named: false, verified: true });
        }
    }
    if scope.has(Kind::EveryAct) {
        found.extend([Deed::MarkError, Deed::MarkDone, Deed::Dismiss]);
    }
    if scope.has(Kind::Review) {
        found.extend([Deed::Approve, Deed::Decline]);
    }
    found
}

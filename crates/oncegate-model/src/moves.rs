//! What can happen next, and what it does to the world.

use std::fmt;
use std::time::Duration;

use oncegate_core::claim::{Boot, Claim, ErrorCause, State};
use oncegate_core::finish::{Call, Failed};
use oncegate_core::reset::Act;
use oncegate_store::api::StepOutcome;

use crate::apply::{Search, Who, reap};
use crate::ghost::Broken;
use crate::judge;
use crate::scope::{Kind, Scope};
use crate::world::{CALLERS, Caller, Held, KEYS, Running, UNIT, World};

/// How far the wall clock is set back, or runs on while the gate is down.
const SKEW: Duration = UNIT.saturating_mul(2);
/// Longer than the retention of every scope.
const LONG: Duration = Duration::from_secs(2 * 86_400);

/// What a holder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Done.
    Done,
    /// An error that may be tried again.
    Retryable,
    /// An error for good.
    Final,
    /// Nobody knows.
    Unknown,
    /// Still at work.
    Heartbeat,
    /// The target asks to wait.
    Defer,
    /// The gate stops.
    HandBack,
    /// The target took the work.
    HandOver,
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Reset.
    Reset {
        /// And run.
        now: bool,
        /// The holder is named.
        named: bool,
        /// It was checked that it must happen again.
        verified: bool,
    },
    /// To error.
    MarkError,
    /// It did happen.
    MarkDone,
    /// It shall not.
    Dismiss,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A caller asks.
    Claim {
        /// Who.
        caller: usize,
        /// For which key.
        key: usize,
        /// With the other payload.
        other: bool,
        /// The answer gets lost.
        lost: bool,
    },
    /// A caller shows its token.
    Say(usize, Word),
    /// A caller's run ends, whatever it holds.
    End(usize),
    /// A caller loses its token and will ask again as the same run.
    Forget(usize),
    /// An event comes.
    Event {
        /// Of which key.
        key: usize,
        /// With the other payload.
        other: bool,
    },
    /// A person offers another payload.
    Correct(usize),
    /// The runner takes a key that is due.
    Take(usize),
    /// The runner's step is sent.
    Send(usize),
    /// It is answered.
    Answer(usize, StepOutcome),
    /// The runner says how it went.
    RunnerSays(usize, Word),
    /// The runner's target took the work; this caller will call back.
    HandOver(usize, usize),
    /// The process dies and starts again.
    Restart {
        /// Time passes meanwhile.
        downtime: bool,
    },
    /// A person acts.
    Act(usize, Deed),
    /// The automation is paused or resumed.
    Pause(bool),
    /// One unit of time.
    Tick,
    /// Until all that is remembered now may be forgotten.
    LongWait,
    /// A key is forgotten.
    Reap(usize),
    /// The wall clock is set back.
    SetBack,
    /// The wall clock leaps ahead by days.
    Leap,
    /// The policy is edited.
    Edit,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = |other: &bool| if *other { " with another payload" } else { "" };
        match self {
            Self::Claim { caller, key, other: payload, lost } => {
                let lost = if *lost { "; the answer gets lost" } else { "" };
                write!(f, "caller {caller} claims key {key}{}{lost}", other(payload))
            }
            Self::Say(caller, word) => write!(f, "caller {caller} says {word:?}"),
            Self::End(caller) => write!(f, "caller {caller}'s run ends without a word"),
            Self::Forget(caller) => write!(f, "caller {caller} loses its token"),
            Self::Event { key, other: payload } => write!(f, "an event of key {key} comes{}", other(payload)),
            Self::Correct(key) => write!(f, "a person offers another payload for key {key}"),
            Self::Take(key) => write!(f, "the runner takes key {key}"),
            Self::Send(key) => write!(f, "the runner sends its step of key {key}"),
            Self::Answer(key, outcome) => write!(f, "the step of key {key} is answered: {outcome:?}"),
            Self::RunnerSays(key, word) => write!(f, "the runner says {word:?} about key {key}"),
            Self::HandOver(key, caller) => write!(f, "the runner hands key {key} over to caller {caller}"),
            Self::Restart { downtime: true } => write!(f, "the gate dies, and starts again after a while"),
            Self::Restart { downtime: false } => write!(f, "the gate dies, and starts again at once"),
            Self::Act(key, deed) => write!(f, "a person does {deed:?} to key {key}"),
            Self::Pause(true) => write!(f, "the automation is paused"),
            Self::Pause(false) => write!(f, "the automation is resumed"),
            Self::Tick => write!(f, "5 minutes pass"),
            Self::LongWait => write!(f, "2 days pass"),
            Self::Reap(key) => write!(f, "what is past its retention is forgotten (key {key})"),
            Self::SetBack => write!(f, "the wall clock is set back by 10 minutes"),
            Self::Leap => write!(f, "the wall clock leaps ahead by 2 days"),
            Self::Edit => write!(f, "the policy is edited"),
        }
    }
}

impl Move {
    /// Counts towards [`Bounds::faults`](crate::world::Bounds).
    fn is_fault(self, world: &World) -> bool {
        match self {
            // A run that ends with nothing in its hands, or after its last word, is none.
            Self::End(caller) => match world.callers[caller] {
                Caller::Lost { .. } => true,
                Caller::Holds { key, held, .. } => {
                    let at_work =
                        |c: &Claim| matches!(c.state, State::Processing(_)) && c.fence() == held.fence;
                    world.claim(key).is_some_and(at_work)
                }
                Caller::Idle => false,
            },
            Self::Claim { lost, .. } => lost,
            // What is known already is no disturbance.
            Self::Event { key, .. } => world.claim(key).is_none_or(|claim| !claim.flow),
            Self::Say(_, word) | Self::RunnerSays(_, word) => word != Word::Done,
            Self::Forget(_)
            | Self::Restart { .. }
            | Self::Pause(true)
            | Self::Act(..)
            | Self::SetBack
            | Self::Leap => true,
            _ => false,
        }
    }
}

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
    let payloads: &[bool] = if scope.has(Kind::OtherPayload) { &[false, true] } else { &[false] };
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
    found
}

fn call(word: Word, world: &World) -> Call {
    let error = |failure| Call::Error { failure, note: String::new() };
    match word {
        Word::Done => Call::Done,
        Word::Retryable => error(Failed::Retryable { retry_after: None }),
        Word::Final => error(Failed::Final),
        Word::Unknown => error(Failed::Unknown),
        Word::Heartbeat => Call::Heartbeat,
        Word::Defer => Call::Defer { until: world.now.wall.after(UNIT), note: String::new() },
        Word::HandBack => Call::HandBack,
        Word::HandOver => Call::HandOver,
    }
}

impl Search<'_> {
    /// Makes a move.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn make(&mut self, world: &mut World, made: Move) -> Result<(), Broken> {
        let (found, fault) = (world.left, made.is_fault(world));
        match made {
            Move::Claim { caller, key, other, lost } => self.ask(world, caller, key, other, lost)?,
            Move::Say(caller, word) => {
                if let Caller::Holds { key, held, .. } = world.callers[caller] {
                    self.finish(world, key, held, call(word, world))?;
                }
            }
            Move::End(caller) => world.callers[caller] = Caller::Idle,
            Move::Forget(caller) => {
                if let Caller::Holds { key, run, .. } = world.callers[caller] {
                    world.callers[caller] = Caller::Lost { key, run };
                }
            }
            Move::Event { key, other } => {
                self.claim(world, key, Who::Event, other)?;
            }
            Move::Correct(key) => {
                world.left.acts -= 1;
                self.claim(world, key, Who::Correction, true)?;
            }
            Move::Take(key) => {
                let held = self.claim(world, key, Who::Runner, false)?;
                world.running[key] = held.map(|held| Running { held, sending: false });
            }
            Move::Send(key) => self.with_running(world, key, |search, world, running| {
                let sending = search.step_begins(world, key, running.held);
                Ok(sending.then_some(Running { sending, ..running }))
            })?,
            Move::Answer(key, outcome) => self.with_running(world, key, |search, world, running| {
                let holds = search.step_ended(world, key, running.held, outcome)?;
                Ok(holds.then_some(Running { sending: false, ..running }))
            })?,
            Move::RunnerSays(key, word) => self.with_running(world, key, |search, world, running| {
                let holds = search.finish(world, key, running.held, call(word, world))?;
                Ok((holds && word == Word::Heartbeat).then_some(running))
            })?,
            Move::HandOver(key, caller) => self.with_running(world, key, |search, world, running| {
                if search.finish(world, key, running.held, call(Word::HandOver, world))? {
                    world.callers[caller] = Caller::Holds { key, run: new_run(world), held: running.held };
                }
                Ok(None)
            })?,
            Move::Restart { downtime } => {
                world.boot = Boot(world.boot.0 + 1);
                world.running = [None; KEYS];
                if downtime {
                    world.now.wall = world.now.wall.after(SKEW);
                }
            }
            Move::Act(key, deed) => {
                let before = world.claim(key).cloned();
                self.act(world, key, &act(deed, before.as_ref()))?;
                if world.claim(key) != before.as_ref() {
                    world.left.acts -= 1;
                }
            }
            Move::Pause(paused) => world.paused = paused,
            Move::Tick => pass(world, UNIT),
            Move::LongWait => {
                world.left.long_waits -= 1;
                pass(world, LONG);
                world.doubtful = false;
                for ghost in &mut world.ghosts {
                    ghost.forgettable |= ghost.happened;
                }
            }
            Move::Reap(key) => reap(world, key),
            Move::SetBack => {
                world.left.skews -= 1;
                set_back(world);
            }
            Move::Leap => {
                world.left.skews -= 1;
                world.now.wall = world.now.wall.after(LONG);
                world.doubtful = true;
            }
            Move::Edit => {
                world.left.edits -= 1;
                world.edited = true;
            }
        }
        // A refused act changes nothing, and counts as nothing.
        let refused = matches!(made, Move::Act(..)) && world.left == found;
        if fault && !refused && found.faults != u8::MAX {
            world.left.faults -= 1;
        }
        judge::state(world)
    }

    fn ask(
        &mut self,
        world: &mut World,
        caller: usize,
        key: usize,
        other: bool,
        lost: bool,
    ) -> Result<(), Broken> {
        let run = match world.callers[caller] {
            Caller::Lost { run, .. } => run,
            Caller::Idle | Caller::Holds { .. } => new_run(world),
        };
        let held = self.claim(world, key, Who::Caller(run), other)?;
        world.callers[caller] = match held {
            _ if lost => Caller::Lost { key, run },
            Some(held) => Caller::Holds { key, run, held },
            None => Caller::Idle,
        };
        Ok(())
    }

    fn with_running(
        &mut self,
        world: &mut World,
        key: usize,
        does: impl FnOnce(&mut Self, &mut World, Running) -> Result<Option<Running>, Broken>,
    ) -> Result<(), Broken> {
        if let Some(running) = world.running[key] {
            world.running[key] = does(self, world, running)?;
        }
        Ok(())
    }
}

fn new_run(world: &mut World) -> u32 {
    world.runs += 1;
    world.runs
}

fn act(deed: Deed, claim: Option<&Claim>) -> Act {
    match deed {
        Deed::Reset { now, named, verified } => Act::Reset {
            run_now: now,
            confirm_holder: claim.filter(|_| named).and_then(Claim::holder_name),
            verified,
        },
        Deed::MarkError => Act::MarkError { note: String::new() },
        Deed::MarkDone => Act::MarkDone,
        Deed::Dismiss => Act::Dismiss,
    }
}

/// The gate lives through it.
fn pass(world: &mut World, time: Duration) {
    world.now.wall = world.now.wall.after(time);
    world.now.lease = world.now.lease.after(time);
}

/// With what the store's tick does about it, a moment later: due times written by the clock that was ahead move too.
fn set_back(world: &mut World) {
    world.now.wall = world.now.wall.before(SKEW);
    for row in world.rows.iter_mut().flatten().filter(|row| row.updated_at > world.now.wall) {
        match &mut row.claim.state {
            State::None { due: Some(due) } | State::Error { due: Some(due), .. } => *due = due.before(SKEW),
            State::Processing(lease) => {
                lease.deferred_until = lease.deferred_until.map(|until| until.before(SKEW));
            }
            State::None { due: None } | State::Error { due: None, .. } | State::Done { .. } => {}
        }
    }
}

/// A token in somebody's hands, for the shape of a world.
pub(crate) fn held_by(caller: &Caller) -> Option<(usize, Held)> {
    match caller {
        Caller::Holds { key, held, .. } => Some((*key, *held)),
        Caller::Idle | Caller::Lost { .. } => None,
    }
}

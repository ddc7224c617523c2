//! What a move does to the world.

use std::time::Duration;

use oncegate_core::claim::{Claim, State};
use oncegate_core::finish::{Call, Failed};
use oncegate_core::reset::Act;

use crate::apply::{Search, Who, reap};
use crate::ghost::Broken;
use crate::judge;
use crate::moves::{Deed, Move, Word};
use crate::world::{Caller, KEYS, Running, UNIT, World};

/// How far the wall clock is set back, or runs on while the gate is down.
const SKEW: Duration = UNIT.saturating_mul(2);
/// Longer than the retention of every scope.
const LONG: Duration = Duration::from_secs(2 * 86_400);

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
        Word::Review => Call::Review { note: String::new() },
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
                world.boot.start += 1;
                world.running = [None; KEYS];
                if downtime {
                    world.now.wall = world.now.wall.after(SKEW);
                }
            }
            Move::Turn => world.turn(),
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
        Deed::Approve => Act::Approve,
        Deed::Decline => Act::Decline,
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

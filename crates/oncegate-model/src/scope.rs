//! What is searched: a policy, what may happen, and the bounds of it.
//!
//! One scope with everything would be too wide to be exhausted, so each goes deep in one direction: `together` has
//! every actor and fault at once; the others start next to a limit, or leave out what cannot matter to it.

use std::time::Duration;

use oncegate_core::claim::{Claim, State};
use oncegate_core::policy::{Finish, LoopLimit, OnStale, Policy, RetryPolicy, Ttl};

use crate::apply::claim_id;
use crate::world::{Bounds, UNIT, World};

/// Under which run ids callers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunIds {
    /// Each run under its own.
    Own,
    /// Every run under the same, which was seen on a claim that ended long ago.
    Constant,
}

/// Kinds of moves that a scope may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An answer to a claim gets lost, or a run loses its token and begins its step again.
    Lose,
    /// A caller reports a failure.
    Fail,
    /// A heartbeat.
    Beat,
    /// An event comes by webhook; oncegate's own runner works.
    Event,
    /// The runner's step is sent and answered.
    Step,
    /// The target asks to wait.
    Defer,
    /// The runner hands back at shutdown.
    HandBack,
    /// A hook takes the work and will call back.
    HandOver,
    /// A step asks a person, who answers.
    Review,
    /// The process dies and starts again, with or without time lost.
    Restart,
    /// Two nodes share the store.
    Nodes,
    /// The automation is paused and resumed.
    Pause,
    /// Claims come with another payload.
    OtherPayload,
    /// Claims come without payload and record.
    Bare,
    /// People do other things than plain resets.
    EveryAct,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// The policy after it was edited.
    pub edited: Policy,
    /// Whether claims name the record.
    pub record: bool,
    /// How many keys are asked for.
    pub keys: usize,
    /// How many callers there are.
    pub callers: usize,
    /// Their run ids.
    pub run_ids: RunIds,
    /// What may happen besides claims, done calls and time passing.
    pub kinds: &'static [Kind],
    /// Where it starts.
    pub start: World,
}

impl Scope {
    /// Whether that may happen.
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The policy in force.
    pub fn policy(&self, world: &World) -> &Policy {
        if world.edited { &self.edited } else { &self.policy }
    }
}

const NONE: Bounds = Bounds { faults: u8::MAX, acts: 0, skews: 0, long_waits: 0, edits: 0 };

/// A TTL of two units, retries after one unit each: the shortest in which "not yet", "just now" and "long since" are
/// three moments.
fn policy(retries: usize) -> Policy {
    let mut policy = Policy::default();
    policy.retries = RetryPolicy::new(vec![UNIT; retries]).unwrap_or_default();
    policy.ttl = Ttl::new(UNIT * 2).unwrap_or_default();
    // Nothing here waits for so long that it becomes a person's.
    policy.sla = Duration::from_secs(10 * 365 * 86_400);
    policy.loop_limit = LoopLimit { runs: 100, within: UNIT };
    policy.with_retention(Policy::RETENTION_MIN).unwrap_or_default()
}

fn scope(name: &'static str, retries: usize, kinds: &'static [Kind], left: Bounds) -> Scope {
    Scope {
        name,
        policy: policy(retries),
        edited: policy(0),
        record: false,
        keys: 1,
        callers: 2,
        run_ids: RunIds::Own,
        kinds,
        start: World::new(left),
    }
}

/// All of them.
pub fn scopes() -> Vec<Scope> {
    use Kind::{
        Bare, Beat, Defer, Event, EveryAct, Fail, HandBack, HandOver, Lose, Nodes, OtherPayload, Pause,
        Restart, Review, Step,
    };
    let acts = |n| Bounds { acts: n, ..NONE };
    let mut at_streak = scope("a streak of silence", 1, &[Lose], acts(1));
    (at_streak.start.streak, at_streak.start.silent) = (4, 4);
    let mut constant = scope("a constant run id", 1, &[Lose, Beat], NONE);
    constant.run_ids = RunIds::Constant;
    constant.callers = 3;
    // The other key ended two hours ago, under the run id that everybody uses.
    let mut ended = Claim::new(claim_id(1), constant.start.now);
    let at = constant.start.now.wall.before(Duration::from_secs(7200));
    ended.attempt = 1;
    ended.state = State::Done { at, retain_until: at.after(constant.policy.retention()), at_claim: None };
    constant.start.put(1, ended);
    constant.start.rows[1].iter_mut().for_each(|row| row.run_id = Some(crate::apply::run_id(0)));
    constant.start.ghosts[1].happened = true;
    let mut at_claim = scope("finish at claim", 1, &[Lose, Pause, EveryAct], acts(2));
    at_claim.policy.finish = Finish::AtClaim;
    let mut hold = scope("hold when stale", 1, &[Event, Restart, Fail], acts(1));
    hold.policy.on_stale = OnStale::Hold;
    let mut loops = scope("a loop", 1, &[Event], Bounds { faults: 1, ..acts(1) });
    loops.policy.loop_limit = LoopLimit { runs: 1, within: UNIT };
    (loops.record, loops.keys, loops.callers) = (true, 2, 1);
    let every = &[Lose, Fail, Beat, Event, Restart, Pause];
    let mut together = scope("together", 1, every, Bounds { faults: 2, ..acts(1) });
    (together.record, together.keys, together.callers) = (true, 2, 3);
    together.policy.ttl = Ttl::new(UNIT).unwrap_or_default();
    let mut clocks = together.clone();
    (clocks.name, clocks.callers) = ("clocks that are set", 2);
    clocks.start.left = Bounds { faults: 1, acts: 1, skews: 1, ..NONE };
    vec![
        together,
        clocks,
        scope("all retries", 3, &[Lose, Fail, Beat, EveryAct], acts(1)),
        scope("all resumes", 1, &[Event, Step, Defer, HandBack, HandOver, Restart, Pause, EveryAct], acts(1)),
        Scope {
            record: true,
            keys: 2,
            callers: 0,
            ..scope("two flows on a record", 1, &[Event, Restart, Defer, Pause], NONE)
        },
        Scope { callers: 1, ..scope("a question", 1, &[Event, Restart, Review, EveryAct], acts(3)) },
        scope(
            "memory",
            0,
            &[Lose, Fail, Event, EveryAct],
            Bounds { faults: 2, acts: 1, skews: 1, long_waits: 1, ..NONE },
        ),
        scope(
            "two payloads",
            1,
            &[OtherPayload, Fail, Event, Step, EveryAct],
            Bounds { faults: 1, ..acts(2) },
        ),
        Scope { record: true, keys: 2, ..scope("a record named later", 1, &[Bare, Event], NONE) },
        Scope {
            callers: 1,
            ..scope(
                "two nodes",
                1,
                &[Event, Step, Beat, Fail, Defer, HandBack, Restart, Nodes, Lose],
                Bounds { faults: 3, ..acts(1) },
            )
        },
        Scope {
            record: true,
            keys: 2,
            callers: 0,
            ..scope("two nodes on a record", 1, &[Event, Restart, Nodes], Bounds { faults: 4, ..NONE })
        },
        scope("an edited policy", 2, &[Fail], Bounds { edits: 1, ..NONE }),
        at_streak,
        constant,
        at_claim,
        hold,
        loops,
    ]
}

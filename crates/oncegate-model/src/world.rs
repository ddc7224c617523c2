//! One state of the modelled world: the rows of the store, its clocks, and whoever works on claims.

use std::time::Duration;

use oncegate_core::claim::{Boot, Claim, NodeNumber, State};
use oncegate_core::key::RunId;
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use oncegate_core::token::Fence;

use crate::ghost::Ghost;

/// Two keys of one automation; both touch the one record, where the scope declares it.
pub const KEYS: usize = 2;
/// Callers of the gate API.
pub const CALLERS: usize = 3;
/// Time goes in steps of this: all that is waited for in a scope is a multiple of it.
pub const UNIT: Duration = Duration::from_secs(300);

/// What a token says, and which grant it was given with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The numbers inside.
    pub fence: Fence,
    /// The grant, numbered per key; no two grants have one number.
    pub grant: u32,
}

/// A caller of the gate API: one run after the other, each with a run id of its own unless the scope says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Between two runs.
    Idle,
    /// Asked for a claim and got no answer; may ask again as the same run.
    Lost {
        /// For which key.
        key: usize,
        /// Which run, numbered over all callers.
        run: u32,
    },
    /// Holds a token, which it may show however old it is by now.
    Holds {
        /// Of which key.
        key: usize,
        /// Which run.
        run: u32,
        /// The token.
        held: Held,
    },
}

/// What oncegate's own runner holds of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The token.
    pub held: Held,
    /// A call of its step is on the wire.
    pub sending: bool,
}

/// The node whose turn it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its present start.
    pub boot: Boot,
    /// What its runner holds.
    pub running: [Option<Running>; KEYS],
}

/// A claim's row with what stands beside it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the core decides on.
    pub claim: Claim,
    /// Of the last attempt, also after its end.
    pub run_id: Option<RunId>,
    /// When the row last changed.
    pub updated_at: Timestamp,
    /// Its flow has one step. A call was written down and has no outcome.
    pub in_flight: bool,
    /// The outcome of some call is unknown.
    pub unknown: bool,
    /// Some call succeeded.
    pub succeeded: bool,
}

/// The whole state.
#[derive(Clone, Debug)]
pub struct World {
    /// Both clocks.
    pub now: Now,
    /// The present start of the node whose turn it is: all that happens, happens there.
    pub boot: Boot,
    /// The other node on the same store, if the scope has two. It is alive, and what it holds it goes on with.
    pub other: Other,
    /// The claims.
    pub rows: [Option<Row>; KEYS],
    /// Which of the rows was made first: the lower number.
    pub positions: [u32; KEYS],
    /// When a claim that was forgotten was done.
    pub pruned: [Option<Timestamp>; KEYS],
    /// First runs of the record.
    pub first_runs: Vec<Timestamp>,
    /// Whether the automation is paused.
    pub paused: bool,
    /// Stale claims since the last done.
    pub streak: u32,
    /// The wall clock leapt ahead and has not proved right since.
    pub doubtful: bool,
    /// The policy was edited to the scope's other one.
    pub edited: bool,
    /// Who calls.
    pub callers: [Caller; CALLERS],
    /// What the runner of `boot` holds.
    pub running: [Option<Running>; KEYS],
    /// Runs begun so far.
    pub runs: u32,
    /// What is left of the scope's bounds.
    pub left: Bounds,
    /// What really happened to each key, kept apart from the rows that are judged by it.
    pub ghosts: [Ghost; KEYS],
    /// Callers that went silent since the last done, as they were really seen.
    pub silent: u32,
    /// First runs that really began.
    pub began: Vec<Timestamp>,
}

/// How often what would go on for ever may happen on one path. Everything else is bounded by the protocol itself:
/// retries, stale retries and resumes run out, and time only counts by what still waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lost answers, failures, heartbeats, crashes, restarts, pauses, acts and skews together; [`u8::MAX`] for any
    /// number.
    pub faults: u8,
    /// What people do to claims, corrections included.
    pub acts: u8,
    /// Wall clock set back, or leaping ahead.
    pub skews: u8,
    /// Waiting until retention has ended.
    pub long_waits: u8,
    /// Edits of the policy.
    pub edits: u8,
}

impl World {
    /// Nothing has happened yet.
    pub fn new(left: Bounds) -> Self {
        Self {
            now: Now { wall: Timestamp::from_secs(1_767_607_200), lease: LeaseInstant(5_000_000) },
            boot: Boot::alone(1),
            other: Other { boot: Boot { node: NodeNumber(1), start: 1 }, running: [None; KEYS] },
            rows: [None, None],
            positions: [0; KEYS],
            pruned: [None; KEYS],
            first_runs: Vec::new(),
            paused: false,
            streak: 0,
            doubtful: false,
            edited: false,
            callers: [Caller::Idle; CALLERS],
            running: [None; KEYS],
            runs: 0,
            left,
            ghosts: [Ghost::default(); KEYS],
            silent: 0,
            began: Vec::new(),
        }
    }

    /// The claim of a key.
    pub fn claim(&self, key: usize) -> Option<&Claim> {
        self.rows[key].as_ref().map(|row| &row.claim)
    }

    /// The other claim that holds the record, as the store would find it.
    pub fn record_holder(&self, key: usize) -> Option<usize> {
        (0..KEYS).filter(|k| *k != key).find(|k| self.claim(*k).is_some_and(holds_record))
    }

    /// Whether an earlier claim of the record has yet to run, as the store would find it.
    pub fn earlier_waits(&self, key: usize) -> bool {
        let earlier = |k: &usize| *k != key && self.positions[*k] < self.positions[key];
        (0..KEYS).filter(earlier).filter_map(|k| self.claim(k)).any(|c| self.goes_by_itself(c))
    }

    /// Whether an event's claim will run, run again or end without anybody's doing.
    pub fn goes_by_itself(&self, claim: &Claim) -> bool {
        let named = claim.flow && claim.record.is_some();
        named
            && match &claim.state {
                State::None { due } | State::Error { due, .. } => due.is_some() && !self.paused,
                State::Processing(lease) => lease.holds_record,
                State::Done { .. } => false,
            }
    }

    /// Every token in somebody's hands, with its key.
    pub fn tokens(&self) -> impl Iterator<Item = (usize, Held)> {
        let callers = self.callers.iter().filter_map(|caller| match caller {
            Caller::Holds { key, held, .. } => Some((*key, *held)),
            Caller::Idle | Caller::Lost { .. } => None,
        });
        let runners = [&self.running, &self.other.running].into_iter();
        let runners = runners.flat_map(|r| (0..KEYS).filter_map(|key| r[key].map(|r| (key, r.held))));
        callers.chain(runners)
    }

    /// The other node's turn.
    pub fn turn(&mut self) {
        std::mem::swap(&mut self.boot, &mut self.other.boot);
        std::mem::swap(&mut self.running, &mut self.other.running);
    }

    /// Writes a claim's row.
    pub fn put(&mut self, key: usize, claim: Claim) {
        let wall = self.now.wall;
        let run_id = match &claim.state {
            State::Processing(lease) => Some(match &lease.holder {
                oncegate_core::claim::Holder::Caller { run_id } => run_id.clone(),
                oncegate_core::claim::Holder::Runner { .. } => None,
            }),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        };
        match &mut self.rows[key] {
            Some(row) => {
                row.claim = claim;
                row.updated_at = wall;
                if let Some(run_id) = run_id {
                    row.run_id = run_id;
                }
            }
            none => {
                self.positions[key] = self.positions.iter().max().map_or(1, |last| last + 1);
                let run_id = run_id.flatten();
                let (in_flight, unknown, succeeded) = (false, false, false);
                *none = Some(Row { claim, run_id, updated_at: wall, in_flight, unknown, succeeded });
            }
        }
    }

    /// Whether the runner looks at a claim: the rows that the store's `due` lists.
    pub fn is_due(&self, key: usize) -> bool {
        let Some(claim) = self.claim(key).filter(|c| c.flow && !self.paused) else { return false };
        match &claim.state {
            State::None { due } | State::Error { due, .. } => due.is_some_and(|due| due <= self.now.wall),
            State::Processing(lease) => match (lease.deferred_until, &lease.holder) {
                (Some(due), _) => due <= self.now.wall,
                (None, oncegate_core::claim::Holder::Runner { boot }) if boot.is_over(self.boot) => true,
                (None, _) => lease.expires() <= self.now.lease,
            },
            State::Done { .. } => false,
        }
    }
}

/// Whether a claim is the one that its record belongs to now.
pub fn holds_record(claim: &Claim) -> bool {
    matches!(&claim.state, State::Processing(lease) if lease.holds_record && claim.record.is_some())
}

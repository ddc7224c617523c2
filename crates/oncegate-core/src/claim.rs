//! The claim: the row for (workspace, automation, idempotency_key), and what can be read from it alone.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::identity::IdentityPrint;
use crate::key::{ClaimId, RecordName, RunId};
use crate::limits;
pub use crate::parked::Parked;
use crate::policy::Ttl;
use crate::time::{LeaseInstant, Now, Timestamp};
use crate::token::Fence;

/// The four words of `processing_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessingState {
    /// Nothing runs, nothing is known to have happened.
    None,
    /// Somebody holds an attempt.
    Processing,
    /// The effect happened.
    Done,
    /// The last attempt failed, or a person must look.
    Error,
}

impl ProcessingState {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for ProcessingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of a node: of one name, for as long as the store lives. A store that one process owns has node 0 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct NodeNumber(pub u32);

/// A start of the gate: which node's, and its how many-th. There is no order among boots, because starts of two nodes
/// do not follow each other; [`Boot::is_over`] is the one question about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Boot {
    /// Whose start.
    pub node: NodeNumber,
    /// Later starts of one node have higher numbers.
    pub start: u32,
}

impl Boot {
    /// A start of the only node.
    pub const fn alone(start: u32) -> Self {
        Self { node: NodeNumber(0), start }
    }

    /// Whether what this boot began is certainly dead, seen from a process started as `mine`: it is an earlier start
    /// of the same node. What another node began may be alive, so its TTL decides (DESIGN §3, "Restart").
    pub fn is_over(self, mine: Self) -> bool {
        mine.over().contains(&self.to_i64())
    }

    /// The boots that are over, as [`Boot::to_i64`] numbers them: one range, so that a database can look for them.
    pub fn over(self) -> Range<i64> {
        Self { start: 0, ..self }.to_i64()..self.to_i64()
    }

    /// One number: the node in the high half, the start in the low one. What was written before there were nodes is a
    /// start of node 0.
    pub fn to_i64(self) -> i64 {
        (u64::from(self.node.0) << 32 | u64::from(self.start)).cast_signed()
    }

    /// Reads it back; every number is one of a boot.
    pub fn from_i64(number: i64) -> Self {
        let bits = number.cast_unsigned();
        // Each half is cut off on purpose.
        let (node, start) = ((bits >> 32) as u32, bits as u32);
        Self { node: NodeNumber(node), start }
    }
}

/// Who holds an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Somebody who called the gate API.
    Caller {
        /// The caller's name for this item of this run, if it gave one.
        run_id: Option<RunId>,
    },
    /// oncegate's own runner, in the process started as this boot.
    Runner {
        /// Which process: see [`Boot::is_over`].
        boot: Boot,
    },
}

impl Holder {
    /// The caller's name for its run, if it gave one.
    pub fn run_id(&self) -> Option<&RunId> {
        match self {
            Self::Caller { run_id } => run_id.as_ref(),
            Self::Runner { .. } => None,
        }
    }
}

/// A held attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it.
    pub holder: Holder,
    /// `processing_started_at`: when the attempt began.
    pub started_at: Timestamp,
    /// When the lease was last (re)started, on the clock leases age by. Lies ahead while deferred.
    pub renewed: LeaseInstant,
    /// How long it is believed.
    pub ttl: Ttl,
    /// How often the holder repeated its claim, at most [`limits::SAME_RUN_MAX`].
    pub same_runs: u32,
    /// Whether a heartbeat was seen: the holder has its answer, so a repeated claim is not a lost one.
    pub heard_from: bool,
    /// Waiting by itself until then (`Retry-After`); the runner goes on with it.
    pub deferred_until: Option<Timestamp>,
    /// Whether its record, if it has one, is still its own; false once another claim took it.
    pub holds_record: bool,
    /// The claim whose holder this one works for, while that attempt is held.
    pub parent: Option<Parent>,
}

/// What ties an attempt to that of another claim, whose holder started it: it ends no later, and is void with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parent {
    /// Which claim.
    pub id: ClaimId,
    /// When the parent's lease ends; a heartbeat of the parent carries it on.
    pub ends: LeaseInstant,
    /// Its record is held by the parent, or by one of the parent's own, and shared.
    pub shares_record: bool,
}

impl Lease {
    /// When it goes stale, on the lease clock.
    pub fn expires(&self) -> LeaseInstant {
        let own = self.renewed.after(self.ttl.get());
        self.parent.as_ref().map_or(own, |parent| own.min(parent.ends))
    }

    /// Whether it keeps others off its record: it is its own, and no parent's.
    pub fn keeps_record(&self) -> bool {
        self.holds_record && !self.parent.as_ref().is_some_and(|parent| parent.shares_record)
    }

    /// How the lease stands at `now`, seen from a process started as `boot`.
    pub fn liveness(&self, now: Now, boot: Boot) -> Liveness {
        // A deferred attempt holds nothing in memory: nobody is at work who could go silent, whatever restarts or
        // pauses come between. It waits until it is due, and then for the runner.
        if self.deferred_until.is_some() {
            return Liveness::Fresh { left: self.expires().since(now.lease) };
        }
        match &self.holder {
            Holder::Runner { boot: started } if started.is_over(boot) => Liveness::Orphaned,
            Holder::Runner { .. } | Holder::Caller { .. } => match now.lease < self.expires() {
                true => Liveness::Fresh { left: self.expires().since(now.lease) },
                false => Liveness::Stale,
            },
        }
    }

    /// How far `processing_started_at` lies ahead of the store's clock, if so far that it is a clock problem.
    pub fn clock_problem(&self, now: Now) -> Option<Duration> {
        let ahead = self.started_at.since(now.wall);
        (ahead > limits::CLOCK_SLACK).then_some(ahead)
    }
}

/// What a lease is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Believed for that much longer.
    Fresh {
        /// Live time until it goes stale.
        left: Duration,
    },
    /// The TTL passed.
    Stale,
    /// Held by a process that is certainly gone: an earlier start of the node that looks.
    Orphaned,
}

/// Why a claim is in `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCause {
    /// The attempt reported a failure.
    Failed,
    /// A request went out and no answer came; nobody can tell whether the effect happened.
    OutcomeUnknown,
    /// It went stale and may not run again by itself.
    Stale,
    /// The gate was asked to stop; the attempt was handed back and costs no retry.
    Shutdown,
    /// The target asked to wait for longer than the SLA.
    AskedToWait,
    /// A person marked it.
    Marked,
    /// A person marked it although its effect had happened, e.g. one of many duplicates: running it again needs the
    /// same care as with `done`.
    MarkedAfterDone,
    /// It was open in the backup that the store was restored from: what has become of it since is not known.
    Restored,
}

impl ErrorCause {
    /// The word stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Stale => "stale",
            Self::Shutdown => "shutdown",
            Self::AskedToWait => "asked_to_wait",
            Self::Marked => "marked",
            Self::MarkedAfterDone => "marked_after_done",
            Self::Restored => "restored",
        }
    }
}

/// The state with what belongs to it. A `processing` without a holder or an `error` without a note does not compile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing runs.
    None {
        /// When the runner takes it; `None` if nobody here will.
        due: Option<Timestamp>,
    },
    /// An attempt is held.
    Processing(Lease),
    /// The effect happened.
    Done {
        /// When that became known.
        at: Timestamp,
        /// Until when it is remembered.
        retain_until: Timestamp,
        /// Done by its claim alone (`finish: at_claim`), and whoever claimed may not have heard of it yet.
        at_claim: Option<AtClaim>,
    },
    /// The last attempt failed or a person must look.
    Error {
        /// Since when.
        at: Timestamp,
        /// When it may run again by itself; `None` means a person decides.
        due: Option<Timestamp>,
        /// Why.
        cause: ErrorCause,
        /// In words.
        note: String,
    },
}

/// An attempt that was done at its claim, for as long as its answer may have got lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AtClaim {
    /// Who claimed.
    pub run_id: RunId,
    /// When, on the clock leases age by.
    pub claimed: LeaseInstant,
    /// For how long the same run may ask again.
    pub ttl: Ttl,
    /// How often it did, at most [`limits::SAME_RUN_MAX`].
    pub same_runs: u32,
}

/// When the hook of the caller's tool is called, so that it claims again (DESIGN §3, `retrigger`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nudge {
    /// Not before then.
    pub due: Timestamp,
    /// Calls since the tool was last heard of.
    pub unanswered: u32,
}

/// What the steps of this claim have left in the world so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Progress {
    /// Some step succeeded.
    pub succeeded: bool,
    /// Some step was sent and its outcome is unknown.
    pub unknown: bool,
}

impl Progress {
    /// Nothing has happened outside, as far as can be known.
    pub fn is_clean(self) -> bool {
        !self.succeeded && !self.unknown
    }
}

/// The row the core decides on. Payload, result, `run_url` and history stay with the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// The state.
    pub state: State,
    /// The last attempt given, 0 before the first; never falls.
    pub attempt: u32,
    /// See [`Fence::generation`].
    pub generation: u32,
    /// The payload's fingerprint, if any came with one.
    pub fingerprint: Option<Fingerprint>,
    /// The record it touches.
    pub record: Option<RecordName>,
    /// What it agreed in with others of its automation when it was first seen ([`crate::identity::Likeness`]).
    pub likeness: Option<[u8; 16]>,
    /// The claim that it repeats, also after a person released it. Such a one has no repeats of its own.
    pub repeat_of: Option<ClaimId>,
    /// What its record said about itself.
    pub identity: Option<IdentityPrint>,
    /// Retries spent since the last reset.
    pub retries_used: u32,
    /// Stale retries spent since the last reset, at most 1.
    pub stale_retries_used: u32,
    /// Resumes after a restart since the last finished step.
    pub resumes_used: u32,
    /// How often a person reset it: what a step did before a reset does not bind the runner after it.
    pub resets: u32,
    /// The number of resets from which steps count as sent: those before it belong to an effect that is to happen
    /// anew.
    pub steps_since: u32,
    /// The number of resets at which a person had receivers see new keys: the key of a step is made from it.
    pub key_generation: u32,
    /// What its steps left behind.
    pub progress: Progress,
    /// oncegate's own runner does the work, from a stored payload.
    pub flow: bool,
    /// Since when it is open (admitted, or reset); the SLA counts from here.
    pub open_since: Timestamp,
    /// Why it stands in the parked list.
    pub parked: Option<Parked>,
    /// The tool whose caller was stopped is called back; never beside `parked`, never once it is done.
    pub nudge: Option<Nudge>,
    /// When another payload came under its key.
    pub mismatch_at: Option<Timestamp>,
    /// When somebody called with a token that no longer held.
    pub late_at: Option<Timestamp>,
    /// A person decided that the effect shall not happen; or, marked after done, that the mark was looked at.
    pub dismissed: bool,
}

impl Claim {
    /// A claim nobody has run, as its first request leaves it.
    pub fn new(id: ClaimId, now: Now) -> Self {
        Self {
            id,
            state: State::None { due: None },
            attempt: 0,
            generation: 0,
            fingerprint: None,
            record: None,
            likeness: None,
            repeat_of: None,
            identity: None,
            retries_used: 0,
            stale_retries_used: 0,
            resumes_used: 0,
            resets: 0,
            steps_since: 0,
            key_generation: 0,
            progress: Progress::default(),
            flow: false,
            open_since: now.wall,
            parked: None,
            nudge: None,
            mismatch_at: None,
            late_at: None,
            dismissed: false,
        }
    }

    /// The word for its state.
    pub fn processing_state(&self) -> ProcessingState {
        match self.state {
            State::None { .. } => ProcessingState::None,
            State::Processing(_) => ProcessingState::Processing,
            State::Done { .. } => ProcessingState::Done,
            State::Error { .. } => ProcessingState::Error,
        }
    }

    /// Whether it goes on by itself: somebody is at it, or it is due, now or later.
    pub fn is_under_way(&self) -> bool {
        match &self.state {
            State::Processing(_) => true,
            State::None { due } | State::Error { due, .. } => due.is_some(),
            State::Done { .. } => false,
        }
    }

    /// The numbers a token must carry to hold.
    pub fn fence(&self) -> Fence {
        Fence { attempt: self.attempt, generation: self.generation }
    }

    /// `processing_started_at`, while an attempt is held.
    pub fn started_at(&self) -> Option<Timestamp> {
        match &self.state {
            State::Processing(lease) => Some(lease.started_at),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        }
    }

    /// Whether its attempt waits by itself, and holds nothing but the claim meanwhile.
    pub fn is_deferred(&self) -> bool {
        matches!(&self.state, State::Processing(Lease { deferred_until: Some(_), .. }))
    }

    /// Whether its attempt waits for a person's answer; nobody is at work meanwhile.
    pub fn is_in_review(&self) -> bool {
        self.parked == Some(Parked::Review) && self.is_deferred()
    }

    /// How a person names the live holder when confirming that they mean to reset it.
    pub fn holder_name(&self) -> Option<String> {
        match &self.state {
            State::Processing(Lease { holder: Holder::Caller { run_id: Some(run) }, .. }) => {
                Some(run.to_string())
            }
            State::Processing(Lease { holder: Holder::Caller { run_id: None }, .. }) => {
                Some(format!("attempt-{}", self.attempt))
            }
            State::Processing(Lease { holder: Holder::Runner { .. }, .. }) => {
                Some(format!("runner-attempt-{}", self.attempt))
            }
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        }
    }
}

//! What [`decide`](crate::decide::decide) is given and what it gives: facts, a request, a verdict. The words of its
//! reasons are those of JSON, history and lists.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::claim::{Boot, Claim, Holder, Lease, Parent};
use crate::fingerprint::Fingerprint;
use crate::identity::{IdentityPrint, Likeness};
use crate::key::{ClaimId, IdempotencyKey, RecordName, RunId};
use crate::policy::Ttl;
use crate::recovery::Restores;
use crate::time::Timestamp;

/// What the store found, loaded in the same transaction in which the changes are written.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The claim's id; its row may not exist yet.
    pub id: ClaimId,
    /// The claim's row.
    pub claim: Option<Claim>,
    /// When a claim of this key that has been pruned since was done.
    pub pruned_done_at: Option<Timestamp>,
    /// The claim that holds the requested record, other than this one.
    pub record_holder: Option<RecordHolder>,
    /// Whether another of oncegate's own claims, which arrived before this one and names the same record, has yet to
    /// run or to run again by itself: it is queued or backs off, or somebody holds it and its record.
    pub earlier_waits: bool,
    /// Whether running is held back for this automation, its source or this record.
    pub hold: Option<Hold>,
    /// First runs of this record in this automation within the window of the policy's loop limit.
    pub first_runs_of_record: u32,
    /// Another claim of the automation that is the same effect by the repeat rule, and was first seen no longer than
    /// the rule's window before this one.
    pub repeat_of: Option<Original>,
    /// What the flag home shows, if it has to be read.
    pub flag: FlagSeen,
    /// Stale claims of this automation since its last done.
    pub stale_streak: u32,
    /// Whether the request's `run_id` was seen on a claim that finished over an hour ago: it names no run.
    pub run_id_is_constant: bool,
    /// The wall clock moved forward further than time did: until it has proved right, nothing that is done is
    /// forgotten on its word.
    pub clock_is_doubtful: bool,
    /// The attempt of another claim that the request belongs to: its token holds, and its lease is fresh.
    pub parent: Option<Parent>,
    /// The present start of this gate.
    pub boot: Boot,
    /// The restores that this store went through.
    pub restores: Arc<Restores>,
}

/// The claim that another one repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// Which.
    pub id: ClaimId,
    /// Its key.
    pub key: IdempotencyKey,
}

impl Original {
    /// What a person and a caller are told about its repeat.
    pub fn note(&self) -> String {
        format!("repeat of {}; a person can release it by resetting it", self.key)
    }
}

/// Another claim that is `processing` on the same record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHolder {
    /// Which claim.
    pub id: ClaimId,
    /// Its lease.
    pub lease: Lease,
}

/// Why nothing of this automation or record may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The automation or the source is paused.
    Paused,
    /// The record is part of an open incident.
    Incident,
    /// The store was restored from a backup, and no person has ended the recovery yet.
    Recovery,
}

/// What was read from the flag home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlagSeen {
    /// The policy asks for no reading, or it shows nothing of somebody else's.
    Clear,
    /// Somebody else's fresh `processing`.
    BusyElsewhere,
    /// It must be read and cannot be.
    Unreadable,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asks, and whether to start now.
    pub start: Start,
    /// The payload's fingerprint, if there is a payload.
    pub fingerprint: Option<Fingerprint>,
    /// The record to be touched, if one is declared.
    pub record: Option<RecordName>,
    /// A TTL for this attempt instead of the policy's.
    pub ttl: Option<Ttl>,
    /// A person, or an import that a person started, offers another payload for a key on which nothing happened.
    pub correction: bool,
    /// What it agrees in with a claim that it may repeat, if the automation has a rule for that.
    pub likeness: Option<Likeness>,
    /// What it says about its record.
    pub identity: Option<IdentityPrint>,
    /// When what is asked for happened, by the word of the event itself, if it says.
    pub dated: Option<Timestamp>,
}

impl Request {
    /// Asks for a claim as it stands, with no word about what it is to work on.
    pub fn as_it_stands(start: Start) -> Self {
        Self {
            start,
            fingerprint: None,
            record: None,
            ttl: None,
            correction: false,
            likeness: None,
            identity: None,
            dated: None,
        }
    }
}

/// How to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The asker works itself, at once.
    Now(Holder),
    /// The event is stored; the runner starts it when it can (webhook intake).
    Queue,
}

/// Why it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunReason {
    /// Nobody has run it, or a person reset it.
    First,
    /// It was done so long ago that retention had ended.
    FirstAfterRetention,
    /// An error came due.
    Retry,
    /// The holder went silent; the one retry that is given for that.
    StaleRetry,
    /// Goes on after a restart, a hand-back or a wait the target asked for; costs no retry.
    Resumed,
    /// The holder repeated its own claim, whose answer got lost.
    SameRun,
}

/// Why it may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Same key, other payload or other record.
    PayloadMismatch,
    /// Done before; the stored result is handed out.
    Duplicate,
    /// A person decided that it shall not happen.
    Dismissed,
    /// Somebody is on it.
    InProgress,
    /// It failed and its next try is not due.
    BackingOff,
    /// Only a person can say how to go on.
    NeedsReview,
    /// The automation or source is paused.
    Paused,
    /// The record is part of an open incident.
    Incident,
    /// It repeats another effect by the automation's second-level rule.
    Repeat,
    /// Too many first runs of one record in a short time.
    LoopSuspected,
    /// The flag home shows somebody else at work.
    FlagBusy,
    /// The flag home must be read and cannot be: fail closed, answered as 503.
    FlagUnreadable,
    /// Another live claim holds the record.
    RecordBusy,
}

macro_rules! words {
    ($ty:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $ty {
            /// The word in JSON, history and lists.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}
words!(RunReason {
    First = "first", FirstAfterRetention = "first_after_retention", Retry = "retry",
    StaleRetry = "stale_retry", Resumed = "resumed", SameRun = "same_run",
});
words!(StopReason {
    PayloadMismatch = "payload_mismatch", Duplicate = "duplicate", Dismissed = "dismissed",
    InProgress = "in_progress", BackingOff = "backing_off", NeedsReview = "needs_review", Paused = "paused",
    Incident = "incident", Repeat = "repeat", LoopSuspected = "loop_suspected", FlagBusy = "flag_busy",
    FlagUnreadable = "flag_unreadable", RecordBusy = "record_busy",
});

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The asker holds the attempt now.
    Run(RunReason),
    /// Stored; the runner starts it for this reason when it can.
    Queued(RunReason),
    /// Not now, or not at all.
    Stop {
        /// Why.
        reason: StopReason,
        /// When asking again may make sense, if that can be told.
        retry_after: Option<Duration>,
        /// What a person should know.
        note: Option<String>,
    },
}

/// What the store must write, all in one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Changes {
    /// The claim's new row, if it changes.
    pub claim: Option<Claim>,
    /// A stale claim whose record was taken: its tokens are void ([`crate::decide::without_record`]).
    pub record_taken_from: Option<ClaimId>,
    /// A caller of this automation went silent; counts towards [`Facts::stale_streak`].
    pub went_stale: bool,
    /// This counts as a first run of the record.
    pub first_run: bool,
    /// A person's correction reset the claim on the way.
    pub corrected: bool,
}

/// A decision with its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the asker is told.
    pub decision: Decision,
    /// What is written.
    pub changes: Changes,
}

/// Names the caller of a request, for same-run checks in a store.
pub fn run_id_of(request: &Request) -> Option<&RunId> {
    match &request.start {
        Start::Now(holder) => holder.run_id(),
        Start::Queue => None,
    }
}

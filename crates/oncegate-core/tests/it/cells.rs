//! The words that the cells of the table of `decide` are made of.

use oncegate_core::claim::Parked;

use crate::finish_table::{Held, Row};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    None,
    Same,
    Differs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    None,
    Free,
    /// Only the row names it.
    OfRow,
    /// The row names none; the request names one that another claim is working on.
    NewAndHeld,
    /// The row names one, the request another.
    Changed,
    /// Row and request agree, and an earlier event has yet to run, or its holder is stale; perhaps for longer than
    /// this one's SLA.
    Behind {
        stale: bool,
        past_sla: bool,
    },
    /// Row and request agree; another claim holds it.
    HeldBy(Held),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Caller,
    CallerRun1 { looks_constant: bool },
    CallerRun2,
    Runner,
    Queue,
}

pub(crate) const YES_NO: [bool; 2] = [false, true];
pub(crate) const PAYLOADS: [Payload; 3] = [Payload::None, Payload::Same, Payload::Differs];
pub(crate) const ASKS: [Asks; 6] = [
    Asks::Caller,
    Asks::CallerRun1 { looks_constant: false },
    Asks::CallerRun1 { looks_constant: true },
    Asks::CallerRun2,
    Asks::Runner,
    Asks::Queue,
];

impl Row {
    /// `none` or `error`.
    pub(crate) fn is_open(self) -> bool {
        use Row::*;
        let held = matches!(self, Caller { .. } | Runner(_) | Deferred { .. } | Review);
        let done = matches!(self, Done | DoneAtClaim { .. });
        !held && !done && !self.is_forgotten()
    }

    /// Nothing is remembered but perhaps a hash. Retention ends on time, not when the reaper comes by.
    pub(crate) fn is_forgotten(self) -> bool {
        matches!(self, Row::Absent | Row::Pruned | Row::DonePastRetention)
    }

    /// oncegate runs it, and it has yet to begin or to begin again.
    pub(crate) fn is_in_line(self) -> bool {
        match self {
            Row::Queued | Row::ResetFlow => true,
            Row::Waiting(why) => why != Parked::NeedsReplay,
            Row::Failed { flow, .. } | Row::HandedBack { flow } => flow,
            _ => false,
        }
    }

    pub(crate) fn holds_its_record(self) -> bool {
        match self {
            Row::Caller { held, .. } | Row::Runner(held) => held != Held::Taken,
            Row::Deferred { .. } | Row::Review => true,
            _ => false,
        }
    }
}

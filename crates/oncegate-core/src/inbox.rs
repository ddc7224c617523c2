//! What needs a person: each claim in exactly one list, or in none (DESIGN §2, inbox).

use serde::{Deserialize, Serialize};

use crate::claim::{Boot, Claim, Liveness, State};
use crate::time::Now;

/// The lists of the ops inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxList {
    /// `processing` past its TTL, or started in the future.
    Stuck,
    /// `error`, with its due time if it retries by itself.
    Error,
    /// One key came with two payloads.
    Mismatch,
    /// Held back: needs a replay, a loop, an incident.
    Parked,
    /// An event without identity or with a bad signature; never a claim.
    Rejected,
    /// Finished by somebody who no longer held it: check for a double effect.
    Late,
}

impl InboxList {
    /// Every list, in the order in which the page shows them.
    pub const ALL: [Self; 6] =
        [Self::Stuck, Self::Error, Self::Mismatch, Self::Parked, Self::Rejected, Self::Late];

    /// The word in URLs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Error => "error",
            Self::Mismatch => "mismatch",
            Self::Parked => "parked",
            Self::Rejected => "rejected",
            Self::Late => "late",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.as_str() == text)
    }
}

/// The list a claim stands in. What stops the effect comes before what only asks for a look.
pub fn list_of(claim: &Claim, now: Now, boot: Boot) -> Option<InboxList> {
    match &claim.state {
        State::Processing(lease) => {
            // An orphan is resumed within moments; one that outlives its TTL, e.g. while paused, is stuck too.
            let stuck = match lease.liveness(now, boot) {
                Liveness::Fresh { .. } => false,
                Liveness::Stale => true,
                Liveness::Orphaned => now.lease >= lease.expires(),
            };
            if stuck || lease.clock_problem(now).is_some() {
                return Some(InboxList::Stuck);
            }
        }
        State::Error { .. } => return Some(InboxList::Error),
        State::None { .. } | State::Done { .. } => {}
    }
    if claim.mismatch_at.is_some() {
        return Some(InboxList::Mismatch);
    }
    if claim.parked.is_some() && !claim.dismissed {
        return Some(InboxList::Parked);
    }
    claim.late_at.map(|_| InboxList::Late)
}
